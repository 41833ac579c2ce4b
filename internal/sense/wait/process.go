package wait

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	maxThreads    = 2048  // of one process that are looked at
	maxAllThreads = 16384 // of all processes
)

// process is one process at the first look.
type process struct {
	pid, ppid int
	comm      string
	kernel    bool // a kernel thread
	gone      bool
	denied    bool      // its system calls may not be read
	total     int       // threads it has
	threads   []*thread // those that were looked at, the main thread first
	byTID     map[int]*thread
	skipped   []int // threads that were left out: a sampler knows them to be idle

	named      bool
	who        observe.WaitProcess
	netnsRead  bool
	netns      uint64
	frozenRead bool
	frozen     string      // file that thaws it, empty when it is not frozen
	inner      map[int]int // TID in its own pid namespace → TID here; nil when they are the same
	innerRead  bool
	noPython   bool // its program is no interpreter of Python
	mapAsked   bool
	mapLocked  bool // its memory must not be read

	holdersAsked bool
	holders      []target // of the lock of its memory map
}

// thread is one thread at the first look.
type thread struct {
	p     *process
	tid   int
	comm  string
	state byte
	call  inCall
	use   usage
	known bool // whether use is
	wchan string
	asked bool // whether wchan was read
}

// process looks at all threads of a process, once.
func (l *look) process(pid int) *process {
	if p, ok := l.procs[pid]; ok {
		return p
	}
	p := &process{pid: pid, byTID: map[int]*thread{}}
	l.procs[pid] = p
	dir := l.taskDir(p)
	tids, err := l.tids(pid)
	if err != nil || dir < 0 {
		p.gone = true
		return p
	}
	p.total = len(tids)
	// The main thread first: it names the process.
	slices.SortFunc(tids, func(a, b int) int {
		switch {
		case a == pid:
			return -1
		case b == pid:
			return 1
		}
		return a - b
	})
	for _, tid := range tids[:min(len(tids), maxThreads)] {
		if l.skip != nil && tid != pid && l.skip(tid) {
			p.skipped = append(p.skipped, tid)
			continue
		}
		if l.threads >= maxAllThreads {
			l.miss(fmt.Sprintf("no more than %d threads of all processes on the way were looked at", maxAllThreads))
			break
		}
		l.add(p, dir, tid)
	}
	p.gone = len(p.threads) == 0
	return p
}

// complete looks at the threads of a process that were left out.
func (l *look) complete(p *process) {
	left := p.skipped
	p.skipped = nil
	for _, tid := range left {
		l.add(p, l.taskDir(p), tid)
	}
}

// tids lists the threads of a process.
func (l *look) tids(pid int) ([]int, error) {
	return numbersIn(fmt.Sprintf("%s/%d/task", l.fs.Proc, pid))
}

// numbersIn lists the entries of a directory that are numbers.
func numbersIn(path string) ([]int, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if n, ok := host.ParseSmall([]byte(name)); ok {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return nil, err
	}
	return out, nil
}

// add looks at one thread. One that is gone is left out.
func (l *look) add(p *process, dir, tid int) *thread {
	t := &thread{p: p, tid: tid}
	s, ok := l.sample(dir, t)
	if !ok {
		return nil
	}
	l.threads++
	if tid == p.pid || len(p.threads) == 0 {
		p.ppid, p.kernel, p.comm = s.ppid, s.kernel, s.comm
	}
	p.threads = append(p.threads, t)
	p.byTID[tid] = t
	return t
}

// sample reads the state of a thread into t; false when it is gone. The state
// comes first: a process stopped in a system call still shows that call.
func (l *look) sample(dir int, t *thread) (stat, bool) {
	name := strconv.Itoa(t.tid)
	b, err := l.raw.read(dir, name+"/stat")
	if err != nil {
		return stat{}, false
	}
	s, ok := parseStat(b)
	if !ok {
		return stat{}, false
	}
	t.comm, t.state = s.comm, s.state
	if (s.state == 'S' || s.state == 'D') && !s.kernel {
		if b, err = l.raw.read(dir, name+"/syscall"); err == nil {
			t.call = parseSyscall(b)
		} else if errors.Is(err, fs.ErrPermission) {
			t.p.denied = true
		}
	}
	if b, err = l.raw.read(dir, name+"/schedstat"); err == nil {
		t.use, t.known = parseSchedstat(b)
	}
	if !t.known {
		if b, err = l.raw.read(dir, name+"/status"); err == nil {
			t.use, t.known = parseSwitches(b)
		}
	}
	return s, true
}

// taskDir is the open directory of a process's threads; -1 when it is gone. It
// is kept open for one process at a time: looks come process by process.
func (l *look) taskDir(p *process) int {
	if l.taskOf != p {
		l.closeTask()
		dir, err := l.raw.open(fmt.Sprintf("%s/%d/task", l.fs.Proc, p.pid))
		if err != nil {
			return -1
		}
		l.taskOf, l.task = p, dir
	}
	return l.task
}

func (l *look) closeTask() {
	if l.taskOf != nil {
		unix.Close(l.task)
		l.taskOf = nil
	}
}

// threadOf is a thread of a process, also one beyond those that were looked at;
// nil when there is none.
func (l *look) threadOf(p *process, tid int) *thread {
	if t := p.byTID[tid]; t != nil || tid <= 0 || len(p.threads) >= p.total || l.budget.File() != nil {
		return t
	}
	return l.add(p, l.taskDir(p), tid)
}

// wchanOf is the kernel function that a thread sleeps in; empty when it is not
// known. It is "0" for those who may not know it.
func (l *look) wchanOf(t *thread) string {
	if !t.asked {
		t.asked = true
		b, err := os.ReadFile(l.path(t, "wchan"))
		if name := string(bytes.TrimSpace(b)); err == nil && name != "0" {
			t.wchan = printable.Name(name, 128)
		}
	}
	return t.wchan
}

// path is a file of a thread.
func (l *look) path(t *thread, name string) string {
	return fmt.Sprintf("%s/%d/task/%d/%s", l.fs.Proc, t.p.pid, t.tid, name)
}

// hostTID is the thread that has the number tid in the pid namespace of its
// process: numbers in memory and in arguments are those that the process
// itself sees. Nil when there is none.
func (l *look) hostTID(p *process, tid int) *thread {
	if tid <= 0 {
		return nil
	}
	if !p.innerRead {
		p.innerRead = true
		l.complete(p)
		if own := l.nsPIDs(p.pid, p.pid); len(own) > 1 {
			p.inner = make(map[int]int, len(p.threads))
			for _, t := range p.threads {
				if in := l.nsPIDs(p.pid, t.tid); len(in) == len(own) {
					p.inner[in[len(in)-1]] = t.tid
				}
			}
		}
	}
	if p.inner == nil {
		return l.threadOf(p, tid)
	}
	return p.byTID[p.inner[tid]]
}

// nsPIDs is the numbers of a thread, from the pid namespace of /proc inwards
// (NSpid in proc_pid_status(5), since 4.1).
func (l *look) nsPIDs(pid, tid int) []int {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/task/%d/status", l.fs.Proc, pid, tid))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range bytes.Fields(keyed(b, "NSpid:")) {
		if n, ok := host.ParseSmall(f); ok {
			out = append(out, n)
		}
	}
	return out
}

// frozenBy is the file that thaws the process's control group; empty when it is
// not frozen.
func (l *look) frozenBy(p *process) string {
	if !p.frozenRead {
		p.frozenRead = true
		p.frozen, _ = l.fs.Frozen(p.pid)
	}
	return p.frozen
}
