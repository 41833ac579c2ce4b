package flame

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// The kinds of frames that stand for a process or a thread.
const (
	frameProcess observe.FrameKind = "process"
	frameThread  observe.FrameKind = "thread"
)

// tree is a graph for one type of value: what a picture shows.
type tree []branch

// branch is a frame of the graph; the first of a tree is the root of all.
type branch struct {
	parent   int32 // before the branch itself; -1 at the root
	function int32 // -1 at the root, a process or a thread
	name     string
	kind     observe.FrameKind
	total    [2]int64 // with all above it; the second half when two windows are compared
	self     [2]int64
	children []int32 // the widest first
}

// tree makes the graph of one type of value.
func (m *model) tree(value int, roots Roots) tree {
	t := tree{{parent: -1, function: -1, name: "all"}}
	place := make([]int32, len(m.nodes)) // of a stack in the tree, on the current root
	mark := make([]int32, len(m.nodes))  // the root for which place is right
	root, thread := int32(0), int32(-1)
	var path []string
	for i := range m.samples {
		s := &m.samples[i]
		if value >= len(m.types) || !s.has(value) {
			continue
		}
		if s.thread != thread {
			thread = s.thread
			root = t.ground(&path, root, m.threads[thread].path(roots))
		}
		at := t.place(m, s.node, root, place, mark)
		for side, values := range s.values {
			if values != nil {
				t[at].self[side] = add(t[at].self[side], values[value])
			}
		}
	}
	t.total(m.side())
	return t
}

func (s *sample) has(value int) bool {
	return s.values[0][value] > 0 || s.values[1] != nil && s.values[1][value] > 0
}

// path names the lowest frames of a thread.
func (t thread) path(roots Roots) []string {
	switch roots {
	case RootComm:
		return []string{t.comm}
	case RootThread:
		if t.tid == 0 {
			return []string{fmt.Sprintf("%s (%d)", t.comm, t.pid), t.name}
		}
		return []string{fmt.Sprintf("%s (%d)", t.comm, t.pid), fmt.Sprintf("%s (%d)", t.name, t.tid)}
	}
	return []string{fmt.Sprintf("%s (%d)", t.comm, t.pid)}
}

// ground is the branch that stands for want, given the last one and its path:
// samples come by thread, so that what is new is never on an older path.
func (t *tree) ground(have *[]string, at int32, want []string) int32 {
	depth := len(*have)
	common := 0
	for common < min(depth, len(want)) && (*have)[common] == want[common] {
		common++
	}
	for ; depth > common; depth-- {
		at = (*t)[at].parent
	}
	for i := common; i < len(want); i++ {
		kind := frameProcess
		if i > 0 {
			kind = frameThread
		}
		at = t.append(branch{parent: at, function: -1, name: want[i], kind: kind})
	}
	*have = want
	return at
}

func (t *tree) append(b branch) int32 {
	at := int32(len(*t))
	*t = append(*t, b)
	(*t)[b.parent].children = append((*t)[b.parent].children, at)
	return at
}

// place is the branch of a stack on a root, which it makes if there is none.
func (t *tree) place(m *model, stack, root int32, place, mark []int32) int32 {
	if stack == 0 {
		return root
	}
	if mark[stack] == root {
		return place[stack]
	}
	f := m.nodes[stack].function
	parent := t.place(m, m.nodes[stack].parent, root, place, mark)
	place[stack] = t.append(branch{parent: parent, function: f, name: m.functions[f].Name, kind: m.functions[f].Kind})
	mark[stack] = root
	return place[stack]
}

// total adds up from the leaves to the root, and puts the widest first.
func (t tree) total(side int) {
	for i := len(t) - 1; i >= 0; i-- {
		b := &t[i]
		for s := range b.total {
			b.total[s] = add(b.total[s], b.self[s])
			if b.parent >= 0 {
				t[b.parent].total[s] = add(t[b.parent].total[s], b.total[s])
			}
		}
	}
	for i := range t {
		slices.SortFunc(t[i].children, func(x, y int32) int {
			return cmp.Or(
				cmp.Compare(t[y].total[side], t[x].total[side]),
				cmp.Compare(t[y].total[1-side], t[x].total[1-side]),
				cmp.Compare(t[x].name, t[y].name),
				cmp.Compare(x, y),
			)
		})
	}
}

// change is how strongly a frame's change is coloured: from -1, gone, to 1, new,
// by its part of the larger share, so that what is a little more or less stays
// pale. Less than half a percent of all is not told from chance, and fades.
func change(before, after float64) float64 {
	most := max(before, after)
	if most <= 0 {
		return 0
	}
	d := (after - before) / most
	return d * math.Sqrt(math.Abs(d)) * min(1, math.Abs(after-before)/0.005)
}

// share is a part of a whole, 0 of nothing.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
