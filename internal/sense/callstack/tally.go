package callstack

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// What is kept of stacks that differ: a program can make each of its own differ
// from all others, in each frame.
const (
	maxStacks    = 200_000
	maxFrames    = 8 << 20 // of all stacks
	maxLocations = 300_000 // beyond these a place is not known
)

// tally adds up equal stacks.
type tally struct {
	space     *symbol.Space
	byThread  bool
	ids       map[symbol.Location]int32
	locations []symbol.Location
	calls     []callAt
	callIDs   map[callAt]int32
	stacks    map[string]*stack
	frames    int   // of all stacks
	lost      int64 // records of further stacks
	malformed int64
	truncated int64 // records whose stack is deeper than what is kept
	walked    int64 // user stacks
	short     int64 // of them without the frames that called the innermost one
	key       []byte
}

// stack is one call stack of one process or thread.
type stack struct {
	pid, tid int
	thread   string
	kernel   bool // a kernel thread
	state    string
	slow     bool    // in the time of a slow request
	frames   []int32 // leaf first, indices of locations; negative: ^ an index of calls
	values   [3]int64
}

func newTally(space *symbol.Space, byThread bool) *tally {
	return &tally{space: space, byThread: byThread, ids: map[symbol.Location]int32{}, callIDs: map[callAt]int32{}, stacks: map[string]*stack{}}
}

// kernelFrames locates the kernel's frames of a record.
func (t *tally) kernelFrames(r *record, into []int32) []int32 {
	for i := range len(r.kernel) / 8 {
		a := address(r.kernel, i)
		if i > 0 || r.kind == offCPU {
			a-- // where it returns to lies behind the call
		}
		into = append(into, t.id(t.space.Kernel(a)))
	}
	return into
}

// userFrames locates the user's frames, up to where they lead out of what the
// process can execute: what follows is not a stack.
func (t *tally) userFrames(r *record, into []int32) []int32 {
	if r.flags&flagKernelThread != 0 {
		return into
	}
	p := t.space.Process(r.pid)
	for i := range len(r.user) / 8 {
		a := address(r.user, i)
		if i > 0 {
			a--
		}
		l := p.Location(a)
		if i > 0 && !l.Known() {
			break
		}
		into = append(into, t.id(l))
		if i > 0 {
			continue
		}
		if call, ok := t.callOf(r, p, l); ok {
			into = append(into, call)
		}
	}
	return into
}

// callAt is a place that may have called the innermost function of a stack: which of them
// did is asked of the binaries when the window is over.
type callAt struct {
	leaf, caller int32 // indices of locations
	full         bool  // in a stack that the unwinder found
}

// callOf is the call that a record has of its innermost frame.
func (t *tally) callOf(r *record, p *symbol.Process, leaf symbol.Location) (id int32, ok bool) {
	at := symbol.ReturnAddress(r.caller)
	if at == 0 || !leaf.Known() || !p.Holds(at-1) {
		return 0, false
	}
	return t.callID(callAt{leaf: t.id(leaf), caller: t.id(p.Location(at - 1))})
}

func (t *tally) callID(c callAt) (id int32, ok bool) {
	id, ok = t.callIDs[c]
	if !ok {
		if len(t.calls) >= maxLocations {
			return 0, false
		}
		id = int32(len(t.calls))
		t.callIDs[c] = id
		t.calls = append(t.calls, c)
	}
	return ^id, true
}

// withCall gives a stack that the unwinder found the call that the record's own has.
func (t *tally) withCall(into, own, full []int32) []int32 {
	if len(own) < 2 || own[1] >= 0 || len(full) == 0 {
		return append(into, full...)
	}
	c := t.calls[^own[1]]
	c.full = true
	id, ok := t.callID(c)
	into = append(into, full[0])
	if ok {
		into = append(into, id)
	}
	return append(into, full[1:]...)
}

// settleCalls makes frames of the calls by which functions were entered that had not put
// their return address elsewhere yet, and drops the others.
func (t *tally) settleCalls(b *budget.Budget) {
	var leaves []symbol.Location
	for _, c := range t.calls {
		leaves = append(leaves, t.locations[c.leaf])
	}
	left := t.space.Left(b, leaves)
	for _, s := range t.stacks {
		s.frames = slices.DeleteFunc(s.frames, func(f int32) bool {
			if f >= 0 {
				return false
			}
			// The unwinder goes by frame pointers in Go, elsewhere by tables.
			c := t.calls[^f]
			how := left[t.locations[c.leaf]]
			return how == symbol.LeftNowhere || c.full && how != symbol.LeftByGo
		})
	}
}

// location is the index of that of a frame.
func (t *tally) location(f int32) int32 {
	if f < 0 {
		return t.calls[^f].caller
	}
	return f
}

// thread is whom a stack belongs to.
type thread struct {
	pid, tid int
	kernel   bool // a kernel thread
	comm     [16]byte
}

func (r *record) thread() thread {
	t := thread{pid: r.pid, tid: r.tid, kernel: r.flags&flagKernelThread != 0}
	copy(t.comm[:], r.comm)
	return t
}

func (t *tally) id(l symbol.Location) int32 {
	id, ok := t.ids[l]
	if !ok && len(t.locations) >= maxLocations {
		if l = t.space.Unknown(); len(t.locations) > maxLocations {
			return t.ids[l]
		}
		id, ok = t.ids[l]
	}
	if !ok {
		id = int32(len(t.locations))
		t.ids[l] = id
		t.locations = append(t.locations, l)
	}
	return id
}

// value is what is counted of a stack.
type value struct {
	state         string
	slow          bool
	from          uint64 // monotonic clock, ns
	first, second int64  // ns
}

// count adds a stack, leaf first.
func (t *tally) count(of thread, frames []int32, v value) {
	k := binary.LittleEndian.AppendUint32(t.key[:0], uint32(of.pid))
	if t.byThread {
		k = binary.LittleEndian.AppendUint32(k, uint32(of.tid))
		k = append(k, of.comm[:]...)
	}
	k = append(append(k, v.state...), 0)
	if v.slow {
		k = append(k, 1)
	}
	for _, f := range frames {
		k = binary.LittleEndian.AppendUint32(k, uint32(f))
	}
	t.key = k
	s := t.stacks[string(k)]
	if s == nil {
		if len(t.stacks) == maxStacks || t.frames+len(frames) > maxFrames {
			t.lost++
			return
		}
		t.frames += len(frames)
		s = &stack{pid: of.pid, state: v.state, slow: v.slow, frames: slices.Clone(frames), kernel: of.kernel, thread: commText(of.comm[:])}
		if t.byThread {
			s.tid = of.tid
		}
		t.stacks[string(k)] = s
	}
	s.values[0]++
	s.values[1] += v.first
	s.values[2] += v.second
}

// export writes the stacks with the names of their frames. Values beyond the
// types are left out.
func (t *tally) export(out *observe.Stacks) {
	b := budget.New(context.Background(), symbol.Limits)
	t.settleCalls(b.Share(2))
	used, ids := t.used()
	frames, missing := t.space.Frames(b, used)
	index := map[observe.Frame]int32{}
	of := make([]int32, len(t.locations))
	for i, f := range frames {
		id, ok := index[f]
		if !ok {
			id = int32(len(out.Frames))
			index[f] = id
			out.Frames = append(out.Frames, f)
		}
		of[ids[i]] = id
	}
	// Places in one function are one frame: stacks that differed may be equal.
	merged := map[string]int{}
	for _, s := range t.stacks {
		x := t.sample(s, out.Frames, of, len(out.Types))
		key := binary.LittleEndian.AppendUint64(nil, uint64(x.PID)<<32|uint64(x.TID))
		key = fmt.Appendf(key, "%s\x00%s\x00%s\x00%t", x.Comm, x.Thread, x.State, x.Slow)
		for _, f := range x.Frames {
			key = binary.LittleEndian.AppendUint32(key, uint32(f))
		}
		at, ok := merged[string(key)]
		if !ok {
			merged[string(key)] = len(out.Samples)
			out.Samples = append(out.Samples, x)
			continue
		}
		for i, v := range x.Values {
			out.Samples[at].Values[i] += v
		}
	}
	slices.SortFunc(out.Samples, compareSamples)
	t.tell(out, missing)
}

// used are the locations that stacks have, and their numbers: those first that
// are on most stacks, should there not be the time to name all.
func (t *tally) used() (locations []symbol.Location, ids []int32) {
	seen := make([]int64, len(t.locations))
	for _, s := range t.stacks {
		for _, f := range s.frames {
			seen[t.location(f)] += s.values[0]
		}
	}
	for i, n := range seen {
		if n > 0 {
			ids = append(ids, int32(i))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(seen[b], seen[a]) })
	for _, i := range ids {
		locations = append(locations, t.locations[i])
	}
	return locations, ids
}

// sample is a stack with so many values; of are the frames of the locations, as indices of all.
func (t *tally) sample(s *stack, all []observe.Frame, of []int32, values int) observe.StackSample {
	x := observe.StackSample{PID: s.pid, TID: s.tid, Comm: s.thread, State: s.state, Slow: s.slow, Values: s.values[:values]}
	if !s.kernel {
		if comm := t.space.Process(s.pid).Comm; comm != "" {
			x.Comm = comm
		}
	}
	if t.byThread && s.thread != x.Comm {
		x.Thread = s.thread
	}
	x.Frames = make([]int32, 0, len(s.frames))
	for i, f := range s.frames {
		at := of[t.location(f)]
		// Through functions in assembly the unwinder goes by tables, and has found the caller.
		if f < 0 && t.calls[^f].full && i+1 < len(s.frames) && all[of[s.frames[i+1]]].Name == all[at].Name {
			continue
		}
		x.Frames = append(x.Frames, at)
	}
	return x
}

// spent is the time of all kinds.
func spent(s observe.StackSample) (ns int64) {
	for _, v := range s.Values[1:] {
		ns += v
	}
	return ns
}

// compareSamples gives samples an order that depends on nothing but them, most
// time first.
func compareSamples(a, b observe.StackSample) int {
	if x, y := spent(a), spent(b); x != y {
		return cmp.Compare(y, x)
	}
	return cmp.Or(
		cmp.Compare(a.PID, b.PID),
		cmp.Compare(a.TID, b.TID),
		cmp.Compare(a.State, b.State),
		slices.Compare(a.Frames, b.Frames),
	)
}

// tell says what is missing.
func (t *tally) tell(out *observe.Stacks, missing []symbol.Missing) {
	lose := func(n int64, what string) {
		if n > 0 {
			out.Losses = append(out.Losses, observe.Loss{What: what, Count: n})
		}
	}
	lose(t.lost, fmt.Sprintf("records of more than %d different stacks", maxStacks))
	lose(t.malformed, "records that could not be read")
	lose(t.truncated, "stacks deeper than is kept: their outermost frames are missing")
	lose(int64(t.space.Ended()), "processes that ended before their memory map could be read: their frames have no names")
	for _, m := range missing {
		what := "places in " + m.Where + " without a name"
		if m.Why != "" {
			what += ": " + m.Why
		}
		lose(int64(m.Locations), what)
	}
	if err := symbol.Unread(missing); err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	if t.walked > 0 && t.short*4 > t.walked {
		out.Notes = append(out.Notes, fmt.Sprintf(
			"%d %% of the user stacks have only their innermost frame: those programs were built without frame pointers", t.short*100/t.walked))
	}
}
