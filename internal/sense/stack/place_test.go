package stack

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestPlaceWaits: a thread that sleeps is where it spent most of its time in the function of
// the kernel in which it was seen, outside of its language's libraries; what was read from
// memory stays.
func TestPlaceWaits(t *testing.T) {
	s := &observe.Stacks{
		Frames: []observe.Frame{
			{Name: "futex_do_wait", Kind: observe.FrameKernel}, {Name: "ep_poll", Kind: observe.FrameKernel},
			{Name: "java.lang.Thread.sleep", Kind: observe.FrameJava, File: "Thread.java", Line: 344},
			{Name: "Booking.work", Kind: observe.FrameJava, File: "Booking.java", Line: 129},
			{Name: "Booking$$Lambda.run", Kind: observe.FrameJava, File: "<unknown>"},
			{Name: "Booking.idle", Kind: observe.FrameJava, File: "Booking.java", Line: 12},
		},
		Samples: []observe.StackSample{
			{PID: 7, TID: 8, Frames: []int32{0, 2, 3, 4}, Values: []int64{9, 450, 0}},
			{PID: 7, TID: 8, Frames: []int32{1, 5}, Values: []int64{1, 900, 0}},
			{PID: 7, TID: 9, Frames: []int32{0, 5}, Values: []int64{9, 0, 10}}, // only wanted a CPU
		},
	}
	share := func(h observe.WaitHop) observe.WaitShare {
		return observe.WaitShare{PID: 7, Chain: observe.WaitChain{Hops: []observe.WaitHop{h}}}
	}
	w := &observe.WaitGraph{
		Shares: []observe.WaitShare{
			share(observe.WaitHop{TID: 8, Kind: observe.WaitSleep, Wchan: "futex_do_wait"}),
			share(observe.WaitHop{TID: 8, Kind: observe.WaitSleep, Stack: []string{"work shop.py:31"}}),
			share(observe.WaitHop{TID: 8, Kind: observe.WaitEpoll, Wchan: "ep_poll"}),
			share(observe.WaitHop{TID: 9, Kind: observe.WaitSleep, Wchan: "futex_do_wait"}),
		},
		Pools: []observe.ThreadPool{{PID: 7, TIDs: []int{8, 9}}},
	}
	PlaceWaits(w, s)
	for i, want := range [][]string{{"Booking.work Booking.java:129"}, {"work shop.py:31"}, nil, nil} {
		if got := w.Shares[i].Chain.Hops[0].Stack; !slices.Equal(got, want) {
			t.Errorf("share %d: %q, want %q", i, got, want)
		}
	}
	if p := w.Pools[0]; p.At != "Booking.idle Booking.java:12" {
		t.Errorf("pool: at %q", p.At)
	}
}
