package diagnose

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// traffic sums the endpoints of several windows up.
type traffic map[trafficKey]*observe.Endpoint

// trafficKey tells endpoints apart: a service that was started anew is the same.
type trafficKey struct {
	side, addr, comm string
	netns            uint64
	port             int
}

func (t traffic) add(o *observe.Observation) {
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		k := trafficKey{e.Side, e.Addr, e.Comm, e.NetNS, e.Port}
		sum := t[k]
		if sum == nil {
			sum = &observe.Endpoint{Side: e.Side, Addr: e.Addr, Comm: e.Comm, NetNS: e.NetNS, Port: e.Port}
			t[k] = sum
		}
		addEndpoint(sum, e)
	}
}

// addEndpoint adds what Measure and the report take from an endpoint: no
// samples, peers and arrivals. The process is that of the later one, and
// requests in progress are those of the end.
func addEndpoint(sum, e *observe.Endpoint) {
	sum.PID = cmp.Or(e.PID, sum.PID)
	sum.Unfinished = e.Unfinished
	sum.Requests += e.Requests
	sum.OK += e.OK
	sum.Errors += e.Errors
	sum.Unanswered += e.Unanswered
	sum.Overlapped += e.Overlapped
	sum.Recorded += e.Recorded
	sum.BytesIn += e.BytesIn
	sum.BytesOut += e.BytesOut
	sum.Segments += e.Segments
	sum.Retrans += e.Retrans
	sum.Connections += e.Connections
	sum.SynRetrans += e.SynRetrans
	sum.Handshake += e.Handshake
	sum.TLS += e.TLS
	sum.TLSFailed += e.TLSFailed
	sum.TLSHandshake += e.TLSHandshake
	sum.TLSStats.Add(&e.TLSStats, 1)
	sum.HandshakeMax = max(sum.HandshakeMax, e.HandshakeMax)
	if e.MinRTT > 0 && (sum.MinRTT == 0 || e.MinRTT < sum.MinRTT) {
		sum.MinRTT = e.MinRTT
	}
	sum.Total.Merge(&e.Total)
	sum.RTT.Merge(&e.RTT)
	sum.Parts = addParts(sum.Parts, e.Parts)
	sum.SlowParts = addSums(sum.SlowParts, e.SlowParts)
	sum.SlowCount += e.SlowCount
	if e.Split != nil {
		if sum.Split == nil {
			sum.Split = &observe.SplitStats{}
		}
		s := sum.Split
		s.Requests += e.Split.Requests
		s.ServerNS += e.Split.ServerNS
		s.SlowServerNS += e.Split.SlowServerNS
		s.Parts = addParts(s.Parts, e.Split.Parts)
		s.SlowParts = addSums(s.SlowParts, e.Split.SlowParts)
	}
}

func addParts(sum, more map[string]observe.PartStats) map[string]observe.PartStats {
	if sum == nil && len(more) > 0 {
		sum = map[string]observe.PartStats{}
	}
	for name, p := range more {
		s := sum[name]
		s.SumNS += p.SumNS
		s.Dominant += p.Dominant
		s.Hist.Merge(&p.Hist)
		sum[name] = s
	}
	return sum
}

func addSums(sum, more map[string]int64) map[string]int64 {
	if sum == nil && len(more) > 0 {
		sum = map[string]int64{}
	}
	for name, ns := range more {
		sum[name] += ns
	}
	return sum
}

// endpoints is the rows of a report of so many seconds. What only the last
// window's sockets and logs tell is left out.
func (t traffic) endpoints(last *observe.Observation, seconds float64) []Endpoint {
	o := *last
	o.Window.Seconds = seconds
	o.Nginx, o.PHPFPM = nil, nil
	o.Endpoints = nil
	for _, e := range t {
		o.Endpoints = append(o.Endpoints, *e)
	}
	slices.SortFunc(o.Endpoints, func(a, b observe.Endpoint) int {
		return cmp.Or(-cmp.Compare(a.Side, b.Side), cmp.Compare(a.NetNS, b.NetNS), cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Comm, b.Comm))
	})
	rows := endpoints(cause.NewView(&o))
	return slices.DeleteFunc(rows, func(e Endpoint) bool { return e.Requests == nil })
}
