package flame

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Roots says what the lowest frames of a graph are.
type Roots string

// The lowest frames, above which the frames of the stacks stand.
const (
	RootComm    Roots = "comm"    // the name of the process: all processes of one name together
	RootProcess Roots = "process" // each process
	RootThread  Roots = "thread"  // each process, and on it each of its threads
)

// Options says how stacks are shown. The zero value is useful.
type Options struct {
	Title    string // "" = "Flame graph", or "Differential flame graph"
	Subtitle string // beneath the title: what was watched; when and how long is added
	// Value is the type of value to draw, one of observe.Stacks.Types; "" = the
	// first of cpu, off-cpu, runnable, samples that is not zero everywhere. A
	// page has all of them and begins with this one.
	Value string
	Roots Roots // "" = RootComm: the workers of a service belong together
	Flame bool  // the root below, as in the first flame graphs; false = above

	Width int  // Text: columns, 0 = 100. SVG: pixels, 0 = 1,200
	Top   int  // Text: functions and stacks to show, 0 = 10
	Color bool // Text: ANSI colours, only for a terminal
}

// preferred are the types in the order in which they are chosen when nothing
// else is said: what has a time before what is only counted.
var preferred = []string{"cpu", "off-cpu", "runnable", "samples"}

// roots is what o asks for.
func (o Options) roots() Roots {
	if o.Roots == RootProcess || o.Roots == RootThread {
		return o.Roots
	}
	return RootComm
}

// value is the index of the type to draw first, or an UnknownValue.
func (o Options) value(m *model) (int, error) {
	if o.Value != "" {
		i := slices.IndexFunc(m.types, func(t observe.StackValue) bool { return t.Type == o.Value })
		if i < 0 {
			return 0, &UnknownValue{Value: o.Value, Types: m.types}
		}
		return i, nil
	}
	sums := m.sums()
	for _, want := range preferred {
		for i, t := range m.types {
			if t.Type == want && sums[i] != [2]int64{} {
				return i, nil
			}
		}
	}
	return max(0, slices.IndexFunc(sums, func(s [2]int64) bool { return s != [2]int64{} })), nil
}

// UnknownValue is the error for a type of value that the stacks do not have.
type UnknownValue struct {
	Value string
	Types []observe.StackValue // that they have
}

func (e *UnknownValue) Error() string {
	text := "stacks: no values of type " + clean(e.Value)
	for i, t := range e.Types {
		if i == 0 {
			text += ", only of "
		} else {
			text += ", "
		}
		text += clean(t.Type)
	}
	return text
}
