package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// tryLongerQueue raises somaxconn where it would cut the new limit, and has the
// live socket listen again with a longer queue.
func tryLongerQueue(v *View, t Target) []Change {
	s := v.service(t)
	if s == nil {
		return nil
	}
	var sockets []Change
	most := 0
	for _, l := range s.Listeners {
		if f := t.Finding; f != nil && l.Proto != "unix" && l.Addr != f.Subject.Addr || l.PID == 0 || l.Limit == 0 {
			continue
		}
		if t.Finding != nil {
			o := overflowOf(v, s, l)
			switch o.fault(v, l) {
			case notAccepting:
				return v.tryContinue(t.Finding.Subject.PID)
			case shortQueue:
			default:
				continue
			}
		}
		want := wantedBacklog(l)
		most = max(most, want)
		sockets = append(sockets, v.backlogChange(s, l, want))
	}
	if len(sockets) == 0 {
		return nil
	}
	return append(v.raised(s.NS, "net.core.somaxconn", uint64(most)), sockets...)
}

// backlogChange has a socket listen again, with a queue of want.
func (v *View) backlogChange(s *Service, l *observe.Listener, want int) Change {
	c := Change{Kind: ChangeBacklog, NetNS: s.NS.Inode, PID: l.PID, Addr: l.Addr, Port: l.Port, Path: l.Path,
		Was: utoa(uint64(l.Limit)), Value: itoa(want)}
	c.Text = fmt.Sprintf("backlog of %s%s, on the live socket of %s (pid %d)", listenerName(l), becomes(c.Was, c.Value), v.Comm(l.PID), l.PID)
	return c
}

// tryContinue lets a stopped process run again.
func (v *View) tryContinue(pid int) []Change {
	p := v.Process(pid)
	if p == nil || p.State != "T" {
		return nil
	}
	return []Change{continueChange(pid, p.Comm)}
}

// tryMorePorts widens the port range, and lets ports in TIME_WAIT be taken again
// where those fill it.
func tryMorePorts(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil {
		return nil
	}
	var changes []Change
	was := v.sysctl(ns, portRangeKnob)
	if wide := wantedPortRange(was); wide != "" {
		changes = append(changes, sysctlChange(ns, portRangeKnob, was, wide))
	}
	if f := t.Finding; f != nil {
		if g := v.calledGroup(ns, f.Subject.Addr, f.Subject.Port); g != nil && heldInTimeWait(ns, g) {
			changes = append(changes, tryPortReuse(v, t)...)
		}
	}
	return changes
}

// tryPortReuse lets connect() take ports in TIME_WAIT again.
func tryPortReuse(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil {
		return nil
	}
	return v.switched(ns, "net.ipv4.tcp_tw_reuse", "1")
}

// trySYNQueue has a full queue of half-open connections lose no SYN: by cookies,
// or by a longer queue, which is bounded by the backlog as well.
func trySYNQueue(v *View, t Target) []Change {
	s := v.service(t)
	if s == nil || s.Path() != "" {
		return nil
	}
	if changes := v.switched(s.NS, "net.ipv4.tcp_syncookies", "1"); len(changes) > 0 && v.sysctl(s.NS, "net.ipv4.tcp_syncookies") == "0" {
		return changes
	}
	changes := tryLongerQueue(v, Target{Service: s})
	if len(changes) == 0 {
		return nil
	}
	limit := 0
	for _, l := range s.Listeners {
		limit = max(limit, v.synQueueOf(s, l).limit)
	}
	return append(v.raised(s.NS, "net.ipv4.tcp_max_syn_backlog", wantedSYNBacklog(limit)), changes...)
}
