package wait

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/cpython"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/hotspot"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// DefaultWindow is the time between the two looks when none is asked for: long
// enough that a thread which did not run in it is stuck, by the measure of a
// person who waits.
const DefaultWindow = 500 * time.Millisecond

// briefly is the time between looks at what a process waits for so briefly that two
// looks see nothing of it; maxBrief bounds the kinds that are reported.
const (
	briefly  = 25 * time.Millisecond
	maxBrief = 8
)

// ErrNoProcess is returned when there is no process or thread of that number.
var ErrNoProcess = errors.New("there is no process with this pid")

// A Reader looks at the waits of processes. Its zero value is not usable.
type Reader struct {
	fs   host.FS
	open func(pid int) (sockets, error)
	// memory copies from the memory of a process and returns how much it got
	// (process_vm_readv(2)).
	memory func(pid int, addr uint64, into []byte) (int, error)
	arch   string
	// machines are the Java virtual machines that were met, by process; nil of
	// what is none.
	machines map[int]*hotspot.Machine
	// interpreters are the same of Python.
	interpreters map[int]*cpython.Interpreter
}

// sockets is the sockets of a network namespace: host.NetNS, or a test's.
type sockets interface {
	Queues(visit func(*host.QueueSample)) error
	UnixSockets() ([]host.UnixSample, error)
	Close() error
}

// Look looks at all threads of the process pid and of its workers, or at one thread when pid is a
// thread that is not its process's first, follows what they wait for, and looks
// again after the window to see which of them moved. A done context ends the
// window early; the result is whole then too.
//
// Needs the right to trace the processes on the way: the same user, or
// CAP_SYS_PTRACE; CAP_SYS_ADMIN for sockets of other network namespaces and the
// kernel stacks of uninterruptible threads. What they are missed for on the way
// is in Waits.Unseen; it is an error only when pid itself may not be looked at.
func (r *Reader) Look(ctx context.Context, pid int, window time.Duration) (*observe.Waits, error) {
	l := newLook(r, lookLimits)
	defer l.close()
	tgid, err := l.groupOf(pid)
	if err != nil {
		return nil, err
	}
	p := l.process(tgid)
	if p.gone || len(p.threads) == 0 {
		return nil, fmt.Errorf("%w: %d", ErrNoProcess, pid)
	}
	if p.denied {
		return nil, fmt.Errorf("system calls of process %d: %w", pid, fs.ErrPermission)
	}
	start := p.threads
	w := &observe.Waits{Process: l.who(p), Threads: p.total, Looked: len(p.threads)}
	if pid != tgid {
		t := l.threadOf(p, pid)
		if t == nil {
			return nil, fmt.Errorf("%w: %d", ErrNoProcess, pid)
		}
		start, w.TID, w.Looked = []*thread{t}, pid, 1
	} else if len(p.threads) < p.total {
		l.miss(fmt.Sprintf("%d of the process's %d threads were not looked at", p.total-len(p.threads), p.total))
	}
	family := []int{tgid}
	if pid == tgid {
		start = l.include(w, p, slices.Clone(start))
		for _, worker := range w.Workers {
			family = append(family, worker.PID)
		}
	}
	groups := l.follow(start)
	var goroutines *goNow
	if pid == tgid {
		goroutines = l.startGo(p)
	}

	from := time.Now()
	brief, held := NewSampler(r), heldLocks{}
	for left := window; left > 0 && ctx.Err() == nil; left = window - time.Since(from) {
		if pid == tgid && left > 2*briefly {
			brief.Look(family, Finish)
		}
		if pid == tgid {
			held.look(r, family)
		}
		timer := time.NewTimer(min(briefly, left))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	w.WindowNS = time.Since(from).Nanoseconds()
	for _, s := range brief.Graph(nil, 0, func(int) time.Time { return time.Time{} }).Shares {
		// What lasts from look to look is known by the chains.
		if s.LongestNS < w.WindowNS-2*briefly.Nanoseconds() && s.ThreadNS >= w.WindowNS/10 && s.Chain.Hops[0].Wants.Demands() && len(w.Brief) < maxBrief {
			w.Brief = append(w.Brief, s)
		}
	}
	l.begin(lookLimits)
	w.Held = held.list(l)
	w.Chains = l.chains(groups, w.WindowNS)
	if goroutines != nil {
		w.Chains = goroutines.chains(l, p, w.WindowNS, w.Chains)
		for i := range w.Chains {
			if w.Chains[i].Hops[0].Goroutine != 0 {
				w.Goroutines += w.Chains[i].Count
			}
		}
		slices.SortStableFunc(w.Chains, func(a, b observe.WaitChain) int { return order(&a) - order(&b) })
	}
	w.Unseen = l.unseenText()
	return w, nil
}

// lookLimits is what one look may take of the files and the memory of others, and
// of what is looked up for it in /proc: a process with 2,048 threads and a Go
// program with 65,536 goroutines take half of it.
var lookLimits = budget.Limits{Bytes: 256 << 20, Unpacked: 64 << 20, Files: 512 << 10, Nodes: 4 << 20, Wall: 700 * time.Millisecond}

// NewReader reads the system that fs names.
func NewReader(system host.FS) *Reader {
	return &Reader{
		fs:     system,
		open:   func(pid int) (sockets, error) { return system.OpenNetNS(pid) },
		memory: procmem.Read,
		arch:   goarch,

		machines: map[int]*hotspot.Machine{}, interpreters: map[int]*cpython.Interpreter{},
	}
}

// A look is one call of Look: all that was read, each thing once.
type look struct {
	*Reader
	raw   files
	calls map[uint64]call
	names *host.Names

	taskOf  *process // whose directory of threads is open
	task    int
	skip    func(tid int) bool // threads that need not be looked at; nil = none
	procs   map[int]*process
	threads int // looked at, of all processes
	links   map[*thread]*link
	steps   int // hops that were followed

	scanned *openFiles // nil before the scan
	locks   []fileLock
	locked  bool // whether locks was read
	// lockPIDs are those who hold a lock, lockFiles the locked files that a process has open.
	lockPIDs  map[lockKey][]int
	lockFiles map[lockFile]object
	parents   map[int][]int
	nets      map[uint64]*network
	javas     map[*process]*java
	pythons   map[*process]*python
	unseen    []string

	// budget is what may still be read of others: their memory, their files, and
	// what the kernel says of their threads and descriptors beyond the first pass.
	budget *budget.Budget
	limits budget.Limits
}

func newLook(r *Reader, limits budget.Limits) *look {
	l := &look{
		Reader: r, raw: files{proc: r.fs.Proc, buf: make([]byte, 64<<10)}, calls: callsOf(r.arch), names: r.fs.Names(),
		procs: map[int]*process{}, links: map[*thread]*link{}, nets: map[uint64]*network{},
	}
	l.begin(limits)
	return l
}

// begin gives the look a new budget. The end of a window that the user ended is
// none of reading: what was seen is put together all the same.
func (l *look) begin(limits budget.Limits) {
	l.limits, l.budget = limits, budget.New(context.Background(), limits)
}

// part is what may be taken for one program with a runtime of its own (Go, Java,
// Python): to find it in memory, or to read the state of its threads. It leaves
// something for others.
func (l *look) part() *budget.Budget {
	return l.budget.Sub(budget.Limits{Bytes: l.limits.Bytes / 2, Nodes: l.limits.Nodes / 2, Wall: l.limits.Wall / 3})
}

func (l *look) close() {
	l.closeTask()
	for _, n := range l.nets {
		if n.sockets != nil {
			_ = n.sockets.Close()
		}
	}
}

// groupOf is the process that a number belongs to: itself, or for a thread the
// process that it is part of.
func (l *look) groupOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/status", l.fs.Proc, pid))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return 0, fmt.Errorf("%w: %d", ErrNoProcess, pid)
	case err != nil:
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	if tgid, ok := host.ParseSmall(keyed(b, "Tgid:")); ok && tgid > 0 {
		return tgid, nil
	}
	return pid, nil
}

// miss notes what could not be seen, once.
func (l *look) miss(sentence string) {
	if !slices.Contains(l.unseen, sentence) && len(l.unseen) < 32 {
		l.unseen = append(l.unseen, sentence)
	}
}

// unseenText is what could not be seen, with what the scan of open files missed.
func (l *look) unseenText() []string {
	if o := l.scanned; o != nil {
		if o.denied > 0 {
			l.miss(fmt.Sprintf("open files of %s: not permitted (needs CAP_SYS_PTRACE)", processes(o.denied, o.deniedPID)))
		}
		if o.cut {
			l.miss(fmt.Sprintf("only the first %d open files of the host were looked at", len(o.held)))
		}
	}
	if err := l.budget.Err(); err != nil {
		l.miss(fmt.Sprintf("some of what the threads wait for: %v", err))
	}
	return l.unseen
}

// processes is "process 12" or "3 processes, one of them 12".
func processes(n, one int) string {
	if n == 1 {
		return fmt.Sprintf("process %d", one)
	}
	return fmt.Sprintf("%d processes, one of them %d", n, one)
}

// permission says whether err is a lack of rights, and notes it.
func (l *look) permission(what string, err error, needs string) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	l.miss(what + ": not permitted (needs " + needs + ")")
	return true
}

// who names a process.
func (l *look) who(p *process) observe.WaitProcess {
	if p.named {
		return p.who
	}
	p.named = true
	p.who = observe.WaitProcess{PID: p.pid, Comm: p.comm, NetNS: l.netNS(p)}
	if id, ok := l.names.Of(p.pid, time.Now().UnixNano()); ok {
		p.who.Container, p.who.Unit = id.Container, id.Unit
	}
	return p.who
}

// label is a process as it is named in a sentence.
func label(p *process) string { return fmt.Sprintf("%s (pid %d)", p.comm, p.pid) }

// netNS is the inode of a process's network namespace, 0 when not known.
func (l *look) netNS(p *process) uint64 {
	if !p.netnsRead {
		p.netnsRead = true
		target, err := os.Readlink(fmt.Sprintf("%s/%d/ns/net", l.fs.Proc, p.pid))
		if err == nil {
			p.netns, _ = bracketed(target, "net:[")
		}
	}
	return p.netns
}

// bracketed is the number in a link like "pipe:[1234]".
func bracketed(link, prefix string) (uint64, bool) {
	s, ok := strings.CutPrefix(link, prefix)
	if !ok {
		return 0, false
	}
	s, ok = strings.CutSuffix(s, "]")
	if !ok {
		return 0, false
	}
	return host.ParseUint([]byte(s))
}
