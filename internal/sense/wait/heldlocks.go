package wait

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxHeld        = 8  // locks of a process that are reported
	maxHeldLooked  = 64 // locks with waiters of which it is asked who has them, in one look
	maxHeldWaiters = 8  // processes that are reported of a lock
)

// heldLocks sums up, look by look, who waits for the locks of files that processes have.
type heldLocks struct {
	looks int
	locks map[string]*heldLock // by file
}

type heldLock struct {
	object, detail string
	waiting, most  int         // over all looks, and in one
	waiters        map[int]int // by process
}

// look looks once at /proc/locks. Those of the family that wait for each other are not of
// interest: their chains tell.
func (h *heldLocks) look(r *Reader, family []int) {
	l := newLook(r, sampleLimits)
	defer l.close()
	h.looks++
	waiting := map[int][]int{} // number of the lock → who waits
	for _, k := range l.fileLocks() {
		if k.waits && !slices.Contains(family, k.pid) {
			waiting[k.id] = append(waiting[k.id], k.pid)
		}
	}
	asked := 0
	for _, k := range l.fileLocks() {
		pids := waiting[k.id]
		if k.waits || len(pids) == 0 || asked == maxHeldLooked {
			continue
		}
		asked++
		object, ok := l.heldIn(family, k)
		if !ok {
			continue
		}
		delete(waiting, k.id)
		h.note(k, object, pids)
	}
}

// heldIn says whether one of the family has a lock, and names its file.
func (l *look) heldIn(family []int, k fileLock) (object string, ok bool) {
	for _, pid := range family {
		o := l.openFile(&thread{p: &process{pid: pid}, tid: pid}, k.file)
		switch named := o.kind == fileObject; {
		case named && (k.pid == pid && k.kind == "POSIX" || l.hasLock(pid, k, o)):
			return o.link, true
		case !named && k.pid == pid: // some file systems give the file another device number there
			object, ok = k.file, true
		}
	}
	return object, ok
}

func (h *heldLocks) note(k fileLock, object string, pids []int) {
	held := h.locks[k.file]
	if held == nil {
		if len(h.locks) == maxHeld {
			return
		}
		held = &heldLock{object: object, detail: fmt.Sprintf("%s lock, %s", k.kind, k.mode), waiters: map[int]int{}}
		if h.locks == nil {
			h.locks = map[string]*heldLock{}
		}
		h.locks[k.file] = held
	}
	held.waiting += len(pids)
	held.most = max(held.most, len(pids))
	for _, pid := range pids {
		if pid > 0 {
			held.waiters[pid]++
		}
	}
}

// list is the locks, those first for which most wait.
func (h *heldLocks) list(l *look) []observe.HeldLock {
	var out []observe.HeldLock
	for _, k := range h.locks {
		held := observe.HeldLock{Object: k.object, Detail: k.detail, Threads: float64(k.waiting) / float64(h.looks), AtOnce: k.most, Waiters: []observe.LockWaiter{}}
		for pid, n := range k.waiters {
			held.Waiters = append(held.Waiters, observe.LockWaiter{Process: observe.WaitProcess{PID: pid}, Threads: float64(n) / float64(h.looks)})
		}
		slices.SortFunc(held.Waiters, func(a, b observe.LockWaiter) int {
			return cmp.Or(cmp.Compare(b.Threads, a.Threads), cmp.Compare(a.Process.PID, b.Process.PID))
		})
		held.Waiters = held.Waiters[:min(len(held.Waiters), maxHeldWaiters)]
		for i := range held.Waiters {
			held.Waiters[i].Process = l.who(l.process(held.Waiters[i].Process.PID))
		}
		out = append(out, held)
	}
	slices.SortFunc(out, func(a, b observe.HeldLock) int {
		return cmp.Or(cmp.Compare(b.Threads, a.Threads), cmp.Compare(a.Object, b.Object))
	})
	return out
}
