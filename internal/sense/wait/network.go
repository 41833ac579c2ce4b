package wait

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/sense/host"
)

// network is the sockets of one network namespace.
type network struct {
	inode   uint64
	sockets sockets // nil when the namespace could not be entered
	tcp     []host.QueueSample
	byInode map[uint64]int
	byEnds  map[connection]int
	own     map[netip.Addr]bool // addresses that sockets have here
	unix    []host.UnixSample
	byUnix  map[uint64]int
	asked   bool // whether unix was read
}

// connection is the two ends of a connection.
type connection struct{ local, remote netip.AddrPort }

const maxNetworks = 256 // network namespaces that are searched for another end

// networkOf is the network namespace of a process; nil when it is not known.
func (l *look) networkOf(p *process) *network {
	inode := l.netNS(p)
	if inode == 0 {
		l.miss(fmt.Sprintf("network namespace of process %d: not permitted (needs CAP_SYS_PTRACE)", p.pid))
		return nil
	}
	return l.network(inode, p.pid)
}

// network opens a network namespace through one of its processes and reads its
// TCP sockets, once.
func (l *look) network(inode uint64, pid int) *network {
	if n, ok := l.nets[inode]; ok {
		return n
	}
	n := &network{inode: inode, byInode: map[uint64]int{}, byEnds: map[connection]int{}, own: map[netip.Addr]bool{}, byUnix: map[uint64]int{}}
	l.nets[inode] = n
	s, err := l.open(pid)
	if err != nil {
		l.missNetwork(inode, err)
		return n
	}
	n.sockets = s
	err = s.Queues(func(q *host.QueueSample) {
		i := len(n.tcp)
		n.tcp = append(n.tcp, *q)
		if q.Inode != 0 {
			n.byInode[q.Inode] = i
		}
		if q.State != "LISTEN" {
			n.byEnds[connection{netip.AddrPortFrom(q.Src, q.SrcPort), netip.AddrPortFrom(q.Dst, q.DstPort)}] = i
		}
		n.own[q.Src] = true
	})
	if err != nil {
		l.missNetwork(inode, err)
	}
	return n
}

func (l *look) missNetwork(inode uint64, err error) {
	if !l.permission(fmt.Sprintf("sockets of network namespace %d", inode), err, "CAP_SYS_PTRACE and CAP_SYS_ADMIN") {
		l.miss(fmt.Sprintf("sockets of network namespace %d: %v", inode, err))
	}
}

// unixSockets reads the unix sockets of a namespace, once.
func (l *look) unixSockets(n *network) {
	if n.asked || n.sockets == nil {
		return
	}
	n.asked = true
	var err error
	if n.unix, err = n.sockets.UnixSockets(); err != nil {
		l.missNetwork(n.inode, err)
	}
	for i := range n.unix {
		if inode := n.unix[i].Inode; inode != 0 {
			n.byUnix[inode] = i
		}
	}
}

// otherNetworks is the namespaces of the host but one, in order of their
// numbers.
func (l *look) otherNetworks(but *network) []*network {
	all := l.opened().netns
	inodes := make([]uint64, 0, len(all))
	for inode := range all {
		if inode != but.inode {
			inodes = append(inodes, inode)
		}
	}
	slices.Sort(inodes)
	if len(inodes) > maxNetworks {
		l.miss(fmt.Sprintf("%d of the host's %d network namespaces were not searched", len(inodes)-maxNetworks, len(all)))
		inodes = inodes[:maxNetworks]
	}
	var out []*network
	for _, inode := range inodes {
		if n := l.network(inode, all[inode]); n.sockets != nil {
			out = append(out, n)
		}
	}
	return out
}

// listener is the socket that listens for connections to an address; nil when
// there is none.
func (n *network) listener(at netip.AddrPort) *host.QueueSample {
	var wild *host.QueueSample
	for i := range n.tcp {
		q := &n.tcp[i]
		switch {
		case q.State != "LISTEN" || q.SrcPort != at.Port():
		case q.Src == at.Addr():
			return q
		case q.Src.IsUnspecified():
			wild = q
		}
	}
	return wild
}
