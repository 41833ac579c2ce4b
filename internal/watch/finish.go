package watch

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/connect"
	"github.com/slowray/slowray/internal/sense/host"
)

// findServers finds the processes that hold a listening socket.
func (s *session) findServers() {
	owners, unreadable := s.socketOwners(s.procs)
	// Without the owners of most sockets nobody knows who serves what.
	if all := len(s.pids(s.procs)); unreadable > 0 {
		err := fmt.Errorf("the open files of %d of %d processes could not be read (needs root, or CAP_SYS_PTRACE)", unreadable, all)
		if 2*unreadable > all {
			s.gap(observe.KindProcess, "", err)
		} else {
			s.partialGap(observe.KindProcess, 0, "", err)
		}
	}
	seen := map[int]bool{}
	s.owners = owners
	for _, sp := range s.spaces {
		for inode := range sp.listeners {
			for _, pid := range owners[inode] {
				if !seen[pid] {
					seen[pid] = true
					s.serving = append(s.serving, pid)
				}
			}
		}
	}
	slices.Sort(s.serving)
}

// socketOwners maps the sockets of interest to processes, by the cheapest way
// there is. The second result is how many processes could not be looked into.
func (s *session) socketOwners(procs []host.ProcSample) (owners map[uint64][]int, unreadable int) {
	defer func() { host.ByAge(procs, owners) }()
	wanted := map[uint64]bool{}
	for _, sp := range s.spaces {
		sp.wantedSockets(wanted)
	}
	if s.sockets != nil {
		if owners, err := s.sockets.Owners(func(inode uint64) bool { return wanted[inode] }); err == nil {
			return owners, 0
		}
	}
	return s.fs.SocketOwners(s.pids(procs))
}

// tcpSockets lists the TCP sockets of a namespace, by the cheapest way there is.
func (s *session) tcpSockets(ns *host.NetNS, visit func(*host.SocketSample)) error {
	if s.sockets != nil {
		return s.sockets.TCP(ns, visit)
	}
	return ns.Sockets(visit)
}

func (s *session) pids(procs []host.ProcSample) []int {
	pids := make([]int, 0, len(procs))
	for i := range procs {
		if !procs[i].Kernel {
			pids = append(pids, procs[i].PID)
		}
	}
	return pids
}

// end takes the last readings and puts the Observation together.
func (s *session) end() {
	s.endBPF() // first: what happens from here on is slowray's own doing

	use, gaps := s.fs.Use()
	s.out.Gaps = append(s.out.Gaps, gaps...)
	s.out.Use = host.UseBetween(s.use, use)
	s.out.Use.Course = s.course
	s.endFlows()
	procs, gaps := s.fs.Processes()
	s.addProcessGaps(gaps)
	engines := s.askEngines(procs)
	s.out.Processes = host.ProcessesBetween(s.procs, procs)
	s.sumShortLived(procs)
	for _, sp := range s.spaces {
		sp.udpEnd()
	}
	owners, _ := s.socketOwners(procs)
	for inode, pids := range s.owners {
		if len(owners[inode]) == 0 {
			owners[inode] = pids // closed, or its process ended, during the window
		}
	}

	s.endKmsg()
	young := s.youngSpaces(procs)
	for _, sp := range s.spaces {
		if !sp.used() && !young[sp.inode] {
			continue
		}
		s.out.Namespaces = append(s.out.Namespaces, sp.finish(s, owners))
	}
	s.joinListeners(owners)
	s.joinLinks()
	s.nameUnread()
	s.endWaits()
	s.endProcesses()
	s.endCgroups(procs)
	s.endStarts(procs)
	s.endDatabases()
	s.endServers()
	s.endContainers(engines)
	s.endFilesystems()
	s.endHostState()
	s.endChanges(procs)
	s.out.Sysctl = s.hostSysctl()
	if fresh := s.newNamespaces(procs); fresh > 0 {
		s.lose("network namespaces that appeared during the window and were not watched", int64(fresh))
	}
}

// addProcessGaps adds gaps that were not there yet. That process 1 is closed
// even to root, as in some sandboxes, matters to nobody.
func (s *session) addProcessGaps(gaps []observe.Gap) {
	for _, g := range gaps {
		if g.Subject != "process 1" && !slices.Contains(s.out.Gaps, g) {
			s.out.Gaps = append(s.out.Gaps, g)
		}
	}
}

func (s *session) endBPF() {
	if s.waits != nil {
		s.waits.end()
	}
	if s.request != nil {
		s.request.end(s)
	}
	if s.connect != nil {
		r, err := s.connect.Read()
		if err != nil {
			s.gap(observe.KindConnects, "", err)
		}
		s.out.Connects, s.out.Accepts, s.out.CallSeconds = r.Connects, r.Accepts, r.Watched.Seconds()
		s.out.Losses = append(s.out.Losses, r.Losses...)
		s.opened = r.Opened
	}
	s.endDNS()
	s.endErrors()
	if s.profile != nil {
		s.endProfile()
	}
	s.endDrops()
}

// manyTimeWait says whether any namespace has so many sockets in TIME_WAIT
// towards one destination that the search for a port could matter.
func (s *session) manyTimeWait() bool {
	const many = 500
	for _, sp := range s.spaces {
		for k, g := range sp.groups {
			if !k.served && g.states["TIME_WAIT"] >= many {
				return true
			}
		}
	}
	return false
}

func (s *session) endKmsg() {
	if s.kmsg == nil {
		return
	}
	lines, lost := s.kmsg.Drain()
	s.out.KernelLog = lines
	s.lose("kernel log lines overwritten before they were read", int64(lost))
}

// used says whether anything listens in the namespace, calls from it, or drops
// datagrams there.
func (sp *space) used() bool { return len(sp.listeners) > 0 || len(sp.groups) > 0 || len(sp.udp) > 0 }

// joinListeners completes the listeners with what other readers know of them:
// handshakes counted by BPF, and the local processes at the other end.
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

func (s *session) joinListeners(owners map[uint64][]int) {
	for i := range s.out.Namespaces {
		ns := &s.out.Namespaces[i]
		for j := range ns.Listeners {
			l := &ns.Listeners[j]
			if l.Port == 0 {
				continue
			}
			if n := s.listenersAt(ns, l.Port); n > 0 {
				// Sockets that share a port (SO_REUSEPORT, IPv4 and IPv6) share
				// the count, which the kernel gives by port.
				total := s.opened[connect.PassiveKey{NetNS: ns.Inode, Port: l.Port}]
				l.Opened = total / uint64(n)
				if j == s.firstListenerAt(ns, l.Port) {
					l.Opened += total % uint64(n)
				}
			}
			l.ClientPIDs = s.clientPIDs(ns, l, owners)
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
func (s *session) clientPIDs(ns *observe.NetNS, l *observe.Listener, owners map[uint64][]int) []int {
	var pids []int
	for _, sp := range s.spaces {
		for k, inodes := range sp.peers {
			if int(k.port) != l.Port || !s.addressOf(ns, sp, k.addr) {
				continue
			}
			for inode := range inodes {
				pids = append(pids, owners[inode]...)
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

// endProcesses gives the processes what was sampled of them.
func (s *session) endProcesses() {
	serving := map[int]bool{}
	for _, pid := range s.serving {
		serving[pid] = true
	}
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		if serving[p.PID] {
			s.endThreads(p)
		}
		p.FDs = max(p.FDs, s.fdPeak[p.PID])
		p.TracerPID = s.tracers[p.PID]
		if st := s.states[p.PID]; st != nil && st.Samples > 0 {
			p.States = st
		}
	}
	comm := map[int]string{}
	for i := range s.out.Processes {
		comm[s.out.Processes[i].PID] = s.out.Processes[i].Comm
	}
	for i := range s.out.Namespaces {
		for j := range s.out.Namespaces[i].Listeners {
			l := &s.out.Namespaces[i].Listeners[j]
			l.Comm = comm[l.PID]
		}
	}
}

func (s *session) endCgroups(procs []host.ProcSample) {
	var pids []int
	for i := range s.out.Namespaces {
		for _, l := range s.out.Namespaces[i].Listeners {
			pids = append(pids, l.PIDs...)
		}
	}
	s.endLimits(procs, pids)
}

// hostSysctl reads the knobs of the whole machine. Those below net are taken
// from the initial network namespace.
func (s *session) hostSysctl() map[string]string {
	for _, sp := range s.spaces {
		if sp.host {
			return sp.ns.Sysctls(hostSysctls)
		}
	}
	return nil
}

func (s *session) newNamespaces(procs []host.ProcSample) int {
	known := map[uint64]bool{}
	for inode := range host.NetNamespaces(s.procs) {
		known[inode] = true
	}
	fresh := 0
	for inode := range host.NetNamespaces(procs) {
		if !known[inode] {
			fresh++
		}
	}
	return fresh
}
