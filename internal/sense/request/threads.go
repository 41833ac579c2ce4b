package request

import (
	"os"
	"strconv"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// A thread of a pool that only ever gets its work from other threads has
// nothing to do with a socket, so the programs do not come to know it. They may
// not make room for it where they see it woken, in the scheduler; user space
// can, by a file descriptor of the thread (since Linux 6.9).

const (
	maxFollowed = 64   // processes whose threads are made known
	maxThreads  = 4096 // of them together
)

// thread is struct thread of work.h, as far as it is written here.
type thread struct {
	_         [9]uint64 // clocks
	_         [2]uint64 // since, throttled
	doing     uint32
	blockedOn uint32
	_         uint64 // contended
	_         [2]struct {
		_ [2]uint64 // id, at
		_ [observe.NumServerParts]uint64
		_ [9]uint64 // mark
	}
}

const (
	doingBlocked   = 2
	blockedOnOther = uint32(observe.ServerOther)
)

// threadsOf are the threads of the processes whose requests are followed.
type threadsOf struct {
	last      int // process of the last request
	processes map[int]map[int]bool
	known     int
	refused   bool // this kernel does not take threads
}

// follow notes the process of a request that was followed.
func (t *threadsOf) follow(pid int) {
	if pid == t.last || pid == 0 {
		return
	}
	t.last = pid
	if t.processes == nil {
		t.processes = map[int]map[int]bool{}
	}
	if t.processes[pid] == nil && len(t.processes) < maxFollowed {
		t.processes[pid] = map[int]bool{}
	}
}

// meetThreads makes the threads of followed processes known. It is called about
// once a second. A thread that ends meanwhile is nobody's loss.
func (r *Recorder) meetThreads() {
	t := &r.threads
	if !r.split || t.refused {
		return
	}
	for pid, known := range t.processes {
		tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			t.known -= len(known)
			delete(t.processes, pid)
			if t.last == pid {
				t.last = 0
			}
			continue
		}
		if len(tasks) == len(known) {
			continue
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || known[tid] || t.known >= maxThreads {
				continue
			}
			known[tid] = true
			t.known++
			if err := r.meetThread(tid); err == unix.EINVAL {
				t.refused = true
				return
			}
		}
	}
}

func (r *Recorder) meetThread(tid int) error {
	fd, err := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Until it is seen to run it sleeps. One that is known already stays as
	// it is.
	_ = r.objects.Threads.Update(uint32(fd), &thread{doing: doingBlocked, blockedOn: blockedOnOther}, ebpf.UpdateNoExist)
	return nil
}
