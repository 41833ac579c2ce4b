package wait

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/cpython"
)

// maxInterpreters bounds the Python interpreters that a Reader remembers.
const maxInterpreters = 256

// python is where the threads of a Python process are in this look.
type python struct {
	in     *cpython.Interpreter
	stacks map[*thread][]cpython.Frame
}

// pythonOf is the interpreter in a process; nil when there is none, or when its
// stacks cannot be read.
func (l *look) pythonOf(p *process) *python {
	if py, ok := l.pythons[p]; ok {
		return py
	}
	var py *python
	if in := l.interpreter(p); in != nil && !l.mapLocked(p) {
		py = &python{in: in, stacks: map[*thread][]cpython.Frame{}}
		part := l.part()
		for tid, stack := range in.Stacks(part) {
			if t := l.hostTID(p, tid); t != nil {
				py.stacks[t] = stack
			}
		}
		if err := part.Err(); err != nil {
			l.miss(fmt.Sprintf("some stacks of the Python process %d: %v", p.pid, err))
		}
	}
	if l.pythons == nil {
		l.pythons = map[*process]*python{}
	}
	l.pythons[p] = py
	return py
}

// interpreter opens the interpreter of a process, once.
func (l *look) interpreter(p *process) *cpython.Interpreter {
	if in, ok := l.interpreters[p.pid]; ok {
		return in
	}
	if p.noPython {
		return nil
	}
	exe, _ := os.Readlink(fmt.Sprintf("%s/%d/exe", l.fs.Proc, p.pid))
	if name := filepath.Base(exe); !strings.HasPrefix(name, "python") && !strings.HasPrefix(name, "uwsgi") {
		p.noPython = true // in this look: it may execute one later
		return nil
	}
	in, err := cpython.Open(l.part(), l.fs.Proc, p.pid, l.memory)
	if err != nil {
		in = nil
		if !errors.Is(err, cpython.ErrNotPython) && !vanished(err) {
			l.miss(fmt.Sprintf("stacks of the Python process %d: %v", p.pid, err))
		}
	}
	if len(l.interpreters) >= maxInterpreters || l.interpreters == nil {
		l.Reader.interpreters = map[int]*cpython.Interpreter{}
	}
	l.interpreters[p.pid] = in
	return in
}

// pools are where threads wait that have nothing to do, or wait for each other by
// design: parts of the names of files of Python's library.
var pools = []string{
	"/threading.py", "/queue.py", "/concurrent/futures/", "/multiprocessing/", "/asyncio/", "/selectors.py", "/socketserver.py", "/subprocess.py",
	"/sched.py", "/gevent/", "/greenlet/", "/eventlet/",
}

// lockWaitIn says whether a stack is that of a thread which asks for a lock: not
// for work, on a condition, or for an event.
func lockWaitIn(stack []cpython.Frame) bool {
	return len(stack) > 0 && !slices.ContainsFunc(pools, func(part string) bool { return strings.Contains(stack[0].File, part) })
}

// pythonLock is the wait of a thread for a lock of Python's; nil when it waits
// for something else. Waits with a time limit end by themselves.
func (l *look) pythonLock(t *thread, addr uint64, timed bool) *link {
	if timed {
		return nil
	}
	py := l.pythonOf(t.p)
	if py == nil || !lockWaitIn(py.stacks[t]) {
		return nil
	}
	stack := py.stacks[t]
	stack = stack[askedAt(stack):]
	k := noOwner("who holds it is not known: Python writes that down nowhere, and no thread is seen behind the line where it is locked")
	k.kind, k.wants, k.extra = observe.WaitLock, observe.WantsRelease, fmt.Sprint(addr)
	k.object = fmt.Sprintf("Python lock 0x%x at %s", addr, stack[0].String())
	for i := range stack[:min(len(stack), maxGoStack)] {
		k.stack = append(k.stack, stack[i].String())
	}
	if holder := py.owner(l, t, addr); holder != nil {
		k.end, k.text, k.sure = "", "", true
		k.object = fmt.Sprintf("Python RLock 0x%x at %s", addr, stack[0].String())
		k.targets = []target{{pid: t.p.pid, tid: holder.tid, how: observe.HowOwner, why: "holds the lock"}}
		k.same = func() bool { return py.owner(l, t, addr) == holder }
	} else if holder := l.pythonHolder(t.p, py, addr); holder != nil {
		k.end, k.text = "", ""
		k.targets = []target{{pid: t.p.pid, tid: holder.tid, how: observe.HowInferred, why: "seems to hold it: it is in the same function, behind the line where it is locked"}}
	}
	return k
}

// forInterpreter says whether a thread waits for the lock of the Python interpreter (GIL):
// for its condition, which is asked again every 5 ms, for the mutex around that, or, who
// just gave it away, until another one has it.
func (l *look) forInterpreter(t *thread) bool {
	addr := l.waitsAt(t)
	if addr == 0 || t.state != 'S' {
		return false
	}
	in := l.interpreter(t.p)
	return in != nil && in.Runs(addr)
}

// interpreterLock is the wait of a thread for the lock of the Python interpreter. Who has
// it is known where that thread waits for a page of memory: in calls it gives the lock
// away, and who runs passes it on within moments.
func (l *look) interpreterLock(t *thread) *link {
	i := slices.IndexFunc(t.p.threads, func(o *thread) bool { return (o.state == 'D' || o.state == 'S') && o.call.known && o.call.outside })
	if i < 0 {
		return parked()
	}
	holder := t.p.threads[i]
	return &link{
		kind: observe.WaitLock, wants: observe.WantsRelease, object: "lock of the Python interpreter (GIL)", wakes: true,
		targets: []target{{pid: t.p.pid, tid: holder.tid, how: observe.HowInferred, why: "waits for a page, and so has it meanwhile"}},
		same:    func() bool { return !l.compare(holder).moved },
	}
}

// wrappers are functions that do nothing but ask for a lock: what is done under
// it is done by who calls them.
var wrappers = []string{"acquire", "_acquire", "acquire_lock", "lock", "__enter__"}

// askedAt is the frame that asks for a lock, behind the functions that only do
// so for others, as logging.Handler.acquire.
func askedAt(stack []cpython.Frame) int {
	for i := range stack[:max(len(stack)-1, 0)] {
		name := stack[i].Function
		if !slices.Contains(wrappers, name[strings.LastIndexByte(name, '.')+1:]) {
			return i
		}
	}
	return max(len(stack)-1, 0)
}

// owner is the thread that has written down that it holds a lock (RLock); nil
// when the lock is none of those.
func (py *python) owner(l *look, t *thread, addr uint64) *thread {
	own := t.tid
	if t.p.inner != nil {
		own = 0
		for in, tid := range t.p.inner {
			if tid == t.tid {
				own = in
			}
		}
	}
	owner := l.hostTID(t.p, py.in.Owner(l.budget, own, addr))
	if owner == t {
		return nil
	}
	return owner
}

// pythonHolder is who seems to hold a lock: the one thread that is in a function
// where others wait for it, or in what that calls, and further on. Nil when
// several fit, or none.
func (l *look) pythonHolder(p *process, py *python, addr uint64) *thread {
	type place struct{ file, function string }
	first := map[place]int{} // the line where it is asked for
	waiting := map[*thread]bool{}
	for t, stack := range py.stacks {
		if l.budget.Nodes(int64(len(stack))) != nil {
			return nil
		}
		if l.waitsAt(t) != addr || !lockWaitIn(stack) {
			continue
		}
		waiting[t] = true
		f := &stack[askedAt(stack)]
		at := place{f.File, f.Function}
		if line, ok := first[at]; !ok || f.Line < line {
			first[at] = f.Line
		}
	}
	var found *thread
	for _, t := range p.threads {
		if waiting[t] {
			continue
		}
		for _, f := range py.stacks[t] {
			if line, ok := first[place{f.File, f.Function}]; ok && f.Line > line {
				if found != nil {
					return nil
				}
				found = t
				break
			}
		}
	}
	return found
}

// waitsAt is the address in futex(2) of a thread; 0 when it is in none.
func (l *look) waitsAt(t *thread) uint64 {
	if c, ok := l.calls[t.call.nr]; !ok || !t.call.known || t.call.running || t.call.outside || c.does != waitsFutex {
		return 0
	}
	return t.call.args[0]
}
