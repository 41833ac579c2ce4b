package wait

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/goroutine"
)

const (
	// maxGoHops bounds a chain of goroutines.
	maxGoHops = 16
	// maxGoStack is how many functions of a goroutine's stack are reported.
	maxGoStack = 6
	// goQueue is how many goroutines wait for a lock that is short, at both looks.
	goQueue = 3
	// semaphoreIn is where in a sync.Mutex its semaphore is.
	semaphoreIn = 4
	// lockWithin is how far in a structure its lock may lie, in bytes, for the
	// address of the one to tell of the other.
	lockWithin = 1024
)

// goListing is the goroutines of a process at one moment.
type goListing struct {
	program *goroutine.Program
	list    []goroutine.Goroutine
	waiters map[uint64][]*goroutine.Goroutine // by the lock that they wait for
	now     int64                             // CLOCK_MONOTONIC, ns
	budget  *budget.Budget                    // what may be read and compared for it
	left    int                               // goroutines whose stacks were not read, for their number
}

// openGo is the Go program that a process executes; nil when it executes none,
// or when its goroutines cannot be read, which is noted.
func (l *look) openGo(pid int) *goroutine.Program {
	p, err := goroutine.Open(l.part(), l.fs.Proc, pid, l.memory)
	switch {
	case errors.Is(err, goroutine.ErrNotGo), vanished(err):
		return nil
	case err != nil:
		l.miss(fmt.Sprintf("goroutines of process %d: %v", pid, err))
		return nil
	}
	return p
}

func (l *look) listGo(p *goroutine.Program) (*goListing, error) {
	list := &goListing{program: p, budget: l.part(), waiters: map[uint64][]*goroutine.Goroutine{}}
	var err error
	if list.list, list.left, err = p.All(list.budget); err != nil {
		return nil, err
	}
	for i := range list.list {
		if g := &list.list[i]; g.Object != 0 && g.State == goroutine.Waiting {
			list.waiters[g.Object] = append(list.waiters[g.Object], g)
		}
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		list.now = now.Nano()
	}
	return list, nil
}

// goGroup is goroutines that wait alike.
type goGroup struct {
	key     string
	members []*goroutine.Goroutine
}

// groups sorts the goroutines by what they wait for and where.
func (l *goListing) groups() []*goGroup {
	var out []*goGroup
	byKey := map[string]*goGroup{}
	for i := range l.list {
		g := &l.list[i]
		key := fmt.Sprint(g.State, "|", g.Wait, "|", g.Object, "|", l.program.Place(g), "|", g.Serves())
		if g.Wait == goroutine.Idle && g.State == goroutine.Waiting {
			key = "idle"
		}
		group := byKey[key]
		if group == nil {
			group = &goGroup{key: key}
			byKey[key] = group
			out = append(out, group)
		}
		group.members = append(group.members, g)
	}
	for _, group := range out {
		// Who has waited longest is reported, then who is oldest.
		slices.SortStableFunc(group.members, func(a, b *goroutine.Goroutine) int {
			return cmp.Or(cmp.Compare(since(a), since(b)), cmp.Compare(a.ID, b.ID))
		})
	}
	return out
}

// since orders goroutines by how long they have waited, those first of which it
// is known.
func since(g *goroutine.Goroutine) int64 {
	if g.Since > 0 {
		return g.Since
	}
	return 1<<63 - 1
}

// heldUpGo says that a goroutine is held up, or that a request is with it: not
// one that is ready for work.
func heldUpGo(g *goroutine.Goroutine) bool {
	if g.State != goroutine.Waiting {
		return false
	}
	if g.Wait.Lock() {
		return true
	}
	switch g.Wait {
	case goroutine.Sleep, goroutine.Receive, goroutine.Send, goroutine.Select, goroutine.Cond, goroutine.Group, goroutine.Forever, goroutine.Semaphore:
		return g.Serves() && !g.Calls() // the ledger has its calls
	}
	return false
}
