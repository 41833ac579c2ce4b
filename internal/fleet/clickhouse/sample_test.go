package clickhouse

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// noon is when tests begin: today, so that nothing is too old to be kept.
var noon = time.Now().UTC().Truncate(24 * time.Hour).Add(time.Hour)

// traffic makes requests as a busy host has them: whole microseconds, as the log of a
// store has them.
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

// lognormal is a time in ns, whole µs, with this median, spread by sigma.
func (t *traffic) lognormal(median, sigma float64) int64 {
	return int64(median*math.Exp(sigma*t.rng.NormFloat64())) / 1000 * 1000
}

// next makes r a request that began at start, ns since 1970.
func (t *traffic) next(r *store.Request, start int64) {
	svc := t.rng.IntN(len(t.procs))
	*r = store.Request{Process: t.procs[svc]}
	r.Side, r.StartNS, r.NetNS = observe.Served, start/1000*1000, 4026531840+uint64(svc%3)
	r.Local = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(svc)}), uint16(8000+svc))
	r.Peer = netip.AddrPortFrom(t.peers[t.rng.IntN(len(t.peers))], uint16(32768+t.rng.IntN(28000)))
	r.PID = 1000 + svc*10 + t.rng.IntN(4)
	r.TID, r.Seq, r.Requests, r.Weight = r.PID, uint32(1+t.rng.IntN(50)), 1, 100
	r.BytesIn, r.BytesOut = uint64(200+t.rng.IntN(100)), uint64(t.lognormal(4000e3, 1)/1000)
	r.RTTNS, r.MinRTTNS, r.MSS = t.lognormal(150e3, 0.3), int64(90+t.rng.IntN(3))*1000, 1448
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
		r.Status, r.HTTP, r.Why, r.Weight = observe.StatusError, 502, store.Failed, 1
	case 1:
		r.Retrans, r.Flags = 1, observe.FlagTimeout
		r.Ledger[observe.Retrans] = t.lognormal(210e6, 0.1)
		r.Why, r.Weight = store.Slow, 1
	}
}

// requests makes n of them, a few for each millisecond.
func (t *traffic) requests(n int, start time.Time) []store.Request {
	list := make([]store.Request, n)
	for i := range list {
		t.next(&list[i], start.UnixNano()+int64(i)*300e3)
	}
	return list
}

// numbered gives records with positions from first on.
func numbered[T any](first fleet.Position, list []T) iter.Seq2[fleet.Position, *T] {
	return func(yield func(fleet.Position, *T) bool) {
		for i := range list {
			if !yield(first+fleet.Position(i), &list[i]) {
				return
			}
		}
	}
}

func batchOf(h *fleet.Host, s fleet.Stream, first fleet.Position, n int, at time.Time) *fleet.Batch {
	return &fleet.Batch{Host: h, Stream: s, First: first, Last: first + fleet.Position(n) - 1, Count: n, Day: dayOf(at)}
}

func requestBatch(h *fleet.Host, first fleet.Position, list []store.Request) *fleet.Batch {
	b := batchOf(h, fleet.Requests, first, len(list), time.Unix(0, list[0].StartNS))
	b.Requests = numbered(first, list)
	return b
}

func secondBatch(h *fleet.Host, first fleet.Position, list []store.Second) *fleet.Batch {
	b := batchOf(h, fleet.Seconds, first, len(list), time.Unix(list[0].At, 0))
	b.Seconds = numbered(first, list)
	return b
}

func hostNumber(i int) *fleet.Host {
	return &fleet.Host{Name: fmt.Sprintf("host-%d", i), ID: fmt.Sprintf("history-%d", i), Labels: map[string]string{"rack": fmt.Sprint(i % 5)}, Addresses: []string{"10.0.0.1", "fe80::1"}, Kernel: "6.1.0", CPUs: 8, Version: "test"}
}

// second makes what an endpoint did in a second: the requests that are given.
func secondOf(at int64, list []store.Request) store.Second {
	r := &list[0]
	s := store.Second{At: at, Process: r.Process, Endpoint: observe.Endpoint{
		Side: r.Side.String(), NetNS: r.NetNS, Addr: r.Local.Addr().String(), Port: int(r.Local.Port()), PID: r.PID, Comm: r.Process.Comm,
		Parts: map[string]observe.PartStats{}, Flags: map[string]uint64{}, Statuses: map[string]uint64{},
		Split: &observe.SplitStats{Parts: map[string]observe.PartStats{}}, Connections: 3, Handshake: 5000, HandshakeMax: 3000, SynRetrans: 1,
	}}
	e := &s.Endpoint
	for i := range list {
		r := &list[i]
		e.Requests, e.Recorded = e.Requests+1, e.Recorded+1
		if r.Status == observe.StatusOK {
			e.OK++
			e.Statuses["2xx"]++
		} else {
			e.Errors++
			e.Statuses["5xx"]++
		}
		e.BytesIn, e.BytesOut, e.Segments, e.Retrans = e.BytesIn+r.BytesIn, e.BytesOut+r.BytesOut, e.Segments+4, e.Retrans+uint64(r.Retrans)
		if e.MinRTT == 0 || r.MinRTTNS < e.MinRTT {
			e.MinRTT = r.MinRTTNS
		}
		e.Total.Add(r.TotalNS())
		e.RTT.Add(r.RTTNS)
		for p := range observe.NumParts {
			st := e.Parts[p.String()]
			st.SumNS += r.Ledger[p]
			st.Hist.Add(r.Ledger[p])
			e.Parts[p.String()] = st
		}
		e.Split.Requests++
		e.Split.ServerNS += r.Ledger[observe.Server]
		for p := range observe.NumServerParts {
			st := e.Split.Parts[p.String()]
			st.SumNS += r.Split[p]
			e.Split.Parts[p.String()] = st
		}
		for _, name := range r.Flags.Names() {
			e.Flags[name]++
		}
	}
	return s
}

func findingAt(at time.Time, text string) store.Finding {
	follows := cause.ID("disk-slow")
	return store.Finding{Start: at, End: at.Add(10 * time.Second), Finding: cause.Finding{
		Cause: "fsync-bound", Title: text, Role: "cause", Verdict: "supported", ConsequenceOf: &follows, Weight: 0.25,
		Impact: cause.Impact{Share: 0.5, Of: "slow time", Text: text}, Subject: cause.Subject{Kind: "process", NetNS: 7, PID: 12, Comm: text, Port: 3306, Addr: "10.0.0.7"},
	}}
}
