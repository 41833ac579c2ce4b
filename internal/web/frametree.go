package web

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// frameJSON is a frame with those that it called, the widest first.
type frameJSON struct {
	Name     string            `json:"name"`
	Kind     observe.FrameKind `json:"kind"`
	Value    int64             `json:"value"` // with all above it
	Self     int64             `json:"self"`
	Before   *int64            `json:"before,omitempty"` // Value in the range it is compared with
	Module   string            `json:"module,omitempty"`
	File     string            `json:"file,omitempty"`
	Line     int               `json:"line,omitempty"`
	Children []*frameJSON      `json:"children,omitempty"`

	above map[frameID]*frameJSON
}

type frameID struct {
	name   string
	kind   observe.FrameKind
	module string
}

func (f *frameJSON) child(id frameID) *frameJSON {
	if c := f.above[id]; c != nil {
		return c
	}
	c := &frameJSON{Name: id.name, Kind: id.kind, Module: id.module}
	if f.above == nil {
		f.above = map[frameID]*frameJSON{}
	}
	f.above[id] = c
	f.Children = append(f.Children, c)
	return c
}

// valueOf is the column of a type of value; -1 when there is none.
func valueOf(s *observe.Stacks, names ...string) int {
	for _, name := range names {
		if i := slices.IndexFunc(s.Types, func(t observe.StackValue) bool { return t.Type == name }); i >= 0 {
			return i
		}
	}
	return -1
}

// grow adds stacks to a tree; before adds them to what it is compared with. Only
// samples for which only is true count; nil is all.
func (f *frameJSON) grow(s *observe.Stacks, column int, before bool, only func(*observe.StackSample) bool) {
	if column < 0 {
		return
	}
	add := func(at *frameJSON, v int64) {
		if before {
			if at.Before == nil {
				at.Before = new(int64)
			}
			*at.Before += v
		} else {
			at.Value += v
		}
	}
	for i := range s.Samples {
		x := &s.Samples[i]
		if column >= len(x.Values) || x.Values[column] <= 0 || only != nil && !only(x) {
			continue
		}
		v := x.Values[column]
		add(f, v)
		at := f.child(frameID{x.Comm, "process", ""})
		add(at, v)
		for depth, j := range slices.Backward(x.Frames) {
			if j < 0 || int(j) >= len(s.Frames) || len(x.Frames)-depth > maxDepth {
				continue
			}
			fr := &s.Frames[j]
			at = at.child(frameID{fr.Name, fr.Kind, fr.Module})
			at.File, at.Line = cmp.Or(at.File, fr.File), cmp.Or(at.Line, fr.Line)
			add(at, v)
		}
		if !before {
			at.Self += v
		}
	}
}

// trim leaves out what is too narrow to be seen, sorts, and counts what it left
// out.
func (f *frameJSON) trim(least int64) (cut int64) {
	f.above = nil
	before := func(c *frameJSON) int64 {
		if c.Before == nil {
			return 0
		}
		return *c.Before
	}
	kept := f.Children[:0]
	for _, c := range f.Children {
		if c.Value < least && before(c) < least {
			cut++
			f.Self += c.Value
			continue
		}
		cut += c.trim(least)
		kept = append(kept, c)
	}
	f.Children = kept
	slices.SortFunc(kept, func(a, b *frameJSON) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(before(b), before(a)), cmp.Compare(a.Name, b.Name))
	})
	return cut
}
