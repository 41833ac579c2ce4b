package servicemap

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

const start = int64(1_800_000_000e9)

// scene makes requests between hosts whose clocks are known to be wrong.
type scene struct {
	random *rand.Rand
	ahead  map[string]func(ns int64) int64 // a host's clock, next to the true one
	hosts  []fleet.HostSeen
	ends   []End
	seq    map[string]uint32
	behind map[string]uint32 // by how much a host's numbers are behind on old connections
}

func newScene() *scene {
	return &scene{random: rand.New(rand.NewPCG(1, 2)), ahead: map[string]func(int64) int64{}, seq: map[string]uint32{}, behind: map[string]uint32{}}
}

func (s *scene) host(name string, ahead time.Duration, ppm float64, addresses ...string) {
	s.ahead[name] = func(ns int64) int64 { return int64(ahead) + int64(float64(ns-start)*ppm*1e-6) }
	s.hosts = append(s.hosts, fleet.HostSeen{Host: fleet.Host{Name: name, Addresses: addresses}})
}

// turn is one request and its truth, ns.
type turn struct {
	at                          int64 // true time: first byte sent
	clientHost, serverHost      string
	client, server              string // as the client knows them
	clientThere, serverThere    string // as the server knows them; "" the same
	there, back, work, readLate int64
	bytes                       uint64
	onlyCalled, onlyServed      bool
}

// add makes both ends of a turn.
func (s *scene) add(t turn) {
	s.seq[t.client+t.server]++
	seq := s.seq[t.client+t.server]
	bytes := t.bytes
	if bytes == 0 {
		bytes = 100 + uint64(s.random.IntN(1000))
	}
	or := func(a, b string) netip.AddrPort {
		if a == "" {
			a = b
		}
		return netip.MustParseAddrPort(a)
	}
	minRTT := min(t.there+t.back, 200_000)
	floor := func(ns int64) int64 { return ns / 1000 * 1000 } // as stores keep it
	if !t.onlyServed {
		c := store.Request{Process: observe.Identity{Comm: "app-" + t.clientHost}}
		c.Side, c.Seq, c.BytesOut, c.BytesIn, c.Weight = observe.Called, seq-s.behind[t.clientHost], bytes, 2*bytes, 1
		c.Local, c.Peer = or(t.client, ""), or(t.server, "")
		c.StartNS = floor(t.at + s.ahead[t.clientHost](t.at))
		c.FirstByte = floor(t.there + t.work + t.back)
		c.Ledger[observe.Network] = minRTT
		c.Ledger[observe.Server] = t.there + t.work + t.back - minRTT
		c.Ledger[observe.RecvWait] = t.readLate
		s.ends = append(s.ends, EndOf(t.clientHost, &c))
	}
	if !t.onlyCalled {
		v := store.Request{Process: observe.Identity{Comm: "srv-" + t.serverHost}}
		v.Side, v.Seq, v.BytesIn, v.BytesOut, v.Weight = observe.Served, seq-s.behind[t.serverHost], bytes, 2*bytes, 1
		v.Local, v.Peer = or(t.serverThere, t.server), or(t.clientThere, t.client)
		arrived := t.at + t.there
		v.StartNS = floor(arrived + s.ahead[t.serverHost](arrived))
		v.FirstByte = floor(t.work)
		v.Ledger[observe.Server] = t.work
		v.Ledger[observe.Network] = minRTT
		s.ends = append(s.ends, EndOf(t.serverHost, &v))
	}
}

// talk makes requests from one host to another, in pairs of ends of which some are
// kept at one end only.
func (s *scene) talk(n int, every time.Duration, t turn, lost float64) {
	for i := range n {
		t.at = start + int64(i)*int64(every)
		t.client = netip.AddrPortFrom(netip.MustParseAddrPort(t.client).Addr(), uint16(40000+i%7)).String()
		// A queue now and then, on either way.
		t.there = 80_000 + int64(s.random.ExpFloat64()*100_000)
		t.back = 60_000 + int64(s.random.ExpFloat64()*300_000)
		if t.work == 0 {
			t.work = 1_000_000
		}
		one := t
		one.work += int64(s.random.ExpFloat64() * 500_000)
		switch r := s.random.Float64(); {
		case r < lost/2:
			one.onlyCalled = true
		case r < lost:
			one.onlyServed = true
		}
		s.add(one)
	}
}

// point is a minute of an endpoint.
func point(host, service string, side observe.Side, addr string, port int, requests uint64, p99 int64) *fleet.Point {
	return &fleet.Point{Key: fleet.Key{Host: host, Service: service, Side: side, Addr: addr, Port: port}, At: start / 1e9, Seconds: 60,
		Requests: requests, TotalUS: int64(requests) * p99 / 2, P50US: p99 / 3, P99US: p99}
}

func textOf(e *Edge) string {
	return fmt.Sprintf("%s/%s → %s:%d = %s/%s (%s)", e.From.Host, e.From.Service, e.From.Addr, e.From.Port, e.To.Host, e.To.Service, e.How)
}

func addPort(a netip.AddrPort, n uint16) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr(), a.Port()+n)
}
