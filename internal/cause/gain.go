package cause

import "fmt"

// crew is a pool that has nothing free, as far as it tells what more of its workers, or
// a shorter wait of theirs, would gain.
type crew struct {
	pid     int     // of its master
	unit    string  // "children of php-fpm"
	busy    float64 // workers, on average
	waiting float64 // requests that wait for one, on average
	want    int     // workers, as is proposed
}

// held is how many threads of the services that a finding holds up wait for it at once,
// on average; turns says that one of them at a time goes on, as with a lock.
type held struct {
	by    map[int]float64 // by master
	turns bool
}

// heldIn is the threads that wait for a root, by the service that they belong to. Between
// two looks one that was seen to wait may have waited all the time.
func (v *View) heldIn(r *root) held {
	h := held{by: map[int]float64{}, turns: r.cause == LockConvoy || r.cause == BlockedOnFileLock}
	for _, s := range r.shares {
		h.by[s.PID] += float64(max(s.ThreadNS, int64(s.Samples)*v.Waits.EveryNS)) / 1e9 / max(v.Window.Seconds, 1e-3)
	}
	return h
}

// heldInCalls is the calls of what an endpoint answers that wait there for their turn, a
// share of their time, by who makes them.
func (v *View) heldInCalls(served *ledger, share float64) held {
	h := held{by: map[int]float64{}, turns: true}
	for _, l := range v.ledgers {
		if l.called() && l.here == served {
			h.by[l.pid] += share * v.inFlight(l)
		}
	}
	return h
}

// waitFor is how many workers of a service wait for what a finding is about, on average:
// by themselves, or for another service of this host that does.
func (v *View) waitFor(f *Finding, master int) float64 {
	n := f.held.by[master]
	for _, l := range v.calledOf[master] {
		if l.here != nil {
			n = max(n, f.held.by[l.here.pid])
		}
	}
	return n
}

// takes says that so much of a pool's busy workers wait for what a finding is about that
// more of them would mostly wait with them.
func (v *View) takes(f *Finding, master int, busy float64) bool {
	return v.waitFor(f, master) >= dominantShare*busy
}

// Gain adds to a finding, of which it follows that a pool has nothing free, what to
// expect of fixing it, and what of more workers in the pool.
func (v *View) Gain(root, pool *Finding) {
	c := pool.crew
	if c == nil || root == pool {
		return
	}
	if !v.takes(root, c.pid, c.busy) {
		return // what its workers do otherwise is not known
	}
	held := min(v.waitFor(root, c.pid), c.busy)
	if root.held.turns {
		held = min(held, c.busy-1) // one has it
	}
	demand := (c.busy + c.waiting) / c.busy // all that wait now in hand at once
	without := demand
	if held < c.busy {
		without = c.busy / (c.busy - held)
	}
	more := min(float64(c.want)/c.busy, demand)
	if root.held.turns {
		more = min(more, moreInTurns(c.busy, float64(c.want), held))
	}
	root.Evidence = append(root.Evidence,
		Evidence{Fact: fmt.Sprintf("busy %s that wait for it, mean", c.unit), Value: round(held), Limit: round(c.busy), Unit: "workers", Source: taskFiles},
		Evidence{Fact: "answers to expect without that wait, with as many workers", Value: gainText(without), Unit: "times those of now, at most", Source: "operational laws"},
		Evidence{Fact: fmt.Sprintf("answers to expect with %d %s, and nothing else done", c.want, c.unit), Value: gainText(more), Unit: "times those of now, at most", Source: "operational laws"})
}

// moreInTurns is how many times the answers of busy workers want of them give, where
// held of them wait on average for something that one has at a time: mean value analysis
// of a closed network (Reiser and Lavenberg, 1980) with one queue. What is done outside
// of the queue takes 1-h of a time in which a worker does not wait, what is done with it h.
func moreInTurns(busy, want, held float64) float64 {
	n := max(int(busy+0.5), 1)
	h, low, high := 1.0, 0.0, 1.0
	for range 40 { // the part of it that has so many wait
		h = (low + high) / 2
		if float64(n)-throughput(n, h) < held {
			low = h
		} else {
			high = h
		}
	}
	return max(throughput(max(int(want), n), h)/throughput(n, h), 1)
}

// throughput is the answers of n workers in the time that one takes alone.
func throughput(n int, h float64) (x float64) {
	queue := 0.0
	for k := 1; k <= n; k++ {
		residence := h * (1 + queue)
		x = float64(k) / (residence + 1 - h)
		queue = x * residence
	}
	return x
}

// gainText is a gain as it is reported: to two digits.
func gainText(gain float64) float64 {
	if gain >= 10 {
		return float64(int(gain + 0.5))
	}
	return float64(int(10*gain+0.5)) / 10
}
