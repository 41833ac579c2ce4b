package flame

import (
	"cmp"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// model is what every output is drawn from: the stacks of one or two windows,
// put into an order that depends on nothing but themselves.
type model struct {
	startNS, windowNS int64
	hz                int
	types             []observe.StackValue
	functions         []function
	nodes             []node   // nodes[0] is the empty stack; parents come before children
	threads           []thread // by name of process, pid, tid, name: those of a process are neighbours
	samples           []sample // by thread
	compares          bool
	names             [2]string // of what is compared, before and after
	losses            []observe.Loss
	notes             []string
}

// function is a frame, seen at lines from Line to lastLine.
type function struct {
	observe.Frame
	lastLine int
}

// node is a stack: another one, and a function that it called.
type node struct {
	parent   int32
	function int32 // -1 in the empty stack
}

type thread struct {
	comm string
	pid  int
	tid  int
	name string // never empty
}

type sample struct {
	node   int32
	thread int32
	state  string
	slow   bool
	values [2][]int64 // by types; the second half only when it compares
}

// detail says how much of a frame makes it another one.
type detail bool

const (
	byFunction detail = false // lines of one function are one frame, as a graph is read
	byLine     detail = true
)

// valueLimit bounds one value, so that sums stay in range and a page can count
// in floating point: 104 days in nanoseconds.
const valueLimit = 1 << 53

// newModel reads one window, or two that are compared.
func newModel(by detail, sides ...*observe.Stacks) *model {
	return newComparison(by, [2]string{}, sides...)
}

// newComparison reads windows that have names, with which it tells apart what
// they lack.
func newComparison(by detail, names [2]string, sides ...*observe.Stacks) *model {
	m := &model{compares: len(sides) > 1, names: names}
	b := builder{model: m, by: by}
	for i, s := range sides {
		if s == nil {
			s = &observe.Stacks{}
		}
		// The window that a page tells of is the later one.
		m.startNS, m.windowNS, m.hz = s.StartNS, s.WindowNS, s.Hz
		b.read(i, s)
	}
	b.sort()
	b.grow()
	return m
}

// sums are the totals by type and side.
func (m *model) sums() [][2]int64 {
	sums := make([][2]int64, len(m.types))
	for i := range m.samples {
		for side, values := range m.samples[i].values {
			for t, v := range values {
				sums[t][side] = add(sums[t][side], v)
			}
		}
	}
	return sums
}

// side is the index of the values by which a graph is as wide as it is.
func (m *model) side() int {
	if m.compares {
		return 1
	}
	return 0
}

// add stops at the largest number instead of going round.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// rawSample is a sample before equal ones are added up.
type rawSample struct {
	thread thread
	stack  []int32 // functions, the root first
	state  string
	slow   bool
	side   int
	values []int64
}

type builder struct {
	*model
	by  detail
	raw []rawSample
	ids map[observe.Frame]int32
}

// read takes in one window.
func (b *builder) read(side int, s *observe.Stacks) {
	if b.ids == nil {
		b.ids = map[observe.Frame]int32{}
	}
	column := make([]int, len(s.Types)) // of b.types; -1 = a type that is there twice
	for i, t := range s.Types {
		t.Type, t.Unit = clean(t.Type), clean(t.Unit)
		at := slices.IndexFunc(b.types, func(have observe.StackValue) bool { return have.Type == t.Type })
		switch {
		case at < 0:
			at = len(b.types)
			b.types = append(b.types, t)
		case slices.Contains(column[:i], at):
			at = -1
		}
		column[i] = at
	}
	frames := make([]int32, len(s.Frames))
	for i, f := range s.Frames {
		frames[i] = b.function(f)
	}
	for i := range s.Samples {
		b.sample(side, &s.Samples[i], frames, column)
	}
	of := ""
	if b.names[side] != "" {
		of = b.names[side] + ": "
	}
	for _, l := range s.Losses {
		b.losses = append(b.losses, observe.Loss{What: of + clean(l.What), Count: max(l.Count, 0)})
	}
	for _, n := range s.Notes {
		if n = of + clean(n); !slices.Contains(b.notes, n) {
			b.notes = append(b.notes, n)
		}
	}
}

// function is the number of f among the functions.
func (b *builder) function(f observe.Frame) int32 {
	f.Name, f.Module, f.File, f.Kind = clean(f.Name), clean(f.Module), clean(f.File), knownKind(f.Kind)
	if f.Name == "" {
		f.Name = "[no name]"
	}
	f.Line = max(f.Line, 0)
	key := f
	if b.by == byFunction {
		key.Line, key.Inline = 0, false
		if key.File != "" { // says it all, and a module is not always known
			key.Module = ""
		}
	}
	id, ok := b.ids[key]
	if !ok {
		id = int32(len(b.functions))
		b.ids[key] = id
		b.functions = append(b.functions, function{Frame: f, lastLine: f.Line})
		return id
	}
	have := &b.functions[id]
	if f.Line > 0 && (have.Line == 0 || f.Line < have.Line) {
		have.Line = f.Line
	}
	if f.Module != "" && (have.Module == "" || f.Module < have.Module) {
		have.Module = f.Module
	}
	have.lastLine = max(have.lastLine, f.Line)
	have.Inline = have.Inline && f.Inline
	return id
}

func (b *builder) sample(side int, s *observe.StackSample, frames []int32, column []int) {
	r := rawSample{state: clean(s.State), slow: s.Slow, side: side, values: make([]int64, len(b.types))}
	r.thread = thread{comm: clean(s.Comm), pid: s.PID, tid: s.TID, name: clean(s.Thread)}
	if r.thread.comm == "" {
		r.thread.comm = "[no name]"
	}
	if r.thread.name == "" {
		r.thread.name = r.thread.comm
	}
	seen := false
	for i, v := range s.Values {
		if i < len(column) && column[i] >= 0 && v > 0 {
			r.values[column[i]] = min(v, valueLimit)
			seen = true
		}
	}
	if !seen {
		return
	}
	r.stack = make([]int32, 0, len(s.Frames))
	for _, f := range slices.Backward(s.Frames) {
		if f < 0 || int(f) >= len(frames) {
			r.stack = append(r.stack, b.function(observe.Frame{Name: "[no such frame]"}))
			continue
		}
		r.stack = append(r.stack, frames[f])
	}
	b.raw = append(b.raw, r)
}

// sort puts types, functions and samples into an order of their own.
func (b *builder) sort() {
	order := make([]int32, len(b.functions))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(x, y int32) int { return compareFunctions(&b.functions[x], &b.functions[y]) })
	sorted, place := make([]function, len(order)), make([]int32, len(order))
	for i, old := range order {
		sorted[i], place[old] = b.functions[old], int32(i)
	}
	b.functions = sorted
	for i := range b.raw {
		for j, f := range b.raw[i].stack {
			b.raw[i].stack[j] = place[f]
		}
	}
	slices.SortFunc(b.raw, func(x, y rawSample) int {
		return cmp.Or(
			compareThreads(x.thread, y.thread),
			slices.Compare(x.stack, y.stack),
			cmp.Compare(x.state, y.state),
			compareBool(x.slow, y.slow),
		)
	})
	slices.Sort(b.notes)
	slices.SortFunc(b.losses, func(x, y observe.Loss) int {
		return cmp.Compare(x.What, y.What)
	})
	losses := b.losses[:0]
	for _, l := range b.losses {
		if n := len(losses); n > 0 && losses[n-1].What == l.What {
			losses[n-1].Count = add(losses[n-1].Count, l.Count)
		} else {
			losses = append(losses, l)
		}
	}
	b.losses = losses
}

// grow makes the threads, the nodes and the samples out of the sorted raw ones.
func (b *builder) grow() {
	type edge struct{ parent, function int32 }
	edges := map[edge]int32{}
	b.nodes = []node{{parent: -1, function: -1}}
	for i := range b.raw {
		r := &b.raw[i]
		if n := len(b.threads); n == 0 || b.threads[n-1] != r.thread {
			b.threads = append(b.threads, r.thread)
		}
		at := int32(0)
		for _, f := range r.stack {
			next, ok := edges[edge{at, f}]
			if !ok {
				next = int32(len(b.nodes))
				edges[edge{at, f}] = next
				b.nodes = append(b.nodes, node{parent: at, function: f})
			}
			at = next
		}
		b.add(sample{node: at, thread: int32(len(b.threads) - 1), state: r.state, slow: r.slow}, r)
	}
	b.raw, b.ids = nil, nil
}

// add adds r's values to the last sample if that is the same, or appends s.
func (b *builder) add(s sample, r *rawSample) {
	n := len(b.samples)
	if n == 0 || b.samples[n-1].node != s.node || b.samples[n-1].thread != s.thread || b.samples[n-1].state != s.state || b.samples[n-1].slow != s.slow {
		s.values[0] = make([]int64, len(b.types))
		if b.compares {
			s.values[1] = make([]int64, len(b.types))
		}
		b.samples = append(b.samples, s)
		n++
	}
	into := b.samples[n-1].values[r.side]
	for t, v := range r.values {
		into[t] = add(into[t], v)
	}
}

func compareFunctions(x, y *function) int {
	return cmp.Or(
		cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Module, y.Module),
		cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line), compareBool(x.Inline, y.Inline),
	)
}

func compareThreads(x, y thread) int {
	return cmp.Or(cmp.Compare(x.comm, y.comm), cmp.Compare(x.pid, y.pid), cmp.Compare(x.tid, y.tid), cmp.Compare(x.name, y.name))
}

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}
