package watch

import (
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/connect"
	"github.com/slowray/slowray/internal/sense/host"
)

// namespaces follows the network namespaces in which something listens.
type namespaces struct {
	connects  *connects
	snapshots schedule
}

// begin takes the first readings of each.
func (n *namespaces) begin(s *session) error {
	for _, sp := range s.spaces {
		sp.begin(s)
	}
	s.beginRouters()
	return nil
}

// sampleListeners looks at the queues of those that listen.
func (n *namespaces) sampleListeners(s *session) {
	for _, sp := range s.spaces {
		sp.sampleListeners(s)
		sp.sampleConntrack()
	}
	s.sampleRouters()
}

// sampleSockets looks at all sockets, a few times in a window.
func (n *namespaces) sampleSockets(s *session) {
	n.snapshots.do(s.elapsed(), s.opt.For, func() { n.snapshot(s) })
}

func (n *namespaces) snapshot(s *session) {
	for _, sp := range s.spaces {
		if !sp.quiet() {
			sp.sampleSockets(s)
		}
	}
}

// lastSockets looks once more where the window was too short, or nothing else tells
// who calls whom.
func (n *namespaces) lastSockets(s *session) {
	if n.snapshots.done == 0 || s.onlyDrops {
		n.snapshot(s)
	}
}

// stop takes the last reading of who owns which socket.
func (n *namespaces) stop(s *session) {
	for _, sp := range s.spaces {
		sp.udpEnd()
	}
	s.last.owners, _ = s.socketOwners(s.last.procs)
	for inode, pids := range s.owners {
		if len(s.last.owners[inode]) == 0 {
			s.last.owners[inode] = pids // closed, or its process ended, during the window
		}
	}
}

// end puts those that are used into the Observation.
func (n *namespaces) end(s *session) {
	var young map[uint64]bool
	if !s.onlyDrops {
		young = s.youngSpaces(s.last.procs)
	}
	lives, dropped := host.NetNamespaces(s.last.procs), s.droppedIn()
	for _, sp := range s.spaces {
		if sp.used() || young[sp.inode] || dropped[sp.inode] > 0 || !sp.host && sp.passed() {
			sp.stays(s.last.procs, lives[sp.inode])
			s.out.Namespaces = append(s.out.Namespaces, sp.finish(s, s.last.owners))
		}
	}
	s.endRouters(dropped)
	n.joinListeners(s)
	s.joinLinks()
	s.nameUnread()
}

// stays sees to it that the process by which the namespace is entered is one that
// is there when somebody does: the oldest one at the end, where it has ended.
func (sp *space) stays(procs []host.ProcSample, oldest int) {
	if oldest != 0 && !slices.ContainsFunc(procs, func(p host.ProcSample) bool { return p.PID == sp.pid && p.NetNS == sp.inode }) {
		sp.pid = oldest
	}
}

// used says whether anything listens in the namespace, calls from it, or drops
// datagrams there.
func (sp *space) used() bool { return len(sp.listeners) > 0 || len(sp.groups) > 0 || len(sp.udp) > 0 }

// joinListeners completes the listeners with what other readers know of them:
// handshakes counted by BPF, and the local processes at the other end.
func (n *namespaces) joinListeners(s *session) {
	for i := range s.out.Namespaces {
		ns := &s.out.Namespaces[i]
		for j := range ns.Listeners {
			l := &ns.Listeners[j]
			if l.Port == 0 {
				continue
			}
			if shared := s.listenersAt(ns, l.Port); shared > 0 {
				// Sockets that share a port (SO_REUSEPORT, IPv4 and IPv6) share
				// the count, which the kernel gives by port.
				total := n.connects.opened[connect.PassiveKey{NetNS: ns.Inode, Port: l.Port}]
				l.Opened = total / uint64(shared)
				if j == s.firstListenerAt(ns, l.Port) {
					l.Opened += total % uint64(shared)
				}
			}
			l.ClientPIDs = s.clientPIDs(ns, l)
		}
	}
}

func (s *session) listenersAt(ns *observe.NetNS, port int) int {
	n := 0
	for i := range ns.Listeners {
		if ns.Listeners[i].Port == port {
			n++
		}
	}
	return n
}

func (s *session) firstListenerAt(ns *observe.NetNS, port int) int {
	return slices.IndexFunc(ns.Listeners, func(l observe.Listener) bool { return l.Port == port })
}

// clientPIDs finds the local processes connected to a listener: sockets of the
// same namespace towards loopback or its own address, and of any namespace
// towards its address.
func (s *session) clientPIDs(ns *observe.NetNS, l *observe.Listener) []int {
	var pids []int
	for _, sp := range s.spaces {
		for k, inodes := range sp.peers {
			if int(k.port) != l.Port || !s.addressOf(ns, sp, k.addr) {
				continue
			}
			for inode := range inodes {
				pids = append(pids, s.last.owners[inode]...)
			}
		}
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	return pids[:min(len(pids), maxClientPIDs)]
}

// addressOf says whether addr, seen from the namespace from, is an address of
// ns.
func (s *session) addressOf(ns *observe.NetNS, from *space, addr netip.Addr) bool {
	if addr.IsLoopback() {
		return from.inode == ns.Inode
	}
	return slices.Contains(ns.Addrs, addr.String())
}

// nameUnread names the process behind endpoints that have requests which no
// process has read: the one that listens there.
func (s *session) nameUnread() {
	for i := range s.out.Endpoints {
		e := &s.out.Endpoints[i]
		if e.PID != 0 || e.Side != observe.Served.String() {
			continue
		}
		for j := range s.out.Namespaces {
			ns := &s.out.Namespaces[j]
			if k := s.firstListenerAt(ns, e.Port); ns.Inode == e.NetNS && k >= 0 {
				e.PID = ns.Listeners[k].PID
			}
		}
	}
}
