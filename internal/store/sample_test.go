package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// traffic makes requests as a busy host has them: eight services with workers,
// times that are spread over two orders of magnitude, a ledger with noise in
// every nanosecond, a few errors and retransmissions.
type traffic struct {
	rng   *rand.Rand
	peers []netip.Addr
	procs []observe.Identity
}

func newTraffic(seed uint64) *traffic {
	t := &traffic{rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range 200 {
		t.peers = append(t.peers, netip.AddrFrom4([4]byte{10, 1, byte(i / 50), byte(i)}))
	}
	for i := range 8 {
		t.procs = append(t.procs, observe.Identity{
			Comm: fmt.Sprintf("svc-%d", i), Cgroup: fmt.Sprintf("/system.slice/docker-%064x.scope", i*7919),
			Container: fmt.Sprintf("%064x", i*7919), ContainerName: fmt.Sprintf("shop-svc-%d", i), Unit: fmt.Sprintf("docker-%d.service", i),
		})
	}
	return t
}

// lognormal is a time in ns with this median, spread by sigma.
func (t *traffic) lognormal(median, sigma float64) int64 {
	return int64(median * math.Exp(sigma*t.rng.NormFloat64()))
}

// next makes r a request that began at start, ns since 1970.
func (t *traffic) next(r *Request, start int64) {
	svc := t.rng.IntN(len(t.procs))
	*r = Request{Process: t.procs[svc]}
	r.Side, r.StartNS, r.NetNS = observe.Served, start, 4026531840+uint64(svc%3)
	r.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(svc)}), uint16(8000+svc))
	r.Peer = netip.AddrPortFrom(t.peers[t.rng.IntN(len(t.peers))], uint16(32768+t.rng.IntN(28000)))
	r.PID = 1000 + svc*10 + t.rng.IntN(4)
	r.TID, r.Seq, r.Requests, r.Weight = r.PID, uint32(1+t.rng.IntN(50)), 1, 100
	r.BytesIn, r.BytesOut = uint64(200+t.rng.IntN(100)), uint64(t.lognormal(4000, 1))
	r.RTTNS, r.MinRTTNS, r.MSS = t.lognormal(150e3, 0.3), 90_000+int64(t.rng.IntN(3000)), 1448
	r.Ledger[observe.RecvWait] = t.lognormal(15e3, 0.5)
	r.Followed = true
	r.Split[observe.ServerCPU] = t.lognormal(400e3, 0.8)
	r.Split[observe.ServerRunq] = t.lognormal(5e3, 1)
	if svc%2 == 0 {
		r.Split[observe.ServerCall] = t.lognormal(2e6, 0.8)
	}
	r.Ledger[observe.Server] = r.Split.Sum()
	r.Ledger[observe.Network] = t.lognormal(160e3, 0.3)
	r.FirstByte = r.Ledger[observe.RecvWait] + r.Ledger[observe.Server]
	r.Status, r.HTTP = observe.StatusOK, 200
	switch t.rng.IntN(100) {
	case 0:
		r.Status, r.HTTP, r.Why, r.Weight = observe.StatusError, 502, Failed, 1
	case 1:
		r.Retrans, r.Flags = 1, observe.FlagTimeout
		r.Ledger[observe.Retrans] = t.lognormal(210e6, 0.1)
		r.Why, r.Weight = Slow, 1
	}
}

// second makes what an endpoint did in one second, of n requests.
func (t *traffic) second(svc int, at int64, n int) Second {
	sec := Second{At: at, Process: t.procs[svc]}
	e := &sec.Endpoint
	e.Side, e.NetNS, e.Addr, e.Port = observe.Served.String(), 4026531840, fmt.Sprintf("10.0.0.%d", svc), 8000+svc
	e.PID, e.Comm = 1000+svc*10, t.procs[svc].Comm
	e.Parts = map[string]observe.PartStats{}
	e.Split = &observe.SplitStats{Parts: map[string]observe.PartStats{}}
	e.Statuses, e.Flags = map[string]uint64{}, map[string]uint64{}
	var r Request
	for range n {
		t.next(&r, at*1e9)
		e.Requests++
		e.Recorded++
		if r.Status == observe.StatusError {
			e.Errors++
			e.Statuses["5xx"]++
		} else {
			e.OK++
			e.Statuses["2xx"]++
		}
		for _, flag := range r.Flags.Names() {
			e.Flags[flag]++
		}
		e.BytesIn += r.BytesIn
		e.BytesOut += r.BytesOut
		e.Segments += 3
		e.Retrans += uint64(r.Retrans)
		e.Total.Add(r.TotalNS())
		e.RTT.Add(r.RTTNS)
		if e.MinRTT == 0 || r.MinRTTNS < e.MinRTT {
			e.MinRTT = r.MinRTTNS
		}
		for p, ns := range r.Ledger {
			if ns != 0 {
				s := e.Parts[observe.Part(p).String()]
				s.SumNS += ns
				s.Hist.Add(ns)
				e.Parts[observe.Part(p).String()] = s
			}
		}
		e.Split.Requests++
		e.Split.ServerNS += r.Ledger[observe.Server]
		for p, ns := range r.Split {
			if ns != 0 {
				s := e.Split.Parts[observe.ServerPart(p).String()]
				s.SumNS += ns
				s.Hist.Add(ns)
				e.Split.Parts[observe.ServerPart(p).String()] = s
			}
		}
	}
	return sec
}
