package web

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/schema"
	"github.com/slowray/slowray/internal/store"
)

// scanTime is how long stored requests are read for one answer; what was not
// read by then is reported.
const scanTime = 4 * time.Second

// matches says whether a stored request is one that was asked for.
func (q *query) matches(r *store.Request) bool {
	if q.slow > 0 && r.TotalNS() < int64(q.slow) {
		return false
	}
	return len(q.statuses) == 0 || slices.ContainsFunc(q.statuses, func(f statusFilter) bool { return f.matches(r) })
}

// keep is a copy of a request that is the store's until f returns.
func keep(r *store.Request) store.Request {
	c := *r
	c.Label = strings.Clone(r.Label)
	p := &c.Process
	p.Comm, p.Cgroup, p.Container, p.ContainerName, p.Unit = strings.Clone(p.Comm), strings.Clone(p.Cgroup), strings.Clone(p.Container), strings.Clone(p.ContainerName), strings.Clone(p.Unit)
	p.Workload, c.PeerWorkload = cloneWorkload(p.Workload), cloneWorkload(c.PeerWorkload)
	return c
}

// cloneWorkload is a copy that is nobody's memory.
func cloneWorkload(w observe.Workload) observe.Workload {
	for _, s := range []*string{&w.Namespace, &w.Pod, &w.Container, &w.Kind, &w.Name, &w.Node, &w.Zone} {
		*s = strings.Clone(*s)
	}
	return w
}

// top keeps the n requests that come first in some order; the last of them is
// its root.
type top struct {
	list  []store.Request
	n     int
	after func(a, b *store.Request) bool // a comes after b
}

func (t *top) Len() int           { return len(t.list) }
func (t *top) Less(i, j int) bool { return t.after(&t.list[i], &t.list[j]) }
func (t *top) Swap(i, j int)      { t.list[i], t.list[j] = t.list[j], t.list[i] }
func (t *top) Push(x any)         { t.list = append(t.list, x.(store.Request)) }
func (t *top) Pop() any {
	last := t.list[len(t.list)-1]
	t.list = t.list[:len(t.list)-1]
	return last
}

func (t *top) add(r *store.Request) {
	if len(t.list) < t.n {
		heap.Push(t, keep(r))
	} else if t.after(&t.list[0], r) {
		t.list[0] = keep(r)
		heap.Fix(t, 0)
	}
}

// sorted empties it, the first first.
func (t *top) sorted() []store.Request {
	slices.SortFunc(t.list, func(a, b store.Request) int {
		switch {
		case t.after(&a, &b):
			return 1
		case t.after(&b, &a):
			return -1
		}
		return 0
	})
	return t.list
}

func faster(a, b *store.Request) bool {
	if x, y := a.TotalNS(), b.TotalNS(); x != y {
		return x < y
	}
	return a.StartNS > b.StartNS
}

func earlier(a, b *store.Request) bool { return a.StartNS < b.StartNS }

// maxScan is how many requests are looked at one by one where something quicker
// does as well.
const maxScan = 200_000

// picked is what a search came to.
type picked struct {
	list     []store.Request
	matching *uint64 // stored requests; nil when not all were counted
	standFor *uint64 // requests that these stand for
}

// requests lists stored requests: the slowest first, or the latest.
func (s *server) requests(ctx context.Context, q *query) (answer, error) {
	lost := losses{}
	p, err := s.pick(ctx, q, &lost)
	if err != nil {
		return answer{}, err
	}
	if p.matching != nil && p.standFor != nil {
		lost.add("requests have no record of their own: others stand for them", int64(*p.standFor)-int64(*p.matching))
	}
	if q.csv {
		return answer{table: requestTable(p.list), file: "requests.csv"}, nil
	}
	lines := make([]line, 0, len(p.list))
	for i := range p.list {
		lines = append(lines, line{request: &p.list[i]})
	}
	switch {
	case q.paths && q.trace != "":
		if lines, err = s.traceLines(ctx, q); err != nil {
			return answer{}, err
		}
	case q.paths:
		if lines, err = s.joined(ctx, q, p.list, &lost); err != nil {
			return answer{}, err
		}
	}
	rows := make([]json.RawMessage, 0, len(lines))
	for _, l := range lines {
		row := requestJSON(l.request)
		if len(l.hops) > 0 {
			hops, err := json.Marshal(l.hops)
			if err != nil {
				return answer{}, err
			}
			row = append(append(append(row[:len(row)-1], `,"hops":`...), hops...), '}')
		}
		rows = append(rows, row)
	}
	return jsonAnswer(map[string]any{"total_matching": p.matching, "stand_for": p.standFor, "requests": rows, "losses": lost})
}

// pick finds the requests that were asked for: one by one, or, where there are many
// and only their time counts, by what the store knows better.
func (s *server) pick(ctx context.Context, q *query, lost *losses) (*picked, error) {
	if len(q.statuses) > 0 {
		return s.scan(ctx, q, lost)
	}
	var n uint64
	for _, ask := range q.slowQueries(q.timeRange) {
		h, err := s.source.Totals(ask)
		if err != nil {
			return nil, err
		}
		n += h.Count()
	}
	if n <= maxScan {
		return s.scan(ctx, q, lost)
	}
	find := s.slowest
	if q.byTime {
		find = s.latest
	}
	list, err := find(q)
	return &picked{list: list, standFor: &n}, err
}

// order is in which order the query wants requests.
func (q *query) order() func(a, b *store.Request) bool {
	if q.byTime {
		return earlier
	}
	return faster
}

// scan looks at the requests of the range one by one, for as long as there is time.
func (s *server) scan(ctx context.Context, q *query, lost *losses) (*picked, error) {
	t := &top{n: q.limit, after: q.order()}
	var matching, standFor uint64
	deadline, n, complete := time.Now().Add(scanTime), 0, true
	for _, ask := range q.slowQueries(q.timeRange) {
		err := s.source.Requests(ask, func(r *store.Request) bool {
			if n++; n%4096 == 0 && (ctx.Err() != nil || time.Now().After(deadline)) {
				complete = false
				return false
			}
			if q.matches(r) {
				matching++
				standFor += uint64(max(r.Weight, 1)) * uint64(max(r.Requests, 1))
				t.add(r)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		if !complete {
			lost.add("requests were looked through before time was up, not all of the range: ask for a shorter one", int64(n))
			return &picked{list: t.sorted()}, nil
		}
	}
	return &picked{t.sorted(), &matching, &standFor}, nil
}

// latest reads the range from its end, in pieces that double, until there are
// enough.
func (s *server) latest(q *query) ([]store.Request, error) {
	t := &top{n: q.limit, after: earlier}
	const halves = 12 // the first piece is a four thousandth
	to, length := q.to, max(q.to.Sub(q.from)>>halves, time.Second)
	for to.After(q.from) && len(t.list) < q.limit {
		from := latest(to.Add(-length), q.from)
		for _, ask := range q.slowQueries(timeRange{from, to}) {
			if err := s.source.Requests(ask, func(r *store.Request) bool { t.add(r); return true }); err != nil {
				return nil, err
			}
		}
		to, length = from, 2*length
	}
	return t.sorted(), nil
}

// slowest asks the store, which knows where slow requests are.
func (s *server) slowest(q *query) ([]store.Request, error) {
	t := &top{n: q.limit, after: faster}
	for _, ask := range q.slowQueries(q.timeRange) {
		list, err := s.source.Slowest(ask, q.limit)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if q.matches(&list[i]) {
				t.add(&list[i])
			}
		}
	}
	return t.sorted(), nil
}

// requestJSON is a request in the form of schema/request.schema.json, with its
// id, the key of its endpoint, and why it is stored.
func requestJSON(r *store.Request) json.RawMessage {
	b := make([]byte, 0, 1024)
	b = append(b, `{"id":"`...)
	b = append(b, requestID(r)...)
	b = append(b, `","key":"`...)
	b = append(b, keyOfRequest(r).String()...) // has nothing that JSON escapes
	b = append(b, `","why":"`...)
	b = append(b, r.Why.String()...)
	b = append(b, `","start_s":`...)
	b = strconv.AppendFloat(b, float64(r.StartNS/1e3)/1e6, 'f', 6, 64)
	if r.FirstByte > 0 {
		b = append(b, `,"first_byte_us":`...)
		b = strconv.AppendFloat(b, float64(r.FirstByte)/1e3, 'f', 3, 64)
	}
	line := report.AppendRequestJSON(nil, &r.Request, func(int, int64) (observe.Identity, bool) { return r.Process, true }, &r.PeerWorkload)
	b = append(b, ',')
	return append(b, line[1:len(line)-1]...)
}

// requestID finds a request again: when it began, the connection, and which
// request of that it was.
func requestID(r *store.Request) string {
	return strings.Join([]string{strconv.FormatInt(r.StartNS, 10), r.Side.String()[:1], strconv.FormatUint(r.NetNS, 10),
		r.Local.String(), r.Peer.String(), strconv.FormatUint(uint64(r.Seq), 10)}, "_")
}

// wanted is a request's id, read.
type wanted struct {
	start int64
	side  observe.Side
	netns uint64
	local netip.AddrPort
	peer  netip.AddrPort
	seq   uint32
}

func parseID(id string) (*wanted, error) {
	wrong := bad("id=%s: is not the id of a request", clip(id, 80))
	f := strings.Split(id, "_")
	if len(f) != 6 {
		return nil, wrong
	}
	w := &wanted{side: observe.Served}
	var errs [5]error
	w.start, errs[0] = strconv.ParseInt(f[0], 10, 64)
	w.netns, errs[1] = strconv.ParseUint(f[2], 10, 64)
	w.local, errs[2] = netip.ParseAddrPort(f[3])
	w.peer, errs[3] = netip.ParseAddrPort(f[4])
	seq, err := strconv.ParseUint(f[5], 10, 32)
	w.seq, errs[4] = uint32(seq), err
	switch f[1] {
	case "s":
	case "c":
		w.side = observe.Called
	default:
		return nil, wrong
	}
	for _, err := range errs {
		if err != nil {
			return nil, wrong
		}
	}
	if w.start < 0 {
		return nil, wrong
	}
	return w, nil
}

// find reads the request of an id; nil when it is not stored (any more).
func (s *server) find(w *wanted) (*store.Request, error) {
	at := time.Unix(0, w.start)
	ask := store.Query{From: at.Add(-time.Millisecond), To: at.Add(time.Millisecond), Side: w.side, NetNS: w.netns}
	var got *store.Request
	err := s.source.Requests(ask, func(r *store.Request) bool {
		if r.Local == w.local && r.Peer == w.peer && r.Seq == w.seq {
			c := keep(r)
			got = &c // a later one amends it
		}
		return true
	})
	return got, err
}

// cellFields are the columns of a request in the middle of its row.
var cellFields = schema.Fields("seq", "total_us", "status", "http_status", "bytes_in", "bytes_out", "retrans", "rtt_us", "min_rtt_us", "weight")

func requestTable(list []store.Request) *table {
	t := &table{head: []string{"start", "side", "local", "peer", "pid", "comm", "container"}}
	for _, f := range cellFields {
		t.head = append(t.head, f.Name)
	}
	t.head = append(t.head, "flags")
	for p := range observe.NumParts {
		t.head = append(t.head, p.String()+"_us")
	}
	for p := range observe.NumServerParts {
		t.head = append(t.head, p.String()+"_us")
	}
	t.head = append(t.head, "label", "id")
	us := func(ns int64) string { return strconv.FormatFloat(float64(ns)/1e3, 'f', 3, 64) }
	for i := range list {
		r := &list[i]
		row := []string{time.Unix(0, r.StartNS).UTC().Format(time.RFC3339Nano), r.Side.String(), r.Local.String(), r.Peer.String(), count(r.PID),
			cell(r.Process.Comm), cell(cmp.Or(r.Process.Workload.String(), r.Process.ContainerName, r.Process.Container))}
		for i := range cellFields {
			f := &cellFields[i]
			switch n := f.Int(r); {
			case f.Kind == schema.Micros:
				row = append(row, us(n))
			case f.Kind == schema.Enum:
				row = append(row, f.EnumName(r))
			case f.Name == "http_status" && n == 0:
				row = append(row, "")
			case f.Name == "weight":
				row = append(row, count(max(n, 1)))
			default:
				row = append(row, count(n))
			}
		}
		row = append(row, strings.Join(r.Flags.Names(), " "))
		for _, ns := range r.Ledger {
			row = append(row, us(ns))
		}
		for _, ns := range r.Split {
			if r.Followed {
				row = append(row, us(ns))
			} else {
				row = append(row, "")
			}
		}
		t.rows = append(t.rows, append(row, cell(r.Label), requestID(r)))
	}
	return t
}
