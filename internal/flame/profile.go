package flame

import (
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// types are the values of stacks on the CPU.
func types() []observe.StackValue {
	return []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
}

// InKernel stands for the functions of the kernel where they were not named.
var InKernel = observe.Frame{Name: "[kernel]", Kind: observe.FrameKernel}

// FromProfile is the functions of a CPU profile as stacks of one frame: what is
// known where whole stacks were not recorded. Processes whose functions were not
// named have a stack without frames, or one of the kernel. It is nil when there
// is no profile.
func FromProfile(p *observe.Profile, window observe.Window) *observe.Stacks {
	if p == nil || p.Hz <= 0 {
		return nil
	}
	s := &observe.Stacks{StartNS: window.Start.UnixNano(), WindowNS: int64(window.Seconds * 1e9), Hz: p.Hz, Types: types()}
	at := map[observe.Frame]int32{}
	each := int64(time.Second) / int64(p.Hz)
	add := func(pid int, comm string, samples uint64, frames ...observe.Frame) {
		if samples == 0 {
			return
		}
		x := observe.StackSample{PID: pid, Comm: comm, Values: []int64{int64(samples), int64(samples) * each}}
		for _, f := range frames {
			i, known := at[f]
			if !known {
				i = int32(len(s.Frames))
				at[f] = i
				s.Frames = append(s.Frames, f)
			}
			x.Frames = append(x.Frames, i)
		}
		s.Samples = append(s.Samples, x)
	}
	for i := range p.Processes {
		one := &p.Processes[i]
		looked := one.Looked // the functions are of so many samples
		if looked == 0 {
			looked = one.Samples
		}
		rest := one.Samples
		for j := range one.Functions {
			f := &one.Functions[j]
			n := min(uint64(float64(f.Own)/float64(max(looked, 1))*float64(one.Samples)), rest)
			add(one.PID, one.Comm, n, f.Frame)
			rest -= n
		}
		if len(one.Functions) == 0 {
			n := min(one.Kernel, rest)
			add(one.PID, one.Comm, n, InKernel)
			rest -= n
		}
		add(one.PID, one.Comm, rest)
	}
	for i := range p.ShortLived {
		add(0, p.ShortLived[i].Comm, p.ShortLived[i].Samples)
	}
	return s
}

// Merge is stacks of several windows as one. Values of kinds that the first does
// not have are left out.
func Merge(list []*observe.Stacks) *observe.Stacks {
	out := &observe.Stacks{Types: types()}
	if len(list) > 0 {
		out.StartNS, out.Hz, out.Types = list[0].StartNS, list[0].Hz, list[0].Types
	}
	at := map[observe.Frame]int32{}
	for _, s := range list {
		out.WindowNS += s.WindowNS
		out.Losses = append(out.Losses, s.Losses...)
		for _, note := range s.Notes {
			if !slices.Contains(out.Notes, note) {
				out.Notes = append(out.Notes, note)
			}
		}
		moved := make([]int32, len(s.Frames))
		for i, f := range s.Frames {
			j, known := at[f]
			if !known {
				j = int32(len(out.Frames))
				at[f] = j
				out.Frames = append(out.Frames, f)
			}
			moved[i] = j
		}
		column := make([]int, len(out.Types))
		for i, t := range out.Types {
			column[i] = slices.Index(s.Types, t)
		}
		for i := range s.Samples {
			x := s.Samples[i]
			values := make([]int64, len(column))
			for k, from := range column {
				if from >= 0 && from < len(x.Values) {
					values[k] = x.Values[from]
				}
			}
			frames := make([]int32, 0, len(x.Frames))
			for _, f := range x.Frames {
				if f >= 0 && int(f) < len(moved) {
					frames = append(frames, moved[f])
				}
			}
			x.Frames, x.Values = frames, values
			out.Samples = append(out.Samples, x)
		}
	}
	return out
}
