package diagnose

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// endpoints lists what is served here and what is called from here, by the
// requests recorded in the kernel; a service without any, by what its
// connections and its access log tell.
func endpoints(v *cause.View) []Endpoint {
	out := []Endpoint{}
	told := map[*cause.Service]bool{}
	for _, e := range v.Ledgers() {
		v.Step()
		row := ledgerEndpoint(v, e)
		if s := v.ServiceAt(e.NetNS, e.Port, ""); s != nil && row.Side == observe.Served.String() {
			// One service may be reached at several addresses: what is known
			// of it as a whole goes to the first, which has most requests.
			if !told[s] {
				row.Opened, row.Clients = max(row.Opened, opened(s)), clients(s)
				addAnswers(v, s, &row)
			}
			told[s] = true
		}
		out = append(out, row)
	}
	for _, s := range v.Services {
		if s.Port() == 0 || told[s] {
			continue // a unix socket has no address in the contract
		}
		l := s.Listeners[0]
		row := Endpoint{Side: observe.Served.String(), NetNS: s.NS.Inode, Addr: l.Addr, Port: l.Port,
			Process: process(v, v.Master(l.PID)), Opened: opened(s), Clients: clients(s)}
		addAnswers(v, s, &row)
		out = append(out, row)
	}
	slices.SortStableFunc(out, func(a, b Endpoint) int {
		return cmp.Or(strings.Compare(b.Side, a.Side), // what is served before what is called
			cmp.Compare(deref(b.Requests), deref(a.Requests)), cmp.Compare(b.Opened, a.Opened), cmp.Compare(a.Port, b.Port))
	})
	return out
}

func opened(s *cause.Service) (n uint64) {
	for _, l := range s.Listeners {
		n += l.Opened
	}
	return n
}

func clients(s *cause.Service) (n int) {
	for _, l := range s.Listeners {
		n += l.Clients
	}
	return n
}

// addAnswers takes from an access log what the recorded requests do not tell.
func addAnswers(v *cause.View, s *cause.Service, e *Endpoint) {
	sum, all := v.Answers(s)
	if all <= 0 {
		return
	}
	errs := sum.S4xx + max(sum.S499-e.Unanswered, 0) + sum.S5xx
	// Of requests that came before the window only the log tells: errors are no part of
	// those that were recorded then.
	if e.Requests == nil || e.Errors == nil && errs > *e.Requests {
		e.Requests, e.RPS = &all, perSecond(float64(all), v.Window.Seconds)
	}
	if e.Errors == nil {
		e.Errors, e.GoodRPS = &errs, perSecond(float64(sum.S2xx+sum.S3xx), v.Window.Seconds)
	}
}

func perSecond(n, seconds float64) *float64 {
	rate := round1(n / max(seconds, 0.001))
	return &rate
}

// ledgerEndpoint is the row of an endpoint whose requests were recorded.
func ledgerEndpoint(v *cause.View, e *observe.Endpoint) Endpoint {
	row := EndpointOf(e, v.Window.Seconds)
	if p := process(v, v.Master(e.PID)); p != nil {
		row.Process = p
	}
	return row
}

// EndpointOf is the row of an endpoint that was watched for so many seconds.
func EndpointOf(e *observe.Endpoint, seconds float64) Endpoint {
	m := Measure(e, seconds)
	loss := math.Round(m.LossPermille*1000) / 1000
	row := Endpoint{Side: observe.Served.String(), NetNS: e.NetNS, Addr: e.Addr, Port: e.Port,
		Opened: e.Connections, TLS: e.TLS, TLSFailed: e.TLSFailed, TLSMean: us(e.TLSHandshake / int64(max(e.TLS, 1))), Workload: e.Workload, Requests: whole(e.Requests), RPS: perSecond(float64(e.Requests), seconds),
		Total: m.Total, Ledger: m.Ledger, RTT: m.RTT, MinRTT: m.MinRTT, Loss: &loss, Retrans: whole(e.Retrans),
		Recorded: whole(min(e.Recorded, e.Requests)), SampleError: math.Round(e.SampleError*1e4) / 1e4, Unfinished: *whole(e.Unfinished), Unanswered: *whole(e.Unanswered)}
	if e.Side == observe.Called.String() {
		row.Side = e.Side
		row.Connect = us(e.Handshake / int64(max(e.Connections, 1)))
	}
	row.TLSIs = tlsOf(e)
	if e.PID > 0 && e.Comm != "" {
		row.Process = &Process{PID: e.PID, Comm: e.Comm}
	}
	if e.OK+e.Errors > 0 {
		row.Errors, row.GoodRPS = whole(e.Errors), perSecond(float64(e.OK), seconds)
	}
	if e.SlowCount > 0 {
		row.Slow = &SlowRequests{Requests: *whole(e.SlowCount), Mean: us(int64(e.SlowTotalNS())), Parts: map[string]float64{}}
		for _, p := range observe.Parts() {
			if ns := e.SlowNS(p); ns > 0 {
				row.Slow.Parts[p.String()] = us(int64(ns))
			}
		}
		for p := range observe.NumServerParts {
			if ns := e.Split.SlowShareNS(p, e.SlowNS(observe.Server)); ns > 0 {
				row.Slow.Parts[p.String()] = us(int64(ns))
			}
		}
	}
	return row
}

// TLS is what an endpoint's handshakes were like, and whom a mean one waited for, µs.
type TLS struct {
	V12     uint64  `json:"v1_2"`
	V13     uint64  `json:"v1_3"`
	Full    uint64  `json:"full"`
	Resumed uint64  `json:"resumed"`
	Refused uint64  `json:"refused"` // full, though a session was offered
	Again   uint64  `json:"again"`   // full, between two addresses that had one before
	Server  float64 `json:"server_us"`
	Client  float64 `json:"client_us"`
	Network float64 `json:"network_us"`
}

func tlsOf(e *observe.Endpoint) *TLS {
	s, n := &e.TLSStats, int64(e.TLS)
	if n == 0 || *s == (observe.TLSStats{}) {
		return nil
	}
	return &TLS{V12: s.V12, V13: s.V13, Full: s.Full, Resumed: s.Resumed, Refused: s.Refused, Again: s.Again,
		Server: us(s.ServerNS / n), Client: us(s.ClientNS / n), Network: us(s.NetworkNS / n)}
}

func whole(n uint64) *int64 {
	i := int64(min(n, math.MaxInt64))
	return &i
}

func process(v *cause.View, pid int) *Process {
	p := v.Process(pid)
	if p == nil {
		return nil
	}
	out := &Process{PID: p.PID, Comm: p.Comm, Cgroup: p.Cgroup}
	if p.Container != "" {
		out.Container = &p.Container
		if name := v.ContainerName(p.Container); name != "" {
			out.Name = &name
		}
	}
	if p.Unit != "" {
		out.Unit = &p.Unit
	}
	out.Workload = v.Kubernetes.WorkloadOf(p.Container, p.Cgroup)
	return out
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func round1(f float64) float64 { return math.Round(f*10) / 10 }
