package wait

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// fileLock is one line of /proc/locks (proc_locks(5); lock_get_status,
// fs/locks.c).
type fileLock struct {
	id      int    // the same for a lock and those who wait for it
	waits   bool   // "->"
	kind    string // POSIX, FLOCK, OFDLCK, LEASE…
	mode    string // READ, WRITE
	pid     int    // that took it; -1 for locks of open files, which have no process
	file    string // "fe:01:1234": device in hexadecimal, inode in decimal
	from    string
	through string
}

// parseLocks reads /proc/locks. Waiters of waiters are indented more.
func parseLocks(b []byte) []fileLock {
	var out []fileLock
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		if f, ok := parseLock(line); ok {
			out = append(out, f)
		}
	}
	return out
}

// parseLock reads "1: -> POSIX  ADVISORY  WRITE 1234 fe:01:5678 0 EOF".
func parseLock(line []byte) (fileLock, bool) {
	f := bytes.Fields(line)
	var l fileLock
	if len(f) == 0 {
		return l, false
	}
	id, isID := bytes.CutSuffix(f[0], []byte(":"))
	var ok bool
	if l.id, ok = host.ParseSmall(id); !ok || !isID {
		return l, false
	}
	f = f[1:]
	if len(f) > 0 && string(f[0]) == "->" {
		l.waits, f = true, f[1:]
	}
	if len(f) < 7 {
		return l, false
	}
	l.kind, l.mode, l.file = string(f[0]), string(f[2]), string(f[4])
	l.from, l.through = string(f[5]), string(f[6])
	if l.pid, ok = host.ParseSmall(f[3]); !ok {
		l.pid = -1
	}
	return l, true
}

// maxLocks bounds what is read of /proc/locks, bytes: at some 60 bytes a lock.
const maxLocks = 8 << 20

// fileLocks is all locks of files, read at the first use.
func (l *look) fileLocks() []fileLock {
	if !l.locked {
		l.locked = true
		b, err := budget.Head(filepath.Join(l.fs.Proc, "locks"), maxLocks)
		if err != nil {
			l.miss("file locks: " + err.Error())
		}
		l.locks = parseLocks(b)
	}
	return l.locks
}

// Commands of fcntl(2) that wait (include/uapi/asm-generic/fcntl.h); the same
// on all 64-bit architectures.
const (
	setLockWait     = 7  // F_SETLKW
	setOpenLockWait = 38 // F_OFD_SETLKW
)

// fileLocked is the wait in flock(2), or in fcntl(2) for a lock.
func (l *look) fileLocked(t *thread, fd int, flock bool) *link {
	if cmd := t.call.args[1]; !flock && cmd != setLockWait && cmd != setOpenLockWait {
		return l.byWchan(t)
	}
	o := l.object(t, fd)
	k := &link{kind: observe.WaitFileLock, wants: observe.WantsRelease, object: o.String(), sure: true}
	waiting, ok := l.waitingLock(t, o, flock)
	if !ok {
		k.end, k.text = observe.EndUnseen, "who holds the lock is not in /proc/locks"
		return k
	}
	k.detail = fmt.Sprintf("%s lock, %s", waiting.kind, waiting.mode)
	k.extra = waiting.file
	var pids []int
	for _, held := range l.fileLocks() {
		if held.id == waiting.id && !held.waits {
			pids = append(pids, l.lockHolders(held, o)...)
		}
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	for i, pid := range pids {
		if i == maxBranches {
			k.cut = fmt.Sprintf("%d more processes hold it", len(pids)-i)
			break
		}
		k.targets = append(k.targets, target{pid: pid, how: observe.HowTable, why: "holds the lock on that file"})
	}
	k.sure = len(pids) == 1
	if len(pids) == 0 {
		k.end, k.text = observe.EndNoHolder, "no process is seen that has the locked file open"+l.perhapsHidden()
	}
	return k
}

// waitingLock is the line of /proc/locks that stands for a waiting thread. Locks
// go by process: of several lines of one, that of the thread's file is taken.
func (l *look) waitingLock(t *thread, o object, flock bool) (fileLock, bool) {
	var found fileLock
	n := 0
	file := lockedFile(o)
	for _, w := range l.fileLocks() {
		if !w.waits || (w.kind == "FLOCK") != flock || w.pid != t.p.pid && w.pid != -1 {
			continue
		}
		if w.file == file {
			return w, true
		}
		if w.pid == t.p.pid {
			found = w
			n++
		}
	}
	// Some file systems give the file another device number than stat does.
	return found, n == 1
}

// lockedFile is a file as /proc/locks writes it.
func lockedFile(o object) string {
	return fmt.Sprintf("%02x:%02x:%d", o.dev>>32, uint32(o.dev), o.inode)
}

// lockHolders is the processes that hold a lock. That of the line need not be
// one of them: a lock of flock belongs to the open file, which lives on in the
// processes that inherited it, as when a shell calls flock(1). Their fdinfo
// shows the lock (since 4.1).
func (l *look) lockHolders(held fileLock, o object) []int {
	if held.kind == "POSIX" || held.kind == "LEASE" {
		return []int{held.pid}
	}
	var pids []int
	for _, h := range l.holdersOf(o) {
		for line := range bytes.Lines(l.fdInfo(int(h.pid), int(h.fd))) {
			text, ok := bytes.CutPrefix(line, []byte("lock:"))
			if !ok {
				continue
			}
			shown, ok := parseLock(bytes.TrimSpace(text))
			if ok && !shown.waits && shown.kind == held.kind && shown.file == held.file && !slices.Contains(pids, int(h.pid)) {
				pids = append(pids, int(h.pid))
			}
		}
	}
	if len(pids) == 0 && held.pid > 0 && !l.process(held.pid).gone {
		pids = []int{held.pid}
	}
	return pids
}
