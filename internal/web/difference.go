package web

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	num "github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

// Bounds of a comparison.
const (
	maxRows       = 80
	maxCompared   = 8                // endpoints, when none is chosen
	restTimes     = 10               // as long as the range, on each side of it, is what it is compared with
	leastRest     = 10 * time.Minute // on each side
	leastRequests = 5                // on both sides, of an endpoint that was not chosen
	leastExpected = 10               // of one that had none: so many would have come
	maxOnce       = 6                // endpoints that were there on one side only
	leastOnce     = 0.01             // score of such a one: two per cent of the requests
	fewRequests   = 30               // on either side: chance may have made the difference
	leastChange   = 0.02             // of the request latency: less is no change
	noticedRatio  = 1.3
)

// The dimensions of a difference.
const (
	byPart     = "ledger part"
	byPeer     = "peer"
	byProcess  = "process"
	byStatus   = "status"
	byFlag     = "flag"
	byLabel    = "label"
	byRate     = "rate"
	byNetwork  = "network"
	byStack    = "stack"
	byEndpoint = "endpoint"
)

// differenceRow is one thing that differs. Inside and outside are means of
// requests where the unit is µs.
type differenceRow struct {
	Dimension string   `json:"dimension"`
	Name      string   `json:"name"`
	Key       *string  `json:"key"` // of the endpoint; null where it is of the host
	Unit      string   `json:"unit"`
	Inside    figure   `json:"inside"`
	Outside   figure   `json:"outside"`
	Ratio     figure   `json:"ratio"`    // null where outside is nothing
	Explains  figure   `json:"explains"` // part of the added time; null where it cannot be known, negative where it made it less
	ShareIn   *figure  `json:"share_inside,omitempty"`
	ShareOut  *figure  `json:"share_outside,omitempty"`
	Few       bool     `json:"few"`
	Of        sizeJSON `json:"requests"`
	Text      string   `json:"text"`

	score float64
}

// sizeJSON is how many requests a figure is of.
type sizeJSON struct {
	Inside  uint64 `json:"inside"`
	Outside uint64 `json:"outside"`
}

const (
	unitUS    = "us"
	unitShare = "share"
	unitCount = "count"
)

// comparedJSON is what an endpoint did inside and outside.
type comparedJSON struct {
	Key     string   `json:"key"`
	Title   string   `json:"title"`
	Inside  sideJSON `json:"inside"`
	Outside sideJSON `json:"outside"`
	AddedUS figure   `json:"added_us"` // to the mean of a request
	Text    string   `json:"text"`
	in, out *totals  // of all its requests
	weight  float64  // of the time that was added at all endpoints
	key     endpointKey
}

type sideJSON struct {
	Requests uint64 `json:"requests"`
	RPS      figure `json:"rps"`
	Mean     figure `json:"mean_us"`
	P50      figure `json:"p50_us"`
	P99      figure `json:"p99_us"`
	Errors   figure `json:"errors"` // share
}

// totals is what is known exactly of an endpoint's requests on one side.
type totals struct {
	requests, failed  uint64
	segments, retrans uint64
	parts             map[string]float64 // ns, all requests; server and what it is made of next to each other
	time              float64            // ns, all requests
	hist, rtt         observe.Histogram
	seconds           float64
}

func (t *totals) add(e *observe.Endpoint) {
	t.requests += e.Requests
	t.failed += e.Errors + e.Unanswered
	t.segments += e.Segments
	t.retrans += e.Retrans
	t.time += e.TimeNS()
	t.hist.Merge(&e.Total)
	t.rtt.Merge(&e.RTT)
	if t.parts == nil {
		t.parts = map[string]float64{}
	}
	for p := range observe.AckDelay {
		t.parts[p.String()] += e.SumNS(p)
	}
	if e.Split != nil && e.Split.ServerNS > 0 {
		for p := range observe.NumServerParts {
			t.parts[p.String()] += e.Split.ShareNS(p, e.SumNS(observe.Server))
		}
	}
}

// mean is ns of a request in a part.
func (t *totals) mean(part string) float64 { return t.parts[part] / float64(max(t.requests, 1)) }

func (t *totals) total() float64 { return t.time / float64(max(t.requests, 1)) }

// split says that it is known what the server's time was made of.
func (t *totals) split() bool {
	for p := range observe.NumServerParts {
		if t.parts[p.String()] > 0 {
			return true
		}
	}
	return false
}

func (t *totals) side() sideJSON {
	s := sideJSON{Requests: t.requests, RPS: figure(float64(t.requests) / max(t.seconds, 1)), Mean: figure(nothing), P50: figure(nothing), P99: figure(nothing), Errors: figure(nothing)}
	if t.requests > 0 {
		s.Mean, s.Errors = figure(t.total()/1e3), ratio(t.failed, t.requests)
	}
	if t.hist.Count() > 0 {
		s.P50, s.P99 = figure(microseconds(t.hist.Quantile(0.5))), figure(microseconds(t.hist.Quantile(0.99)))
	}
	return s
}

// rest is what a range is compared with: what was asked for, or what lies around
// it, without the range itself.
func rest(inside, against, span timeRange) []timeRange {
	if against.zero() {
		around := max(time.Duration(restTimes)*inside.to.Sub(inside.from), leastRest)
		against = timeRange{inside.from.Add(-around), inside.to.Add(around)}
	}
	if !span.zero() {
		if against.from.Before(span.from) {
			against.from = span.from
		}
		if against.to.After(span.to) {
			against.to = span.to
		}
	}
	var list []timeRange
	for _, r := range []timeRange{{against.from, earliest(against.to, inside.from)}, {latest(against.from, inside.to), against.to}} {
		if r.from.Before(r.to) {
			list = append(list, r)
		}
	}
	return list
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// difference says what differs in a range from what is around it, what explains
// most of the added time first.
func (s *server) difference(ctx context.Context, q *query) (answer, error) {
	span, err := s.span()
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Inside    spanJSON         `json:"inside"`
		Outside   []spanJSON       `json:"outside"`
		Endpoints []*comparedJSON  `json:"endpoints"`
		Rows      []*differenceRow `json:"rows"`
		Because   *string          `json:"because"`
		Losses    losses           `json:"losses"`
	}{Inside: spanJSON{unix(q.from), unix(q.to)}, Outside: []spanJSON{}, Endpoints: []*comparedJSON{}, Rows: []*differenceRow{}, Losses: losses{}}
	outside := rest(q.timeRange, q.against, span)
	for _, r := range outside {
		out.Outside = append(out.Outside, spanJSON{unix(r.from), unix(r.to)})
	}
	if len(outside) == 0 {
		out.Because = orNull("there is no history outside of this range to compare it with")
		return jsonAnswer(&out)
	}
	compared, rows, err := s.compareSums(q, outside, span)
	if err != nil {
		return answer{}, err
	}
	if len(compared) == 0 && len(rows) == 0 {
		out.Because = orNull("there was no request in this range, or none outside of it")
	}
	for _, c := range compared {
		rows = append(rows, c.parts()...)
		rows = append(rows, c.rates()...)
	}
	groups, err := s.compareGroups(ctx, q, outside, compared, &out.Losses)
	if err != nil {
		return answer{}, err
	}
	stacks, err := s.compareStacks(ctx, q, outside, &out.Losses)
	if err != nil {
		return answer{}, err
	}
	rows = append(append(rows, groups...), stacks...)
	slices.SortStableFunc(rows, func(a, b *differenceRow) int { return cmp.Compare(b.score, a.score) })
	out.Endpoints = append(out.Endpoints, compared...)
	out.Rows = append(out.Rows, rows[:min(len(rows), maxRows)]...)
	return jsonAnswer(&out)
}

// compareSums puts both sides of each endpoint next to each other, those that added
// most time first; rows are of endpoints that were there on one side only.
func (s *server) compareSums(q *query, outside []timeRange, span timeRange) ([]*comparedJSON, []*differenceRow, error) {
	sides := [2]map[endpointKey]*totals{{}, {}}
	collect := func(side int, r timeRange) error {
		sums, err := s.sums(q, r, false)
		for i := range sums {
			e := &sums[i].Endpoint
			k := keyOf(e)
			if sides[side][k] == nil {
				sides[side][k] = &totals{}
			}
			sides[side][k].add(e)
		}
		return err
	}
	if err := collect(0, q.timeRange); err != nil {
		return nil, nil, err
	}
	seconds := [2]float64{q.overlap(span).Seconds(), 0}
	for _, r := range outside {
		if err := collect(1, r); err != nil {
			return nil, nil, err
		}
		seconds[1] += r.overlap(span).Seconds()
	}
	for side := range sides {
		for _, t := range sides[side] {
			t.seconds = seconds[side]
		}
	}
	var list []*comparedJSON
	var rows []*differenceRow
	var all [2]uint64
	for side := range sides {
		for _, t := range sides[side] {
			all[side] += t.requests
		}
	}
	chosen := len(q.keys) > 0
	for k, in := range sides[0] {
		o := sides[1][k]
		if in.requests == 0 {
			continue
		}
		if o == nil || o.requests == 0 {
			rows = append(rows, onlyOnce(k, in, true, all[0]))
			continue
		}
		if !chosen && min(in.requests, o.requests) < leastRequests {
			continue
		}
		list = append(list, &comparedJSON{Key: k.String(), Title: k.title(), Inside: in.side(), Outside: o.side(), AddedUS: figure((in.total() - o.total()) / 1e3), in: in, out: o, key: k})
	}
	for k, o := range sides[1] {
		// So many would have come in the time of the range.
		if expected := float64(o.requests) / max(o.seconds, 1) * max(seconds[0], 1); sides[0][k] == nil && expected >= leastExpected {
			rows = append(rows, onlyOnce(k, o, false, all[1]))
		}
	}
	// A client's port is an endpoint for a moment, on a host where tests run.
	rows = slices.DeleteFunc(rows, func(r *differenceRow) bool { return r.score < leastOnce && !chosen })
	sortRows(rows)
	return weigh(list, chosen), rows[:min(len(rows), maxOnce)], nil
}

// weigh orders endpoints by the time that was added at them, and tells what part
// of all that was added it is. What is served counts before what is called for
// it, which is part of it.
func weigh(list []*comparedJSON, chosen bool) []*comparedJSON {
	var all [3]float64
	change := func(c *comparedJSON) float64 {
		return math.Abs(c.in.total()-c.out.total()) * float64(c.in.requests)
	}
	for _, c := range list {
		all[c.key.side] += change(c)
	}
	for _, c := range list {
		if all[c.key.side] > 0 {
			c.weight = change(c) / all[c.key.side]
		}
		if c.key.side == observe.Called {
			c.weight *= 0.9
		}
		c.Text = c.sentence()
	}
	slices.SortFunc(list, func(a, b *comparedJSON) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.in.requests, a.in.requests), a.key.compare(b.key))
	})
	if !chosen && len(list) > maxCompared {
		list = list[:maxCompared]
	}
	return list
}

// sentence sums an endpoint up.
func (c *comparedJSON) sentence() string {
	in, out := c.in.total(), c.out.total()
	text := fmt.Sprintf("%s: %s a request, %s outside", c.Title, span(in), span(out))
	if math.Abs(in-out) < leastChange*max(in, out) {
		text = fmt.Sprintf("%s: as fast as outside, %s a request", c.Title, span(in))
	}
	if few := min(c.in.requests, c.out.requests); few < fewRequests {
		text += fmt.Sprintf(" (only %s to go by)", num.Counted(few, "request"))
	}
	return text + "."
}

// span is a time in words.
func span(ns float64) string { return num.Seconds(max(ns, 0) / 1e9) }

// onlyOnce tells of an endpoint that had requests on one side only, of so many on
// that side altogether.
func onlyOnce(k endpointKey, t *totals, inside bool, all uint64) *differenceRow {
	key, n := k.String(), t.requests
	r := &differenceRow{Dimension: byEndpoint, Name: k.title(), Key: &key, Unit: unitCount, Ratio: figure(nothing), Explains: figure(nothing), Few: n < fewRequests}
	rate := float64(n) / max(t.seconds, 1)
	if inside {
		r.Inside, r.Of.Inside = figure(rate), n
		r.Text = fmt.Sprintf("%s had requests only here: %s.", k.title(), num.Count(n))
	} else {
		r.Outside, r.Of.Outside = figure(rate), n
		r.Text = fmt.Sprintf("%s had no request here, and %s a second outside.", k.title(), rateText(rate))
	}
	r.score = 0.5 * float64(ratio(n, all))
	if k.side == observe.Called {
		r.score *= 0.9
	}
	return r
}

func rateText(x float64) string {
	if x >= 100 {
		return num.Count(int64(math.Round(x)))
	}
	return fmt.Sprintf("%.3g", x)
}
