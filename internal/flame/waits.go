package flame

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// FromWaits is the waits that were seen in a window as stacks off the CPU: what a
// thread was in, as far as it was looked at, the system call, and what it waited for.
// It is nil where waits were not watched or none was seen.
func FromWaits(g *observe.WaitGraph, window observe.Window) *observe.Stacks {
	if g == nil || len(g.Shares) == 0 {
		return nil
	}
	s := &observe.Stacks{StartNS: window.Start.UnixNano(), WindowNS: int64(window.Seconds * 1e9), Types: []observe.StackValue{{Type: "off-cpu", Unit: "nanoseconds"}},
		Notes: []string{"Stacks off the CPU were not recorded: these are the waits in which threads of services were seen. Threads that are ready for work are not among them."}}
	at := map[observe.Frame]int32{}
	for i := range g.Shares {
		w := &g.Shares[i]
		if len(w.Chain.Hops) == 0 || w.ThreadNS <= 0 {
			continue
		}
		h := &w.Chain.Hops[0]
		var stack []observe.Frame // the root first
		for _, name := range slices.Backward(h.Stack) {
			stack = append(stack, observe.Frame{Name: name, Kind: observe.FrameUnknown})
		}
		if h.Syscall != "" {
			stack = append(stack, observe.Frame{Name: h.Syscall, Kind: observe.FrameKernel})
		}
		stack = append(stack, observe.Frame{Name: h.Sought(), Kind: observe.FrameKernel})
		sample := observe.StackSample{PID: h.Process.PID, Comm: h.Process.Comm, Values: []int64{w.ThreadNS}, State: "blocked"}
		for _, frame := range slices.Backward(stack) {
			n, ok := at[frame]
			if !ok {
				n = int32(len(s.Frames))
				at[frame] = n
				s.Frames = append(s.Frames, frame)
			}
			sample.Frames = append(sample.Frames, n)
		}
		s.Samples = append(s.Samples, sample)
	}
	return s
}
