package procmem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/host"
)

// A page of a process may lie in a file on a file system in user space (FUSE) or over the
// network, and who reads the page waits until that answers, which may be never: no
// signal ends process_vm_readv(2) there. The memory of a process that has mapped a file of
// such a one is read by a goroutine that is left behind when it takes too long; all
// others are read at once, for on busy CPUs it costs a wait for one to ask another thread.
// Who maps such a file in the moment between holds up one reader: the front of the command
// ends without it.

// ErrNoAnswer says that memory of a process cannot be had in time.
var ErrNoAnswer = errors.New("its memory lies in a file system that does not answer")

const (
	// readLimit is enough for pages that come from a disk or from swap on a busy host.
	readLimit = 200 * time.Millisecond
	// maxLeft is how many goroutines may be left behind at a time, each with a thread
	// of this process. While it is reached nothing is read.
	maxLeft = 8
	// readAtOnce is the buffer that each of them has.
	readAtOnce = 64 << 10
)

// asker reads for one caller at a time, in a goroutine of its own.
type asker struct {
	ask    chan question
	answer chan answer
	timer  *time.Timer
	buf    []byte // of the goroutine; of the caller between an answer and the next question
}

type question struct {
	pid  int
	addr uint64
	size int
}

type answer struct {
	n   int
	err error
}

// askers are those that have nothing to do, and those that were left behind.
var askers = struct {
	sync.Mutex
	idle  []*asker
	stuck map[int]int // how many, by the process whose memory they wait for
	left  int         // of all processes
}{stuck: map[int]int{}}

// readMemory is replaced by tests.
var readMemory = func(pid int, addr uint64, into []byte) (int, error) {
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	return unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(into)}}, 0)
}

// Read is the Reader of this system. It takes no longer than a fifth of a second, and
// a process whose memory did not come in that time is not read again before it does:
// the error is then [ErrNoAnswer].
func Read(pid int, addr uint64, into []byte) (n int, err error) {
	for len(into) > 0 {
		size := min(len(into), readAtOnce)
		got, err := readSome(pid, addr, into[:size])
		n += max(got, 0)
		if err != nil || got < size {
			return n, err
		}
		addr, into = addr+uint64(size), into[size:]
	}
	return n, nil
}

func readSome(pid int, addr uint64, into []byte) (int, error) {
	if !mayHang(pid) {
		return readMemory(pid, addr, into)
	}
	a, err := idleAsker(pid)
	if err != nil {
		return 0, err
	}
	a.timer.Reset(readLimit)
	a.ask <- question{pid, addr, len(into)}
	select {
	case got := <-a.answer:
		a.timer.Stop()
		copy(into, a.buf[:max(got.n, 0)])
		askers.Lock()
		askers.idle = append(askers.idle, a)
		askers.Unlock()
		return got.n, got.err
	case <-a.timer.C:
		askers.Lock()
		askers.stuck[pid]++
		askers.left++
		askers.Unlock()
		close(a.ask) // it ends when its read comes back
		return 0, ErrNoAnswer
	}
}

func idleAsker(pid int) (*asker, error) {
	askers.Lock()
	defer askers.Unlock()
	if askers.stuck[pid] > 0 || askers.left >= maxLeft {
		return nil, ErrNoAnswer
	}
	if last := len(askers.idle) - 1; last >= 0 {
		a := askers.idle[last]
		askers.idle = askers.idle[:last]
		return a, nil
	}
	a := &asker{ask: make(chan question), answer: make(chan answer, 1), timer: time.NewTimer(readLimit), buf: make([]byte, readAtOnce)}
	go a.work()
	return a, nil
}

func (a *asker) work() {
	var q question
	for q = range a.ask {
		n, err := readMemory(q.pid, q.addr, a.buf[:q.size])
		a.answer <- answer{n, err}
	}
	// Nobody waited for the last answer.
	askers.Lock()
	defer askers.Unlock()
	askers.left--
	if askers.stuck[q.pid]--; askers.stuck[q.pid] == 0 {
		delete(askers.stuck, q.pid)
	}
}

// looks is what was found of the mappings of processes.
var looks = struct {
	sync.Mutex
	at map[int]look
}{at: map[int]look{}}

type look struct {
	until time.Time
	hangs bool
}

const (
	lookEvery = time.Second
	maxLooks  = 4096 // processes that are remembered
	// shmem is the device of memory that is shared without a file system of its own.
	shmem = "00:01"
)

// lookLimits is what looking at the mappings of one process may take.
var lookLimits = budget.Limits{Bytes: 4 << 20, Wall: 50 * time.Millisecond}

// mayHang says that a page of a process may lie in a file that does not answer, as far as its
// mappings were a second ago. Tests replace it.
var mayHang = func(pid int) bool {
	now := time.Now()
	looks.Lock()
	defer looks.Unlock()
	if l, ok := looks.at[pid]; ok && now.Before(l.until) {
		return l.hangs
	}
	if len(looks.at) >= maxLooks {
		clear(looks.at)
	}
	hangs := mapsOthers(pid)
	looks.at[pid] = look{now.Add(lookEvery), hangs}
	return hangs
}

// mapsOthers says that a process has mapped a file on no disk of this host (its device
// has no major number), unless that is of a mounted file system that answers.
func mapsOthers(pid int) bool {
	b := budget.New(context.Background(), lookLimits)
	devices := map[string]bool{}
	err := EachMapping(b, "/proc", pid, func(m *Mapping) bool {
		if m.Inode != 0 && strings.HasPrefix(m.Device, "00:") && m.Device != shmem {
			devices[m.Device] = true
		}
		return true
	})
	if err != nil || len(devices) == 0 {
		return budget.IsExceeded(err)
	}
	table, err := host.Default().MountTableOf(b, pid)
	if err != nil || table.Cut {
		return true
	}
	for i := range table.Mounts {
		if m := &table.Mounts[i]; !m.MayHang() {
			delete(devices, fmt.Sprintf("%02x:%02x", m.Major, m.Minor))
		}
	}
	return len(devices) > 0
}
