package cause

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// A finding's weight is a share of the attempts at one service. What it means on
// the host is told by its cost: the seconds that clients lost to it.

// failedCost is what a failed attempt costs who made it, in s: as long a client
// waits at the least until its SYN is sent again (TCP_TIMEOUT_INIT).
const failedCost = 1.0

// Price sets what a finding of this view cost: the seconds that the check itself
// counted, else the finding's weight of the time of the requests that it is
// about, and of their failed ones where it is a matter of failures. It stays nil
// where nobody's requests were recorded, and where clients stand outside whose
// requests were not.
func (v *View) Price(f *Finding) {
	f.Impact.Cost = nil
	switch {
	case f.lost != nil:
		cost := round(*f.lost)
		f.Impact.Cost = &cost
		return
	case f.uncounted:
		return
	}
	at := v.stake(f)
	if len(at) == 0 {
		return
	}
	var seconds float64
	for _, l := range at {
		seconds += l.TimeNS() / 1e9
		if !strings.Contains(f.Impact.Of, "time") {
			seconds += failedCost * float64(min(l.Errors+l.Unanswered, l.Requests))
		}
	}
	cost := round(f.Weight * seconds)
	f.Impact.Cost = &cost
}

// lostAttempts says that a finding cost so many attempts to be answered, each of
// which its client had to make again.
func (f *Finding) lostAttempts(n uint64) {
	seconds := failedCost * float64(n)
	f.lost = &seconds
}

// stake is the endpoints whose requests a finding's weight is a share of: of its
// process, else of its port, else of its network namespace; of the whole host
// where it is about the machine. Empty where none was recorded.
func (v *View) stake(f *Finding) []*ledger {
	s := &f.Subject
	served := func(which func(*ledger) bool) []*ledger {
		var out []*ledger
		for _, l := range v.ledgers {
			if !l.called() && which(l) {
				out = append(out, l)
			}
		}
		return out
	}
	of := func(pids ...int) []*ledger {
		return served(func(l *ledger) bool {
			return slices.ContainsFunc(pids, func(pid int) bool { return pid != 0 && (l.pid == v.Master(pid) || l.PID == pid) })
		})
	}
	switch {
	case s.Kind == "cgroup" && s.Path != "":
		i := slices.IndexFunc(v.Cgroups, func(c observe.Cgroup) bool { return c.Path == s.Path })
		if i >= 0 {
			if at := of(v.Cgroups[i].PIDs...); len(at) > 0 {
				return at
			}
		}
		return v.fronts()
	case f.layer == LayerMachine || s.PID == 0 && s.Port == 0 && s.NetNS == 0:
		return v.fronts()
	}
	if s.PID != 0 {
		at := of(s.PID)
		if one := slices.DeleteFunc(slices.Clone(at), func(l *ledger) bool { return l.Port != s.Port || l.NetNS != s.NetNS }); s.Kind == "listener" && len(one) > 0 {
			at = one
		}
		if len(at) == 0 {
			at = of(v.callersOf(s.PID)...)
		}
		if len(at) > 0 {
			return at
		}
	}
	if s.Port == 0 {
		return served(func(l *ledger) bool { return l.NetNS == s.NetNS })
	}
	if at := served(func(l *ledger) bool { return l.NetNS == s.NetNS && l.Port == s.Port }); len(at) > 0 {
		return at
	}
	var calls []*ledger
	for _, l := range v.ledgers {
		if l.called() && l.NetNS == s.NetNS && l.Port == s.Port && (s.Addr == "" || s.Addr == l.Addr) {
			calls = append(calls, l)
		}
	}
	return calls
}

// callersOf is the processes of this host that call what a process serves: of a
// service on a unix socket, theirs are the requests that are recorded.
func (v *View) callersOf(pid int) []int {
	var callers []int
	for _, s := range v.Services {
		if slices.Contains(s.PIDs, pid) {
			callers = append(callers, v.callers(s)...)
		}
	}
	return callers
}

// fronts is the served endpoints that no service of this host calls: the time of
// the others' requests lies within theirs.
func (v *View) fronts() []*ledger {
	var fronts, all []*ledger
	for _, l := range v.ledgers {
		if l.called() {
			continue
		}
		all = append(all, l)
		if !slices.ContainsFunc(v.ledgers, func(c *ledger) bool { return c.called() && !c.client && c.reaches(l) }) {
			fronts = append(fronts, l)
		}
	}
	if len(fronts) == 0 {
		return all // they call each other in a circle
	}
	return fronts
}
