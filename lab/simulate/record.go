package simulate

import (
	"math"
	"net/netip"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// quantilePoints are the quantiles at which a histogram is filled, in spreads of the
// normal distribution: the middles of twenty equal shares, and the last hundredth.
var quantilePoints = func() (z [20]float64) {
	for i := range z {
		z[i] = math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/20-1)
	}
	z[19] = 2.326
	return z
}()

// second makes the store's record of a point, as its host would write it.
func second(p *fleet.Point, comm string) store.Second {
	e := observe.Endpoint{
		Side: p.Side.String(), NetNS: 4026531840, Addr: p.Addr, Port: p.Port, PID: 1000 + p.Port%1000, Comm: comm,
		Requests: p.Requests, Errors: p.Errors, OK: p.Requests - min(p.Errors, p.Requests), Recorded: p.Requests,
		BytesIn: 400 * p.Requests, BytesOut: 3000 * p.Requests, Segments: p.Segments, Retrans: p.Retrans,
		MinRTT: p.MinRTTUS * 1000, SynRetrans: p.SynAgain, Connections: p.Requests / 20,
		Parts: make(map[string]observe.PartStats, 4),
	}
	n := max(p.Requests, 1)
	sigma := math.Log(float64(max(p.P99US, 1))/float64(max(p.P50US, 1))) / 2.326
	for i, z := range quantilePoints {
		share := p.Requests / uint64(len(quantilePoints))
		if uint64(i) < p.Requests%uint64(len(quantilePoints)) {
			share++
		}
		e.Total.AddN(int64(float64(p.P50US)*1000*math.Exp(sigma*z)), share)
	}
	e.RTT.AddN(p.MinRTTUS*1100, p.Requests)
	for part := range observe.NumParts {
		if us := p.PartsUS[part]; us > 0 {
			s := observe.PartStats{SumNS: us * 1000}
			s.Hist.AddN(us*1000/int64(n), p.Requests)
			e.Parts[part.String()] = s
		}
	}
	if p.Side == observe.Served {
		split := &observe.SplitStats{Requests: p.Requests, Parts: make(map[string]observe.PartStats, 4)}
		for part := range observe.NumServerParts {
			if us := p.SplitUS[part]; us > 0 {
				s := observe.PartStats{SumNS: us * 1000}
				s.Hist.AddN(us*1000/int64(n), p.Requests)
				split.Parts[part.String()] = s
				split.ServerNS += us * 1000
			}
		}
		e.Split = split
	}
	return store.Second{At: p.At, Endpoint: e, Process: observe.Identity{Comm: comm}}
}

// requests gives requests of the second that Second made last: of each address that
// is called one that stands for all, and those that failed, three at most; each at
// both ends.
func (f *Fleet) requests(at int64, add func(host *Host, r *store.Request)) {
	r := f.rng
	for _, c := range f.calls {
		if c.n == 0 {
			continue
		}
		failed := 0
		if c.to.n > 0 {
			failed = int(min(c.n*c.to.errors/c.to.n+r.Float64(), 3))
		}
		for i := range failed + 1 {
			f.call(c, at, uint32(c.n)-uint32(min(failed, int(c.n)-1)), i < failed, add)
		}
	}
}

// call makes one request, at both ends.
func (f *Fleet) call(c *call, at int64, weight uint32, failed bool, add func(host *Host, r *store.Request)) {
	r := f.rng
	noise := f.noise(c.to.svc.shape.Sigma, 1)
	start := at*1e9 + r.Int64N(9e8)
	rtt := int64(c.rtt() * 1000)
	client := netip.AddrPortFrom(netip.MustParseAddr(c.from.host.Addresses[0]), uint16(32768+r.IntN(28000)))
	server := netip.AddrPortFrom(netip.MustParseAddr(c.to.host.Addresses[0]), uint16(c.to.svc.port))
	served := store.Request{Request: observe.Request{
		Side: observe.Served, StartNS: start + rtt/2, NetNS: 4026531840, Local: server, Peer: client, PID: 1000 + c.to.svc.port%1000,
		Seq: 1 + uint32(r.IntN(100)), Requests: 1, Weight: weight, BytesIn: 400, BytesOut: 3000, RTTNS: rtt, MinRTTNS: rtt,
		MSS: 1448, Status: observe.StatusOK, Followed: true,
	}, Process: observe.Identity{Comm: c.to.svc.comm}}
	if failed {
		served.Status, served.Why, served.Weight = observe.StatusError, store.Failed, 1
	}
	var server0 int64
	for p := range served.Split {
		us := c.to.split[p]
		if observe.ServerPart(p) == observe.ServerCall {
			us += c.to.waits
		}
		served.Split[p] = int64(us * noise * 1000)
		server0 += served.Split[p]
	}
	served.Ledger[observe.Server], served.Ledger[observe.Network] = server0, rtt
	called := served
	called.Side, called.Local, called.Peer, called.StartNS = observe.Called, client, server, start
	called.BytesIn, called.BytesOut, called.Followed, called.Split = served.BytesOut, served.BytesIn, false, observe.ServerSplit{}
	if vip, err := netip.ParseAddr(c.key.Addr); err == nil {
		called.Peer = netip.AddrPortFrom(vip, server.Port())
	}
	called.PID, called.Process = 1000+c.from.svc.port%1000, observe.Identity{Comm: c.from.svc.comm}
	if !c.from.hidden && !c.from.host.removed && !c.from.host.dead {
		add(c.from.host, &called)
	}
	if !c.to.hidden && !c.to.host.removed && !c.to.host.dead {
		add(c.to.host, &served)
	}
}
