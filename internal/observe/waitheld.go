package observe

import "strings"

// HeldLock is a lock of a file that the process has, and who waits for it.
type HeldLock struct {
	Object  string       `json:"object"`           // "/run/x.lock"
	Detail  string       `json:"detail,omitempty"` // "FLOCK lock, WRITE"
	Threads float64      `json:"threads"`          // that wait for it at a time, on average
	AtOnce  int          `json:"at_once"`          // most of them
	Waiters []LockWaiter `json:"waiters"`          // most first; without those of whom no process is known
}

// LockWaiter is a process that waits for a lock of another.
type LockWaiter struct {
	Process WaitProcess `json:"process"`
	Threads float64     `json:"threads"` // that wait at a time, on average
}

// heldShare is the share of the time of threads with something to do from which on waits
// that are each short hold a process up.
const heldShare = 0.5

// leastAsking is how many threads, on average, have to wait for a database for that to say
// something of the process.
const leastAsking = 0.1

// HeldUp says how many threads, on average, wait for locks that others have, each time for
// moments, where that is most of the threads with something to do, and the wait that
// takes most of that time; nil where it is not.
func (w *Waits) HeldUp() (threads float64, most *WaitShare) {
	if w.WindowNS <= 0 {
		return 0, nil
	}
	for i := range w.Brief {
		s := &w.Brief[i]
		if len(s.Chain.Hops) == 0 || s.Chain.Hops[0].Wants != WantsRelease {
			continue
		}
		threads += float64(s.ThreadNS) / float64(w.WindowNS)
		if most == nil || s.ThreadNS > most.ThreadNS {
			most = s
		}
	}
	busy := w.Looked
	for i := range w.Chains {
		if c := &w.Chains[i]; c.Branch == 0 && !c.Moving() && !c.Culprit() && c.Hops[0].Goroutine == 0 {
			busy -= c.Count
		}
	}
	if threads < heldShare*float64(max(busy, 1)) {
		return 0, nil
	}
	return threads, most
}

// HoldsUp is the lock of the process that others wait for most; nil where nobody
// waits for it most of the time.
func (w *Waits) HoldsUp() *HeldLock {
	if len(w.Held) > 0 && w.Held[0].Threads >= heldShare {
		return &w.Held[0]
	}
	return nil
}

// BehindDatabase is a chain that ends in a database server, which the process is or which
// threads of it wait for, while what holds it up is not seen: locks of its transactions are not those of the
// kernel. Nil where there is none, where it is ready for work, or where hardly anybody waits.
func (w *Waits) BehindDatabase() *WaitChain {
	chains := make([]*WaitChain, 0, len(w.Chains)+len(w.Brief))
	for i := range w.Brief {
		if s := &w.Brief[i]; float64(s.ThreadNS) >= leastAsking*float64(w.WindowNS) {
			chains = append(chains, &s.Chain)
		}
	}
	for i := range w.Chains {
		chains = append(chains, &w.Chains[i])
	}
	for _, c := range chains {
		if len(c.Hops) == 0 {
			continue
		}
		first, last := &c.Hops[0], &c.Hops[len(c.Hops)-1]
		called := len(c.Hops) > 1 && first.Wants != WantsRequest
		if asksDatabase(first) {
			return c
		}
		if (called || first.Process.PID == last.Process.PID) && database(last.Process.Comm) && c.End != EndIdle && c.End != EndRunning {
			return c
		}
	}
	return nil
}

// database says whether a process of this name is a database server with transactions.
func database(comm string) bool {
	switch comm {
	case "mariadbd", "mysqld", "postgres":
		return true
	}
	return false
}

// asksDatabase says whether a goroutine reads what a database answers: it waits for the
// network, which tells nobody who is at the other end, inside one of these drivers.
func asksDatabase(h *WaitHop) bool {
	if h.Goroutine == 0 || h.Kind != WaitEvent {
		return false
	}
	for _, f := range h.Stack {
		for _, driver := range [...]string{"mysql.(*mysqlConn).read", "pgconn.(*PgConn).", "pq.(*conn)."} {
			if strings.HasPrefix(f, driver) {
				return true
			}
		}
	}
	return false
}
