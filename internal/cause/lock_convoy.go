package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// LockConvoy: threads that should answer wait for a lock, one after the other,
// and who holds it takes its time. What the owner waits for itself comes first,
// where that is to blame: this is for owners that compute, sleep, or wait to be
// woken.
const LockConvoy ID = "lock-convoy"

var lockConvoy = Cause{
	ID:            LockConvoy,
	Title:         "Lock contention",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{Deadlock, ProcessStopped},
	Check:         checkLockConvoy,
}

func checkLockConvoy(v *View) Result {
	r := v.lockFindings()
	if w := v.Waits; w != nil && w.Parked > 0 && r.RuledOut != "" {
		r.RuledOut += fmt.Sprintf("; %s threads waited to be woken, the longest for at least %s: idle workers", count(w.Parked), nanoseconds(float64(w.ParkedNS)))
	}
	return r
}

func (v *View) lockFindings() Result {
	none := "no thread that answers requests was held up by a lock whose owner is known"
	r := v.judgeRoots(LockConvoy, none, func(r *root, f *Finding) {
		c, waiter := r.example(), r.blamed()
		if (waiter.Kind == observe.WaitChannel || r.at == len(c.Hops)-1) && v.poolExhausted(waiter.Process.PID) {
			f.follows(ConnectionPoolExhausted) // what they wait for in the process is a connection
		}
		if waiter.Kind == observe.WaitChannel && v.fullGoPool(waiter.Process.PID) {
			f.follows(ThreadPoolExhausted) // what they wait for is one of its goroutines
		}
		if unwritten(waiter) {
			inferredConvoy(r, f)
			return
		}
		if last := &c.Hops[len(c.Hops)-1]; last.Kind == observe.WaitCond && last.Process.PID == waiter.Process.PID && v.collects(last.Process.PID) {
			f.follows(GCPauses)
		}
		f.Evidence = append(f.Evidence, Evidence{Fact: "lock", Value: waiter.Object, Source: "memory of process " + itoa(waiter.Process.PID)})
		if len(waiter.Stack) > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "where they ask for it", Value: strings.Join(waiter.Stack, " ← "), Source: languageOf(waiter).source})
		}
		if r.at == len(c.Hops)-1 {
			f.Title = fmt.Sprintf("Lock contention in %s", waiter.Process.Comm)
			f.Fix.Text = c.Text + ": hold it for a shorter time."
			return
		}
		owner := &c.Hops[r.at+1]
		does := ownerText(c, r.at+1)
		f.Title = fmt.Sprintf("Lock contention in %s: thread %d (%s) holds it", waiter.Process.Comm, owner.TID, owner.Comm)
		f.Evidence = append(f.Evidence, Evidence{Fact: "its owner", Value: fmt.Sprintf("thread %d (%s) of %s, which %s", owner.TID, owner.Comm, who(owner), does), Source: string(owner.How)})
		f.Fix.Text = fmt.Sprintf("Thread %d (%s) holds the lock and %s meanwhile: do that outside of the lock, or give each thread or part of the data a lock of its own.", owner.TID, owner.Comm, does)
		f.Fix.Commands = []shell.Command{lookAtWaits(waiter.Process.PID)}
		if strings.HasPrefix(waiter.Object, javaLock) {
			f.Fix.Commands = append(f.Fix.Commands, jcmd(waiter.Process.PID))
		}
	})
	if len(r.Findings) > 0 {
		return r
	}
	queues := v.lockQueues()
	if queues.RuledOut != "" && r.RuledOut != none {
		queues.RuledOut = r.RuledOut
	}
	return queues
}

// fullGoPool says that all goroutines of a pool of a process always have a request in hand.
func (v *View) fullGoPool(pid int) bool {
	for _, l := range v.servedOf[v.Master(pid)] {
		for _, p := range v.poolsBehind(l) {
			if f, _ := v.threadPoolFinding(l, p); f != nil && p.Goroutines {
				return true
			}
		}
	}
	return false
}

// ownerText says what who is waited for does meanwhile.
func ownerText(c *observe.WaitChain, i int) string {
	h := &c.Hops[i]
	switch {
	case h.Kind == observe.WaitRunnable:
		return "runs"
	case h.Kind == observe.WaitSleep:
		return "sleeps"
	case h.Kind == observe.WaitCond:
		return "waits to be woken"
	case i == len(c.Hops)-1 && c.End == observe.EndIdle:
		return "is ready for work and does not come round to this"
	}
	return "is in " + doingWhat(h) + " " + objectOf(h)
}

// inferredConvoy is requests that wait for a lock of Go's or Python's, of which
// nobody writes down who holds it, or for what another goroutine has to do.
func inferredConvoy(r *root, f *Finding) {
	c, waiter := r.example(), r.blamed()
	lang := languageOf(waiter)
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "what they wait for", Value: waiter.Object, Source: lang.source},
		Evidence{Fact: "stack of " + lang.thread + " " + hopNumber(waiter), Value: strings.Join(waiter.Stack, " ← "), Source: lang.source})
	f.Fix.Commands = []shell.Command{lookAtWaits(waiter.Process.PID)}
	at := placesOf(c.Hops[r.at : r.at+1])
	if waiter.Kind == observe.WaitChannel {
		f.Title = fmt.Sprintf("Requests of %s wait for other goroutines at %s", waiter.Process.Comm, at)
		f.Fix.Text = "They have a request in hand and wait for a channel, a condition or a group: see which goroutines have to serve that, and give it more of them or bound the wait with a time limit."
		return
	}
	f.Title = fmt.Sprintf("Lock contention in %s at %s", waiter.Process.Comm, at)
	if r.at == len(c.Hops)-1 {
		f.Fix.Text = fmt.Sprintf("Who holds it is not known: %s writes that down nowhere. Look at what is done there while the lock is held, and do less of it, or give each part of the data a lock of its own.", lang.name)
		return
	}
	owner := &c.Hops[r.at+1]
	does := doesWhere(c, r.at+1)
	holds, seems := "who seems to hold it", ", it seems"
	if owner.How == observe.HowOwner {
		holds, seems = "who holds it", ""
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: holds, Value: fmt.Sprintf("%s %s, which %s; its stack: %s", lang.thread, hopNumber(owner), does, strings.Join(owner.Stack, " ← ")), Source: string(owner.How)})
	f.Fix.Text = fmt.Sprintf("Who holds the lock %s meanwhile%s: do that outside of the lock, or give each part of the data a lock of its own.", does, seems)
}

// doesWhere says what who is waited for does meanwhile, and where.
func doesWhere(c *observe.WaitChain, i int) string {
	h := &c.Hops[i]
	at := ""
	if len(h.Stack) > 0 {
		at = " at " + h.Stack[0]
	}
	switch {
	case h.Kind == observe.WaitSleep:
		return "sleeps" + at
	case h.Kind == observe.WaitRunnable:
		return "runs" + at
	case h.Goroutine != 0:
		return "waits for " + h.Object
	}
	return ownerText(c, i) + at
}
