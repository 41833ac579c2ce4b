package wait

import (
	"fmt"
	"os"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Operations of futex(2) (include/uapi/linux/futex.h).
const (
	futexWait          = 0
	futexLockPI        = 6
	futexWaitBitset    = 9
	futexWaitRequeuePI = 11
	futexLockPI2       = 13
	futexCommand       = 127 // without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
	futexPrivate       = 128
	futexWaiters       = 1 << 31
	futexTIDMask       = 1<<30 - 1
)

// Layout of glibc's locks on 64-bit machines (sysdeps/nptl/bits/struct_mutex.h,
// struct_rwlock.h; since 2.25, of rwlocks since 2.26).
const (
	mutexCount = 4
	mutexOwner = 8
	mutexUsers = 12
	mutexKind  = 16
	mutexSpins = 20
	mutexList  = 24 // of robust mutexes; else both pointers are null
	mutexSize  = 40
	contended  = 2 // value of a low-level lock that somebody waits for

	kindType      = 0x003 // of a mutex's kind
	kindRecursive = 0x001 // a type
	kindAdaptive  = 0x003 // a type
	kindRobust    = 0x010
	kindElision   = 0x300 // on, off
	kindKnown     = 0x3f3 // all bits in use: those, and inheriting, protecting, shared

	rwReaders       = 0
	rwPhaseFutex    = 8
	rwWritersFutex  = 12
	rwWriter        = 24
	rwSize          = 32
	rwWritePhase    = 1 // of readers
	rwWriteLocked   = 2 // of readers
	rwReaderShift   = 3
	rwTakenAndAwait = 3 // value of either futex: taken, and somebody waits
)

// lockOwner is who holds a lock, as written in memory.
type lockOwner struct {
	t       *thread // nil when it has ended
	tid     int     // as written
	what    string  // "mutex"
	release bool    // false: it is the end of the thread that is waited for
}

// futex is the wait in futex(2).
func (l *look) futex(t *thread, addr uint64, op, value uint32, timeout uint64) *link {
	command := op & futexCommand
	private := op&futexPrivate != 0
	switch command {
	case futexWait, futexWaitBitset, futexLockPI, futexLockPI2:
		return l.onFutex(t, addr, value, command, private, timeout != 0)
	case futexWaitRequeuePI:
		return parked()
	}
	return noOwner("waits on a lock")
}

// futexNew is the wait in futex_wait (since 6.7): address, value, mask, flags
// (FUTEX2_PRIVATE is that of futex(2)), timeout.
func (l *look) futexNew(t *thread) *link {
	a := t.call.args
	return l.onFutex(t, a[0], uint32(a[1]), futexWait, a[3]&futexPrivate != 0, a[4] != 0)
}

func parked() *link {
	return noOwner("waits to be woken (condition variable, semaphore, or parked by its runtime): by whom is not written anywhere")
}

func (l *look) onFutex(t *thread, addr uint64, value, command uint32, private, timed bool) *link {
	if l.forInterpreter(t) {
		return l.interpreterLock(t)
	}
	owner, ok := l.futexOwner(t, addr, value, command, private)
	if !ok {
		if k := l.monitorWait(t, timed); k != nil {
			return k
		}
		if k := l.pythonLock(t, addr, timed); k != nil {
			return k
		}
		k := parked()
		if n := l.rwReaders(t, addr, value); n > 0 {
			k = noOwner(fmt.Sprintf("waits for the %d threads that read under a read-write lock, it seems: they are not written anywhere", n))
			k.wants, k.extra = observe.WantsRelease, fmt.Sprint(addr)
		}
		return k
	}
	k := &link{kind: observe.WaitLock, wants: observe.WantsRelease, sure: !timed}
	k.object = fmt.Sprintf("%s at 0x%x", owner.what, addr)
	why := "holds the " + owner.what
	if !owner.release {
		k.kind, k.wants, k.object = observe.WaitThread, observe.WantsEnd, fmt.Sprintf("end of thread %d", owner.tid)
		why = "is the thread whose end is waited for"
	}
	k.extra = fmt.Sprint(addr)
	if owner.t == nil {
		k.end = observe.EndGone
		k.text = fmt.Sprintf("the %s was taken by thread %d, which has ended without letting it go", owner.what, owner.tid)
		return k
	}
	k.targets = []target{{pid: owner.t.p.pid, tid: owner.t.tid, how: observe.HowOwner, why: why}}
	k.same = func() bool {
		now, ok := l.futexOwner(t, addr, value, command, private)
		return ok && now.tid == owner.tid
	}
	return k
}

// futexOwner finds who holds what a thread waits for at an address. A wrong
// owner is worse than none: each kind of lock is believed only when all of its
// fields fit and the owner is a thread that can hold it.
func (l *look) futexOwner(t *thread, addr uint64, value, command uint32, private bool) (lockOwner, bool) {
	// What follows a lock that is smaller than a mutex may not be there.
	b := l.bytesAt(t.p, addr, mutexSize)
	if b == nil {
		if b = l.bytesAt(t.p, addr, 4); b == nil {
			return lockOwner{}, false
		}
	}
	now := word(b, 0)
	if command == futexLockPI || command == futexLockPI2 {
		// The kernel itself keeps the owner in the word.
		o := l.sharer(t, addr, int(now&futexTIDMask), private)
		return lockOwner{t: o, tid: int(now & futexTIDMask), what: "mutex (priority inheriting)", release: true}, o != nil
	}
	if now != value {
		return lockOwner{}, false // about to be woken
	}
	if owner, ok := l.mutexOwner(t, addr, b, private); ok {
		return owner, true
	}
	if owner, ok := l.streamOwner(t, addr, now); ok {
		return owner, true
	}
	if owner, ok := l.rwOwner(t, addr, now, private); ok {
		return owner, true
	}
	return l.joined(t, addr, now, private)
}

// mutexOwner reads a pthread_mutex_t. glibc writes the owner of every kind of
// mutex, whoever asks for it.
func (l *look) mutexOwner(t *thread, addr uint64, b []byte, private bool) (lockOwner, bool) {
	now := word(b, 0)
	if len(b) < mutexSize || now != contended && now&futexWaiters == 0 {
		return lockOwner{}, false
	}
	tid, users := word(b, mutexOwner), word(b, mutexUsers)
	if tid == 0 || tid > futexTIDMask || users == 0 || users > 1<<20 || !likeMutex(b, now) {
		return lockOwner{}, false
	}
	owner := l.sharer(t, addr, int(tid), private)
	if owner == nil && (users != 1 || !l.ended(t.p, int(tid))) {
		return lockOwner{}, false
	}
	return lockOwner{t: owner, tid: int(tid), what: "mutex", release: true}, true
}

// likeMutex says whether memory fits a contended pthread_mutex_t in all that its
// kind says of its other fields.
func likeMutex(b []byte, now uint32) bool {
	count, kind := word(b, mutexCount), word(b, mutexKind)
	if kind&^kindKnown != 0 {
		return false
	}
	if kind&kindRobust != 0 {
		// The owner is in the word itself too; the count is 1 for any type.
		return now&futexWaiters != 0 && now&futexTIDMask == word(b, mutexOwner) && count <= 1<<20
	}
	if kind&kindType == kindRecursive {
		if count == 0 || count > 1<<20 {
			return false
		}
	} else if count != 0 {
		return false
	}
	spins := word(b, mutexSpins) == 0 || kind&kindType == kindAdaptive || kind&kindElision != 0
	return now == contended && spins && long(b, mutexList) == 0 && long(b, mutexList+8) == 0
}

// ended says whether no thread of the host has a number, so that whoever wrote
// it is gone. It is not asked across pid namespaces.
func (l *look) ended(p *process, tid int) bool {
	l.hostTID(p, tid)
	if p.inner != nil {
		return false
	}
	_, err := os.Stat(fmt.Sprintf("%s/%d", l.fs.Proc, tid))
	return vanished(err)
}

// controlBlocks are where glibc's thread control block (struct pthread, nptl/descr.h) has
// the thread's number, and before it the thread's place in a list of all: pointers to the
// next one and to the one before. On x86-64 it begins with a pointer to itself, twice.
var controlBlocks = map[string]struct{ list, tid int }{
	"amd64": {704, 720},
	"arm64": {192, 208},
}

const (
	tcbSelf  = 0
	tcbSelf2 = 16
)

// streamOwner reads the lock of a FILE of stdio (_IO_lock_t: lock, count, and
// the owner's thread control block).
func (l *look) streamOwner(t *thread, addr uint64, now uint32) (lockOwner, bool) {
	if now != contended {
		return lockOwner{}, false
	}
	b := l.bytesAt(t.p, addr, 16)
	if b == nil || word(b, 4) == 0 || word(b, 4) > 1<<20 {
		return lockOwner{}, false
	}
	tid, ok := l.controlBlock(t.p, long(b, 8))
	if !ok {
		return lockOwner{}, false
	}
	owner := l.hostTID(t.p, tid)
	return lockOwner{t: owner, tid: tid, what: "lock of a stdio stream", release: true}, owner != nil
}

// controlBlock is the number of the thread whose control block lies at an
// address.
func (l *look) controlBlock(p *process, addr uint64) (tid int, ok bool) {
	at, known := controlBlocks[l.arch]
	if !known || addr>>32 == 0 || addr&15 != 0 {
		return 0, false
	}
	b := l.bytesAt(p, addr, at.tid+8)
	switch {
	case b == nil:
		return 0, false
	case l.arch == "amd64":
		ok = long(b, tcbSelf) == addr && long(b, tcbSelf2) == addr
	default: // it has no pointer to itself, but others in the list have
		self := addr + uint64(at.list)
		next, before := l.bytesAt(p, long(b, at.list), 16), l.bytesAt(p, long(b, at.list+8), 16)
		ok = next != nil && before != nil && long(next, 8) == self && long(before, 0) == self
	}
	return int(word(b, at.tid) & futexTIDMask), ok
}

// rwOwner reads a pthread_rwlock_t that a writer holds. Readers and writers wait
// on either of two words of it.
func (l *look) rwOwner(t *thread, addr uint64, now uint32, private bool) (lockOwner, bool) {
	if now != rwTakenAndAwait {
		return lockOwner{}, false
	}
	var found lockOwner
	n := 0
	for _, offset := range []uint64{rwPhaseFutex, rwWritersFutex} {
		b := l.bytesAt(t.p, addr-offset, rwSize)
		if b == nil {
			continue
		}
		readers, tid := word(b, rwReaders), word(b, rwWriter)
		if readers&rwWriteLocked == 0 || readers&rwWritePhase == 0 || tid == 0 || tid > futexTIDMask || readers>>rwReaderShift > 1<<20 {
			continue
		}
		if owner := l.sharer(t, addr, int(tid), private); owner != nil && owner != t {
			found = lockOwner{t: owner, tid: int(tid), what: "read-write lock (for writing)", release: true}
			n++
		}
	}
	return found, n == 1
}

// rwReaders is how many threads read under the pthread_rwlock_t that a writer
// waits for; 0 when it does not look like one.
func (l *look) rwReaders(t *thread, addr uint64, value uint32) int {
	if value != contended {
		return 0
	}
	b := l.bytesAt(t.p, addr-rwPhaseFutex, rwSize)
	if b == nil || word(b, rwPhaseFutex) != contended {
		return 0
	}
	readers := word(b, rwReaders)
	n := readers >> rwReaderShift
	if readers&rwWriteLocked == 0 || readers&rwWritePhase != 0 || n == 0 || n > 1<<16 || word(b, rwWriter) != 0 {
		return 0
	}
	return int(n)
}

// joined is the thread whose end is waited for (pthread_join): the kernel clears
// its number in memory when it ends (set_tid_address(2)), and wakes waiters
// there of any process.
func (l *look) joined(t *thread, addr uint64, now uint32, private bool) (lockOwner, bool) {
	if private || now == 0 || now > futexTIDMask {
		return lockOwner{}, false
	}
	other := l.hostTID(t.p, int(now))
	if other == nil || other == t {
		return lockOwner{}, false
	}
	if at, known := controlBlocks[l.arch]; known {
		if tid, ok := l.controlBlock(t.p, addr-uint64(at.tid)); !ok || tid != int(now) {
			return lockOwner{}, false
		}
	}
	return lockOwner{t: other, tid: other.tid, what: "thread"}, true
}

// sharer is the thread of this number that can hold a lock at an address: one
// of the same process, or, of a lock that processes share, one of a process
// that maps the same file there. Nil when there is none.
func (l *look) sharer(t *thread, addr uint64, tid int, private bool) *thread {
	if owner := l.hostTID(t.p, tid); owner != nil {
		return owner
	}
	if private || t.p.inner != nil {
		return nil // numbers of other pid namespaces cannot be distinguished
	}
	status, err := os.ReadFile(fmt.Sprintf("%s/%d/status", l.fs.Proc, tid))
	if err != nil {
		return nil
	}
	pid, ok := host.ParseSmall(keyed(status, "Tgid:"))
	if !ok {
		return nil
	}
	file := l.mappedAt(t.p.pid, addr)
	if file == "" || !l.maps(pid, file) {
		return nil
	}
	return l.threadOf(l.process(pid), tid)
}

// mappedAt is the file, as "dev inode" of /proc/PID/maps (proc_pid_maps(5)),
// that a process shares at an address; empty when it shares none.
func (l *look) mappedAt(pid int, addr uint64) string {
	found := ""
	l.eachMapping(pid, func(from, to uint64, file string) bool {
		if addr >= from && addr < to {
			found = file
			return false
		}
		return true
	})
	return found
}

// maps says whether a process shares a file in its memory.
func (l *look) maps(pid int, file string) bool {
	found := false
	l.eachMapping(pid, func(_, _ uint64, f string) bool {
		found = f == file
		return !found
	})
	return found
}

// eachMapping visits the shared mappings of files until visit returns false.
// Memory that is shared without a file (MAP_ANONYMOUS) has one too, deleted.
func (l *look) eachMapping(pid int, visit func(from, to uint64, file string) bool) {
	err := procmem.EachMapping(l.budget, l.fs.Proc, pid, func(m *procmem.Mapping) bool {
		if !m.Shared || m.Inode == 0 {
			return true
		}
		return visit(m.Start, m.End, fmt.Sprintf("%s %d", m.Device, m.Inode))
	})
	if err != nil && !budget.IsExceeded(err) {
		l.permission(fmt.Sprintf("memory map of process %d", pid), err, "CAP_SYS_PTRACE")
	}
}
