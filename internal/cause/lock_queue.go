package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// lockQueues is lock-convoy for locks whose owner is written nowhere, as those
// of Python, Java and C++: requests spend their time in futex(2), and what ends
// it is a thread that has another request in hand. Who waits for a worker of a
// pool is followed to the worker; who sleeps for a time is woken by the clock.
func (v *View) lockQueues() Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() || !l.followed() {
			return judged{because: "no request was followed from thread to thread", near: -1}
		}
		k, n := l.serverCost(observe.ServerLock), l.affected(observe.FlagContended)
		because := fmt.Sprintf("%s of %s waited for what a thread with another request in hand was doing; locks took %s of the requests' time",
			count(n), l.all(), percent(k.share))
		p := v.Process(l.pid)
		switch {
		case !l.enough(n) || ratio(n, l.Requests) < k.share/2 || !l.noticed(k, threadFloor):
			return judged{because: because, near: k.share}
		case p != nil && p.Go:
			return judged{because: because + "; but it is a Go program, whose threads are there whether or not they wait for a lock", near: k.share}
		case v.sharesInterpreter(l):
			return judged{because: because + "; that is the interpreter's, as its threads take turns", near: k.share}
		case v.isDatabase(l.pid, "mariadb", "mysql"):
			return judged{because: because + "; that is what its transactions hold: mariadb-lock-wait", near: k.share}
		case v.poolExhausted(l.pid):
			return judged{because: because + "; it waits for a connection of its pool", near: k.share}
		case v.hasWaits(l.pid):
			return judged{because: because + "; the looks at its threads tell more", near: k.share}
		}
		f := v.found(l, k, threadFloor, "waiting for a lock, or for a thread that serves another request")
		f.Title = fmt.Sprintf("Lock contention in %s", f.Subject.Comm)
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "requests that waited until a thread with another request in hand woke theirs", Value: n, Limit: l.Requests, Unit: "requests", Source: recorded},
			Evidence{Fact: "the rest of its server time", Value: l.splitText(observe.ServerLock), Source: recorded})
		f.Fix.Text = fmt.Sprintf("Threads of %s that serve requests wait for each other: a lock, or something there is too little of, as a pool of connections. Find what is held and do less while holding it, or have more of it; the stacks of the waiting threads name it.", f.Subject.Comm)
		f.Fix.Commands = []shell.Command{shell.Line("slowray flame --off-cpu --pid %s", f.Subject.PID)}
		f.Holds = []int{l.pid}
		v.seenQueue(l, f)
		return judged{finding: f}
	})
}

// seenQueue adds to a queue for a lock where threads were seen to ask for it, where looks
// at them, too short or too few to tell how long they wait, tell at least that.
func (v *View) seenQueue(l *ledger, f *Finding) {
	for _, r := range v.roots {
		s := r.shares[slices.IndexFunc(r.shares, func(s *observe.WaitShare) bool { return s.PID == l.pid || s == r.shares[len(r.shares)-1] })]
		_, at := blameOf(s)
		if r.cause != LockConvoy || s.PID != l.pid || len(s.Chain.Hops[at].Stack) == 0 {
			continue
		}
		waiter := &s.Chain.Hops[at]
		f.Title = fmt.Sprintf("Lock contention in %s at %s", f.Subject.Comm, waiter.Stack[0])
		f.Subject.Path = waiter.Stack[0]
		f.Evidence = append(f.Evidence, Evidence{Fact: "where they ask for it", Value: strings.Join(waiter.Stack, " ← "), Source: languageOf(waiter).source})
		f.Chain, f.ChainEnd, f.held = s.Chain.Hops, chainEnd(&s.Chain), v.heldIn(r)
		if at+1 < len(s.Chain.Hops) {
			f.Fix.Text = fmt.Sprintf("Who holds the lock %s meanwhile, it seems: do that outside of the lock, or give each part of the data a lock of its own.", doesWhere(&s.Chain, at+1))
			f.Fix.Commands = []shell.Command{lookAtWaits(l.pid)}
		}
		return // the roots are in order of what they cost
	}
}

// sharesInterpreter says whether threads of a service in Python compute by turns: what
// its requests wait for is its lock, whoever holds that up.
func (v *View) sharesInterpreter(l *ledger) bool {
	if v.background(l) != nil || v.takesTurns(l) {
		return true
	}
	for _, p := range v.atWork(l).procs {
		if _, _, shared := v.turns(l, p, v.loadedSeconds(l)); shared && python(p) {
			return true
		}
	}
	return false
}

// inTurn is the share of the slow requests' time in which the thread that answers was seen
// to wait for the lock of the interpreter of Python.
func (v *View) inTurn(l *ledger) float64 {
	var in, of float64
	for _, s := range v.slowOf[l.pid] {
		in += float64(s.InterpreterNS)
		of += float64(s.NS)
	}
	return ratio(in, of)
}

// takesTurns says that what requests wait for locks is, for the most part, that lock.
func (v *View) takesTurns(l *ledger) bool {
	in := v.inTurn(l)
	return in > 0 && l.followed() && in >= inTurnLeast*l.serverCost(observe.ServerLock).slowShare
}

// followed says that requests of an endpoint, enough to tell, were followed from thread to
// thread.
func (l *ledger) followed() bool { return l.Split != nil && l.Split.Requests >= fewRequests }

// serverCost is what parts of the Server time take of an endpoint's time, as
// the requests that were followed tell.
func (l *ledger) serverCost(parts ...observe.ServerPart) cost {
	var c cost
	for _, p := range parts {
		c.ns += l.Split.ShareNS(p, l.MeanNS(observe.Server))
		c.slowNS += l.Split.SlowShareNS(p, l.SlowNS(observe.Server))
		stats := l.Split.Parts[p.String()]
		c.usual += float64(stats.Hist.Quantile(0.5))
	}
	c.share = ratio(c.ns*float64(l.Requests), l.TimeNS())
	c.slowShare = ratio(c.slowNS, l.SlowTotalNS())
	return c
}

// splitText names the greatest parts of the Server time but one.
func (l *ledger) splitText(but observe.ServerPart) string {
	text := ""
	for p := range observe.NumServerParts {
		if share := l.Split.ShareNS(p, 1); p != but && share >= 0.05 {
			if text != "" {
				text += ", "
			}
			text += p.Short() + " " + percent(share)
		}
	}
	if text == "" {
		return "under 5 % each"
	}
	return text
}

// hasWaits says whether a finding about what the threads of a process wait for
// is made of its chains.
func (v *View) hasWaits(pid int) bool { return v.held()[pid] }

// held is the processes that wait for something which slows requests down: for
// what one of these causes is about, or, where none is given, for anything.
func (v *View) held(causes ...ID) map[int]bool {
	return v.waiters.of(fmt.Sprint(causes), func() map[int]bool {
		out := map[int]bool{}
		for _, r := range v.roots {
			if len(causes) > 0 && !slices.Contains(causes, r.cause) || r.lost == 0 || v.harmless(r) != "" {
				continue
			}
			for _, s := range r.shares {
				out[s.PID] = true
			}
		}
		return out
	})
}
