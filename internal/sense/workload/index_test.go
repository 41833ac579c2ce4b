package workload

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/observe"
)

const second = int64(time.Second)

var (
	cart = observe.Workload{Namespace: "shop", Pod: "cart-7d9f8b6c5d-x2x4z", Kind: "Deployment", Name: "cart", Node: "node-7", Zone: "b"}
	db   = observe.Workload{Namespace: "shop", Pod: "db-0", Kind: "StatefulSet", Name: "db", Node: "node-7", Zone: "b"}
)

// tenancy is what really was: a pod had an address for a time.
type tenancy struct {
	addr     netip.Addr
	uid      string
	who      observe.Workload
	from, to int64
}

// churn is pods that come and go, 50 a second for some seconds, with addresses and names
// that are used again at once.
func churn(t *rapid.T) []tenancy {
	seconds := rapid.IntRange(1, 6).Draw(t, "seconds")
	addrs := rapid.IntRange(1, 12).Draw(t, "addresses")
	free := make([]int64, addrs)
	var all []tenancy
	for i := range 50 * seconds {
		at := 1e6*second + int64(i)*second/50
		a := rapid.IntRange(0, addrs-1).Draw(t, "address")
		if free[a] > at {
			continue // somebody has it
		}
		// Times of the API server are whole seconds: some begin in the moment in which
		// the one before ends.
		from := max(free[a], at-rapid.Int64Range(0, second/10).Draw(t, "before"))
		to := from + rapid.Int64Range(1, 2*second).Draw(t, "life")
		free[a] = to
		who := observe.Workload{Namespace: "shop", Pod: fmt.Sprintf("db-%d", i%5), Kind: "StatefulSet", Name: "db"}
		all = append(all, tenancy{netip.AddrFrom4([4]byte{10, 1, 0, byte(a)}), fmt.Sprint("uid-", i), who, from, to})
	}
	return all
}

// naive is the same as Index, by looking at everything that was said.
type naive map[netip.Addr]map[string]*tenancy

func (n naive) claim(a netip.Addr, c *Claim) {
	if n[a] == nil {
		n[a] = map[string]*tenancy{}
	}
	p := n[a][c.UID]
	if p == nil {
		n[a][c.UID] = &tenancy{a, c.UID, c.Who, c.From, c.To}
		return
	}
	p.from = min(p.from, c.From)
	if c.To != 0 && (p.to == 0 || c.To < p.to) {
		p.to = c.To
	}
}

func (n naive) at(a netip.Addr, at int64) (uid string) {
	latest := int64(0)
	for _, p := range n[a] {
		if p.from <= at {
			latest = max(latest, p.from)
		}
	}
	for _, p := range n[a] {
		if p.from == latest && (p.to == 0 || at < p.to) {
			if uid != "" {
				return ""
			}
			uid = p.uid
		}
	}
	return uid
}

// TestLateAndOutOfOrder: whatever the order in which one hears of pods, an address is
// whose it was by all that was heard, and by the truth where its end was heard of.
func TestLateAndOutOfOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		truth := churn(t)
		type event struct {
			of int
			to bool
		}
		var events []event
		for i := range truth {
			events = append(events, event{i, false}, event{i, true})
		}
		if rapid.Bool().Draw(t, "any order") {
			events = rapid.Permutation(events).Draw(t, "events")
		}
		x, model := New(DefaultLimits), naive{}
		ended := map[string]bool{}
		look := func() {
			of := truth[rapid.IntRange(0, len(truth)-1).Draw(t, "of")]
			at := of.from + rapid.Int64Range(-second, 3*second).Draw(t, "at")
			got, known := x.At(of.addr, at)
			want := model.at(of.addr, at)
			if known != (want != "") || known && model[of.addr][want].who != got {
				t.Fatalf("%s at %d is %+v (%t), by all that was said %q", of.addr, at, got, known, want)
			}
			if real := whose(truth, of.addr, at); known && want != real && ended[want] {
				t.Fatalf("%s at %d is %s's, really %s's", of.addr, at, want, real)
			}
		}
		for n, e := range events {
			p := truth[e.of]
			c := &Claim{Source: Pods, UID: p.uid, Who: p.who, From: p.from}
			if e.to {
				c.To, ended[p.uid] = p.to, true
			} else {
				c.From += rapid.Int64Range(0, (p.to-p.from)/2).Draw(t, "seen later")
			}
			x.Address(p.addr, c)
			model.claim(p.addr, c)
			if n%10 == 0 {
				look()
			}
		}
		for range 20 {
			look()
		}
		for _, p := range truth { // all is known now: nothing in a tenancy is unknown
			for _, at := range []int64{p.from, (p.from + p.to) / 2, p.to - 1} {
				if got, ok := x.At(p.addr, at); !ok || got != p.who {
					t.Fatalf("%s at %d is %+v (%t), want %+v", p.addr, at, got, ok, p.who)
				}
			}
		}
		x.Sweep(1e7 * second)
		if s := x.Stats(); s.Spans != 0 || x.textBytes != 0 || len(x.texts.ids)+len(x.owners.ids)+len(x.places.ids)+x.expanded != 0 {
			t.Fatalf("after all is over there are %+v, %d bytes of names", s, x.textBytes)
		}
	})
}

func whose(truth []tenancy, a netip.Addr, at int64) string {
	for _, p := range truth {
		if p.addr == a && p.from <= at && at < p.to {
			return p.uid
		}
	}
	return ""
}

func TestUnknownIsNotGuessed(t *testing.T) {
	a := netip.MustParseAddr("10.1.0.7")
	ask := func(x *Index, at int64) string {
		w, _ := x.At(a, at)
		return w.Pod
	}
	check := func(x *Index, want map[int64]string) {
		t.Helper()
		for at, pod := range want {
			if got := ask(x, at*second); got != pod {
				t.Errorf("at %d s: %q, want %q", at, got, pod)
			}
		}
	}
	x := New(DefaultLimits)
	x.Address(a, &Claim{Source: Pods, UID: "1", Who: cart, From: 10 * second})
	x.Horizon(Pods, 20*second) // the watch broke
	check(x, map[int64]string{9: "", 10: cart.Pod, 20: cart.Pod, 21: ""})
	x.Address(a, &Claim{Source: CRI, UID: "1", Who: cart, From: 10 * second}) // another knows it
	check(x, map[int64]string{21: cart.Pod})
	x.DropAddress(a, CRI, x.TagOf("1"), 30*second)
	x.DropAddress(a, Pods, x.TagOf("1"), 25*second)
	check(x, map[int64]string{24: cart.Pod, 25: ""})
	x.Address(a, &Claim{Source: Lookups, UID: "1", Who: cart, From: 10 * second, To: 40 * second, Leased: true})
	check(x, map[int64]string{39: cart.Pod, 40: ""})
	x.Address(a, &Claim{Source: Lookups, UID: "1", Who: cart, From: 10 * second, To: 35 * second, Leased: true})
	check(x, map[int64]string{39: cart.Pod, 40: ""})
	x.Address(a, &Claim{Source: Slices, UID: "2", Who: db, From: 38 * second})
	check(x, map[int64]string{37: cart.Pod, 38: db.Pod, 50: db.Pod})
	x.Address(a, &Claim{Source: Pods, UID: "1", Who: cart, From: 10 * second, To: 33 * second})
	check(x, map[int64]string{32: cart.Pod, 33: "", 38: db.Pod})

	// Two that say they began in the same second, while both go on.
	x.Address(a, &Claim{Source: Pods, UID: "3", Who: cart, From: 38 * second, To: 60 * second})
	check(x, map[int64]string{38: "", 59: "", 60: db.Pod})
	// What nobody has of its own is nobody's.
	for _, s := range []string{"127.0.0.1", "fe80::1", "0.0.0.0", "224.0.0.1"} {
		a = netip.MustParseAddr(s)
		x.Address(a, &Claim{Source: Pods, UID: "1", Who: cart, From: 1})
		check(x, map[int64]string{10: ""})
	}
}

// TestPodOfSeveralServices: it has its address for as long as one of them lists it.
func TestPodOfSeveralServices(t *testing.T) {
	x, a := New(DefaultLimits), netip.MustParseAddr("10.1.0.7")
	c := &Claim{Source: Slices, UID: "1", Who: cart, From: second}
	x.Address(a, c)
	x.Address(a, c)
	x.DropAddress(a, Slices, x.TagOf("1"), 5*second)
	if _, ok := x.At(a, 9*second); !ok {
		t.Error("nobody has it while the other service lists it")
	}
	x.DropAddress(a, Slices, x.TagOf("1"), 7*second)
	if _, ok := x.At(a, 9*second); ok {
		t.Error("somebody has it while no service lists it")
	}
	if _, ok := x.At(a, 6*second); !ok {
		t.Error("nobody had it while one service listed it")
	}
}

func TestWhatControlsIt(t *testing.T) {
	x := New(DefaultLimits)
	bare := observe.Workload{Namespace: "shop", Pod: cart.Pod, Container: "web", Kind: "Pod", Name: cart.Pod}
	x.Container("0123456789ab", &Claim{Source: CRI, UID: "1", Who: bare, From: second})
	x.Container("0123456789ab", &Claim{Source: Pods, UID: "1", Who: cart, From: second})
	x.Container("0123456789ab", &Claim{Source: CRI, UID: "1", Who: bare, From: second})
	want := cart
	want.Container = "web"
	if got, ok := x.Of("0123456789ab", 2*second); !ok || got != want {
		t.Errorf("%+v (%t), want %+v", got, ok, want)
	}
}

func TestBounds(t *testing.T) {
	x := New(Limits{Spans: 1000, Bytes: 64 << 10, Keep: time.Minute})
	at := 1e6 * second
	for i := range 100_000 {
		at += second / 50
		who := cart
		who.Pod = fmt.Sprint("cart-", i)
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		c := &Claim{Source: Pods, UID: who.Pod, Who: who, From: at}
		x.Address(addr, c)
		c.To = at + second
		x.Address(addr, c)
	}
	if s := x.Stats(); s.Spans > 1000 || s.LeftOut == 0 {
		t.Errorf("%+v", s)
	}
	if n := int(x.spans.next); n > 1000 {
		t.Errorf("%d places for spans", n)
	}
	x.Sweep(at + 3600*second)
	x.Address(netip.MustParseAddr("10.200.0.1"), &Claim{Source: Pods, UID: "later", Who: db, From: at})
	if w, _ := x.At(netip.MustParseAddr("10.200.0.1"), at); w != db {
		t.Errorf("there is no room after all is over: %+v", w)
	}
	for i := range 200 { // names of 4 kB are clipped by who reads them; even so they are bounded
		x.Container(fmt.Sprint("id-", i), &Claim{Source: CRI, UID: "1", Who: observe.Workload{Pod: fmt.Sprintf("%04096d", i)}, From: at})
	}
	if x.textBytes > 64<<10+2*4096 {
		t.Errorf("%d bytes of names", x.textBytes)
	}
}

func TestConcurrency(t *testing.T) {
	x := New(Limits{Spans: 256, Bytes: 1 << 20, Keep: time.Second})
	a := netip.MustParseAddr("10.1.0.7")
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range int64(2000) {
				c := &Claim{Source: Source(g), UID: fmt.Sprint(i % 7), Who: cart, From: i*second + 1}
				x.Address(a, c)
				x.Container("0123456789ab", c)
				x.At(a, i*second)
				x.Of("0123456789ab", i*second)
				x.DropAddress(a, Source(g), x.TagOf(c.UID), (i+1)*second)
				x.Sweep(i * second)
			}
		})
	}
	all.Wait()
}

// TestLargestCluster feeds the addresses of 150,000 pods of 5,000 nodes and measures what
// they take: under 20 MB, with the endpoints of services that package kube keeps (measured
// there) on top.
func TestLargestCluster(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := New(DefaultLimits)
	for i := range 150_000 {
		addr, c := clusterPod(i)
		x.Address(addr, c)
	}
	used := heap() - before
	t.Logf("%d spans: %.1f MB", x.Stats().Spans, float64(used)/1e6)
	if s := x.Stats(); s.Spans != 150_000 || s.LeftOut != 0 || used > 16e6 {
		t.Errorf("%+v: %d bytes", s, used)
	}
	addr, c := clusterPod(149_999)
	if w, ok := x.At(addr, c.From); !ok || w != c.Who {
		t.Errorf("%+v (%t), want %+v", w, ok, c.Who)
	}
}

// clusterPod is one of 150,000 pods of 7,500 Deployments on 5,000 nodes in 3 zones.
func clusterPod(i int) (netip.Addr, *Claim) {
	app := i / 20
	w := observe.Workload{
		Namespace: fmt.Sprintf("team-%d", app%300), Kind: "Deployment", Name: fmt.Sprintf("service-%d", app),
		Pod:  fmt.Sprintf("service-%d-%010x-%05x", app, app*7919, i),
		Node: fmt.Sprintf("ip-10-%d-%d.internal", i%5000/256, i%5000%256), Zone: fmt.Sprintf("eu-west-1%c", 'a'+i%3),
	}
	addr := netip.AddrFrom4([4]byte{10, 64 + byte(i>>16), byte(i >> 8), byte(i)})
	return addr, &Claim{Source: Slices, UID: fmt.Sprint("uid-", i), Who: w, From: second}
}

// BenchmarkAt is what a request costs: one look for its process and one for its peer.
func BenchmarkAt(b *testing.B) {
	x := New(DefaultLimits)
	var addrs [4096]netip.Addr
	for i := range addrs {
		addr, c := clusterPod(i)
		x.Address(addr, c)
		x.Container(fmt.Sprintf("%012d", i), c)
		addrs[i] = addr
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := x.At(addrs[i%len(addrs)], 2*second); !ok {
			b.Fatal("nobody")
		}
		if _, ok := x.Of("000000000007", 2*second); !ok {
			b.Fatal("nobody")
		}
	}
}
