package web

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

const ms = 1_000_000

// shop is one request on its way through a host: wrk asks nginx, that asks a child of
// PHP-FPM, and that asks the database twice.
func shop() []store.Request {
	return []store.Request{
		end("c", "wrk", 1, "127.0.0.1:50001", "127.0.0.1:80", 0, 100*ms, 0),
		end("s", "nginx", 2, "127.0.0.1:50001", "127.0.0.1:80", 0, 100*ms, 90*ms),
		end("c", "nginx", 2, "127.0.0.1:50002", "127.0.0.1:9000", 5*ms, 90*ms, 0),
		end("s", "php-fpm8.2", 3, "127.0.0.1:50002", "127.0.0.1:9000", 5*ms, 90*ms, 70*ms),
		end("c", "php-fpm8.2", 3, "127.0.0.1:50003", "127.0.0.1:3306", 10*ms, 20*ms, 0),
		end("c", "php-fpm8.2", 3, "127.0.0.1:50003", "127.0.0.1:3306", 40*ms, 50*ms, 0),
		end("s", "mariadbd", 4, "127.0.0.1:50003", "127.0.0.1:3306", 40*ms, 50*ms, 0),
	}
}

// end is one end of a request that begins and takes so long, of which call waiting for
// others. Two of one connection differ in their number, its time.
func end(side, comm string, pid int, client, server string, start, total, call int64) store.Request {
	r := store.Request{Process: observe.Identity{Comm: comm}}
	r.Side, r.Local, r.Peer = observe.Called, netip.MustParseAddrPort(client), netip.MustParseAddrPort(server)
	r.BytesOut, r.BytesIn = uint64(100+len(client)), 2000
	if side == "s" {
		r.Side, r.Local, r.Peer = observe.Served, r.Peer, r.Local
		r.BytesIn, r.BytesOut = r.BytesOut, r.BytesIn
		r.Followed = true
		r.Split[observe.ServerCPU], r.Split[observe.ServerCall] = total-call, call
	}
	r.StartNS, r.PID, r.TID, r.NetNS, r.Seq, r.Requests, r.Weight = noon.UnixNano()+start, pid, pid, 1, uint32(start/ms)+1, 1, 1
	r.Ledger[observe.Server], r.FirstByte = total, total
	return r
}

// tree is what was joined, as text.
func tree(l *links) string {
	var list []string
	told := map[int]bool{}
	for i := range l.all {
		top := l.top(i)
		if told[top] {
			continue
		}
		told[top] = true
		hops, _ := l.hops(top)
		var b strings.Builder
		for _, h := range hops {
			fmt.Fprintf(&b, "%s", strings.Repeat(">", h.depth))
			for _, r := range []*store.Request{h.called, h.served} {
				if r != nil {
					fmt.Fprintf(&b, " %s@%d", r.Process.Comm, (r.StartNS-noon.UnixNano())/ms)
				}
			}
			b.WriteString("; ")
		}
		list = append(list, strings.TrimSuffix(b.String(), "; "))
	}
	return strings.Join(list, "\n")
}

func never([]store.Request, *store.Request, *store.Request) bool    { return false }
func byDesign(_ []store.Request, served, _ *store.Request) bool     { return oneByOne(served.Process.Comm) }
func always([]store.Request, *store.Request, *store.Request) bool   { return true }
func with(list []store.Request, r ...store.Request) []store.Request { return append(list, r...) }

func TestPathOfARequest(t *testing.T) {
	const whole = " wrk@0 nginx@0; > nginx@5 php-fpm8.2@5; >> php-fpm8.2@10; >> php-fpm8.2@40 mariadbd@40"
	if got := tree(newLinks(shop(), byDesign)); got != whole {
		t.Errorf("\n%s\nwant\n%s", got, whole)
	}
	// Without the design of PHP-FPM two calls that together take its time are not enough:
	// it could be an event loop.
	if got := tree(newLinks(shop(), never)); got != " wrk@0 nginx@0; > nginx@5 php-fpm8.2@5\n php-fpm8.2@10\n php-fpm8.2@40 mariadbd@40" {
		t.Errorf("%s", got)
	}
	// In any order, and with a record that another one amends.
	list := shop()
	slices.Reverse(list)
	again := list[0]
	again.Flags |= observe.FlagAmended
	if got := tree(newLinks(with(list, again), byDesign)); got != whole {
		t.Errorf("\n%s", got)
	}
}

// What is not certain is not joined: each change is little, and breaks one join.
func TestWhatIsNotJoined(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l []store.Request) []store.Request
		lost   string // of the path
	}{
		"another connection": {func(l []store.Request) []store.Request {
			l[1].Peer = netip.MustParseAddrPort("127.0.0.1:50009")
			return l
		}, "wrk@0 nginx@0"},
		"another number on it":           {func(l []store.Request) []store.Request { l[1].Seq++; return l }, "wrk@0 nginx@0"},
		"other bytes":                    {func(l []store.Request) []store.Request { l[1].BytesIn++; return l }, "wrk@0 nginx@0"},
		"another answer":                 {func(l []store.Request) []store.Request { l[0].BytesIn++; return l }, "wrk@0 nginx@0"},
		"read before it was sent":        {func(l []store.Request) []store.Request { l[0].StartNS += ms; return l }, "wrk@0 nginx@0"},
		"read after the answer":          {func(l []store.Request) []store.Request { l[1].StartNS += 101 * ms; return l }, "wrk@0 nginx@0"},
		"the answer came before it left": {func(l []store.Request) []store.Request { l[0].FirstByte -= ms; return l }, "wrk@0 nginx@0"},
		"several on the connection":      {func(l []store.Request) []store.Request { l[1].Flags |= observe.FlagMultiplexed; return l }, "wrk@0 nginx@0"},
		"a record of several":            {func(l []store.Request) []store.Request { l[1].Requests = 2; return l }, "wrk@0 nginx@0"},
		"the same in another network": {func(l []store.Request) []store.Request {
			twin := l[1]
			twin.NetNS, twin.PID = 2, 9
			return with(l, twin)
		}, "wrk@0 nginx@0"},
		"sent by another process":     {func(l []store.Request) []store.Request { l[2].PID = 9; return l }, "> nginx@5"},
		"sent before the request":     {func(l []store.Request) []store.Request { l[2].StartNS = noon.UnixNano() - ms; return l }, "> nginx@"},
		"answered after it":           {func(l []store.Request) []store.Request { l[2].StartNS += 11 * ms; return l }, "> nginx@"},
		"another time than it waited": {func(l []store.Request) []store.Request { l[1].Split[observe.ServerCall] -= ms; return l }, "> nginx@5"},
		"not followed":                {func(l []store.Request) []store.Request { l[1].Followed = false; return l }, "> nginx@5"},
		"it stands for others":        {func(l []store.Request) []store.Request { l[1].Weight = 2; return l }, "> nginx@5"},
		"the call stands for others":  {func(l []store.Request) []store.Request { l[2].Weight = 2; return l }, "> nginx@5"},
		"a second call that fits": {func(l []store.Request) []store.Request {
			return with(l, end("c", "nginx", 2, "127.0.0.1:50005", "127.0.0.1:9000", 6*ms, 90*ms, 0))
		}, "> nginx@5"},
		"a second request that fits": {func(l []store.Request) []store.Request {
			return with(l, end("s", "nginx", 2, "127.0.0.1:50006", "127.0.0.1:80", 1*ms, 99*ms, 90*ms))
		}, "> nginx@5"},
		"more calls than it waited": {func(l []store.Request) []store.Request { l[3].Split[observe.ServerCall] = 15 * ms; return l }, ">> php-fpm8.2@10"},
		"another request of the child": {func(l []store.Request) []store.Request {
			return with(l, end("s", "php-fpm8.2", 3, "127.0.0.1:50007", "127.0.0.1:9000", 9*ms, 3*ms, 0))
		}, ">> php-fpm8.2@10"},
		"one that ends while it is asked": {func(l []store.Request) []store.Request {
			return with(l, end("s", "php-fpm8.2", 3, "127.0.0.1:50007", "127.0.0.1:9000", 45*ms, 90*ms, 0))
		}, ">> php-fpm8.2@40"},
	} {
		if got := tree(newLinks(shop(), byDesign)); !strings.Contains(got, c.lost) {
			t.Fatalf("%s: without the change there is no %q in %s", name, c.lost, got)
		}
		if got := tree(newLinks(c.change(shop()), byDesign)); strings.Contains(got, c.lost) {
			t.Errorf("%s: joined %q:\n%s", name, c.lost, got)
		}
	}
}

// TestHangingRequestsAreJoinedInBounds: of a process that hangs with thousands of requests
// in hand each may be the one that each of its calls was made for.
func TestHangingRequestsAreJoinedInBounds(t *testing.T) {
	for name, differ := range map[string]int64{"alike": 0, "not alike": 1000} {
		var list []store.Request
		for i := range int64(joinMost / 2) {
			client := fmt.Sprintf("127.0.%d.%d:4000", i/250, i%250+1)
			list = append(list, end("s", "node", 7, client, "127.0.0.1:80", i*ms/10, 30_000*ms, 29_000*ms+i*differ),
				end("c", "node", 7, client, "127.0.0.2:81", i*ms/10+ms, 29_000*ms, 0))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		l := newLinks(with(list, shop()...), byDesign)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 || took > 5*time.Second {
			t.Errorf("%s: took %s, %d MiB", name, took, mib)
		}
		if l.tooMany() && slices.ContainsFunc(l.parent, func(p int) bool { return p >= 0 }) {
			t.Errorf("%s: calls were joined of which not all was compared", name)
		}
	}
}

// A connection that is older than the recording is counted from where each end was
// first seen.
func TestOldConnectionsAreJoined(t *testing.T) {
	list := shop()
	list[1].Seq, list[1].Flags = 900, observe.FlagPreexisting
	if got := tree(newLinks(list, never)); !strings.Contains(got, "wrk@0 nginx@0") {
		t.Error(got)
	}
}

// An event loop has many requests in hand: each is joined with the call that took
// just the time that it waited.
func TestPathsOfAnEventLoop(t *testing.T) {
	var list []store.Request
	for i := range int64(40) {
		at, took := i*3*ms, (50+i)*ms
		list = append(list, end("s", "nginx", 2, fmt.Sprintf("192.0.2.1:%d", 40000+i), "192.0.2.9:80", at, took+2*ms, took),
			end("c", "nginx", 2, fmt.Sprintf("127.0.0.1:%d", 50000+i), "127.0.0.1:9000", at+ms, took, 0))
	}
	l := newLinks(list, never)
	for i := range l.all {
		if r := &l.all[i]; r.Side == observe.Called && (l.parent[i] < 0 || l.all[l.parent[i]].StartNS != r.StartNS-ms) {
			t.Fatalf("the call of %d belongs to %d", (r.StartNS-noon.UnixNano())/ms, l.parent[i])
		}
	}
	// Not if it is not sure which was whose.
	for i := range list {
		if list[i].Side == observe.Served {
			list[i].Split[observe.ServerCall] = 60 * ms
		}
		list[i].Ledger[observe.Server], list[i].FirstByte = 60*ms, 60*ms
		list[i].StartNS = noon.UnixNano()
	}
	if l := newLinks(list, never); slices.ContainsFunc(l.parent, func(p int) bool { return p >= 0 }) {
		t.Error("calls that all take the same time were joined")
	}
}

// A path may not lead in a circle, and is cut where it is endless.
func TestLongPathsEnd(t *testing.T) {
	var list []store.Request
	for i := range int64(60) {
		list = append(list, end("s", "php-fpm", int(i)+1, fmt.Sprintf("127.0.0.1:%d", 40000+i), "127.0.0.1:80", i*ms, (200-2*i)*ms, (199-2*i)*ms),
			end("c", "php-fpm", int(i)+1, fmt.Sprintf("127.0.0.1:%d", 40001+i), "127.0.0.1:80", (i+1)*ms, (200-2*i-2)*ms, 0))
	}
	l := newLinks(list, always)
	if hops, _ := l.hops(0); len(hops) != maxHops {
		t.Errorf("%d hops", len(hops))
	}
}

// The answers of the server tell one line for a request; alone asks the seconds.
func TestRequestsByPath(t *testing.T) {
	type request struct {
		ID      string
		Side    string
		Process struct{ Comm string }
		Hops    []struct {
			Depth          int
			Chosen         bool
			Called, Served *request
		}
	}
	type answer struct {
		Requests []request
		Request  request
		Hops     []struct{ Depth int }
	}
	m := &memory{reqs: shop(), from: noon, to: noon.Add(time.Minute)}
	h := serve(t, m, Options{})
	at := fmt.Sprintf("from=%d&to=%d", noon.Unix(), noon.Add(time.Minute).Unix())
	if a := ask[answer](t, h, "/api/requests?"+at); len(a.Requests) != 7 || a.Requests[0].Hops != nil {
		t.Errorf("without paths: %+v", a)
	}
	a := ask[answer](t, h, "/api/requests?paths=1&"+at)
	if len(a.Requests) != 1 || a.Requests[0].Process.Comm != "wrk" || len(a.Requests[0].Hops) != 4 {
		t.Fatalf("%+v", a.Requests)
	}
	if x := a.Requests[0].Hops[3]; x.Depth != 2 || x.Served == nil || x.Served.Process.Comm != "mariadbd" || x.Called == nil {
		t.Errorf("%+v", x)
	}
	// Of one endpoint it is its own request that is listed.
	a = ask[answer](t, h, "/api/requests?paths=1&side=served&ep=served%7C1%7C127.0.0.1%7C9000%7Cphp-fpm8.2&"+at)
	if len(a.Requests) != 1 || a.Requests[0].Process.Comm != "php-fpm8.2" || len(a.Requests[0].Hops) != 4 || !a.Requests[0].Hops[1].Chosen {
		t.Errorf("%+v", a.Requests)
	}
	if a := ask[answer](t, h, "/api/requests?paths=1&side=called&ep=called%7C1%7C127.0.0.1%7C3306%7Cphp-fpm8.2&"+at); len(a.Requests) != 2 || len(a.Requests[1].Hops) != 4 {
		t.Errorf("two calls of one request: %+v", a.Requests)
	}
	if a := ask[answer](t, h, "/api/request?id="+a.Requests[0].ID); len(a.Hops) != 4 || a.Request.Process.Comm != "php-fpm8.2" {
		t.Errorf("%+v", a)
	}

	// A service of which it is not known how many requests it has in hand: as long as the
	// seconds count none that is not stored.
	python := func(more ...store.Request) *memory {
		list := shop()
		for i := range list {
			if list[i].PID == 3 {
				list[i].Process.Comm = "python3"
			}
		}
		return &memory{reqs: with(list, more...), from: noon, to: noon.Add(time.Minute)}
	}
	hops := func(s Source) int {
		return len(ask[answer](t, serve(t, s, Options{}), "/api/requests?paths=1&"+at).Requests[0].Hops)
	}
	if n := hops(python()); n != 4 {
		t.Errorf("alone: %d hops", n)
	}
	if n := hops(&counting{python(), 1}); n != 2 {
		t.Errorf("with a request that is only counted: %d hops", n)
	}
	if n := hops(python(end("s", "python3", 8, "127.0.0.1:50020", "127.0.0.1:9000", -700*ms, 100*ms, 0))); n != 4 {
		t.Errorf("with one of another process that was over: %d hops", n)
	}
}

// Where there is too much to look at, requests stand alone, and that is listed.
func TestTooMuchToJoin(t *testing.T) {
	m := &memory{from: noon, to: noon.Add(time.Hour)}
	for i := range int64(joinMost + 1) {
		m.reqs = append(m.reqs, end("s", "busy", 9, fmt.Sprintf("192.0.2.%d:4000", i%200), "192.0.2.9:80", 30_000*ms+i*ms/100, ms, 0))
	}
	m.reqs = append(shop(), m.reqs...)
	type answer struct {
		Requests []struct{ Hops []struct{} }
		Losses   []observe.Loss
	}
	a := ask[answer](t, serve(t, m, Options{}), fmt.Sprintf("/api/requests?paths=1&limit=20&from=%d&to=%d", noon.Unix(), noon.Add(time.Hour).Unix()))
	alone := slices.ContainsFunc(a.Losses, func(l observe.Loss) bool {
		return strings.Contains(l.What, "without what belongs to them") && l.Count == 13
	})
	if len(a.Requests) != 14 || len(a.Requests[0].Hops) != 4 || !alone {
		t.Errorf("%d requests, losses %+v", len(a.Requests), a.Losses)
	}
}

// counting is a history whose seconds count more requests than are stored, each of
// which took 95 ms.
type counting struct {
	*memory
	more uint64
}

func (c *counting) Points(q store.Query, step time.Duration, f func(*store.Second) bool) error {
	return c.memory.Points(q, step, func(s *store.Second) bool {
		s.Endpoint.Requests += c.more
		s.Endpoint.Total.AddN(95*ms, c.more)
		return f(s)
	})
}
