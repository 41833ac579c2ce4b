package web

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/store"
)

// memory is a Source that tests fill.
type memory struct {
	reqs    []store.Request // in order of start
	windows []store.Window
	found   []store.Finding
	from    time.Time
	to      time.Time
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func (m *memory) Span() (time.Time, time.Time, error) { return m.from, m.to, nil }

func inQuery(q *store.Query, r *store.Request) bool {
	k := keyOfRequest(r)
	at := time.Unix(0, r.StartNS)
	switch {
	case !q.From.IsZero() && at.Before(q.From), !q.To.IsZero() && !at.Before(q.To), q.Side != 0 && q.Side != k.side,
		q.NetNS != 0 && q.NetNS != k.netns, q.Addr != "" && q.Addr != k.addr, q.Port != 0 && q.Port != k.port, q.Comm != "" && q.Comm != k.comm, q.Trace != "" && !q.Trace.Has(&r.Trace), r.TotalNS() < int64(q.MinTotal):
		return false
	}
	return true
}

func (m *memory) Requests(q store.Query, f func(*store.Request) bool) error {
	for i := range m.reqs {
		if r := m.reqs[i]; inQuery(&q, &r) && !f(&r) {
			return nil
		}
	}
	return nil
}

func (m *memory) Slowest(q store.Query, n int) ([]store.Request, error) {
	t := &top{n: n, after: faster}
	m.Requests(q, func(r *store.Request) bool { t.add(r); return true })
	return t.sorted(), nil
}

func (m *memory) Totals(q store.Query) (*observe.Histogram, error) {
	var h observe.Histogram
	err := m.Requests(q, func(r *store.Request) bool { h.AddN(r.TotalNS(), uint64(max(r.Weight, 1))); return true })
	return &h, err
}

// second sums requests up as a recorder does.
func second(at int64, e *store.Second, r *store.Request) {
	k := keyOfRequest(r)
	x := &e.Endpoint
	if x.Parts == nil {
		*x = observe.Endpoint{Side: k.side.String(), NetNS: k.netns, Addr: k.addr, Port: k.port, Comm: k.comm, PID: r.PID, Parts: map[string]observe.PartStats{}}
		e.At, e.Process = at, r.Process
	}
	w := uint64(max(r.Weight, 1))
	x.Requests += w
	x.Recorded++
	if r.Status == observe.StatusError {
		x.Errors += w
	}
	x.Segments += w * 3
	x.Retrans += w * uint64(r.Retrans)
	x.Total.AddN(r.TotalNS(), w)
	x.RTT.AddN(r.RTTNS, w)
	for p := range observe.NumParts {
		s := x.Parts[p.String()]
		s.SumNS += int64(w) * r.Ledger[p]
		s.Hist.AddN(r.Ledger[p], w)
		x.Parts[p.String()] = s
	}
}

func (m *memory) Points(q store.Query, step time.Duration, f func(*store.Second) bool) error {
	each := int64(store.Step(step) / time.Second)
	type at struct {
		t int64
		k endpointKey
	}
	sums := map[at]*store.Second{}
	var order []at
	m.Requests(q, func(r *store.Request) bool {
		a := at{r.StartNS / 1e9 / each * each, keyOfRequest(r)}
		if sums[a] == nil {
			sums[a] = &store.Second{}
			order = append(order, a)
		}
		second(a.t, sums[a], r)
		return true
	})
	for _, a := range order {
		if !f(sums[a]) {
			break
		}
	}
	return nil
}

func (m *memory) Endpoints(q store.Query) ([]store.EndpointSum, error) {
	sums, first, last := map[endpointKey]*store.Second{}, map[endpointKey]int64{}, map[endpointKey]int64{}
	m.Requests(q, func(r *store.Request) bool {
		k := keyOfRequest(r)
		if sums[k] == nil {
			sums[k], first[k] = &store.Second{}, r.StartNS
		}
		second(0, sums[k], r)
		last[k] = r.StartNS
		return true
	})
	var list []store.EndpointSum
	for k, s := range sums {
		list = append(list, store.EndpointSum{Endpoint: s.Endpoint, Process: s.Process, First: time.Unix(0, first[k]), Last: time.Unix(0, last[k])})
	}
	slices.SortFunc(list, func(a, b store.EndpointSum) int { return keyOf(&a.Endpoint).compare(keyOf(&b.Endpoint)) })
	return list, nil
}

func (m *memory) Observations(from, to time.Time) ([]store.Window, error) {
	var list []store.Window
	for _, w := range m.windows {
		if w.Start.Before(to) && from.Before(w.End) {
			list = append(list, w)
		}
	}
	return list, nil
}

func (m *memory) Findings(from, to time.Time) ([]store.Finding, error) {
	var list []store.Finding
	for _, f := range m.found {
		if f.Start.Before(to) && from.Before(f.End) {
			list = append(list, f)
		}
	}
	return list, nil
}

// add puts a served request of 10.0.0.5:80 in.
func (m *memory) add(at time.Time, change func(*store.Request)) {
	r := store.Request{Process: observe.Identity{Comm: "nginx", Cgroup: "/system.slice/nginx.service", Unit: "nginx.service"}, Request: observe.Request{
		Side: observe.Served, StartNS: at.UnixNano(), NetNS: 4026531840, Local: netip.MustParseAddrPort("10.0.0.5:80"),
		Peer: netip.MustParseAddrPort("10.0.0.9:51234"), PID: 4711, Seq: uint32(len(m.reqs) + 1), Requests: 1, Weight: 1, BytesIn: 100, BytesOut: 2000,
		RTTNS: 200_000, MinRTTNS: 150_000, MSS: 1448, Status: observe.StatusOK, HTTP: 200}}
	r.Ledger[observe.Server], r.Ledger[observe.Network] = 1_000_000, 200_000
	if change != nil {
		change(&r)
	}
	m.reqs = append(m.reqs, r)
	slices.SortStableFunc(m.reqs[max(0, len(m.reqs)-2):], func(a, b store.Request) int { return int(min(max(a.StartNS-b.StartNS, -1), 1)) })
	if m.from.IsZero() || at.Before(m.from) {
		m.from = at
	}
	if at.After(m.to) {
		m.to = at
	}
}

// window saves an Observation.
func (m *memory) window(t *testing.T, at time.Time, seconds float64, change func(*observe.Observation)) {
	t.Helper()
	o := &observe.Observation{Schema: observe.SchemaObservation, Host: observe.Host{Name: "test", CPUs: 2}, Window: observe.Window{Start: at, Seconds: seconds}}
	if change != nil {
		change(o)
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.json.zst", len(m.windows)))
	observetest.Save(t, path, o)
	m.windows = append(m.windows, store.Window{Path: path, Start: at, End: at.Add(time.Duration(seconds * float64(time.Second)))})
}

func (m *memory) finding(at time.Time, id string, share float64, subject cause.Subject) {
	m.found = append(m.found, store.Finding{Start: at, End: at.Add(time.Minute), Finding: cause.Finding{Cause: cause.ID(id), Title: "title of " + id, Verdict: cause.Supported,
		Role: cause.RoleCause, Subject: subject, Weight: share, Impact: cause.Impact{Share: share, Of: "requests", Text: fmt.Sprintf("share %g", share)}, Evidence: []cause.Evidence{{Fact: "f", Value: 1, Source: "s"}}}})
}

// incident is ten quiet minutes, and two in which one of four clients sees a
// network that is twenty times as slow, and one request in ten fails.
func incident() *memory {
	m := &memory{}
	for i := range 720 * 4 {
		at := noon.Add(time.Duration(i) * 250 * time.Millisecond)
		bad := at.Sub(noon) >= 5*time.Minute && at.Sub(noon) < 7*time.Minute
		m.add(at, func(r *store.Request) {
			client := i % 4
			r.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(client)}), 40000)
			r.Ledger[observe.Server] += int64(i%7) * 10_000
			if bad && client == 3 {
				r.Ledger[observe.Network] *= 200
				r.Why = store.Slow
			}
			if bad && i%10 == 5 {
				r.Status, r.HTTP, r.Why = observe.StatusError, 503, store.Failed
			}
		})
	}
	return m
}

func incidentRange() string {
	return fmt.Sprintf("from=%d&to=%d", noon.Add(5*time.Minute).Unix(), noon.Add(7*time.Minute).Unix())
}

// held answers nothing before its gate is open.
type held struct {
	*memory
	gate chan struct{}
}

func (h *held) Endpoints(q store.Query) ([]store.EndpointSum, error) {
	<-h.gate
	return h.memory.Endpoints(q)
}
