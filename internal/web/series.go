package web

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// maxSeries is how many endpoints are drawn at once when none is chosen: those
// with most requests.
const maxSeries = 64

// grid is the steps of a series. Steps begin at whole multiples since 1970.
type grid struct {
	from int64 // Unix seconds
	step int64 // seconds
	n    int
	span timeRange // of the history: the first and last step may be cut
}

// steps are those that a store has or easily makes.
var steps = [...]time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
}

// newGrid cuts a range into at most so many points, no finer than a second.
func newGrid(r, span timeRange, points int) grid {
	const day = 24 * time.Hour
	for i := 0; ; i++ {
		step := time.Duration(i-len(steps)+1) * day
		if i < len(steps) {
			step = steps[i]
		}
		g := grid{step: max(int64(store.Step(step)/time.Second), 1), span: span}
		g.from = r.from.Unix() / g.step * g.step
		g.n = int((r.to.Add(-1).Unix()-g.from)/g.step) + 1
		// A step that does not fall on the beginning adds a point.
		if g.n <= points+1 || step > maxRange {
			return g
		}
	}
}

// at is the point of a moment; false when it is outside.
func (g *grid) at(second int64) (int, bool) {
	i := (second - g.from) / g.step
	return int(i), second >= g.from && i < int64(g.n)
}

// duration is the step, for the store.
func (g *grid) duration() time.Duration { return time.Duration(g.step) * time.Second }

// seconds is how much of point i there is history of: rates are over that. At
// the end the present second is not over.
func (g *grid) seconds(i int) float64 {
	from := time.Unix(g.from+int64(i)*g.step, 0)
	in := timeRange{from, from.Add(g.duration())}
	if g.span.zero() {
		return float64(g.step)
	}
	return max(in.overlap(g.span).Seconds(), 1)
}

func (g *grid) times() figures {
	t := make(figures, g.n)
	for i := range t {
		t[i] = float64(g.from + int64(i)*g.step)
	}
	return t
}

type seriesJSON struct {
	Key       string             `json:"key"`
	Title     string             `json:"title"`
	RPS       figures            `json:"rps"`
	Errors    figures            `json:"errors"`
	P50       figures            `json:"p50_us"`
	P99       figures            `json:"p99_us"`
	ServerP50 figures            `json:"server_p50_us"`
	ServerP99 figures            `json:"server_p99_us"`
	Network   figures            `json:"network_us"`
	RTT       figures            `json:"rtt_us"`
	Loss      figures            `json:"loss_permille"`
	Ledger    map[string]figures `json:"ledger_us,omitempty"`

	requests uint64
	recorded uint64
	n        int
	splits   []splitSum // of the last steps
}

func newSeries(k endpointKey, n int) *seriesJSON {
	return &seriesJSON{Key: k.String(), Title: k.title(), RPS: some(n), Errors: some(n), P50: some(n), P99: some(n), ServerP50: some(n),
		ServerP99: some(n), Network: some(n), RTT: some(n), Loss: some(n), Ledger: map[string]figures{}, n: n}
}

// add puts a step's sums at point i.
func (s *seriesJSON) add(i int, e *observe.Endpoint, step int64, seconds float64, ledger bool) {
	s.requests += e.Requests
	s.recorded += min(e.Recorded, e.Requests)
	s.RPS[i] = float64(e.Requests) / seconds
	s.Errors[i] = float64(e.Errors+e.Unanswered) / seconds
	if e.Total.Count() > 0 {
		s.P50[i], s.P99[i] = microseconds(e.Total.Quantile(0.5)), microseconds(e.Total.Quantile(0.99))
	}
	if h := e.Parts[observe.Server.String()].Hist; h.Count() > 0 {
		s.ServerP50[i], s.ServerP99[i] = microseconds(h.Quantile(0.5)), microseconds(h.Quantile(0.99))
	}
	if e.RTT.Count() > 0 {
		s.RTT[i] = microseconds(e.RTT.Quantile(0.5))
	}
	if e.Segments > 0 {
		s.Loss[i] = e.LossPermille()
	}
	if e.Requests == 0 {
		return
	}
	s.Network[i] = e.MeanNS(observe.Network) / 1e3
	if !ledger {
		return
	}
	for name := range e.Parts {
		if p, ok := partNamed(name); ok {
			s.part(name, i, e.MeanNS(p)/1e3)
		}
	}
	split := s.followed(i, e, step)
	for p, ns := range split.parts {
		if ns > 0 && split.server > 0 {
			s.part(observe.ServerPart(p).String(), i, e.MeanNS(observe.Server)/1e3*min(float64(ns)/float64(split.server), 1))
		}
	}
}

// Where fewer than half of a step's requests were followed, its split is that of enoughFollowed, if the last
// splitReach seconds have as many, and of fewFollowed at least: that of the only one of 400 says little of
// the others, and is another one in each step.
const (
	fewFollowed    = 5
	enoughFollowed = 20
	splitReach     = 60
)

// splitSum is how the Server time of the requests is split that were followed in a step.
type splitSum struct {
	at       int
	requests uint64
	server   int64 // ns
	parts    [observe.NumServerParts]int64
}

// followed is how the Server time is split at point i: as the requests tell that were followed in it, and,
// where they are few, in the steps before. Points come in order of time.
func (s *seriesJSON) followed(i int, e *observe.Endpoint, step int64) splitSum {
	if split := e.Split; split != nil {
		own := splitSum{at: i, requests: split.Requests, server: split.ServerNS}
		for p := range own.parts {
			own.parts[p] = split.Parts[observe.ServerPart(p).String()].SumNS
		}
		s.splits = append(s.splits, own)
		if 2*own.requests >= e.Requests {
			return own
		}
	}
	var sum splitSum
	first := len(s.splits)
	for first > 0 && sum.requests < enoughFollowed && int64(i-s.splits[first-1].at)*step <= splitReach {
		first--
		one := &s.splits[first]
		sum.requests, sum.server = sum.requests+one.requests, sum.server+one.server
		for p, ns := range one.parts {
			sum.parts[p] += ns
		}
	}
	s.splits = s.splits[first:]
	if sum.requests < fewFollowed {
		return splitSum{}
	}
	return sum
}

// part sets a part's mean. Parts that take no time all through are left out.
func (s *seriesJSON) part(name string, i int, us float64) {
	list, ok := s.Ledger[name]
	if !ok {
		if us == 0 {
			return
		}
		list = some(s.n)
		s.Ledger[name] = list
	}
	list[i] = us
}

var partsByName = func() map[string]observe.Part {
	m := map[string]observe.Part{}
	for p := range observe.NumParts {
		m[p.String()] = p
	}
	return m
}()

func partNamed(name string) (observe.Part, bool) {
	p, ok := partsByName[name]
	return p, ok
}

// maxLines is how many endpoints are drawn before it is asked which of them have
// most requests: a line takes a quarter of a megabyte.
const maxLines = 2 * maxSeries

// lines are the endpoints that were asked for, over time, or only some of them;
// false when they are more than maxLines.
func (s *server) lines(ctx context.Context, q *query, g *grid, only map[endpointKey]bool) (map[endpointKey]*seriesJSON, bool, error) {
	whole := timeRange{time.Unix(g.from, 0), q.to}
	lines, all := map[endpointKey]*seriesJSON{}, true
	for _, ask := range q.queries(whole) {
		err := s.source.Points(ask, g.duration(), func(sec *store.Second) bool {
			i, ok := g.at(sec.At)
			if !ok {
				return ctx.Err() == nil
			}
			k := keyOf(&sec.Endpoint)
			line := lines[k]
			if line == nil {
				if only != nil && !only[k] {
					return ctx.Err() == nil
				}
				if all = len(lines) < maxLines; !all {
					return false
				}
				line = newSeries(k, g.n)
				lines[k] = line
			}
			line.add(i, &sec.Endpoint, g.step, g.seconds(i), q.ledger)
			return ctx.Err() == nil
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !all {
			return nil, all, err
		}
	}
	return lines, true, nil
}

// series tells how each endpoint did over time.
func (s *server) series(ctx context.Context, q *query) (answer, error) {
	span, err := s.span()
	if err != nil {
		return answer{}, err
	}
	g := newGrid(q.timeRange, span, q.points)
	lost := losses{}
	lines, all, err := s.lines(ctx, q, &g, nil)
	if err == nil && !all {
		only := map[endpointKey]bool{}
		var sums []store.EndpointSum
		if sums, err = s.sums(q, timeRange{time.Unix(g.from, 0), q.to}, false); err == nil {
			lost.add("endpoints with fewer requests are left out", int64(len(sums)-maxSeries))
			for i := range sums[:min(maxSeries, len(sums))] {
				only[keyOf(&sums[i].Endpoint)] = true
			}
			lines, _, err = s.lines(ctx, q, &g, only)
		}
	}
	if err != nil {
		return answer{}, err
	}
	list := slices.SortedFunc(maps.Values(lines), func(a, b *seriesJSON) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.Key, b.Key))
	})
	quiet(list, g.n)
	if n := len(list) - maxSeries; n > 0 {
		lost.add("endpoints with fewer requests are left out", int64(n))
		list = list[:maxSeries]
	}
	var counted uint64
	for _, l := range list {
		counted += l.requests - l.recorded
	}
	lost.add("requests were only counted: they are in the rates and the means, not in the quantiles", int64(counted))
	if q.csv {
		return answer{table: seriesTable(g, list), file: "series.csv"}, nil
	}
	if list == nil {
		list = []*seriesJSON{}
	}
	return jsonAnswer(map[string]any{"step": g.step, "t": g.times(), "series": list, "losses": lost})
}

// quiet says that an endpoint had no request where others had: the recorder was
// there.
func quiet(list []*seriesJSON, n int) {
	for i := range n {
		if !slices.ContainsFunc(list, func(l *seriesJSON) bool { return l.RPS[i] > 0 }) {
			continue
		}
		for _, l := range list {
			if math.IsNaN(l.RPS[i]) {
				l.RPS[i], l.Errors[i] = 0, 0
			}
		}
	}
}

func seriesTable(g grid, list []*seriesJSON) *table {
	t := &table{head: []string{"time", "endpoint", "rps", "errors_per_s", "p50_us", "p99_us", "server_p50_us", "server_p99_us", "network_us", "rtt_us", "loss_permille"}}
	parts := map[string]bool{}
	for _, l := range list {
		for p := range l.Ledger {
			parts[p] = true
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	for _, p := range names {
		t.head = append(t.head, "mean_"+p+"_us")
	}
	for _, l := range list {
		title := cell(l.Title)
		for i := range g.n {
			if math.IsNaN(l.RPS[i]) {
				continue
			}
			row := []string{time.Unix(g.from+int64(i)*g.step, 0).UTC().Format(time.RFC3339), title}
			for _, f := range []figures{l.RPS, l.Errors, l.P50, l.P99, l.ServerP50, l.ServerP99, l.Network, l.RTT, l.Loss} {
				row = append(row, digits(f[i]))
			}
			for _, p := range names {
				x := nothing
				if f := l.Ledger[p]; f != nil {
					x = f[i]
				}
				row = append(row, digits(x))
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}
