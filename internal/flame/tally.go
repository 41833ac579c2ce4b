package flame

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// waiting says that a type is time in which a thread did not run. It always ends
// in the scheduler of the kernel, which tells nothing.
func waiting(t observe.StackValue) bool { return t.Type == "off-cpu" || t.Type == "runnable" }

// blamed is the branch to which a branch's own value counts: that one itself or,
// of a wait, the innermost that is not in the kernel, or at least not the
// scheduler.
func (t tree) blamed(at int32, wait bool) int32 {
	if !wait {
		return at
	}
	user := at
	for t[user].kind == observe.FrameKernel {
		user = t[user].parent
	}
	if t[user].function >= 0 {
		return user
	}
	for t[at].function >= 0 && strings.Contains(t[at].name, "schedule") && t[t[at].parent].function >= 0 {
		at = t[at].parent
	}
	return at
}

// sum is what a function itself takes, and with all that it called. Recursion
// counts once.
type sum struct {
	function int32
	self     [2]int64
	total    [2]int64
}

// tally sums up by function on top of a branch, those that were seen.
func (t tree) tally(m *model, top int32, wait bool) []sum {
	by := make([]sum, len(m.functions))
	active := make([]int, len(m.functions))
	var visit func(at int32)
	visit = func(at int32) {
		b := &t[at]
		if f := b.function; f >= 0 {
			own := t[t.blamed(at, wait)].function
			for side := range b.self {
				by[own].self[side] = add(by[own].self[side], b.self[side])
				if active[f] == 0 {
					by[f].total[side] = add(by[f].total[side], b.total[side])
				}
			}
			active[f]++
			defer func() { active[f]-- }()
		}
		for _, child := range b.children {
			visit(child)
		}
	}
	visit(top)
	seen := by[:0]
	for f := range by {
		by[f].function = int32(f)
		if by[f].total != [2]int64{} {
			seen = append(seen, by[f])
		}
	}
	return seen
}

// hottest are the stacks with the largest values of their own on top of a
// branch, at most so many.
func (t tree) hottest(side, most int) []int32 {
	var list []int32
	for i := range t {
		if t[i].self[side] > 0 && t[i].function >= 0 {
			list = append(list, int32(i))
		}
	}
	slices.SortFunc(list, func(x, y int32) int {
		return cmp.Or(cmp.Compare(t[y].self[side], t[x].self[side]), cmp.Compare(x, y))
	})
	return list[:min(most, len(list))]
}
