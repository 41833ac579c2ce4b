package web

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

const (
	// joinTime is how long it is looked for what belongs to the requests of an
	// answer; those that are not reached by then stay apart.
	joinTime = 1500 * time.Millisecond
	// A request's caller began before it, by less than this as a rule: it may be
	// farther back only where it is among the requests of the answer itself.
	joinBefore = 2 * time.Second
	// joinMost is how many records are held for it.
	joinMost = 20_000
	// flushLate is how long after its end a request is counted at most.
	flushLate = 2 * time.Second
	// aLong request leaves a record whatever the sampling (record.always), and so
	// may one that is in hand for longAgo when another one begins.
	aLong   = time.Second
	longAgo = 10 * time.Minute
)

// hopJSON is one step of a request's path.
type hopJSON struct {
	Depth  int             `json:"depth"`
	Called json.RawMessage `json:"called"` // as the caller saw it; null: not known
	Served json.RawMessage `json:"served"` // as who answered saw it; null: not known, or not on this host
	Chosen bool            `json:"chosen,omitempty"`
}

// line is what is listed of a request that was asked for, with all of its path.
type line struct {
	request *store.Request
	hops    []hopJSON // nil: nothing is known to belong to it
}

// joined is requests in their order, those of one path as one, under its top. Where
// certain endpoints or a side were asked for, each of their requests is one.
func (s *server) joined(ctx context.Context, q *query, list []store.Request, lost *losses) ([]line, error) {
	if len(list) == 0 {
		return nil, nil
	}
	all, err := s.around(ctx, list)
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(joinTime)
	links := newLinks(all, func(all []store.Request, served, call *store.Request) bool {
		return ctx.Err() == nil && time.Now().Before(end) && s.alone(all, served, call)
	})
	at := map[string]int{}
	for i := range links.all {
		at[requestID(&links.all[i])] = i
	}
	own := len(q.keys) > 0 || q.side != 0
	listed, apart := map[int]bool{}, int64(0)
	out := make([]line, 0, len(list))
	for i := range list {
		r := &list[i]
		n, ok := at[requestID(r)]
		if !ok {
			apart++
			out = append(out, line{request: r})
			continue
		}
		top, one := links.top(n), n
		if !own {
			r, one = &links.all[top], top
		} else if twin := links.twin[n]; twin >= 0 {
			one = min(n, twin)
		}
		if listed[one] {
			continue
		}
		listed[one] = true
		out = append(out, line{r, hopsJSON(links, top, n)})
	}
	if links.tooMany() {
		apart = int64(len(list))
	}
	lost.add("requests are shown without what belongs to them: ask for fewer, or a shorter time", apart)
	return out, nil
}

// hopsJSON is a path; nil when it is but one record.
func hopsJSON(l *links, top, chosen int) []hopJSON {
	hops, in := l.hops(top)
	if len(in) < 2 {
		return nil
	}
	out := make([]hopJSON, 0, len(hops))
	for _, h := range hops {
		j := hopJSON{Depth: h.depth, Chosen: h.called == &l.all[chosen] || h.served == &l.all[chosen]}
		if h.called != nil {
			j.Called = requestJSON(h.called)
		}
		if h.served != nil {
			j.Served = requestJSON(h.served)
		}
		out = append(out, j)
	}
	return out
}

var errEnough = errors.New("enough")

// around is what is stored of the time in which the requests ran, the requests
// included; only of some of them where it is too much.
func (s *server) around(ctx context.Context, list []store.Request) ([]store.Request, error) {
	var spans []timeRange
	for i := range list {
		at := time.Unix(0, list[i].StartNS)
		spans = append(spans, timeRange{at.Add(-joinBefore), at.Add(time.Duration(list[i].TotalNS()) + flushLate)})
	}
	slices.SortFunc(spans, func(a, b timeRange) int { return a.from.Compare(b.from) })
	var all []store.Request
	end := time.Now().Add(joinTime)
	read := func(q store.Query) error {
		var stop error
		err := s.source.Requests(q, func(r *store.Request) bool {
			if len(all) == joinMost || ctx.Err() != nil || len(all)%1024 == 0 && time.Now().After(end) {
				stop = errEnough
				return false
			}
			all = append(all, keep(r))
			return true
		})
		return errors.Join(err, stop)
	}
	// What had begun long before, and slow requests: a second record of one does no harm.
	err := read(store.Query{From: spans[0].from.Add(-longAgo), To: spans[len(spans)-1].to, Side: observe.Served, MinTotal: aLong})
	if errors.Is(err, errEnough) {
		all = nil
	}
	for i := 0; err == nil && i < len(spans); {
		span := spans[i]
		for i++; i < len(spans) && spans[i].from.Before(span.to.Add(joinBefore)); i++ {
			span.to = latest(span.to, spans[i].to)
		}
		whole := len(all)
		if err = read(store.Query{From: span.from, To: span.to}); errors.Is(err, errEnough) {
			all = all[:whole] // what fits one thing alone can be told of a whole time only
		}
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return all, err
}

// oneByOne says whether a process takes its next request when it has answered the one
// before, by its design: a child of PHP-FPM, a backend of PostgreSQL. Of others that
// work so the name does not tell it: gunicorn and Apache have workers of several kinds.
func oneByOne(comm string) bool {
	return strings.HasPrefix(comm, "php-fpm") || comm == "postgres"
}

// alone says that no request which is not stored can have been in hand during all
// of a call. Such a request would have taken as long as the call at least, would have
// ended after it, and, for what takes a second is stored in any case, within one.
// Seconds count every request, by how long it took: when they count no more than
// are stored, there was none. Of other processes of that name those count too, which
// errs on the safe side, and so do steps of ten seconds, where single ones are gone.
func (s *server) alone(all []store.Request, served, call *store.Request) bool {
	if oneByOne(served.Process.Comm) {
		return true
	}
	from := time.Unix(0, endNS(call)).Truncate(time.Second)
	to := from.Add(aLong + time.Second + flushLate)
	least := call.TotalNS() - call.TotalNS()/16 // the width of a bucket, and more
	var counted, known uint64
	whole := true
	err := s.source.Points(store.Query{From: from, To: to, Side: observe.Served, Comm: served.Process.Comm}, time.Second, func(sec *store.Second) bool {
		e := &sec.Endpoint
		// In progress, or counted without a time.
		whole = whole && e.Unfinished == 0 && e.Requests <= e.Total.Count()
		counted += e.Total.Above(least)
		return whole
	})
	if err != nil || !whole {
		return false
	}
	var stored observe.Histogram
	for i := range all {
		r := &all[i]
		if r.Side == observe.Served && r.Process.Comm == served.Process.Comm && endNS(r) >= from.UnixNano() && endNS(r) < to.Add(-flushLate).UnixNano() {
			stored.Add(r.TotalNS())
		}
	}
	known = stored.Above(least)
	return known > 0 && counted == known
}
