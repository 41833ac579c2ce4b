package watch

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// space is one network namespace while it is watched.
type space struct {
	ns        *host.NetNS
	inode     uint64
	pid       int    // 0 = no process lives in it
	name      string // by which ip-netns(8) knows it
	path      string // a file that leads to it, and stays when processes end
	late      bool   // there was no time to read it when the window began
	host      bool
	listeners map[uint64]*listener // by socket inode
	ports     map[uint16]bool      // TCP ports somebody listens at
	groups    map[groupKey]*group
	peers     map[peerKey]map[uint64]bool // sockets that call, by whom they call
	addrs     []netip.Addr

	counters  map[string]uint64
	devices   []observe.Interface
	conntrack host.ConntrackSample
	tracked   bool
	peak      uint64

	udpDrops map[uint64]uint64 // by socket inode, at the beginning
	udp      []host.UDPSample  // that dropped something
	way      wayThrough
}

// listener is one listening socket over the window.
type listener struct {
	first, last host.ListenerSample
	sum         uint64
	peak        uint32
	limit       uint32
	samples     int
	full        int
	clients     int
	since       time.Time // zero when it was there at the beginning
}

type groupKey struct {
	served bool
	local  netip.Addr
	remote netip.Addr
	port   uint16
}

// group counts sockets that share an end, in the snapshot with most of them.
type group struct {
	states map[string]int
	total  int
	inodes []uint64

	now      map[string]int
	nowTotal int
}

type peerKey struct {
	addr netip.Addr
	port uint16
}

const (
	maxGroups      = 2000 // of one namespace, in the Observation
	maxGroupInodes = 16
	// Of one destination: many, because the clients of a service share it and
	// the busiest one may have few sockets among many.
	maxPeerInodes = 4096
	maxClientPIDs = 64
)

// sysctls are the knobs that causes look at, as the namespace sees them.
var sysctls = []string{
	"net.core.somaxconn", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports",
	"net.ipv4.tcp_tw_reuse", "net.ipv4.tcp_tw_reuse_delay", "net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_max_tw_buckets", "net.ipv4.tcp_max_syn_backlog", "net.ipv4.tcp_syncookies",
	"net.ipv4.tcp_abort_on_overflow", "net.ipv4.tcp_timestamps",
	"net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem", "net.ipv4.tcp_early_retrans", "net.ipv4.tcp_recovery", "net.ipv4.tcp_sack",
	"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_mtu_probing", "net.ipv4.conf.all.rp_filter", "net.core.rmem_max", "net.core.rmem_default", "net.unix.max_dgram_qlen",
	"net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_buckets",
	"net.netfilter.nf_conntrack_tcp_timeout_established", "net.netfilter.nf_conntrack_tcp_loose",
}

// hostSysctls are knobs that exist once for the machine.
var hostSysctls = []string{
	"fs.file-max", "fs.nr_open", "net.netfilter.nf_conntrack_max",
	"net.core.netdev_max_backlog", "vm.swappiness", "net.ipv4.tcp_mem", "net.ipv4.tcp_max_orphans",
	"net.ipv4.neigh.default.gc_thresh2", "net.ipv4.neigh.default.gc_thresh3",
	"vm.max_map_count", "vm.overcommit_memory", "fs.aio-nr", "fs.aio-max-nr", "fs.file-nr", "fs.inotify.max_user_watches", "fs.inotify.max_user_instances",
	"vm.dirty_ratio", "vm.dirty_bytes", "kernel.shmmni", "kernel.sem",
}

// openSpaces opens every network namespace in which something listens.
func (s *session) openSpaces() {
	spaces := host.NetNamespaces(s.procs)
	inodes := make([]uint64, 0, len(spaces))
	for inode := range spaces {
		inodes = append(inodes, inode)
	}
	slices.Sort(inodes)
	for _, inode := range inodes {
		ns, err := s.fs.OpenNetNS(spaces[inode])
		if err != nil {
			s.partialGap(observe.KindListeners, inode, "network namespace", err)
			continue
		}
		sp := &space{
			ns: ns, inode: inode, pid: spaces[inode], host: inode == s.out.Host.NetNS,
			listeners: map[uint64]*listener{}, ports: map[uint16]bool{},
			groups: map[groupKey]*group{}, peers: map[peerKey]map[uint64]bool{},
		}
		if err := sp.sampleListeners(s); err != nil {
			s.partialGap(observe.KindListeners, inode, "network namespace", err)
			ns.Close()
			continue
		}
		s.spaces = append(s.spaces, sp)
	}
	s.findRouters()
	if len(s.spaces) == 0 {
		s.gap(observe.KindListeners, "", errors.New("no network namespace could be read (needs CAP_SYS_PTRACE and CAP_SYS_ADMIN)"))
	}
}

// begin takes the first readings of the namespace.
func (sp *space) begin(s *session) {
	var err error
	if sp.counters, err = sp.ns.Counters(); err != nil {
		s.partialGap(observe.KindCounters, sp.inode, "netstat", err)
	}
	if sp.devices, err = sp.ns.Interfaces(); err != nil {
		s.partialGap(observe.KindCounters, sp.inode, "interfaces", err)
	}
	sp.addrs = sp.addresses()
	if sp.pid != 0 {
		sp.udpBegin(s)
	}
	sp.beginWay(s)
	switch sp.conntrack, err = sp.ns.Conntrack(); {
	case err == nil, errors.Is(err, host.ErrNoConntrack):
		sp.tracked = true // loaded in the window, its counters begin at nothing
	default:
		s.partialGap(observe.KindConntrack, sp.inode, "conntrack", err)
	}
}

// addresses lists the namespace's own addresses but loopback.
func (sp *space) addresses() []netip.Addr {
	var out []netip.Addr
	// Without them a caller in another namespace is not recognised; nothing
	// else depends on it.
	_ = sp.ns.Do(func() error {
		all, err := net.InterfaceAddrs()
		for _, a := range all {
			if p, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(p.IP); ok && !addr.Unmap().IsLoopback() {
					out = append(out, addr.Unmap())
				}
			}
		}
		return err
	})
	return out
}

func (sp *space) sampleListeners(s *session) error {
	samples, err := sp.ns.Listeners()
	for _, ls := range samples {
		l := sp.listeners[ls.Inode]
		if l == nil {
			l = &listener{first: ls}
			if !s.out.Window.Start.IsZero() {
				l.since = time.Now()
			}
			sp.listeners[ls.Inode] = l
			if ls.Port != 0 {
				sp.ports[ls.Port] = true
			}
		}
		l.last = ls
		l.limit = ls.Limit
		l.samples++
		l.sum += uint64(ls.Queue)
		l.peak = max(l.peak, ls.Queue)
		if ls.Queue > ls.Limit {
			l.full++
		}
	}
	return err
}

func (sp *space) sampleConntrack() {
	if !sp.tracked {
		return
	}
	if ct, err := sp.ns.Conntrack(); err == nil {
		sp.peak = max(sp.peak, ct.Entries)
	}
}

// sampleSockets counts every TCP socket of the namespace once.
func (sp *space) sampleSockets(s *session) {
	for _, g := range sp.groups {
		g.now, g.nowTotal = nil, 0
	}
	clients := map[uint16]int{}
	err := s.tcpSockets(sp.ns, func(sock *host.SocketSample) {
		if sock.State == "LISTEN" {
			return
		}
		k := groupKey{port: sock.DstPort, local: sock.Src, remote: sock.Dst}
		if sp.ports[sock.SrcPort] {
			k = groupKey{served: true, port: sock.SrcPort}
			if sock.State == "ESTABLISHED" {
				clients[sock.SrcPort]++
			}
		}
		g := sp.groups[k]
		if g == nil {
			g = &group{}
			sp.groups[k] = g
		}
		if g.now == nil {
			g.now = map[string]int{}
		}
		g.now[sock.State]++
		g.nowTotal++
		if sock.Inode != 0 && !k.served {
			if len(g.inodes) < maxGroupInodes {
				g.inodes = append(g.inodes, sock.Inode)
			}
			sp.notePeer(peerKey{sock.Dst, sock.DstPort}, sock.Inode)
		}
	})
	if err != nil {
		s.partialGap(observe.KindSockets, sp.inode, "sockets", err)
	}
	for k, g := range sp.groups {
		if g.nowTotal > g.total {
			g.states, g.total = g.now, g.nowTotal
		}
		if g.total == 0 {
			delete(sp.groups, k)
		}
	}
	for _, l := range sp.listeners {
		l.clients = max(l.clients, clients[l.first.Port])
	}
}

func (sp *space) notePeer(k peerKey, inode uint64) {
	m := sp.peers[k]
	if m == nil {
		m = map[uint64]bool{}
		sp.peers[k] = m
	}
	if len(m) < maxPeerInodes {
		m[inode] = true
	}
}

// wantedSockets adds the sockets whose owners matter.
func (sp *space) wantedSockets(wanted map[uint64]bool) {
	for inode := range sp.listeners {
		wanted[inode] = true
	}
	for i := range sp.udp {
		wanted[sp.udp[i].Inode] = true
	}
	for _, g := range sp.groups {
		for _, inode := range g.inodes {
			wanted[inode] = true
		}
	}
	for _, inodes := range sp.peers {
		for inode := range inodes {
			wanted[inode] = true
		}
	}
}

// quiet says whether the namespace has no TCP socket but its listeners. A
// dump of its sockets walks the hash table of the whole host: not for nothing.
func (sp *space) quiet() bool {
	st, err := sp.ns.SockStat()
	if err != nil {
		return false
	}
	tcp := 0
	for _, l := range sp.listeners {
		if l.first.Port != 0 {
			tcp++
		}
	}
	return st["TCP.inuse"]+st["TCP6.inuse"]+st["TCP.tw"]+st["TCP.orphan"] <= int64(tcp)
}

// finish turns the namespace into its part of the Observation.
func (sp *space) finish(s *session, owners map[uint64][]int) observe.NetNS {
	out := observe.NetNS{Inode: sp.inode, Host: sp.host, PID: sp.pid, Name: sp.name, Path: sp.path, Sysctl: sp.ns.Sysctls(sysctls)}
	if len(out.Sysctl) == 0 {
		s.partialGap(observe.KindSysctl, sp.inode, "sysctl", errors.New("no value could be read"))
	}
	for _, a := range sp.addrs {
		out.Addrs = append(out.Addrs, a.String())
	}
	if now, err := sp.ns.Counters(); err == nil && !sp.late {
		out.Counters = host.CountersBetween(sp.counters, now)
	}
	if now, err := sp.ns.Interfaces(); err == nil && !sp.late {
		out.Interfaces = host.InterfacesBetween(sp.devices, now)
	}
	if st, err := sp.ns.SockStat(); err == nil {
		out.SockStat = st
	}
	if sp.tracked {
		if now, err := sp.ns.Conntrack(); err == nil {
			out.Conntrack = &observe.Conntrack{
				Entries: now.Entries, PeakEntries: max(sp.peak, now.Entries, sp.conntrack.Entries), Max: now.Max,
				Drop:          increase(sp.conntrack.Drop, now.Drop),
				EarlyDrop:     increase(sp.conntrack.EarlyDrop, now.EarlyDrop),
				InsertFailed:  increase(sp.conntrack.InsertFailed, now.InsertFailed),
				ClashResolved: increase(sp.conntrack.ClashResolved, now.ClashResolved),
				Invalid:       increase(sp.conntrack.Invalid, now.Invalid),
			}
		}
	}
	sp.finishWay(s, &out)
	out.Listeners = sp.finishListeners(s, owners)
	out.Sockets = sp.finishGroups(s, owners)
	out.UDP = sp.finishUDP(owners)
	return out
}

// increase is b-a, for counters that the kernel keeps in 32 bits for each CPU.
func increase(a, b uint64) uint64 {
	if b < a {
		return 0
	}
	return b - a
}

func (sp *space) finishListeners(s *session, owners map[uint64][]int) []observe.Listener {
	var out []observe.Listener
	for inode, l := range sp.listeners {
		o := observe.Listener{
			Proto: l.first.Proto, Port: int(l.first.Port), Path: l.first.Path, Inode: inode,
			Limit: l.limit, QueuePeak: l.peak, Samples: l.samples, FullSamples: l.full, Clients: l.clients,
			// sk_drops is a 32-bit counter: the difference survives its wrap.
			Drops: uint64(uint32(l.last.Drops) - uint32(l.first.Drops)),
		}
		if l.first.Proto != "unix" {
			o.Addr = l.first.Addr.String()
		}
		if !l.since.IsZero() {
			o.Since = l.since.Sub(s.out.Window.Start).Seconds()
		}
		if l.samples > 0 {
			o.QueueMean = float64(l.sum) / float64(l.samples)
		}
		pids := owners[inode]
		o.PIDs = slices.Clone(pids[:min(len(pids), 64)])
		if len(pids) > 0 {
			o.PID = pids[0]
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b observe.Listener) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Addr, b.Addr),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Inode, b.Inode))
	})
	return out
}

func (sp *space) finishGroups(s *session, owners map[uint64][]int) []observe.SocketGroup {
	var out []observe.SocketGroup
	for k, g := range sp.groups {
		o := observe.SocketGroup{Side: "called", Port: int(k.port), States: g.states}
		if k.served {
			o.Side = "served"
		} else {
			o.Addr, o.Remote, o.LocalPorts = k.local.String(), k.remote.String(), g.total
		}
		for _, inode := range g.inodes {
			o.PIDs = append(o.PIDs, owners[inode]...)
		}
		slices.Sort(o.PIDs)
		o.PIDs = slices.Compact(o.PIDs)
		o.PIDs = o.PIDs[:min(len(o.PIDs), maxGroupInodes)]
		out = append(out, o)
	}
	total := func(g *observe.SocketGroup) int {
		n := 0
		for _, c := range g.States {
			n += c
		}
		return n
	}
	slices.SortFunc(out, func(a, b observe.SocketGroup) int {
		return cmp.Or(cmp.Compare(total(&b), total(&a)), cmp.Compare(a.Side, b.Side), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Remote, b.Remote), cmp.Compare(a.Addr, b.Addr))
	})
	if len(out) > maxGroups {
		s.lose("socket groups beyond 2,000 in a namespace", int64(len(out)-maxGroups))
		out = out[:maxGroups]
	}
	return out
}
