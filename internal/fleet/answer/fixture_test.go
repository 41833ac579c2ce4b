package answer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/store"
)

// began is when the simulated time begins, s since 1970: a Tuesday, 10:00 UTC.
const began = int64(1_800_007_200)

// world is a fleet that is made up: a balancer before web hosts, each of which calls
// a database, and a cache of its own.
type world struct {
	*memory.Archive
	r     *rand.Rand
	webs  int
	label func(i int) map[string]string
	// What happens, by the second since it began; nil: nothing.
	db      func(host string, s int64) (added time.Duration) // to the database's own time
	wire    func(host string, s int64) time.Duration         // to the way between a web host and the database
	web     func(host string, s int64) time.Duration         // to a web host's own time
	cache   func(host string, s int64) time.Duration         // to a cache's own time
	group   func(host, comm string) string                   // control group; with it each web host has an exporter too
	silent  func(host string, s int64) bool
	address func(db string) string // by which the database is called
	skew    map[string]time.Duration
	unkept  bool // no request is kept
	shipped *shipped
	seq     uint32
}

func newWorld(webs int) *world {
	return &world{Archive: new(memory.Archive), r: rand.New(rand.NewPCG(1, 2)), webs: webs, skew: map[string]time.Duration{}}
}

func (w *world) host(name, addr string, labels map[string]string, s int64) {
	h := &fleet.Host{Name: name, ID: name, Addresses: []string{addr}, Kernel: "6.12.1", CPUs: 4, Version: "1", Labels: labels}
	at := time.Unix(began+s, 0)
	if err := w.Hello(context.Background(), h, at); err != nil {
		panic(err)
	}
	if w.shipped != nil {
		w.shipped.hosts[name], w.shipped.last[name] = h, at
	}
}

// addSecond adds to the archive, and to what is shipped to another one.
func (w *world) addSecond(host string, x *store.Second) {
	w.AddSecond(host, x)
	if w.shipped != nil {
		w.shipped.seconds[host] = append(w.shipped.seconds[host], *x)
	}
}

func (w *world) addRequest(host string, x *store.Request) {
	w.AddRequest(host, x)
	if w.shipped != nil {
		w.shipped.requests[host] = append(w.shipped.requests[host], *x)
	}
}

func (w *world) addFinding(host string, x *store.Finding) {
	w.AddFinding(host, x)
	if w.shipped != nil {
		w.shipped.findings[host] = append(w.shipped.findings[host], *x)
	}
}

type spans struct{ server, call, disk, network time.Duration }

// second adds a second of an endpoint whose requests take about so long.
func (w *world) second(host string, side observe.Side, comm, addr string, port int, s int64, n int, t spans) {
	x := &store.Second{At: began + s, Process: observe.Identity{Comm: comm}}
	if w.group != nil {
		x.Process.Cgroup = w.group(host, comm)
	}
	e := &x.Endpoint
	e.Side, e.Addr, e.Port, e.Comm = side.String(), addr, port, comm
	k := max(n+w.r.IntN(n/3+1)-n/6, 1)
	e.Requests, e.Recorded, e.OK = uint64(k), uint64(k), uint64(k)
	var server, network, call, disk int64
	for range k {
		f := 0.7 + 0.6*w.r.Float64()
		sv, nw := int64(f*float64(t.server+t.call+t.disk)), int64(f*float64(t.network))
		server += sv
		network += nw
		call += int64(f * float64(t.call))
		disk += int64(f * float64(t.disk))
		e.Total.Add(sv + nw)
	}
	e.Parts = map[string]observe.PartStats{"server": {SumNS: server}, "network": {SumNS: network}}
	if side == observe.Served {
		e.Split = &observe.SplitStats{Requests: uint64(k), ServerNS: server, Parts: map[string]observe.PartStats{
			"server.call": {SumNS: call}, "server.blocked.disk": {SumNS: disk}, "server.cpu": {SumNS: server - call - disk}}}
	}
	e.Segments, e.MinRTT = uint64(2*k), int64(100*time.Microsecond)
	w.addSecond(host, x)
}

func orNone(f func(string, int64) time.Duration, host string, s int64) time.Duration {
	if f == nil {
		return 0
	}
	return f(host, s)
}

func (w *world) webName(i int) string { return fmt.Sprintf("web-%d", i) }
func (w *world) webAddr(i int) string { return fmt.Sprintf("10.0.1.%d", i+1) }

// run makes so many seconds. Every tenth request to the database is kept at both ends,
// unless its second is odd: then one end has not kept it.
func (w *world) run(seconds int64) {
	for s := range seconds {
		gone := func(host string) bool { return w.silent != nil && w.silent(host, s) }
		db := 2*time.Millisecond + orNone(w.db, "db-7", s)
		dbTimes := spans{server: 2 * time.Millisecond, disk: db - 2*time.Millisecond, network: 100 * time.Microsecond}
		if !gone("db-7") {
			if s%60 == 0 {
				w.host("db-7", "10.0.0.7", map[string]string{"rack": "r0"}, s)
			}
			w.second("db-7", observe.Served, "mariadbd", "10.0.0.7", 3306, s, 20*w.webs, dbTimes)
		}
		called := "10.0.0.7"
		if w.address != nil {
			called = w.address("db-7")
		}
		slowest := time.Duration(0)
		for i := range w.webs {
			name, addr := w.webName(i), w.webAddr(i)
			own, wire := 3*time.Millisecond+orNone(w.web, name, s), 200*time.Microsecond+orNone(w.wire, name, s)
			web := spans{server: own, call: 2 * (db + wire), network: 100 * time.Microsecond}
			slowest = max(slowest, web.server+web.call)
			if gone(name) {
				continue
			}
			if s%60 == 0 {
				labels := map[string]string{"rack": fmt.Sprintf("r%d", i%4)}
				if w.label != nil {
					labels = w.label(i)
				}
				w.host(name, addr, labels, s)
			}
			busy := 1
			if w.group != nil {
				busy = 4 // so that seconds tell of each
			}
			w.second(name, observe.Served, "app", addr, 8080, s, 10*busy, web)
			w.second(name, observe.Called, "app", called, 3306, s, 20, spans{server: db + wire, network: 100 * time.Microsecond})
			w.second(name, observe.Called, "app", "127.0.0.1", 6379, s, 5, spans{server: 200 * time.Microsecond})
			w.second(name, observe.Served, "redis", "127.0.0.1", 6379, s, 5*busy, spans{server: 150*time.Microsecond + orNone(w.cache, name, s)})
			if w.group != nil {
				w.second(name, observe.Served, "exporter", addr, 9100, s, 40, spans{server: time.Millisecond})
			}
			if s%10 == int64(i)%10 && !w.unkept {
				w.pair(name, addr, called, s, db, wire, s%20 >= 10)
			}
		}
	}
}

// pair keeps a request at both ends, or at one.
func (w *world) pair(host, addr, called string, s int64, db, wire time.Duration, one bool) {
	w.seq++
	c := &store.Request{Process: observe.Identity{Comm: "app"}, Why: store.Sampled}
	at := (began+s)*1e9 + w.r.Int64N(9e8)
	c.Side, c.Seq, c.Weight, c.BytesOut, c.BytesIn, c.PID = observe.Called, w.seq, 1, 100+uint64(w.seq%977), 900, 4000
	c.Local, c.Peer = netip.AddrPortFrom(netip.MustParseAddr(addr), 40000), netip.AddrPortFrom(netip.MustParseAddr(called), 3306)
	c.StartNS = at + int64(w.skew[host])
	total := int64(db + wire)
	c.FirstByte = total
	c.Ledger[observe.Network], c.Ledger[observe.Server] = 100_000, total-100_000
	w.addRequest(host, c)
	if one {
		return
	}
	v := &store.Request{Process: observe.Identity{Comm: "mariadbd"}, Why: store.Sampled}
	v.Side, v.Seq, v.Weight, v.BytesIn, v.BytesOut, v.PID = observe.Served, w.seq, 1, c.BytesOut, c.BytesIn, 812
	v.Local, v.Peer = netip.MustParseAddrPort("10.0.0.7:3306"), c.Local
	v.StartNS = at + int64(wire)/2 + int64(w.skew["db-7"])
	v.FirstByte = int64(db)
	v.Ledger[observe.Server], v.Ledger[observe.Network] = int64(db), 100_000
	w.addRequest("db-7", v)
}

// find adds a finding of a host's minute that begins at s.
func (w *world) find(host, id, title string, subject cause.Subject, share float64, s int64) {
	w.addFinding(host, &store.Finding{Start: time.Unix(began+s, 0), End: time.Unix(began+s+60, 0), Finding: cause.Finding{
		Cause: cause.ID(id), Title: title, Verdict: cause.Supported, Role: cause.RoleCause, Subject: subject,
		Impact:   cause.Impact{Share: share, Of: "slow time", Text: fmt.Sprintf("%.0f %% of the slow time", 100*share)},
		Evidence: []cause.Evidence{{Fact: "time in fsync", Value: 47, Unit: "ms", Source: "threads"}},
		Fix:      cause.Fix{Text: "a faster disk", Commands: []shell.Command{}},
	}})
}

func moment(s int64) time.Time { return time.Unix(began+s, 0).UTC() }

// why asks for a range, in seconds since it began.
func (w *world) why(t *testing.T, from, to int64, narrow ...func(*Question)) *Report {
	t.Helper()
	q := Question{From: moment(from), To: moment(to)}
	for _, f := range narrow {
		f(&q)
	}
	r, err := Why(context.Background(), w, q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func textOf(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Text(&b, 100); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// step is a fault from a second on.
func step(from int64, added time.Duration) func(string, int64) time.Duration {
	return func(_ string, s int64) time.Duration {
		if s < from {
			return 0
		}
		return added
	}
}
