package wait

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// film is a sampler with what it would have seen, in ms from the beginning.
type film struct {
	*Sampler
	t testing.TB
}

func newFilm(t testing.TB) *film {
	f := newTree(t)
	f.process(1, 0, "init", "S", "")
	s := NewSampler(&Reader{fs: host.FS{Proc: filepath.Join(f.root, "proc"), Sys: filepath.Join(f.root, "sys")}, arch: "amd64"})
	return &film{s, t}
}

func (f *film) at(ms int) time.Time { return f.start.Add(time.Duration(ms) * time.Millisecond) }

// waits adds a wait of a thread of process 10 in a shape.
func (f *film) waits(tid, from, to int, sh *shape) {
	f.intervals = append(f.intervals, &interval{pid: 10, tid: tid, from: f.at(from), to: f.at(to), shape: sh, running: sh == nil, samples: 10})
}

func (f *film) shape(name string) *shape {
	sh := &shape{key: name, master: 10, tids: map[int]bool{}, chain: observe.WaitChain{Text: name, Hops: []observe.WaitHop{{}}}}
	f.shapes = append(f.shapes, sh)
	return sh
}

func (f *film) request(tid, from, to int) SlowRequest {
	return SlowRequest{PID: 10, TID: tid, From: f.at(from), To: f.at(to), Busy: time.Duration(to-from) * time.Millisecond}
}

// lost is what the slow requests lost to a shape, in ms.
func (f *film) lost(g *observe.WaitGraph, sh *shape) int {
	for i := range g.Shares {
		if g.Shares[i].Chain.Text == sh.key {
			return int(g.Shares[i].SlowNS / 1e6)
		}
	}
	f.t.Fatalf("%s is not told", sh.key)
	return 0
}

func never(int) time.Time { return time.Time{} }

func (f *film) always(int) time.Time { return f.at(1 << 20) }

// TestReaderWaits: the wait of the thread that read a request is the request's.
func TestReaderWaits(t *testing.T) {
	f := newFilm(t)
	pipe := f.shape("pipe")
	f.waits(11, 100, 900, pipe)
	f.waits(11, 900, 1000, nil)
	f.waits(12, 0, 1000, pipe) // another request's
	g := f.Graph([]SlowRequest{f.request(11, 0, 1000), f.request(12, 0, 1000)}, 25*time.Millisecond, f.always)
	if got := f.lost(g, pipe); got != 1800 {
		t.Errorf("%d ms, want 1800", got)
	}
	if s := g.Slow[0]; s.Requests != 2 || s.NS != 2e9 || s.ComputeNS != 100e6 || g.Shares[0].SlowRequests < 1.7 || !g.Shares[0].Reader {
		t.Errorf("%+v %+v", s, g.Shares[0])
	}
}

// TestBackgroundWriter: a thread that goes on waiting when answers go out did not
// hold them up.
func TestBackgroundWriter(t *testing.T) {
	f := newFilm(t)
	pipe := f.shape("pipe")
	f.waits(12, 0, 5000, pipe)
	var list []SlowRequest
	for i := range 20 {
		list = append(list, f.request(11, 200*i, 200*i+180))
	}
	if got := f.lost(f.Graph(list, 25*time.Millisecond, f.always), pipe); got != 0 {
		t.Errorf("%d ms, want none", got)
	}
}

// TestPool: requests that an event loop hands to threads lose what those wait,
// and share it when they are more.
func TestPool(t *testing.T) {
	f := newFilm(t)
	pipe := f.shape("pipe")
	f.waits(21, 0, 1000, pipe)
	f.waits(22, 0, 1000, pipe)
	list := []SlowRequest{f.request(11, 0, 1000), f.request(11, 0, 1000), f.request(11, 0, 1000), f.request(11, 0, 1000)}
	if got := f.lost(f.Graph(list, 25*time.Millisecond, f.always), pipe); got != 2000 {
		t.Errorf("%d ms of 4000, want 2000: two threads", got)
	}
}

// TestSampleStandsForAll: where very many requests are slow, what a fair sample of them lost
// is what all did, and what it does not show is nobody's.
func TestSampleStandsForAll(t *testing.T) {
	const n, lone = 6 * maxSlow, 3 * maxSlow
	f := newFilm(t)
	lock := f.shape("lock")
	var list []SlowRequest
	for i := range n {
		from := 200 * i
		if i%2 == 0 { // the others are slow by something else
			f.waits(11, from, from+100, lock)
		}
		list = append(list, f.request(11, from, from+100))
	}
	for i := range lone { // each of which stands for two
		r := f.request(12, 200*i, 200*i+100)
		r.Stands = 2
		list = append(list, r)
	}
	g := f.Graph(list, 25*time.Millisecond, f.always)
	s, share := g.Slow[0], g.Shares[0]
	if s.Requests < 2*n*99/100 || s.Requests > 2*n*101/100 || s.Sampled != maxSlow || s.NS != int64(s.Requests)*100e6 {
		t.Errorf("%+v, want about %d requests", s, 2*n)
	}
	if want := n / 2 * 100; f.lost(g, lock) < want*8/10 || f.lost(g, lock) > want*12/10 {
		t.Errorf("%d ms lost to the lock, want about %d", f.lost(g, lock), want)
	}
	if share.SlowRequests < 0.8*n/2 || share.OfRequests < 4*n/10 || share.OfNS > s.NS {
		t.Errorf("%+v", share)
	}
}

// TestPoolOfSample: requests that were not looked at have their part of what a thread waits too.
func TestPoolOfSample(t *testing.T) {
	f := newFilm(t)
	pipe := f.shape("pipe")
	f.waits(21, 0, 1000, pipe)
	var list []SlowRequest
	for range 4 * maxSlow {
		list = append(list, f.request(11, 0, 1000))
	}
	if got := f.lost(f.Graph(list, 25*time.Millisecond, f.always), pipe); got < 990 || got > 1010 {
		t.Errorf("%d ms, want 1000: one thread", got)
	}
}

// TestAlwaysTogether: of few looks two may fall between two pieces of work; who has nothing
// to do at all is no part of it, and who often has nothing speaks against it.
func TestAlwaysTogether(t *testing.T) {
	pool := func(free ...int) (out []*watched) {
		for _, n := range free {
			out = append(out, &watched{use: use{looks: 17, free: n}})
		}
		return out
	}
	for _, c := range []struct {
		free []int
		want bool
	}{{[]int{0, 0, 0, 2}, true}, {[]int{0, 0, 1, 2, 17, 16}, true}, {[]int{0, 2, 4, 6}, false}, {[]int{17}, false}} {
		if got := alwaysTogether(pool(c.free...)); got != c.want {
			t.Errorf("%v: %t", c.free, got)
		}
	}
}

// TestStandsStill: where nothing is answered any more, all requests wait for the
// threads with work in hand, also those that nobody has read.
func TestStandsStill(t *testing.T) {
	f := newFilm(t)
	pipe := f.shape("pipe")
	f.waits(21, 0, 1000, pipe)
	f.waits(22, 0, 1000, pipe)
	list := []SlowRequest{f.request(11, 0, 1000), f.request(11, 0, 1000), f.request(0, 0, 1000), f.request(0, 0, 1000)}
	for i := range list {
		list[i].Unfinished, list[i].Unread = true, list[i].TID == 0
	}
	g := f.Graph(list, 25*time.Millisecond, never)
	if got := f.lost(g, pipe); got != 4000 {
		t.Errorf("%d ms, want 4000", got)
	}
	if s := g.Slow[0]; s.Unfinished != 4 || s.Unread != 2 {
		t.Errorf("%+v", s)
	}
	// Half of the threads compute.
	f = newFilm(t)
	pipe = f.shape("pipe")
	f.waits(21, 0, 1000, pipe)
	f.waits(22, 0, 1000, nil)
	for i := range list {
		list[i].From, list[i].To = f.at(0), f.at(1000)
	}
	if got := f.lost(f.Graph(list, 25*time.Millisecond, never), pipe); got != 2000 {
		t.Errorf("%d ms, want 2000: the other thread computes", got)
	}
}

// TestOneSleepsInsideALock: who sleeps has one request in hand, and the others wait for the
// lock that it holds meanwhile, not for as many sleeps.
func TestOneSleepsInsideALock(t *testing.T) {
	f := newFilm(t)
	lock, sleep := f.shape("lock"), f.shape("sleep")
	lock.chain.Hops = append(lock.chain.Hops, observe.WaitHop{})
	sleep.chain.End = observe.EndSleep
	f.waits(21, 0, 1000, sleep)
	var list []SlowRequest
	for tid := range 10 {
		if tid > 0 {
			f.waits(21+tid, 0, 1000, lock)
		}
		r := f.request(0, 0, 1000)
		r.Unfinished = true
		list = append(list, r)
	}
	g := f.Graph(list, 25*time.Millisecond, never)
	if asleep, held := f.lost(g, sleep), f.lost(g, lock); asleep != 1000 || held != 9000 {
		t.Errorf("%d ms asleep, %d ms for the lock, want 1000 and 9000", asleep, held)
	}
}

// TestUnreadOfAnother: an unread request waits for the process that has its connection,
// not for others of the family.
func TestUnreadOfAnother(t *testing.T) {
	f := newFilm(t)
	stopped, other := f.shape("stopped"), f.shape("other")
	f.waits(11, 0, 1000, stopped)
	f.waits(12, 0, 1000, other)
	f.intervals[1].pid = 12
	one := family{master: 10, intervals: f.intervals, readers: map[int]bool{}, threads: 2}
	r := f.request(0, 0, 1000)
	r.Owner, r.Unread, r.Unfinished = 10, true, true
	got := one.handed(&r, time.Second, 0, true)
	if got[stopped] != time.Second || got[other] != 0 {
		t.Errorf("%v and %v, want all of it for its owner", got[stopped], got[other])
	}
}

// TestNoMoreThanThereWas: whatever happened, no request loses more time than it
// took, and the order in which things were seen does not matter.
func TestNoMoreThanThereWas(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newFilm(t)
		shapes := []*shape{f.shape("a"), f.shape("b"), nil}
		for range r.IntN(40) {
			from := r.IntN(5000)
			f.waits(10+r.IntN(6), from, from+r.IntN(3000), shapes[r.IntN(3)])
		}
		var list []SlowRequest
		for range r.IntN(30) {
			from := r.IntN(5000)
			q := f.request(10+r.IntN(3), from, from+1+r.IntN(2000))
			q.Unfinished = r.IntN(3) == 0
			if q.Unread = q.Unfinished && r.IntN(2) == 0; q.Unread {
				q.TID = 0
			}
			list = append(list, q)
		}
		answered := f.always
		if seed%2 == 0 {
			answered = never
		}
		g := f.Graph(list, 25*time.Millisecond, answered)
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		r.Shuffle(len(f.intervals), func(i, j int) { f.intervals[i], f.intervals[j] = f.intervals[j], f.intervals[i] })
		again := f.Graph(list, 25*time.Millisecond, answered)
		var all, lost, lostAgain int64
		for _, s := range g.Slow {
			all += s.NS
			lost += s.ComputeNS
		}
		for i := range g.Shares {
			lost += g.Shares[i].SlowNS
		}
		for _, s := range again.Slow {
			lostAgain += s.ComputeNS
		}
		for i := range again.Shares {
			lostAgain += again.Shares[i].SlowNS
		}
		if lost > all+1000 {
			t.Fatalf("seed %d: %d ns of %d", seed, lost, all)
		}
		if d := lost - lostAgain; d > 1000 || d < -1000 {
			t.Fatalf("seed %d: %d ns, and %d ns in another order", seed, lost, lostAgain)
		}
	}
}

// TestLentRequests: a process that serves where no request is recorded is judged
// by its callers' requests, and only where all of it is held up.
func TestLentRequests(t *testing.T) {
	for _, tt := range []struct{ workers, held, want int }{{4, 4, 8000}, {4, 3, 8000}, {4, 1, 1000}} {
		f := newFilm(t)
		pipe := f.shape("pipe")
		for i := range tt.workers {
			f.threads[20+i] = &watched{pid: 10, tid: 20 + i}
		}
		for i := range tt.held {
			f.waits(20+i, 0, 1000, pipe)
		}
		var list []SlowRequest
		for range 8 {
			r := f.request(-1, 0, 1000)
			r.Unfinished, r.Lent = true, true
			list = append(list, r)
		}
		g := f.Graph(list, 25*time.Millisecond, never)
		if got := f.lost(g, pipe); got != tt.want || !g.Slow[0].Lent {
			t.Errorf("%d of %d threads: %d ms, want %d", tt.held, tt.workers, got, tt.want)
		}
		// Requests of its own count alone.
		list = append(list, f.request(11, 0, 500))
		if g := f.Graph(list, 25*time.Millisecond, never); g.Slow[0].Requests != 1 || g.Slow[0].Lent {
			t.Errorf("%+v", g.Slow[0])
		}
	}
}

// TestRareLooks: looks that few of the requests of a Go program were in progress in stand for
// all of its requests where there are enough of both.
func TestRareLooks(t *testing.T) {
	for _, c := range []struct {
		looks, meet int
		want        time.Duration // of 40 s of which half were waited for a lock
	}{
		{looks: 2, meet: 20, want: 20 * time.Second},
		{looks: 1, meet: 20, want: 5 * time.Second}, // 10 goroutines, for half a second
		{looks: 2, meet: 4, want: 2 * time.Second},
		{looks: 20, meet: 20, want: 40 * time.Second}, // more than there is was seen
	} {
		f := newFilm(t)
		lock := f.shape("lock")
		w := &goWatched{master: 10}
		requests := &family{master: 10, thinned: 1}
		for n := range c.looks {
			at := 500 * (n + 1)
			for range c.meet {
				r := f.request(11, at-50, at+50)
				requests.requests = append(requests.requests, &r)
			}
			w.moments = append(w.moments, goMoment{at: f.at(at), since: 500 * time.Millisecond, other: c.meet / 2,
				held: map[*shape]goHeld{lock: {n: c.meet / 2, time: time.Duration(c.meet/2) * 500 * time.Millisecond}}})
		}
		f.goes.programs = map[int]*goWatched{10: w}
		lost := map[*shape]*loss{}
		f.passOnGo(requests, &observe.SlowTime{PID: 10, Requests: 400, NS: int64(40 * time.Second)}, lost)
		if got := lost[lock].time.Round(time.Millisecond); got != c.want {
			t.Errorf("%d looks that meet %d requests each: %v, want %v", c.looks, c.meet, got, c.want)
		}
	}
}
