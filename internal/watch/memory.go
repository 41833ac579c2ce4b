package watch

import (
	"sync"
	"time"

	"github.com/slowray/slowray/internal/sense/host"
)

// Memory is what one window leaves to the next: servers whose configurations were too
// large to be read. Without it each window would pay for them again.
type Memory struct {
	mu   sync.Mutex
	over map[process]attempt
	now  func() time.Time
	runs host.Programs
}

// programs are the files of servers that are known.
func (m *Memory) programs() *host.Programs {
	if m == nil {
		return &host.Programs{}
	}
	return &m.runs
}

// process is one, however often its number is given out.
type process struct {
	pid   int
	start uint64 // ticks since boot
}

// attempt is one that failed.
type attempt struct {
	wait time.Duration
	next time.Time
}

// A configuration that was too large is read again after a while, for it may have been
// changed: first soon, then less and less often, and not more than one in a window.
const (
	firstWait = 5 * time.Minute
	lastWait  = 2 * time.Hour
	maxOver   = 4096
)

// NewMemory is the memory of windows that follow each other.
func NewMemory() *Memory { return &Memory{over: map[process]attempt{}, now: time.Now} }

// filter leaves out the servers that are not due, and puts the one that is, and was
// waited for longest, behind all others. A nil Memory knows of none.
func (m *Memory) filter(groups [][]*server, starts map[int]uint64, left func(*server, time.Time)) [][]*server {
	if m == nil {
		return groups
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var again *server
	var due time.Time
	seen := map[process]attempt{}
	for _, group := range groups {
		for _, v := range group {
			p := process{v.pid, starts[v.pid]}
			a, ok := m.over[p]
			if !ok {
				continue
			}
			seen[p] = a
			if !a.next.After(now) && (again == nil || a.next.Before(due)) {
				again, due = v, a.next
			}
		}
	}
	m.over = seen // of those that have ended nothing is kept
	var out [][]*server
	for _, group := range groups {
		var rest []*server
		for _, v := range group {
			switch a, ok := m.over[process{v.pid, starts[v.pid]}]; {
			case !ok:
				rest = append(rest, v)
			case v != again:
				left(v, latest(a.next, now))
			}
		}
		if len(rest) > 0 {
			out = append(out, rest)
		}
	}
	if again != nil {
		out = append(out, []*server{again})
	}
	return out
}

// note keeps how reading a server's configuration went.
func (m *Memory) note(pid int, start uint64, tooLarge bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := process{pid, start}
	a, known := m.over[p]
	switch {
	case !tooLarge:
		delete(m.over, p)
		return
	case !known && len(m.over) == maxOver:
		return
	case !known:
		a.wait = firstWait
	default:
		a.wait = min(2*a.wait, lastWait)
	}
	a.next = m.now().Add(a.wait)
	m.over[p] = a
}

// waits says until when a server is not read again.
func (m *Memory) waits(pid int, start uint64) (until time.Time, waits bool) {
	if m == nil {
		return until, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.over[process{pid, start}]
	return a.next, ok && a.next.After(m.now())
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
