package callstack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// ErrNoProcess says that none of the processes that were asked for exists.
var ErrNoProcess = errors.New("there is no such process")

// What a wait was.
const (
	StateBlocked  = "blocked"  // it waited for something
	StateRunnable = "runnable" // it only wanted a CPU
)

// Record records until the context ends or the window is over, whichever comes
// first, and then gives names to what it saw. Values of samples are, on the
// CPU, how many there were and the time that they stand for; off it, how many
// waits, the time blocked, and the time from being woken, or from losing the
// CPU, until running again ("runnable").
func Record(ctx context.Context, window time.Duration, opt Options) (*observe.Stacks, error) {
	if opt.Hz == 0 {
		opt.Hz = DefaultHz
	}
	if opt.Min == 0 {
		opt.Min = DefaultMin
	}
	if opt.OnCPU == opt.OffCPU {
		return nil, errors.New("stacks: either on the CPU or off it")
	}
	if len(opt.PIDs) > 0 && !existing(opt.PIDs) {
		return nil, fmt.Errorf("stacks: %w", ErrNoProcess)
	}
	space := symbol.NewSpace("/proc")
	defer space.Close()
	w := &watcher{tally: newTally(space, opt.Threads), full: newFull(), out: &observe.Stacks{Types: Types(opt.OffCPU)}}
	if opt.OnCPU {
		w.out.Hz = opt.Hz
	}
	if opt.Unwinder != nil {
		u, err := opt.Unwinder(space, opt.PIDs)
		if err != nil {
			w.out.Notes = append(w.out.Notes, "no frames of interpreters (Python, Java, PHP, Node, Ruby): "+err.Error())
		} else {
			defer u.Close()
			w.unwinder = u
		}
	}
	var err error
	if w.recorder, err = start(opt, w.unwinder); err != nil {
		return nil, err
	}
	defer w.close()
	// Names first: a process that ends during the window keeps them.
	for _, pid := range opt.PIDs {
		space.Process(pid)
	}
	if err := w.warmUp(ctx); err != nil {
		return nil, fmt.Errorf("stacks: %w", err)
	}
	w.began, w.ended, w.out.StartNS = monotonic(), math.MaxUint64, time.Now().UnixNano()
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	if err := w.run(ctx); err != nil {
		return nil, fmt.Errorf("stacks: %w", err)
	}
	return w.finish()
}

// warmUp lets the unwinder meet the processes: it reads their binaries when it
// sees them first, and until then knows nothing of their frames.
func (w *watcher) warmUp(ctx context.Context) error {
	if w.unwinder == nil {
		return nil
	}
	for end := time.Now().Add(warmUp); time.Now().Before(end) && ctx.Err() == nil; {
		if err := w.drain(time.Now().Add(pollEvery), func([]byte) {}); err != nil {
			return err
		}
		w.takeFull()
	}
	return nil
}

// Types are what the values of samples are, on the CPU or off it.
func Types(offCPU bool) []observe.StackValue {
	if !offCPU {
		return []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
	}
	return []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "off-cpu", Unit: "nanoseconds"}, {Type: "runnable", Unit: "nanoseconds"}}
}

func monotonic() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}

// watcher is a window under way.
type watcher struct {
	*recorder
	unwinder Unwinder // nil when there is none
	tally    *tally
	full     *full
	kept     []kept // with Options.Requests
	lost     int64  // records that were not kept
	began    uint64 // monotonic clock, ns
	ended    uint64 // the same; far in the future during the window
	out      *observe.Stacks
	one      record
	raw      ringbuf.Record
}

// run takes in records until the context ends.
func (w *watcher) run(ctx context.Context) error {
	begin := time.Now()
	for ctx.Err() == nil {
		if err := w.drain(time.Now().Add(pollEvery), w.take); err != nil {
			return err
		}
		w.takeFull()
		w.settle(time.Now().Add(-settleAfter))
		if w.opt.Progress != nil {
			w.opt.Progress(time.Since(begin))
		}
	}
	w.ended = monotonic()
	w.out.WindowNS = int64(w.ended - w.began)
	return nil
}

// drain takes in records until the deadline; with one that is over, those that
// are there.
func (w *watcher) drain(deadline time.Time, take func([]byte)) error {
	w.reader.SetDeadline(deadline)
	for {
		err := w.reader.ReadInto(&w.raw)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("read ring: %w", err)
		}
		take(w.raw.RawSample)
		if time.Now().After(deadline) && w.raw.Remaining == 0 {
			return nil
		}
	}
}

// take counts one record.
func (w *watcher) take(raw []byte) {
	r := &w.one
	if parseRecord(raw, r) != nil {
		w.tally.malformed++
		return
	}
	switch r.kind {
	case executed:
		w.tally.space.Executed(r.pid)
	case onCPU:
		if r.time < w.began || r.time > w.ended {
			return
		}
		w.hold(r, value{from: r.time, first: int64(time.Second) / int64(w.opt.Hz)})
	case offCPU:
		v, ok := w.wait(r.time, r.time+r.blocked, r.time+r.blocked+r.runnable)
		if r.time == 0 && time.Duration(v.first+v.second) < w.opt.Min {
			return // it began at a time that is not known, and lasted not for long
		}
		if ok {
			w.hold(r, v)
		}
	default:
		w.tally.malformed++
	}
}

// wait is what the window has of a wait: one may have begun while warming up,
// or have ended while the programs were being detached.
func (w *watcher) wait(since, woken, until uint64) (v value, ok bool) {
	v = value{state: StateBlocked, from: max(since, w.began)}
	if woken == since {
		v.state = StateRunnable
	}
	until = max(min(until, w.ended), v.from)
	woken = min(max(woken, v.from), until)
	v.first, v.second = int64(woken-v.from), int64(until-woken)
	return v, v.first+v.second > 0
}

// finish gives names to everything.
func (w *watcher) finish() (*observe.Stacks, error) {
	w.stop()
	if err := w.drain(time.Now(), w.take); err != nil {
		return nil, fmt.Errorf("stacks: %w", err)
	}
	if w.unwinder != nil {
		time.Sleep(settleAfter / 2) // for what is still on its way
		w.takeFull()
	}
	w.settle(time.Time{})
	if w.opt.OffCPU {
		if err := w.addWaiting(); err != nil {
			return nil, fmt.Errorf("stacks: %w", err)
		}
	}
	w.settleRequests()
	lose := func(variable, what string) {
		if n := w.counter(variable); n > 0 {
			w.out.Losses = append(w.out.Losses, observe.Loss{What: what, Count: n})
		}
	}
	lose(bpf.StacksVarLostRecords, "records for which the buffer had no room")
	lose(bpf.StacksVarLostThreads, "times a thread began to wait that are not followed: too many threads")
	lose(bpf.StacksVarLostChildren, "processes that were started and are not followed: too many processes")
	if w.noKernel {
		w.out.Notes = append(w.out.Notes, "this kernel does not show the kernel stacks of threads that wait")
	}
	w.tellFull()
	w.tally.export(w.out)
	return w.out, nil
}
