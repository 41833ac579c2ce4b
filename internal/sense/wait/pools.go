package wait

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/cpython"
)

// use is what the looks at one thread came to.
type use struct {
	looks, free int    // and those in which it was ready for work
	events      int    // in which it waited for any of many descriptors: an event loop
	loops       bool   // … in the look before
	first       uint64 // its switches at the first look
	calls       map[uint64]int
	running     int
	row         int // looks in a row in which it was on a CPU, or ready for one
	tries       int // to see where, as it computed
	asleep      int
	name        string   // without its number
	root, at    string   // of Python: the function that the thread was made for, and where it is
	stack       []string // innermost first
}

const (
	// alwaysAtWork is the share of the looks from which on a thread had always
	// something in hand; what is below neverAtWork had never.
	alwaysAtWork = 0.9
	neverAtWork  = 0.1
	// mostAtWork is the share of the looks that one of a group may have that is always
	// at work as a whole: of few looks two can fall between two pieces of work.
	mostAtWork = 0.7
	// eventLoop is the share of the looks in epoll_wait(2) that an event loop has.
	eventLoop = 0.1
	// alwaysOnCPU is how many threads of a group run at a time, or want to, that take
	// turns at a lock of their interpreter.
	alwaysOnCPU = 0.7

	// rowAtWork is the looks in a row from which on a thread on a CPU computes for long.
	rowAtWork = 2
	mostTries = 4
	// slowMeanwhile is the share of the slow requests' time in which a thread that is reported
	// for that was on a CPU.
	slowMeanwhile = 0.5

	maxPools     = 64 // that are reported
	maxPoolCalls = 4  // of a pool that are reported
	maxUseCalls  = 32 // of a thread that are counted
)

// count adds the look before to what is known of a thread, once it was followed.
func (w *watched) count() {
	u := &w.use
	if u.loops {
		u.events++
	}
	if u.row++; w.class != classRunning {
		u.row = 0
	}
	switch {
	case w.ready():
		u.free++
	case w.class == classCheap && w.state == 'S' && (w.wait == nil || w.wait.shape == nil):
		return // a futex that was not followed: nothing is known of it
	case w.class == classRunning:
		u.running++
	case w.wait != nil && w.wait.shape != nil && w.wait.shape.asleep():
		u.asleep++
	default:
		if u.calls == nil {
			u.calls = map[uint64]int{}
		}
		if len(u.calls) < maxUseCalls || u.calls[w.call.nr] > 0 {
			u.calls[w.call.nr]++
		}
	}
	u.looks++
}

// placeThreads notes where the threads of programs in Python are that mostly had
// something in hand, or where they are anything to be seen of a burst.
func (s *Sampler) placeThreads(l *look, pids []int, which func(*watched) bool) {
	for _, pid := range pids {
		p := l.procs[pid]
		if p == nil || p.gone || !slices.ContainsFunc(p.threads, func(t *thread) bool { return which(s.threads[t.tid]) }) {
			continue
		}
		py := l.pythonOf(p)
		if py == nil {
			continue
		}
		for _, t := range p.threads {
			if w := s.threads[t.tid]; w != nil {
				w.use.place(py.stacks[t])
			}
		}
	}
}

// place notes a stack of Python's.
func (u *use) place(stack []cpython.Frame) {
	for i := len(stack) - 1; i >= 0; i-- {
		if path.Base(stack[i].File) != "threading.py" {
			u.root = stack[i].Function + " " + path.Base(stack[i].File)
			break
		}
	}
	own := slices.IndexFunc(stack, func(f cpython.Frame) bool { return !library(f.File) })
	if own < 0 {
		return // it has nothing in hand just now
	}
	u.at, u.stack = stack[own].String(), nil
	for i := range stack[:min(len(stack), maxGoStack)] {
		u.stack = append(u.stack, stack[i].String())
	}
}

// library says that a file of Python's is one that came with it, or a package.
func library(file string) bool {
	return strings.HasPrefix(file, "<") || strings.Contains(file, "/site-packages/") || strings.Contains(file, "/dist-packages/") ||
		strings.Contains(file, "/lib/python3")
}

// always says that a thread had something in hand whenever it was looked at.
func (w *watched) always() bool {
	return w != nil && w.use.looks > 0 && float64(w.use.looks-w.use.free) >= alwaysAtWork*float64(w.use.looks) && float64(w.use.events) < eventLoop*float64(w.use.looks)
}

// mostly says that a thread had something in hand in a good part of the looks.
func (w *watched) mostly() bool { return w != nil && 3*(w.use.looks-w.use.free) >= w.use.looks }

// bursts says that a thread which is not known to be anywhere has begun to compute.
func (w *watched) bursts() bool {
	if w == nil || w.use.at != "" || w.use.row < rowAtWork || w.class != classRunning || w.mostly() || w.use.tries >= mostTries {
		return false
	}
	w.use.tries++
	return true
}

// poolKey is what the threads of a pool have in common.
type poolKey struct {
	master     int
	name, root string
}

func (s *Sampler) poolOf(w *watched) poolKey {
	master, _ := s.names.Master(w.pid)
	return poolKey{master, w.use.name, w.use.root}
}

// pools tells of the groups of threads, in these families of processes, of which some
// had something in hand whenever they were looked at, or one was on a CPU.
func (s *Sampler) pools(families []*family) []observe.ThreadPool {
	readers := map[int]map[int]bool{}
	meanwhile := map[poolKey]float64{}
	for _, f := range families {
		readers[f.master] = f.readers
		s.meanwhile(f, meanwhile)
	}
	groups := map[poolKey][]*watched{}
	for _, w := range s.threads {
		if k := s.poolOf(w); readers[k.master] != nil && w.use.looks > 0 && float64(w.use.events) < eventLoop*float64(w.use.looks) {
			groups[k] = append(groups[k], w)
		}
	}
	out := s.goPools(readers)
	for k, threads := range groups {
		p := s.pool(k, threads, readers[k.master])
		if p.Meanwhile = meanwhile[k]; p.Busy > 0 || p.Running >= alwaysOnCPU || p.Meanwhile >= slowMeanwhile {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b observe.ThreadPool) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.PID, b.PID), strings.Compare(a.Name, b.Name), strings.Compare(a.Root, b.Root))
	})
	return out[:min(len(out), maxPools)]
}

// meanwhile adds, for each pool, the share of a family's slow time in which a thread of it
// that read no request was on a CPU, or ready for one.
func (s *Sampler) meanwhile(f *family, shares map[poolKey]float64) {
	var all time.Duration
	spans := map[poolKey]time.Duration{}
	for _, r := range f.requests {
		all += r.Busy
		within := map[poolKey]*span{}
		for _, i := range f.intervals {
			if i.from.After(r.To) {
				break // so do all that come after it
			}
			w := s.threads[i.tid]
			if !i.running || w == nil || f.readers[i.tid] || r.TID == 0 || overlap(i, r) <= 0 {
				continue
			}
			k := s.poolOf(w)
			if within[k] == nil {
				within[k] = &span{}
			}
			within[k].add(i, r)
		}
		for k, sp := range within {
			spans[k] += min(sp.sum, r.Busy)
		}
	}
	for k, d := range spans {
		shares[k] = float64(d) / float64(max(all, 1))
	}
}

func (s *Sampler) pool(k poolKey, threads []*watched, readers map[int]bool) observe.ThreadPool {
	p := observe.ThreadPool{PID: k.master, Name: k.name, Root: k.root, Ended: s.ended[k]}
	slices.SortFunc(threads, func(a, b *watched) int { return a.tid - b.tid })
	calls := map[string]int{}
	at := map[string]int{}
	all := 0
	together := alwaysTogether(threads)
	for _, w := range threads {
		u := &w.use
		busy := float64(u.looks - u.free)
		p.Looks = max(p.Looks, u.looks)
		if readers[w.tid] {
			p.Readers++
		}
		p.Running += float64(u.running) / float64(u.looks)
		switch {
		case w.always(), together && busy >= mostAtWork*float64(u.looks):
			p.Busy++
		case busy <= neverAtWork*float64(u.looks):
			p.Idle++
			continue
		default:
			p.Partly++
		}
		if w.switches > u.first {
			p.Switches += w.switches - u.first
		}
		if len(p.TIDs) < 64 {
			p.TIDs = append(p.TIDs, w.tid)
		}
		for nr, n := range u.calls {
			calls[s.calls[nr].name] += n
			all += n
		}
		calls["running"] += u.running
		calls["sleeping"] += u.asleep
		all += u.running + u.asleep
		if u.at != "" {
			at[u.at]++
		}
		if len(p.Stack) == 0 {
			p.Stack = u.stack
		}
	}
	for name, n := range calls {
		if name != "" && n > 0 {
			p.Does = append(p.Does, observe.PoolCall{Name: name, Share: float64(n) / float64(all)})
		}
	}
	slices.SortFunc(p.Does, moreOften)
	p.Does = p.Does[:min(len(p.Does), maxPoolCalls)]
	most := 0
	for place, n := range at {
		if n > most || n == most && place < p.At {
			p.At, most = place, n
		}
	}
	return p
}

func moreOften(a, b observe.PoolCall) int {
	return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.Name, b.Name))
}

// alwaysTogether says that those of a group that had something in hand at times had so
// nearly always, all looks at all of them together.
func alwaysTogether(threads []*watched) bool {
	looks, busy := 0, 0
	for _, w := range threads {
		if u := &w.use; float64(u.looks-u.free) > neverAtWork*float64(u.looks) {
			looks, busy = looks+u.looks, busy+u.looks-u.free
		}
	}
	return looks > 0 && float64(busy) >= alwaysAtWork*float64(looks)
}

// poolName is the name of a thread without its number: executors count them. One
// that has the name of its process has no name of its own.
func poolName(t *thread) string {
	if t.comm == t.p.comm {
		return t.comm
	}
	return strings.TrimRight(strings.TrimRight(t.comm, "0123456789"), "-_#: ")
}
