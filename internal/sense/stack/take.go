package stack

import "github.com/slowray/slowray/internal/observe"

// leastTaken is how many stacks have to be recorded in all for them to tell more
// than the samples do.
const leastTaken = 30

// Take puts the functions of stacks that were recorded with all frames, of some
// processes and for a part of the window, in place of those of a profile. It
// does not, and says so, when there are too few of them.
func Take(p *observe.Profile, s *observe.Stacks) bool {
	if p == nil || s == nil {
		return false
	}
	type sum struct {
		samples, unnamed uint64
		all              tally
		threads          map[int]tally
		counts           map[int]uint64
	}
	sums := map[int]*sum{}
	for i := range s.Samples {
		one := &s.Samples[i]
		if len(one.Values) == 0 || one.Values[0] <= 0 {
			continue
		}
		n := uint64(one.Values[0])
		c := sums[one.PID]
		if c == nil {
			c = &sum{all: tally{}, threads: map[int]tally{}, counts: map[int]uint64{}}
			sums[one.PID] = c
		}
		var frames []observe.Frame
		for _, f := range one.Frames {
			if int(f) < len(s.Frames) {
				frames = append(frames, known(s.Frames[f]))
			}
		}
		c.samples += n
		if len(frames) == 0 || frames[0].Name == "" {
			c.unnamed += n
		}
		c.all.add(frames, n)
		if c.threads[one.TID] == nil {
			c.threads[one.TID] = tally{}
		}
		c.threads[one.TID].add(frames, n)
		c.counts[one.TID] += n
	}
	var all uint64
	for _, c := range sums {
		all += c.samples
	}
	if all < leastTaken {
		return false
	}
	for i := range p.Processes {
		one := &p.Processes[i]
		c := sums[one.PID]
		if c == nil {
			continue
		}
		one.Looked, one.Unnamed, one.Functions = c.samples, c.unnamed, c.all.most(maxFunctions)
		for j := range one.Threads {
			t := &one.Threads[j]
			if n := c.counts[t.TID]; n > 0 {
				t.Looked, t.Functions = n, c.threads[t.TID].most(maxThreadFunctions)
			}
		}
	}
	return true
}

// known is a frame, empty when it has no name.
func known(f observe.Frame) observe.Frame {
	if f.Kind == observe.FrameUnknown {
		return observe.Frame{Kind: observe.FrameUnknown}
	}
	return f
}
