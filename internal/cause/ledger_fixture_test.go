package cause

import (
	"cmp"
	"slices"
	"sync"

	"github.com/slowray/slowray/internal/observe"
)

const ms = int64(1e6)

// traffic makes an observe.Endpoint out of requests, as the recorder sums them
// up. Requests begin evenly spread over a window of ten seconds.
type traffic struct {
	e    observe.Endpoint
	list []observe.RequestSample
}

// parts is a ledger in ns.
type parts map[observe.Part]int64

func servedAt(port int, addr string, pid int, comm string) *traffic {
	return &traffic{e: observe.Endpoint{Side: "served", NetNS: serverNS, Addr: addr, Port: port, PID: pid, PIDs: []int{pid}, Comm: comm,
		Peers: []observe.PeerStats{{Addr: "10.9.8.2", MinRTT: ms / 10}}}}
}

func callsTo(port int, addr string, pid int, comm string) *traffic {
	t := servedAt(port, addr, pid, comm)
	t.e.Side, t.e.Peers = "called", nil
	return t
}

// add puts n requests with the same ledger, an RTT and a least RTT of the
// connection, and flags.
func (t *traffic) add(n int, rtt, least int64, flags observe.RequestFlags, p parts) *traffic {
	var total int64
	byName := map[string]int64{}
	for part, ns := range p {
		byName[part.String()] = ns
		if part != observe.AckDelay {
			total += ns
		}
	}
	for range n {
		t.list = append(t.list, observe.RequestSample{TotalNS: total, Parts: byName, RTTNS: rtt, MinRTTNS: least, Flags: flags.Names(), BytesIn: 100, BytesOut: 3000})
	}
	return t
}

// lost counts segments retransmitted.
func (t *traffic) lost(segments, retrans uint64) *traffic {
	t.e.Segments, t.e.Retrans = segments, retrans
	return t
}

// peers puts n other ends at a distance.
func (t *traffic) peers(n int, least int64) *traffic {
	t.e.Peers = nil
	for i := range n {
		t.e.Peers = append(t.e.Peers, observe.PeerStats{Addr: "10.9.8." + itoa(i+2), Requests: uint64(len(t.list) / n), MinRTT: least})
	}
	return t
}

// endpoint sums up.
func (t *traffic) endpoint() observe.Endpoint {
	e := t.e
	e.Requests, e.Recorded, e.OK = uint64(len(t.list)), uint64(len(t.list)), uint64(len(t.list))
	e.Parts, e.Flags, e.SlowParts = map[string]observe.PartStats{}, map[string]uint64{}, map[string]int64{}
	if e.Segments == 0 {
		e.Segments = e.Requests * 3
	}
	if e.Arrivals == nil {
		e.Arrivals = make([]uint32, 100)
		for i := range t.list {
			e.Arrivals[i*100/len(t.list)]++
		}
	}
	list := slices.Clone(t.list)
	for i := range list {
		s := &list[i]
		e.Total.Add(s.TotalNS)
		e.RTT.Add(s.RTTNS)
		if e.MinRTT == 0 || s.MinRTTNS < e.MinRTT {
			e.MinRTT = s.MinRTTNS
		}
		e.BytesOut += s.BytesOut
		for _, f := range s.Flags {
			e.Flags[f]++
			if f == "unfinished" {
				e.Unfinished++
			}
		}
		for p := range observe.NumParts {
			ps := e.Parts[p.String()]
			ps.SumNS += s.Parts[p.String()]
			ps.Hist.Add(s.Parts[p.String()])
			e.Parts[p.String()] = ps
		}
	}
	slices.SortStableFunc(list, func(a, b observe.RequestSample) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	n := min(max(len(list)/100, 10), len(list))
	e.SlowCount = uint64(n)
	for _, s := range list[:n] {
		for name, ns := range s.Parts {
			e.SlowParts[name] += ns
		}
	}
	e.Slowest = list[:min(20, len(list))]
	return e
}

// Ledgers that many fixtures share.
var (
	quick = parts{observe.RecvWait: ms / 20, observe.Server: 2 * ms, observe.Network: ms / 10}
	cold  = parts{observe.RecvWait: ms / 2, observe.Server: 40 * ms, observe.Network: ms / 10}
	// On full CPUs everything that needs a thread is late.
	crowded = parts{observe.RecvWait: 62 * ms, observe.Server: 38 * ms, observe.Network: ms / 2}
)

// busyEndpoints are those of a host whose CPUs are full of its own requests
// and of the load generator: 100 ms at the median, and nothing is wrong.
func busyEndpoints() []observe.Endpoint { return slices.Clone(busy()) }

var busy = sync.OnceValue(func() []observe.Endpoint {
	web := servedAt(webPort, "10.9.8.1", nginxMaster, "nginx").
		add(9000, ms/4, ms/20, 0, crowded).
		add(400, ms, ms/20, 0, parts{observe.RecvWait: 180 * ms, observe.Server: 90 * ms, observe.Network: 2 * ms, observe.AckDelay: 5 * ms}).
		add(40, ms, ms/20, observe.FlagZeroWindow, parts{observe.RecvWait: 90 * ms, observe.Server: 38 * ms, observe.SendWait: 30 * ms, observe.Network: 2 * ms})
	fpm := servedAt(fpmPort, "127.0.0.1", fpmMaster, "php-fpm8.2").
		add(9000, ms/20, ms/50, observe.FlagClosed, parts{observe.AcceptWait: 20 * ms, observe.Server: 8 * ms, observe.Network: ms / 20}).
		add(300, ms/20, ms/50, observe.FlagClosed, parts{observe.AcceptWait: 110 * ms, observe.Server: 9 * ms, observe.Network: ms / 20})
	up := callsTo(fpmPort, "127.0.0.1", nginxMaster, "nginx").
		add(9000, ms/20, ms/50, 0, parts{observe.RecvWait: 5 * ms, observe.Server: 29 * ms, observe.Network: ms / 20}).
		add(300, ms/20, ms/50, 0, parts{observe.RecvWait: 20 * ms, observe.Server: 130 * ms, observe.Network: ms / 20})
	wrk := callsTo(webPort, "10.9.8.1", clientPID, "wrk").
		add(9440, ms/4, ms/20, 0, parts{observe.RecvWait: 30 * ms, observe.Server: 103 * ms, observe.Network: ms / 4})
	wrk.e.NetNS = clientNS
	fpm.e.Connections, up.e.Connections, wrk.e.Connections = 9300, 9300, 40
	return []observe.Endpoint{web.endpoint(), fpm.endpoint(), up.endpoint(), wrk.endpoint()}
})

// quiet replaces the fixture's requests by these, on a machine with CPU to
// spare.
func quiet(list ...*traffic) func(*observe.Observation) {
	return func(o *observe.Observation) {
		idle(o)
		o.Endpoints = nil
		for _, t := range list {
			o.Endpoints = append(o.Endpoints, t.endpoint())
		}
	}
}

// nginx and db are the endpoints that fixtures fill.
func nginxServed() *traffic { return servedAt(webPort, "10.9.8.1", nginxMaster, "nginx") }
func fpmServed() *traffic   { return servedAt(fpmPort, "127.0.0.1", fpmMaster, "php-fpm8.2") }
func fpmCalled() *traffic   { return callsTo(fpmPort, "127.0.0.1", nginxMaster, "nginx") }

const dbPort = 3306

func dbCalled() *traffic { return callsTo(dbPort, "10.7.7.7", fpmMaster, "php-fpm8.2") }

// waveArrivals is a window in which all requests begin in one tenth of every
// second.
func waveArrivals(n uint32) []uint32 {
	a := make([]uint32, 100)
	for i := 0; i < 100; i += 10 {
		a[i] = n
	}
	return a
}
