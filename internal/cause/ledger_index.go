package cause

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// ledgerIndex finds endpoints of requests. All lists are in the order of
// View.ledgers.
type ledgerIndex struct {
	ends      map[end][]*ledger    // by network namespace and port
	calledOf  map[int][]*ledger    // called ones, by master
	servedOf  map[int][]*ledger    // served ones, by master
	answering map[int]answering    // what they come to, by master
	members   map[int][]*ledger    // served ones, by each process that was seen to answer
	ledgersIn map[uint64][]*ledger // by network namespace
	servedIn  map[uint64][]*ledger // served ones, by network namespace
	fronts    []*ledger            // served ones that no service of this host calls
}

// buildLedgers picks the endpoints in view: what the services answer, what
// they call, here or elsewhere, and what clients on this host call of them.
func (v *View) buildLedgers() {
	serving := map[int]bool{}
	v.answering = map[int]answering{}
	served := servedEnds{}
	answer := func(l *ledger) {
		v.ledgers = append(v.ledgers, l)
		v.answering[l.pid] = v.answering[l.pid].plus(l)
		served.add(l)
		serving[l.pid] = l.pid != 0
	}
	var called, others []*ledger
	for i := range v.Endpoints {
		e := &v.Endpoints[i]
		if e.Port < 1 || e.Port > 65535 || !address(e.Addr).IsValid() {
			continue
		}
		l := v.newLedger(e)
		switch {
		case v.remain(l):
			v.remains = append(v.remains, l)
		case l.called():
			called = append(called, l)
		// What is read from a file holds only what was asked for, and no processes.
		// What began to listen within the window is no service of its beginning.
		case v.Filter == (observe.Filter{}) || v.Filter == (observe.Filter{Port: e.Port}) || v.Capture != nil || v.ServiceAt(e.NetNS, e.Port, "") != nil:
			answer(l)
		default:
			others = append(others, l)
		}
	}
	isServing := func(l *ledger) bool { return serving[l.pid] || v.Serving(l.pid) || v.Serving(l.PID) }
	v.followCalls(called, others, isServing, answer)
	for _, l := range called {
		switch {
		case v.Capture != nil:
			v.ledgers = append(v.ledgers, l)
		case isServing(l):
			l.reach = v.callShare(l)
			v.ledgers = append(v.ledgers, l)
		case served.first(l, v.owners) != nil:
			l.client = true
			v.ledgers = append(v.ledgers, l)
		}
	}
	v.leaveOutOwn(served)
	slices.SortStableFunc(v.ledgers, func(a, b *ledger) int { return compareEndpoints(a.Endpoint, b.Endpoint) })
	v.indexLedgers()
}

// leaveOutOwn leaves out what only slowray calls on this host, as tables or a proxy that
// it sends to: nobody waits for these requests.
func (v *View) leaveOutOwn(served servedEnds) {
	own, others := map[*ledger]uint64{}, map[*ledger]bool{}
	for _, l := range v.ledgers {
		if !l.called() {
			continue
		}
		switch to := served.first(l, v.owners); {
		case to == nil:
		case v.own(l.PID, l.Comm):
			own[to] += l.Requests
		default:
			others[to] = true
		}
	}
	if len(own) == 0 {
		return
	}
	only := func(l *ledger) bool {
		return l != nil && !others[l] && own[l] > 0 && float64(own[l]) >= ownCalls*float64(l.Requests)
	}
	v.forOwn = map[int]bool{}
	for l := range own {
		v.forOwn[l.pid] = l.pid != 0 && only(l)
	}
	v.ledgers = slices.DeleteFunc(v.ledgers, func(l *ledger) bool {
		return only(l) || l.called() && only(served.first(l, v.owners))
	})
	for _, l := range v.ledgers {
		if !l.called() {
			delete(v.forOwn, l.pid)
		}
	}
}

// ownCalls is the share of the requests of an endpoint from which on all are slowray's: the
// two ends count at different moments.
const ownCalls = 0.9

// answering is what the processes of a master answer.
type answering struct {
	busyNS   float64 // time in which they were busy with requests
	requests uint64
	slowest  *ledger // the endpoint with most time
	mostNS   float64 // its time
}

func (a answering) plus(l *ledger) answering {
	a.busyNS += l.SumNS(observe.Server) + l.SumNS(observe.Stall)
	a.requests += l.Requests
	if ns := l.TimeNS(); a.slowest == nil || ns > a.mostNS {
		a.slowest, a.mostNS = l, ns
	}
	return a
}

// followCalls answers what the services asked for call, of the other endpoints
// that are served here: a filter leaves them out. One hop after the other is
// taken in.
func (v *View) followCalls(called, others []*ledger, isServing func(*ledger) bool, answer func(*ledger)) {
	if len(others) == 0 {
		return
	}
	left := servedEnds{}
	for _, l := range others {
		left.add(l)
	}
	calls := map[int][]*ledger{} // of those that do not serve yet, by master
	var queue []*ledger
	for _, l := range called {
		if isServing(l) {
			queue = append(queue, l)
		} else {
			calls[l.pid] = append(calls[l.pid], l)
		}
	}
	taken := map[*ledger]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		v.Step()
		for _, at := range queue[0].destinations(v.owners) {
			for _, l := range left[at] {
				if taken[l] {
					continue
				}
				taken[l] = true
				answer(l)
				if l.pid != 0 {
					queue = append(queue, calls[l.pid]...)
					delete(calls, l.pid)
				}
			}
			delete(left, at)
		}
	}
}

// indexLedgers finds which endpoints are the two ends of the same connections, and
// sorts them by who has them.
func (v *View) indexLedgers() {
	v.servedOf, v.calledOf, v.ends = map[int][]*ledger{}, map[int][]*ledger{}, map[end][]*ledger{}
	v.answering = map[int]answering{}
	v.members, v.servedIn, v.ledgersIn = map[int][]*ledger{}, map[uint64][]*ledger{}, map[uint64][]*ledger{}
	served := servedEnds{}
	for i, l := range v.ledgers {
		v.Step()
		l.order = i
		at := end{netns: l.NetNS, port: l.Port}
		v.ends[at] = append(v.ends[at], l)
		v.ledgersIn[l.NetNS] = append(v.ledgersIn[l.NetNS], l)
		if l.called() {
			v.calledOf[l.pid] = append(v.calledOf[l.pid], l)
		} else {
			v.servedOf[l.pid] = append(v.servedOf[l.pid], l)
			v.answering[l.pid] = v.answering[l.pid].plus(l)
			v.servedIn[l.NetNS] = append(v.servedIn[l.NetNS], l)
			v.members[l.PID] = append(v.members[l.PID], l)
			for _, pid := range l.PIDs {
				if pid != l.PID {
					v.members[pid] = append(v.members[pid], l)
				}
			}
			served.add(l)
		}
	}
	for _, l := range v.ledgers {
		if !l.called() {
			continue
		}
		if l.here = served.first(l, v.owners); l.here != nil {
			l.here.callers = append(l.here.callers, l)
		}
	}
	v.findFronts()
}

// answeredBy lists the served endpoints of these processes, and of their families.
func (v *View) answeredBy(pids ...int) []*ledger {
	return v.servedBy(pids, func(l *ledger, pid int) bool { return l.PID == pid })
}

// workedBy lists the served endpoints that one of these processes is seen to
// answer, or whose family it is of.
func (v *View) workedBy(pids ...int) []*ledger {
	return v.servedBy(pids, func(*ledger, int) bool { return true })
}

func (v *View) servedBy(pids []int, which func(member *ledger, pid int) bool) []*ledger {
	var out []*ledger
	families := map[int]bool{0: true}
	for _, pid := range pids {
		v.Step()
		if master := v.Master(pid); !families[master] {
			families[master] = true
			out = append(out, v.servedOf[master]...)
		}
		for _, l := range v.members[pid] {
			if pid != 0 && which(l, pid) {
				out = append(out, l)
			}
		}
	}
	return inOrder(out)
}

// inOrder puts endpoints into the order of all, each once.
func inOrder(list []*ledger) []*ledger {
	slices.SortFunc(list, func(a, b *ledger) int { return a.order - b.order })
	return slices.Compact(list)
}

// sameEnds lists the other endpoints of the same connections on this host.
func (l *ledger) sameEnds() []*ledger {
	if l.here != nil {
		return []*ledger{l.here}
	}
	return l.callers
}

// ledgersAt lists the endpoints of a network namespace with a port, served ones
// first.
func (v *View) ledgersAt(netns uint64, port int) []*ledger {
	v.Step()
	return v.ends[end{netns: netns, port: port}]
}

// behind lists a served endpoint with all that its requests may wait for: what
// its processes call, and on this host what those that answer there call.
func (v *View) behind(l *ledger) []*ledger {
	way, seen := []*ledger{l}, map[*ledger]bool{l: true}
	add := func(o *ledger) {
		if o != nil && !seen[o] {
			seen[o] = true
			way = append(way, o)
		}
	}
	for i := 0; i < len(way); i++ {
		v.Step()
		if way[i].called() {
			add(way[i].here)
		} else if way[i].pid != 0 {
			for _, o := range v.calledOf[way[i].pid] {
				add(o)
			}
		}
	}
	return way
}
