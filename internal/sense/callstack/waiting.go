package callstack

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// maxIdle bounds the threads that are looked at because they did not run once.
const maxIdle = 20_000

// maxText is how much of a file of procfs about a thread is read, bytes: of its stack
// there are 64 lines (fs/proc/base.c, MAX_STACK_TRACE_DEPTH).
const maxText = 32 << 10

// addWaiting counts the waits that have not ended: of threads that were seen to
// begin, and of those that did not run at all.
func (w *watcher) addWaiting() error {
	now := w.ended
	seen := map[int]bool{}
	err := w.waiting(func(tid int, p *parked) {
		seen[tid] = true
		if p.Time >= now || now-p.Time < uint64(w.opt.Min) {
			return
		}
		r := record{
			time: p.Time, caller: p.Caller, pid: int(p.TGID), tid: tid, kind: offCPU, flags: uint16(p.Flags),
			comm: p.Comm[:], user: p.IPs[:min(int(p.User), len(p.IPs))&^7],
		}
		woken := now
		switch {
		case p.State == 0:
			woken = p.Time
		case p.Woken > p.Time && p.Woken < now:
			woken = p.Woken
		}
		if v, ok := w.wait(p.Time, woken, now); ok {
			w.addStill(&r, v)
		}
	})
	if err != nil {
		return fmt.Errorf("read waiting threads: %w", err)
	}
	w.addIdle(seen)
	return nil
}

// addStill counts a thread that waits now, with the kernel stack that it has
// now.
func (w *watcher) addStill(r *record, v value) {
	t := w.tally
	var frames []int32
	for _, l := range kernelStack(t.space, r.pid, r.tid) {
		frames = append(frames, t.id(l))
	}
	own := t.userFrames(r, nil)
	if full := w.full.at(r.tid, r.time); full != nil {
		frames = t.withCall(frames, own, full)
	} else {
		frames = append(frames, own...)
	}
	w.keep(&held{thread: r.thread(), time: r.time, frames: frames, value: v})
}

// addIdle counts threads that waited all the time: nothing was seen of them.
func (w *watcher) addIdle(seen map[int]bool) {
	looked := 0
	for _, pid := range w.processes() {
		if looked == maxIdle {
			break
		}
		tasks, err := budget.Names(fmt.Sprintf("/proc/%d/task", pid), len(seen)+maxIdle)
		if err != nil {
			continue // ended
		}
		slices.SortFunc(tasks, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		for _, task := range tasks {
			tid, err := strconv.Atoi(task)
			if err != nil || seen[tid] || looked == maxIdle {
				continue
			}
			looked++
			w.addIdleThread(pid, tid)
		}
	}
}

func (w *watcher) addIdleThread(pid, tid int) {
	dir := fmt.Sprintf("/proc/%d/task/%d", pid, tid)
	stat, err := budget.Head(filepath.Join(dir, "stat"), maxText)
	if err != nil {
		return
	}
	// "pid (comm) S …": the name may hold anything.
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open || len(stat) < end+3 {
		return
	}
	if state := stat[end+2]; state != 'S' && state != 'D' && state != 'I' {
		return // runs, or is stopped, which is no call
	}
	comm := stat[open+1 : end]
	r := record{time: w.began, pid: pid, tid: tid, kind: offCPU, comm: comm}
	// "nr args… sp pc", where it entered the kernel; nothing of kernel threads.
	call, err := budget.Head(filepath.Join(dir, "syscall"), maxText)
	fields := strings.Fields(string(call))
	switch {
	case err == nil && len(fields) >= 3:
		if pc, ok := host.ParseHex([]byte(strings.TrimPrefix(fields[len(fields)-1], "0x"))); ok && pc != 0 {
			for i := range 8 {
				r.user = append(r.user, byte(pc>>(8*i)))
			}
		}
	case err == nil && len(fields) > 0 && fields[0] == "running":
		return
	}
	if len(r.user) == 0 || bytes.Equal(r.user, make([]byte, 8)) {
		r.user, r.flags = nil, flagKernelThread
	}
	w.addStill(&r, value{state: StateBlocked, from: w.began, first: w.out.WindowNS})
}

// processes are those that are looked at and exist now.
func (w *watcher) processes() []int {
	if len(w.opt.PIDs) > 0 {
		return w.opt.PIDs
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// kernelStack is where in the kernel a thread waits, from /proc/PID/stack:
// lines "[<0>] do_nanosleep+0x6a/0x130" or "… [module]", leaf first.
func kernelStack(space *symbol.Space, pid, tid int) []symbol.Location {
	data, err := budget.Head(fmt.Sprintf("/proc/%d/task/%d/stack", pid, tid), maxText)
	if err != nil {
		return nil
	}
	var out []symbol.Location
	for line := range strings.Lines(string(data)) {
		_, text, ok := strings.Cut(strings.TrimSpace(line), "] ")
		if !ok || len(out) == kernelDepth {
			continue
		}
		name, rest, _ := strings.Cut(text, "+")
		if strings.HasPrefix(name, "0x") || name == "" {
			continue
		}
		_, module, _ := strings.Cut(rest, "[")
		out = append(out, space.KernelFunction(name, strings.TrimSuffix(module, "]")))
	}
	return out
}
