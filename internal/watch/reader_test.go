package watch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// TestPaceSlowsDownWhenDear: what costs more than its share is done less often.
func TestPaceSlowsDownWhenDear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		cost     time.Duration
		min, max int
	}{{0, 40, 41}, {4 * time.Millisecond, 5, 12}} {
		p := pace{every: 250 * time.Millisecond}
		runs := 0
		for at := time.Duration(0); at < 10*time.Second; at += tick {
			p.do(at, func() {
				runs++
				for begin := host.ThreadCPU(); host.ThreadCPU()-begin < c.cost; {
				}
			})
		}
		if runs < c.min || runs > c.max {
			t.Errorf("cost %s: %d runs in 10 s, want %d to %d", c.cost, runs, c.min, c.max)
		}
	}
}

// TestScheduleKeepsTheEnds: expensive snapshots are left out in the middle, the
// first and the last never.
func TestScheduleKeepsTheEnds(t *testing.T) {
	for _, c := range []struct {
		cost time.Duration
		want int
	}{{0, 4}, {30 * time.Millisecond, 2}} {
		var s schedule
		var at []time.Duration
		for elapsed := time.Duration(0); elapsed < 10*time.Second; elapsed += tick {
			s.do(elapsed, 10*time.Second, func() {
				at = append(at, elapsed)
				time.Sleep(c.cost)
			})
		}
		if len(at) != c.want || s.done != c.want {
			t.Fatalf("cost %s: snapshots at %v, want %d", c.cost, at, c.want)
		}
		if at[0] > 2*time.Second || at[len(at)-1] < 8*time.Second {
			t.Errorf("cost %s: snapshots at %v, want the first and the last", c.cost, at)
		}
	}
}

func TestInContainer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{{"0123456789ab", "0123", true}, {"0123456789ab", "0123456789abcdef", true}, {"0123456789ab", "1", false}, {"", "1", false}} {
		if (observe.Filter{Container: c.b}).InContainer(c.a) != c.want {
			t.Errorf("container %q, asked for %q: not %v", c.a, c.b, c.want)
		}
	}
}

// TestTable: each reader is called in all the phases that it has something to do in,
// once, and needs readers that begin before it.
func TestTable(t *testing.T) {
	table := (&session{opt: Options{For: time.Second}}).readers()
	count := func(list []string, name string) (n int) {
		for _, one := range list {
			if one == name {
				n++
			}
		}
		return n
	}
	begun := map[string]bool{}
	for _, r := range table.readers {
		for phase, c := range map[string]struct {
			has  bool
			list []string
		}{"stop": {r.stop != nil, table.stops}, "end": {r.end != nil, table.ends}} {
			if n := count(c.list, r.name); n > 1 || (n == 1) != c.has {
				t.Errorf("%s: has %s: %v, and stands %d times in the order of it (table.go, below the rows)", r.name, phase, c.has, n)
			}
		}
		for _, name := range r.needs {
			if !begun[name] {
				t.Errorf("%s needs %s, which does not begin before it", r.name, name)
			}
		}
		if begun[r.name] {
			t.Errorf("%s is there twice", r.name)
		}
		begun[r.name] = true
	}
	for _, name := range append(table.stops, table.ends...) {
		if !begun[name] {
			t.Errorf("%q is no reader", name)
		}
	}
}

// TestReaderThatCannotBegin leaves a gap, and so do those that need it; nothing else
// is called of them.
func TestReaderThatCannotBegin(t *testing.T) {
	never := func(*session) { t.Error("called") }
	s := &session{out: &observe.Observation{}, opt: Options{For: time.Millisecond}, table: table{
		readers: []*reader{
			{name: "a", kind: observe.KindRequests, begin: func(*session) error { return errors.New("no rights") }, sample: never, stop: never, end: never, close: never},
			{name: "b", kind: observe.KindWaits, needs: []string{"a"}, begin: func(*session) error { never(nil); return nil }, sample: never},
			{name: "c", needs: []string{"b"}, sample: never},
		},
		stops: []string{"a"}, ends: []string{"a"}, first: "a",
	}}
	if err := s.beginReaders(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.loop(t.Context())
	s.stopReaders()
	s.endReaders()
	s.closeReaders()
	want := []observe.Gap{{Kind: observe.KindRequests, Because: "no rights"}, {Kind: observe.KindWaits, Because: "no rights"}}
	if !slices.Equal(s.out.Gaps, want) {
		t.Errorf("%+v", s.out.Gaps)
	}
	if costs := s.costs(); len(costs) != 3 || costs[0].Samples+costs[1].Samples != 0 || costs[0].Gaps+costs[1].Gaps+costs[2].Gaps != 2 {
		t.Errorf("%+v", costs)
	}
	s.onlyDrops = true
	if s.beginReaders(t.Context()) == nil {
		t.Error("without what must be there")
	}
	told, cancel := context.WithCancel(t.Context())
	cancel()
	s.table.readers[0].err = nil
	if err := s.beginReaders(told); !errors.Is(err, errTold) {
		t.Error(err)
	}
}
