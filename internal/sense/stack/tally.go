package stack

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// tally counts samples by function.
type tally map[function]*counted

// function is what makes two frames the same function: lines do not count.
type function struct {
	kind               observe.FrameKind
	name, module, file string
}

type counted struct {
	observe.ProfileFunction
	heights uint64 // sum over Total
}

// add counts a stack, innermost frame first. A function that is in it several
// times, as one that calls itself, counts once, at its innermost place.
func (t tally) add(frames []observe.Frame, samples uint64) {
	seen := map[function]bool{}
	owner := max(slices.IndexFunc(frames, func(f observe.Frame) bool { return f.Kind.Interpreted() }), 0)
	for i, f := range frames {
		k := function{f.Kind, f.Name, f.Module, f.File}
		if f.Name == "" || seen[k] {
			continue
		}
		seen[k] = true
		c := t[k]
		if c == nil {
			c = &counted{ProfileFunction: observe.ProfileFunction{Frame: f}}
			t[k] = c
		}
		c.Total += samples
		c.heights += samples * uint64(i)
		if i == 0 {
			c.Self += samples
		}
		if i == owner {
			c.Own += samples
		}
	}
}

// most lists the n functions with most samples of their own, the n with most
// samples in all, and the n of the kernel with most samples in all, by the latter:
// an interpreter's frames are in all stacks of its process, and many enough to
// leave no room for the system calls that it makes.
func (t tally) most(n int) []observe.ProfileFunction {
	all := make([]*counted, 0, len(t))
	for _, c := range t {
		c.Height = float64(c.heights) / float64(c.Total)
		all = append(all, c)
	}
	byName := func(a, b *counted) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Module, b.Module), strings.Compare(a.File, b.File))
	}
	slices.SortFunc(all, func(a, b *counted) int { return cmp.Or(cmp.Compare(b.Own, a.Own), byName(a, b)) })
	keep := map[*counted]bool{}
	for _, c := range all[:min(n, len(all))] {
		if c.Own > 0 {
			keep[c] = true
		}
	}
	// Of those that are in as many stacks, the innermost tells most.
	slices.SortFunc(all, func(a, b *counted) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Height, b.Height), byName(a, b))
	})
	kernel := 0
	for i, c := range all {
		if c.Kind == observe.FrameKernel {
			kernel++
		}
		if i < n || c.Kind == observe.FrameKernel && kernel <= n {
			keep[c] = true
		}
	}
	var out []observe.ProfileFunction
	for _, c := range all {
		if keep[c] {
			out = append(out, c.ProfileFunction)
		}
	}
	return out
}
