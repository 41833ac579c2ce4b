package web

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// waitStacks is the waits that were seen in the window as stacks off the CPU: what
// a thread was in, as far as it was looked at, the system call, and what it waited
// for. It is nil where waits were not watched or none was seen.
func (f *windowFacts) waitStacks() *observe.Stacks {
	if f.waits == nil || len(f.waits.Shares) == 0 {
		return nil
	}
	s := &observe.Stacks{StartNS: f.Start.UnixNano(), WindowNS: int64(f.seconds * 1e9), Types: []observe.StackValue{{Type: "off-cpu", Unit: "nanoseconds"}},
		Notes: []string{"Stacks off the CPU were not recorded: these are the waits in which threads of services were seen. Threads that are ready for work are not among them."}}
	at := map[observe.Frame]int32{}
	for i := range f.waits.Shares {
		w := &f.waits.Shares[i]
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
		stack = append(stack, observe.Frame{Name: wantsText(h), Kind: observe.FrameKernel})
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
