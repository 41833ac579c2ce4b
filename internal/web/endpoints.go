package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// maxEndpoints is how many endpoints an answer tells of, most requests first.
const maxEndpoints = 500

type processJSON struct {
	PID       int               `json:"pid"`
	Comm      string            `json:"comm"`
	Cgroup    string            `json:"cgroup"`
	Container *string           `json:"container"`
	Name      *string           `json:"name"`
	Unit      *string           `json:"unit"`
	Workload  *observe.Workload `json:"workload,omitempty"`
}

func processOf(pid int, comm string, p *observe.Identity) *processJSON {
	if p.Comm != "" {
		comm = p.Comm
	}
	if pid == 0 && comm == "" {
		return nil
	}
	out := &processJSON{PID: pid, Comm: comm, Cgroup: p.Cgroup, Container: orNull(p.Container), Name: orNull(cmp.Or(p.Workload.String(), p.ContainerName)), Unit: orNull(p.Unit)}
	if p.Workload != (observe.Workload{}) {
		w := cloneWorkload(p.Workload)
		out.Workload = &w
	}
	return out
}

func orNull(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

type endpointJSON struct {
	Key      string            `json:"key"`
	Title    string            `json:"title"`
	Side     string            `json:"side"`
	NetNS    uint64            `json:"netns"`
	Addr     string            `json:"addr"`
	Port     int               `json:"port"`
	Process  *processJSON      `json:"process"`
	Workload *observe.Workload `json:"workload,omitempty"` // who has addr, of a called one

	Requests   uint64                       `json:"requests"`
	RPS        figure                       `json:"rps"`
	Errors     uint64                       `json:"errors"` // answered with an error, or not at all
	Unanswered uint64                       `json:"unanswered"`
	Recorded   uint64                       `json:"recorded"` // have part in the quantiles
	Total      *diagnose.QuantilesUS        `json:"total_us"`
	Server     *twoQuantiles                `json:"server_us"`
	Ledger     map[string]diagnose.LedgerUS `json:"ledger_us"`
	RTT        *float64                     `json:"rtt_us"`
	MinRTT     *float64                     `json:"min_rtt_us"`
	Loss       figure                       `json:"loss_permille"`
	Retrans    uint64                       `json:"retrans"`
	Statuses   map[string]uint64            `json:"statuses,omitempty"`
	BytesIn    uint64                       `json:"bytes_in"`
	BytesOut   uint64                       `json:"bytes_out"`
	First      float64                      `json:"first"`
	Last       float64                      `json:"last"`
}

type twoQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// sums is every endpoint that was chosen, over a range, most requests first.
func (s *server) sums(q *query, r timeRange, hists bool) ([]store.EndpointSum, error) {
	var list []store.EndpointSum
	for _, ask := range q.queries(r) {
		ask.PartHists = hists
		some, err := s.source.Endpoints(ask)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	slices.SortStableFunc(list, func(a, b store.EndpointSum) int {
		return cmp.Or(cmp.Compare(b.Endpoint.Requests, a.Endpoint.Requests), keyOf(&a.Endpoint).compare(keyOf(&b.Endpoint)))
	})
	return list, nil
}

// endpoints tells of each endpoint over the range.
func (s *server) endpoints(_ context.Context, q *query) (answer, error) {
	sums, err := s.sums(q, q.timeRange, !q.csv)
	if err != nil {
		return answer{}, err
	}
	span, err := s.span()
	if err != nil {
		return answer{}, err
	}
	var lost losses
	if n := len(sums) - maxEndpoints; n > 0 {
		lost.add("endpoints with fewer requests are left out", int64(n))
		sums = sums[:maxEndpoints]
	}
	// A rate is over the time there is history of.
	seconds := max(q.overlap(span).Seconds(), 1)
	if !q.csv { // which has no times
		if err := s.refine(q, sums, span); err != nil {
			return answer{}, err
		}
	}
	rows := make([]endpointJSON, 0, len(sums))
	var counted, of int64
	for i := range sums {
		rows = append(rows, endpointRow(&sums[i], seconds))
		e := &sums[i].Endpoint
		if n := int64(e.Requests) - int64(e.Recorded); n > 0 {
			counted, of = counted+n, of+1
		}
	}
	lost.add(fmt.Sprintf("requests of %d of %d endpoints were only counted: they are in the counts and the means, not in the quantiles", of, len(sums)), counted)
	if q.csv {
		return answer{table: endpointTable(rows), file: "endpoints.csv"}, nil
	}
	if lost == nil {
		lost = losses{}
	}
	return jsonAnswer(map[string]any{"endpoints": rows, "seconds": figure(seconds), "losses": lost})
}

// A sum of five minutes says of requests that they were somewhere in it. As many of these are read by the
// second, the latest, for when traffic began and ended.
const (
	coarse    = 5 * time.Minute
	maxRefine = 8
)

// refine gives endpoints the seconds of their first and last request.
func (s *server) refine(q *query, sums []store.EndpointSum, span timeRange) error {
	edges := map[int64]bool{} // begins of five minutes in which traffic began or ended
	for i := range sums {
		first, last := sums[i].First, sums[i].Last
		if first.Truncate(coarse).Equal(first) && first.After(q.from) && first.After(span.from) {
			edges[first.Unix()] = true
		}
		if last.Truncate(coarse).Equal(last) && last.Before(q.to) {
			edges[last.Add(-coarse).Unix()] = true
		}
	}
	begins := slices.Sorted(maps.Keys(edges))
	type times struct{ first, last int64 }
	for _, begin := range begins[max(0, len(begins)-maxRefine):] {
		r, seen := timeRange{time.Unix(begin, 0), time.Unix(begin, 0).Add(coarse)}, map[endpointKey]times{}
		for _, ask := range q.queries(r) {
			err := s.source.Points(ask, time.Second, func(sec *store.Second) bool {
				if e := &sec.Endpoint; e.Requests > 0 {
					k := keyOf(e)
					t, ok := seen[k]
					if !ok {
						t.first = sec.At
					}
					t.last = sec.At + 1
					seen[k] = t
				}
				return true
			})
			if err != nil {
				return err
			}
		}
		for i := range sums {
			sum := &sums[i]
			t, ok := seen[keyOf(&sum.Endpoint)]
			if !ok {
				continue
			}
			if sum.First.Equal(r.from) {
				sum.First = time.Unix(t.first, 0)
			}
			if sum.Last.Equal(r.to) {
				sum.Last = time.Unix(t.last, 0)
			}
		}
	}
	return nil
}

// statusesOf is how many requests had each class of status, no more than there were: they are those of
// records, which stand for others.
func statusesOf(e *observe.Endpoint) map[string]uint64 {
	var sum uint64
	for _, n := range e.Statuses {
		sum += n
	}
	if sum <= e.Requests {
		return e.Statuses
	}
	scaled := make(map[string]uint64, len(e.Statuses))
	var before, given uint64 // rounded so that they add up
	for _, class := range slices.Sorted(maps.Keys(e.Statuses)) {
		before += e.Statuses[class]
		upTo := uint64(math.Round(float64(before) / float64(sum) * float64(e.Requests)))
		scaled[class], given = upTo-given, upTo
	}
	return scaled
}

func endpointRow(sum *store.EndpointSum, seconds float64) endpointJSON {
	e := &sum.Endpoint
	m := diagnose.Measure(e, seconds)
	k := keyOf(e)
	row := endpointJSON{Key: k.String(), Title: k.title(), Side: k.side.String(), NetNS: e.NetNS, Addr: e.Addr, Port: e.Port,
		Process: processOf(e.PID, e.Comm, &sum.Process), Workload: e.Workload, Requests: m.Requests, RPS: figure(m.RPS), Errors: m.Errors, Unanswered: e.Unanswered,
		Recorded: e.Recorded, Total: m.Total, Ledger: m.Ledger, RTT: m.RTT, MinRTT: m.MinRTT, Loss: figure(m.LossPermille), Retrans: m.Retrans,
		Statuses: statusesOf(e), BytesIn: e.BytesIn, BytesOut: e.BytesOut, First: unix(sum.First), Last: unix(sum.Last)}
	if h := e.Parts[observe.Server.String()].Hist; h.Count() > 0 {
		row.Server = &twoQuantiles{microseconds(h.Quantile(0.5)), microseconds(h.Quantile(0.99))}
	}
	return row
}

// microseconds is ns in µs, to a tenth: quantiles are no better.
func microseconds(ns int64) float64 { return float64(ns/100) / 10 }

func endpointTable(rows []endpointJSON) *table {
	parts := map[string]bool{}
	for i := range rows {
		for p := range rows[i].Ledger {
			parts[p] = true
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	t := &table{head: []string{"side", "netns", "addr", "port", "comm", "container", "unit", "requests", "rps", "errors", "p50_us", "p90_us", "p99_us", "max_us", "rtt_us", "min_rtt_us", "loss_permille", "retrans"}}
	for _, p := range names {
		t.head = append(t.head, "mean_"+p+"_us")
	}
	for i := range rows {
		r := &rows[i]
		p := r.Process
		if p == nil {
			p = &processJSON{}
		}
		total := []string{"", "", "", ""}
		if r.Total != nil {
			total = []string{digits(r.Total.P50), digits(r.Total.P90), digits(r.Total.P99), digits(r.Total.Max)}
		}
		line := []string{r.Side, count(r.NetNS), cell(r.Addr), count(r.Port), cell(p.Comm), cell(deref(p.Container)), cell(deref(p.Unit)),
			count(r.Requests), digits(float64(r.RPS)), count(r.Errors)}
		line = append(append(line, total...), optional(r.RTT), optional(r.MinRTT), digits(float64(r.Loss)), count(r.Retrans))
		for _, name := range names {
			if l, ok := r.Ledger[name]; ok {
				line = append(line, digits(l.Mean))
			} else {
				line = append(line, "")
			}
		}
		t.rows = append(t.rows, line)
	}
	return t
}

func deref(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

func optional(x *float64) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'f', -1, 64)
}
