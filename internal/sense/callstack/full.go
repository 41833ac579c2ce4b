package callstack

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/slowray/slowray/internal/sense/symbol"
)

// Unwinder finds user stacks that frame pointers do not lead through. Its
// program runs right after a record is made, in the same thread; what it found
// comes later, and is matched with the record by thread and time.
type Unwinder interface {
	// Program is a perf event program that unwinds the current thread.
	Program() *ebpf.Program
	// Stacks hands over what came in, leaf first: the thread and the moment by
	// the monotonic clock, ns. The frames are valid during the call.
	Stacks(each func(tid int, at uint64, frames []symbol.Location))
	// Trouble is what it failed at last, empty when at nothing.
	Trouble() string
	Close()
}

const (
	// warmUp is how long an unwinder is given to meet the processes.
	warmUp = time.Second
	// settleAfter is how long a record waits for its stack.
	settleAfter = 500 * time.Millisecond
	// together is how far apart the times of a record and of its stack may be:
	// measured are 1 µs, at most 25 µs.
	together = uint64(time.Millisecond)
	// keepFull is how long stacks are kept that are not a thread's last.
	keepFull = uint64(2 * time.Second)
	// maxHeld bounds the records that wait for their stack, maxThreads the threads of
	// which stacks are kept.
	maxHeld    = 100_000
	maxThreads = 32_768
)

// full holds the stacks that an unwinder found.
type full struct {
	byThread map[int][]moment
	held     []held
	matched  int64
	missed   int64
}

// moment is what a thread was doing.
type moment struct {
	at     uint64
	frames []int32
}

// held is a record that waits for its stack.
type held struct {
	thread  thread
	arrived time.Time
	time    uint64
	kernel  int // frames of the kernel
	frames  []int32
	value   value
	// Its stack is deeper than what is kept.
	deepKernel, deepUser bool
}

func newFull() *full { return &full{byThread: map[int][]moment{}} }

// at is the stack of a thread that belongs to a record of that time, nil when
// there is none.
func (f *full) at(tid int, time uint64) []int32 {
	list := f.byThread[tid]
	i, _ := slices.BinarySearchFunc(list, time, func(m moment, t uint64) int {
		if m.at < t {
			return -1
		}
		return 1
	})
	if i < len(list) && list[i].at-time < together {
		return list[i].frames
	}
	return nil
}

// takeFull takes in what the unwinder found.
func (w *watcher) takeFull() {
	if w.unwinder == nil {
		return
	}
	w.unwinder.Stacks(func(tid int, at uint64, frames []symbol.Location) {
		m := moment{at: at, frames: make([]int32, len(frames))}
		for i, l := range frames {
			m.frames[i] = w.tally.id(l)
		}
		list := w.full.byThread[tid]
		// Rings of several CPUs are read one after the other: a thread that
		// moved may come out of order.
		i := len(list)
		for i > 0 && list[i-1].at > at {
			i--
		}
		list = slices.Insert(list, i, m)
		old := 0
		for old < len(list)-1 && list[old].at+keepFull < at {
			old++
		}
		w.full.byThread[tid] = slices.Delete(list, 0, old)
		if len(w.full.byThread) > maxThreads {
			w.full.forget(at)
		}
	})
}

// forget drops the stacks of threads that have had none for a while: all, should
// they still be too many.
func (f *full) forget(now uint64) {
	for tid, list := range f.byThread {
		if list[len(list)-1].at+keepFull < now {
			delete(f.byThread, tid)
		}
	}
	if len(f.byThread) > maxThreads {
		clear(f.byThread)
	}
}

// hold keeps a record until its stack is there, or counts it when none will be.
func (w *watcher) hold(r *record, v value) {
	t := w.tally
	h := held{deepKernel: len(r.kernel) == kernelDepth*8, deepUser: len(r.user) == userDepth*8, thread: r.thread(), time: r.time, value: v}
	h.frames = t.kernelFrames(r, nil)
	h.kernel = len(h.frames)
	h.frames = t.userFrames(r, h.frames)
	if w.unwinder == nil || h.thread.kernel || r.time == 0 || len(w.full.held) >= maxHeld {
		w.count(&h)
		return
	}
	h.arrived = time.Now()
	w.full.held = append(w.full.held, h)
}

// count adds a record with the frames that it has.
func (w *watcher) count(h *held) {
	if h.deepKernel || h.deepUser {
		w.tally.truncated++
	}
	if user := h.frames[h.kernel:]; len(user) > 0 {
		w.tally.walked++
		if len(user) == 1 || len(user) == 2 && user[1] < 0 {
			w.tally.short++
		}
	}
	w.keep(h)
}

// settle counts the records that arrived before a time, all with the zero time.
func (w *watcher) settle(before time.Time) {
	f := w.full
	done := 0
	for ; done < len(f.held); done++ {
		h := &f.held[done]
		if !before.IsZero() && h.arrived.After(before) {
			break
		}
		if frames := f.at(h.thread.tid, h.time); frames != nil {
			own := slices.Clone(h.frames[h.kernel:])
			h.frames = w.tally.withCall(h.frames[:h.kernel], own, frames)
			h.deepUser = false
			f.matched++
		} else {
			f.missed++
		}
		w.count(h)
	}
	f.held = slices.Delete(f.held, 0, done)
}

// tellFull says how many stacks are not as good as they could be.
func (w *watcher) tellFull() {
	f := w.full
	all := f.matched + f.missed
	if f.missed == 0 {
		return
	}
	note := fmt.Sprintf("%d of %d user stacks are followed by frame pointers only, without the frames of interpreters", f.missed, all)
	// Processes that ended are trouble too, and none to tell of.
	if trouble := w.unwinder.Trouble(); trouble != "" && 2*f.missed > all {
		note += ": " + trouble
	}
	w.out.Notes = append(w.out.Notes, note)
}
