package cause

import (
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// What requests wait for in other processes. Somebody else's process is let run
// again, and never ended or stopped; what stands still for its own reasons is
// not made to move.

// tryLetRun lets the processes of a service run again that are stopped.
func tryLetRun(v *View, t Target) []Change {
	if t.Service == nil || t.Finding != nil {
		return nil
	}
	var changes []Change
	for _, pid := range t.Service.PIDs {
		changes = append(changes, v.tryContinue(pid)...)
	}
	return changes
}

// stoppedChanges ends what keeps the last thread of a chain from running: a
// signal, or a frozen control group. A tracer is left alone.
func stoppedChanges(c *observe.WaitChain) []Change {
	last := &c.Hops[len(c.Hops)-1]
	switch {
	case c.End == observe.EndStopped:
		return []Change{continueChange(last.Process.PID, last.Process.Comm)}
	case c.End == observe.EndFrozen && strings.HasSuffix(c.Path, "freezer.state"):
		return []Change{groupChange(c.Path, "FROZEN", "THAWED")}
	case c.End == observe.EndFrozen && strings.HasSuffix(c.Path, "cgroup.freeze"):
		return []Change{groupChange(c.Path, "1", "0")}
	}
	return nil
}

// fullPipe enlarges the first pipe of a chain that is full. It fills again: what
// it shows is that requests wait for it.
func fullPipe(c *observe.WaitChain) []Change {
	for i := range c.Hops {
		h := &c.Hops[i]
		if h.Kind != observe.WaitPipe || h.Wants != observe.WantsRoom {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(h.Object, "fd "), " ")
		if fd, err := strconv.Atoi(name); err == nil && h.Process.PID != 0 {
			return []Change{pipeChange(h.Process.PID, h.Process.Comm, fd)}
		}
	}
	return nil
}

// tryUnixBacklog lengthens the queue of a unix socket.
func tryUnixBacklog(v *View, t Target) []Change {
	s := t.Service
	if t.Finding != nil {
		s = v.unixService(t.Finding.Subject.Path)
	}
	if s == nil || s.Path() == "" {
		return nil
	}
	return tryLongerQueue(v, Target{Service: s})
}

// unixService is the service that listens at a path, where there is one only.
func (v *View) unixService(path string) *Service {
	if list := v.reachable.paths[path]; len(list) == 1 {
		return list[0]
	}
	return nil
}

// tryNoDelay sets TCP_NODELAY on the connections of a service.
func tryNoDelay(v *View, t Target) []Change {
	if t.Service == nil || t.Finding != nil || t.Service.Port() == 0 {
		return nil
	}
	l := t.Service.Listeners[0]
	return withoutDelay(t.Service.NS, v.Master(l.PID), v.Comm(v.Master(l.PID)), "served", "", t.Service.Port())
}

// withoutDelay sets TCP_NODELAY on the connections that a process serves at a port, or
// has opened to an address.
func withoutDelay(ns *observe.NetNS, pid int, comm, side, addr string, port int) []Change {
	if ns == nil || pid == 0 || port == 0 {
		return nil
	}
	c := Change{Kind: ChangeSocketOption, NetNS: ns.Inode, PID: pid, Name: "TCP_NODELAY", Was: "0", Value: "1", Side: side, Addr: addr, Port: port}
	c.Text = "TCP_NODELAY on the connections of " + comm + " (pid " + itoa(pid) + ") to "
	if side == "served" {
		c.Text += "its port " + itoa(port)
	} else {
		c.Text += joinPort(addr, port)
	}
	return []Change{c}
}

// ofNagle is withoutDelay for the end that writes in pieces.
func ofNagle(v *View, l *ledger) []Change {
	if l.called() {
		return withoutDelay(l.ns, l.pid, v.commOf(l), "called", l.Addr, l.Port)
	}
	return withoutDelay(l.ns, l.pid, v.commOf(l), "served", "", l.Port)
}

func joinPort(addr string, port int) string {
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	return addr + " port " + itoa(port)
}

// wantedDatagrams is the receive buffer that is proposed for a UDP socket, bytes.
const wantedDatagrams = 8388608

// tryDatagramRoom gives UDP sockets that threw datagrams away more room: the one
// of the finding, or those of a service's namespace.
func tryDatagramRoom(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil {
		return nil
	}
	var changes []Change
	for i := range ns.UDP {
		u := &ns.UDP[i]
		if f := t.Finding; u.PID == 0 || f != nil && (f.Subject.PID != u.PID || f.Subject.Port != u.Port || f.Subject.Addr != u.Addr) || f == nil && !v.OnPath(u.PID) {
			continue
		}
		changes = append(changes, Change{Kind: ChangeSocketOption, NetNS: ns.Inode, PID: u.PID, Name: "SO_RCVBUF", Value: itoa(wantedDatagrams), Addr: u.Addr, Port: u.Port,
			Text: "receive buffer of the UDP socket of " + v.Comm(u.PID) + " (pid " + itoa(u.PID) + ") at port " + itoa(u.Port) + " to " + itoa(wantedDatagrams) + " bytes"})
	}
	return changes
}
