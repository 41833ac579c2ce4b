package stack

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// maxPlaces is how many functions of a stack are reported for a wait.
const maxPlaces = 6

// runtimes are where the functions of Java's and Node's own libraries are.
var runtimes = []string{"java.", "javax.", "jdk.", "sun.", "com.sun."}

// PlaceWaits tells where threads wait that were recorded while they did: those that sleep,
// or ask for a lock of Java's or of a file, and those of pools. Of the stacks of a thread
// that counts in which it spent most of its time, in the kernel function in which it was
// seen, where that is known.
func PlaceWaits(w *observe.WaitGraph, s *observe.Stacks) {
	stacks := map[int][]*observe.StackSample{}
	for i := range s.Samples {
		if one := &s.Samples[i]; len(one.Values) > 1 && one.Values[1] > 0 {
			stacks[one.TID] = append(stacks[one.TID], one)
		}
	}
	for i := range w.Shares {
		hops := w.Shares[i].Chain.Hops
		for j := range hops {
			h := &hops[j]
			own := h.Kind == observe.WaitSleep || h.Kind == observe.WaitFileLock || h.Kind == observe.WaitLock && strings.HasPrefix(h.Object, "Java ")
			if own && len(h.Stack) == 0 {
				h.Stack = longest(s, stacks[h.TID], h.Wchan)
			}
		}
	}
	for i := range w.Pools {
		p := &w.Pools[i]
		if p.At != "" {
			continue
		}
		var all []*observe.StackSample
		for _, tid := range p.TIDs {
			all = append(all, stacks[tid]...)
		}
		if p.Stack = longest(s, all, ""); len(p.Stack) > 0 {
			p.At = p.Stack[0]
		}
	}
}

// longest is the functions of the program in the stack that took most time of those in a
// function of the kernel, from where it leaves the libraries of its language; nil when no
// stack leads through the program.
func longest(s *observe.Stacks, samples []*observe.StackSample, in string) []string {
	var best []string
	var most int64
	for _, one := range samples {
		if one.Values[1] <= most || in != "" && !through(s, one, in) {
			continue
		}
		if stack := program(s, one.Frames); len(stack) > 0 {
			best, most = stack, one.Values[1]
		}
	}
	return best
}

// through says whether a stack leads through a function of the kernel; true when its
// kernel functions were not read.
func through(s *observe.Stacks, one *observe.StackSample, function string) bool {
	kernel := false
	for _, f := range one.Frames {
		if int(f) < len(s.Frames) && s.Frames[f].Kind == observe.FrameKernel {
			kernel = true
			if s.Frames[f].Name == function {
				return true
			}
		}
	}
	return !kernel
}

// program is the functions of a program in Java, PHP or Node, innermost first.
func program(s *observe.Stacks, frames []int32) []string {
	var out []string
	for _, at := range frames {
		if int(at) >= len(s.Frames) || len(out) == maxPlaces {
			continue
		}
		f := &s.Frames[at]
		if f.Kind != observe.FrameJava && f.Kind != observe.FramePHP && f.Kind != observe.FrameNode || f.File == "" ||
			strings.HasPrefix(f.File, "<") || strings.HasPrefix(f.File, "node:") || slices.ContainsFunc(runtimes, func(r string) bool { return strings.HasPrefix(f.Name, r) }) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s:%d", f.Name, path.Base(f.File), f.Line))
	}
	return out
}
