package wait

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
	if ok && o.kind == noObject {
		// It has gone on since, and closed the file: its process knows the name.
		if o = l.openFile(t, waiting.file); o.kind != noObject {
			k.object = o.String()
		}
	}
	if !ok {
		k.end, k.text = observe.EndUnseen, "who holds the lock is not in /proc/locks"
		return k
	}
	k.detail = fmt.Sprintf("%s lock, %s", waiting.kind, waiting.mode)
	k.extra = waiting.file
	l.heldBy(k, l.holding(t, waiting.id, o), "holds the lock on that file")
	return k
}

// holding is the processes that hold a lock of this number.
func (l *look) holding(t *thread, id int, o object) []int {
	key := lockKey{id, t.p.pid}
	if pids, ok := l.lockPIDs[key]; ok {
		return pids
	}
	var pids []int
	for _, held := range l.fileLocks() {
		if held.id == id && !held.waits {
			pids = append(pids, l.lockHolders(t.p.pid, held, o)...)
		}
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	if l.lockPIDs == nil {
		l.lockPIDs = map[lockKey][]int{}
	}
	l.lockPIDs[key] = pids
	return pids
}

// lockKey is a lock, and a process that waits for it.
type lockKey struct{ id, pid int }

// heldBy makes those who hold a lock the next hop of a wait for it.
func (l *look) heldBy(k *link, pids []int, why string) {
	for i, pid := range pids {
		if i == maxBranches {
			k.cut = fmt.Sprintf("%d more processes hold it", len(pids)-i)
			break
		}
		k.targets = append(k.targets, target{pid: pid, how: observe.HowTable, why: why})
	}
	k.sure = len(pids) == 1
	if len(pids) == 0 {
		k.end, k.text = observe.EndNoHolder, "no process is seen that has the locked file open"+l.perhapsHidden()
	}
}

// lockThreads are the threads of a process that may have a lock of a file which last
// waits for: not those that wait for it too, nor those that are ready for work. None
// where all threads wait so: then it is one of these.
func (l *look) lockThreads(last *step, p *process, to target) (next []step, none bool) {
	others, best := 0, 1<<10
	may := func(t *thread) (int, bool) {
		k := l.linkOf(t)
		if t == last.t || k.kind == observe.WaitFileLock && (k.extra == last.link.extra || k.end == observe.EndUnseen) {
			return 0, false
		}
		others++
		return rank(k), rank(k) <= likely || k.end == observe.EndSleep
	}
	for _, t := range p.threads {
		if r, ok := may(t); ok {
			best = min(best, r)
		}
	}
	if others == 0 {
		return nil, false
	}
	for _, t := range p.threads {
		if r, ok := may(t); ok && r == best && len(next) < maxBranches {
			next = append(next, step{t: t, link: l.linkOf(t), by: to})
		}
	}
	return next, len(next) == 0
}

// SQLite locks these bytes of its files (os_unix.c, wal.c; the file format's
// documentation, "File Locking"): in the database PENDING, RESERVED and SHARED, in the
// -shm file of write-ahead logging the lock of who writes.
const (
	sqlitePending = 0x40000000
	sqliteShared  = sqlitePending + 2 + 510
	sqliteWrite   = 120
)

// sqliteDelays is how long SQLite sleeps before it asks for a lock again
// (sqliteDefaultBusyCallback, main.c).
var sqliteDelays = []time.Duration{1e6, 2e6, 5e6, 10e6, 15e6, 20e6, 25e6, 50e6, 100e6}

// asksForLock says whether a thread that sleeps does so until it asks for a lock again.
func (l *look) asksForLock(t *thread) bool { return l.linkOf(t).kind == observe.WaitFileLock }

// sqlite is the wait of a thread that sleeps as SQLite does when somebody else has the
// lock of a database that its process has open; nil when nobody has.
func (l *look) sqlite(t *thread, sleep time.Duration) *link {
	if !slices.Contains(sqliteDelays, sleep) {
		return nil
	}
	for _, held := range l.fileLocks() {
		at, ok := host.ParseSmall([]byte(held.from))
		if held.waits || held.kind != "POSIX" || held.mode != "WRITE" || !ok || at != sqliteWrite && (at < sqlitePending || at > sqliteShared) {
			continue
		}
		o := l.openFile(t, held.file)
		if o.kind != fileObject || at == sqliteWrite && !strings.HasSuffix(o.link, "-shm") {
			continue
		}
		k := &link{kind: observe.WaitFileLock, wants: observe.WantsRelease, object: o.String(), detail: "SQLite's lock, asked for again every " + sleep.String(), extra: held.file, wakes: true}
		k.same = func() bool { return true }
		l.heldBy(k, []int{held.pid}, "holds SQLite's lock on that file")
		k.sure = false
		return k
	}
	return nil
}

// openFile is a file of /proc/locks as a process has it open; no object where it has not.
func (l *look) openFile(t *thread, file string) object {
	if l.lockFiles == nil {
		l.lockFiles = map[lockFile]object{}
	}
	key := lockFile{t.p.pid, file}
	if o, ok := l.lockFiles[key]; ok {
		return o
	}
	fds, _ := numbersIn(fmt.Sprintf("%s/%d/fd", l.fs.Proc, t.p.pid))
	for _, fd := range fds[:min(len(fds), maxOwnFiles)] {
		if o := l.object(t, fd); o.kind == fileObject && lockedFile(o) == file {
			l.lockFiles[key] = o
			return o
		}
	}
	l.lockFiles[key] = object{}
	return object{}
}

// lockFile is a file of /proc/locks, and a process that may have it open.
type lockFile struct {
	pid  int
	file string
}

// maxOwnFiles bounds the open files of one process that are looked through for one.
const maxOwnFiles = 1024

// waitingLock is the line of /proc/locks that stands for a waiting thread. Locks
// go by process: of several lines of one, that of the thread's file is taken.
func (l *look) waitingLock(t *thread, o object, flock bool) (fileLock, bool) {
	var found fileLock
	alone := true
	file := lockedFile(o)
	for _, w := range l.fileLocks() {
		if !w.waits || (w.kind == "FLOCK") != flock || w.pid != t.p.pid && w.pid != -1 {
			continue
		}
		if w.file == file {
			return w, true
		}
		if w.pid == t.p.pid || o.kind == noObject {
			alone = alone && (found.file == "" || found.file == w.file)
			found = w
		}
	}
	// Some file systems give the file another device number than stat does.
	return found, found.file != "" && alone
}

// lockedFile is a file as /proc/locks writes it.
func lockedFile(o object) string {
	return fmt.Sprintf("%02x:%02x:%d", o.dev>>32, uint32(o.dev), o.inode)
}

// lockHolders is the processes that hold a lock. That of the line need not be
// one of them: a lock of flock belongs to the open file, which lives on in the
// processes that inherited it, as when a shell calls flock(1). Their fdinfo
// shows the lock (since 4.1).
//
// The open files of the whole host are searched only when neither the process that
// waits nor that of the line has it: mostly threads or workers of one service pass it on.
func (l *look) lockHolders(own int, held fileLock, o object) []int {
	if held.kind == "POSIX" || held.kind == "LEASE" {
		return []int{held.pid}
	}
	var pids []int
	for _, pid := range []int{own, held.pid} {
		if pid > 0 && !slices.Contains(pids, pid) && l.hasLock(pid, held, o) {
			pids = append(pids, pid)
		}
	}
	if len(pids) > 0 {
		return pids
	}
	for _, h := range l.holdersOf(o) {
		if !slices.Contains(pids, int(h.pid)) && l.showsLock(int(h.pid), int(h.fd), held) {
			pids = append(pids, int(h.pid))
		}
	}
	if len(pids) == 0 && held.pid > 0 && !l.process(held.pid).gone {
		pids = []int{held.pid}
	}
	return pids
}

// hasLock says whether one of the open files of a process has a lock.
func (l *look) hasLock(pid int, held fileLock, o object) bool {
	dir := fmt.Sprintf("%s/%d/fd", l.fs.Proc, pid)
	fds, _ := numbersIn(dir)
	for _, fd := range fds[:min(len(fds), maxOwnFiles)] {
		link, err := os.Readlink(dir + "/" + strconv.Itoa(fd))
		if err == nil && filepath.Base(link) == filepath.Base(o.link) && l.showsLock(pid, fd, held) {
			return true
		}
	}
	return false
}

// showsLock says whether a descriptor is of the open file that has a lock.
func (l *look) showsLock(pid, fd int, held fileLock) bool {
	for line := range bytes.Lines(l.fdInfo(pid, fd)) {
		text, ok := bytes.CutPrefix(line, []byte("lock:"))
		if !ok {
			continue
		}
		shown, ok := parseLock(bytes.TrimSpace(text))
		if ok && !shown.waits && shown.kind == held.kind && shown.file == held.file {
			return true
		}
	}
	return false
}
