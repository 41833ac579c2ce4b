package cause

import "slices"

// A finding's weight is a share of the attempts at one service. What it means on
// the host is reported by its cost: the seconds that clients lost to it.

// failedCost is what a failed attempt costs who made it, in s: as long a client
// waits at the least until its SYN is retransmitted (TCP_TIMEOUT_INIT).
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
		if !f.Impact.OfTime {
			seconds += failedCost * float64(l.failedRequests())
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
	switch {
	case s.Kind == "cgroup" && s.Path != "":
		if c := v.cgroup(s.Path); c != nil {
			if at := v.answeredBy(c.PIDs...); len(at) > 0 {
				return at
			}
		}
		return v.fronts
	case f.layer == LayerMachine || s.PID == 0 && s.Port == 0 && s.NetNS == 0:
		return v.fronts
	}
	if s.PID != 0 {
		at := v.answeredBy(s.PID)
		if one := slices.DeleteFunc(slices.Clone(at), func(l *ledger) bool { return l.Port != s.Port || l.NetNS != s.NetNS }); s.Kind == "listener" && len(one) > 0 {
			at = one
		}
		if len(at) == 0 {
			at = v.answeredBy(v.callersOf(s.PID)...)
		}
		if len(at) > 0 {
			return at
		}
	}
	if s.Port == 0 {
		return v.servedIn[s.NetNS]
	}
	var served, calls []*ledger
	for _, l := range v.ledgersAt(s.NetNS, s.Port) {
		switch {
		case !l.called():
			served = append(served, l)
		case s.Addr == "" || s.Addr == l.Addr:
			calls = append(calls, l)
		}
	}
	if len(served) > 0 {
		return served
	}
	return calls
}

// callersOf is the processes of this host that call what a process serves: of a
// service on a unix socket, theirs are the requests that are recorded.
func (v *View) callersOf(pid int) []int {
	var callers []int
	for _, s := range v.servicesOf[pid] {
		callers = append(callers, s.callers...)
	}
	return callers
}

// findFronts finds the served endpoints that services of this host do not call, or for
// few of their requests, as one that scrapes or probes them does: the time of the others'
// requests lies within theirs.
func (v *View) findFronts() {
	calls := map[end][]*ledger{}
	for _, l := range v.ledgers {
		if l.called() && !l.client {
			for _, at := range l.destinations(v.owners) {
				calls[at] = append(calls[at], l)
			}
		}
	}
	var all []*ledger
	for _, l := range v.ledgers {
		if l.called() {
			continue
		}
		all = append(all, l)
		called, own := map[*ledger]bool{}, uint64(0)
		for _, at := range l.ends() {
			for _, c := range calls[at] {
				v.Step()
				if !called[c] && (c.pid != l.pid || c.pid == 0) { // what calls itself is asked by others, too
					called[c] = true
					own += c.Requests
				}
			}
		}
		if len(called) == 0 || float64(own) < calledByOwn*float64(l.Requests) {
			v.fronts = append(v.fronts, l)
		}
	}
	if len(v.fronts) == 0 {
		v.fronts = all // they call each other in a circle
	}
}
