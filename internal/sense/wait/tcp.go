package wait

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// onSocket is the wait for the other end of a socket.
func (l *look) onSocket(t *thread, o object, does direction) *link {
	if n := l.networkOf(t.p); n != nil {
		if i, ok := n.byInode[o.inode]; ok {
			return l.onTCP(t, o, n, &n.tcp[i], does)
		}
		l.unixSockets(n)
		if i, ok := n.byUnix[o.inode]; ok {
			return l.onUnix(t, o, n, &n.unix[i], does)
		}
	}
	protocol := l.protocol(t, o.fd)
	switch protocol {
	case "UDP", "UDPv6", "UDPLITE", "UDPLITEv6":
		return l.onUDP(t, o, does)
	case "TCP", "TCPv6", "UNIX", "UNIX-STREAM":
		// The socket was made in another namespace than the process lives in.
		if k := l.elsewhere(t, o, does); k != nil {
			return k
		}
	case "":
		if k := l.onUDP(t, o, does); k.end != observe.EndUnseen {
			return k
		}
	}
	k := ends(observe.WaitSocket, observe.EndIdle, "waits for a message on a socket (%s)", nameOr(protocol, "of a kind that is not told"))
	if does == writing {
		k.wants, k.end = observe.WantsRoom, observe.EndUnseen
		k.text = "waits until a socket takes more (" + nameOr(protocol, "of a kind that is not told") + "); its other end is not followed"
	}
	return k
}

// elsewhere looks for a socket in the namespaces that its process is not in.
func (l *look) elsewhere(t *thread, o object, does direction) *link {
	own := l.networkOf(t.p)
	if own == nil {
		own = &network{}
	}
	for _, n := range l.otherNetworks(own) {
		if i, ok := n.byInode[o.inode]; ok {
			return l.onTCP(t, o, n, &n.tcp[i], does)
		}
		l.unixSockets(n)
		if i, ok := n.byUnix[o.inode]; ok {
			return l.onUnix(t, o, n, &n.unix[i], does)
		}
	}
	return nil
}

// onTCP is the wait for the other end of a TCP connection.
func (l *look) onTCP(t *thread, o object, n *network, q *host.QueueSample, does direction) *link {
	local, remote := netip.AddrPortFrom(q.Src, q.SrcPort), netip.AddrPortFrom(q.Dst, q.DstPort)
	switch q.State {
	case "LISTEN":
		k := ends(observe.WaitAccept, observe.EndIdle, "ready for a new connection")
		k.object = fmt.Sprintf("fd %d → tcp, listening on %s", o.fd, local)
		return k
	case "SYN_SENT":
		return l.synSent(t, o, n, q)
	}
	served := n.listener(local) != nil
	k := &link{kind: observe.WaitTCP, wants: observe.WantsAnswer, sure: true}
	k.object = fmt.Sprintf("fd %d → tcp to %s", o.fd, remote)
	if served {
		k.object = fmt.Sprintf("fd %d → tcp from %s to port %d", o.fd, remote, local.Port())
	}
	switch {
	case does == writing:
		k.wants = observe.WantsRoom
		k.detail = fmt.Sprintf("%d bytes not taken by the other end", q.Send)
		if q.InfoKnown {
			k.quiet = q.LastSent
		}
	case served:
		k.wants, k.end = observe.WantsRequest, observe.EndIdle
		k.text = "ready for the next request of its client"
		if q.InfoKnown {
			k.quiet = q.LastReceived
		}
		return k
	default:
		if q.Send > 0 {
			k.detail = fmt.Sprintf("%d bytes of what was sent are not acknowledged", q.Send)
		}
		if q.InfoKnown {
			k.quiet = q.LastReceived
		}
	}
	if q.Unanswered > 0 {
		k.detail = join(k.detail, fmt.Sprintf("%d segments or probes in a row unanswered", q.Unanswered))
	}
	l.otherEnd(t, k, n, q, does)
	return k
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// otherEnd aims a link at whoever has the other end of a connection.
func (l *look) otherEnd(t *thread, k *link, n *network, q *host.QueueSample, does direction) {
	remote := netip.AddrPortFrom(q.Dst, q.DstPort)
	there, peer, several := l.peerOf(n, q)
	switch {
	case several:
		k.end = observe.EndUnseen
		k.text = fmt.Sprintf("several network namespaces of this host have a connection that could be the other end at %s", remote)
	case peer == nil && n.isHere(remote.Addr()):
		k.end = observe.EndNoHolder
		k.text = fmt.Sprintf("the other end at %s is on this host, but its socket is not there any more", remote)
	case peer == nil:
		k.end, k.remote = observe.EndRemote, remote.String()
		k.text = "the chain leaves this host: the other end is " + remote.String() + ", or what stands for it (address translation)"
	case peer.Inode == 0:
		l.notTaken(k, there, peer)
	default:
		other := object{kind: socketObject, inode: peer.Inode}
		l.aim(t, k, other, distinct(l.holdersOf(other)), does)
		if peer.Receive > 0 {
			k.detail = join(k.detail, fmt.Sprintf("%d bytes lie unread at the other end", peer.Receive))
		}
		if len(k.targets) == 0 {
			k.end = observe.EndNoHolder
			k.text = fmt.Sprintf("no process is seen that has the other end at %s%s", remote, l.perhapsHidden())
		}
	}
}

// notTaken is the wait for the other end of a connection that no process has:
// not accepted yet, or closed already.
func (l *look) notTaken(k *link, there *network, peer *host.QueueSample) {
	at := netip.AddrPortFrom(peer.Src, peer.SrcPort)
	listener := there.listener(at)
	if listener == nil || peer.State != "ESTABLISHED" && peer.State != "CLOSE_WAIT" {
		k.end = observe.EndNoHolder
		k.text = fmt.Sprintf("the other end at %s is closed, and only the kernel still has it (%s)", at, peer.State)
		return
	}
	k.wants = observe.WantsAccept
	l.aimListener(k, listener)
}

// aimListener aims a link at who should accept a connection.
func (l *look) aimListener(k *link, listener *host.QueueSample) {
	k.detail = join(k.detail, fmt.Sprintf("%d connections wait to be accepted, of %d that may", listener.Receive, listener.Send))
	l.aimAccept(k, object{kind: socketObject, inode: listener.Inode})
	if len(k.targets) == 0 {
		k.end = observe.EndNoHolder
		k.text = "no process is seen that has the listening socket" + l.perhapsHidden()
	}
}

// aimAccept makes those who hold a listening socket the targets.
func (l *look) aimAccept(k *link, listening object) {
	pids := distinct(l.holdersOf(listening))
	k.sure = k.sure && len(pids) == 1
	for i, pid := range pids {
		if i == maxBranches {
			k.cut = fmt.Sprintf("%d more processes have the listening socket", len(pids)-i)
			break
		}
		k.targets = append(k.targets, target{
			pid: pid, how: observe.HowPeer, why: "listens there, and has not accepted the connection", object: listening, does: accepting,
		})
	}
}

// distinct is the processes of holdings, in ascending order.
func distinct(list []holding) []int {
	var out []int
	for _, h := range list {
		if pid := int(h.pid); len(out) == 0 || out[len(out)-1] != pid {
			out = append(out, pid)
		}
	}
	return out
}

// isHere says whether an address is one of the namespace itself.
func (n *network) isHere(a netip.Addr) bool { return a.IsLoopback() || n.own[a] }

// peerOf finds the other end of a connection by its mirrored addresses: in the
// same namespace, or in exactly one other.
func (l *look) peerOf(n *network, q *host.QueueSample) (there *network, peer *host.QueueSample, several bool) {
	mirrored := connection{netip.AddrPortFrom(q.Dst, q.DstPort), netip.AddrPortFrom(q.Src, q.SrcPort)}
	if i, ok := n.byEnds[mirrored]; ok {
		return n, &n.tcp[i], false
	}
	if n.isHere(q.Dst) {
		return nil, nil, false
	}
	for _, other := range l.otherNetworks(n) {
		if i, ok := other.byEnds[mirrored]; ok {
			if peer != nil {
				return nil, nil, true
			}
			there, peer = other, &other.tcp[i]
		}
	}
	return there, peer, false
}

// synSent is the wait of connect(2) for the other end's answer.
func (l *look) synSent(t *thread, o object, n *network, q *host.QueueSample) *link {
	remote := netip.AddrPortFrom(q.Dst, q.DstPort)
	k := &link{kind: observe.WaitTCP, wants: observe.WantsAccept, object: fmt.Sprintf("fd %d → tcp to %s", o.fd, remote)}
	k.detail = fmt.Sprintf("no answer to the SYN, sent %d times", q.Unanswered+1)
	if n.isHere(remote.Addr()) {
		if listener := n.listener(remote); listener != nil {
			l.aimListener(k, listener)
			return k
		}
	}
	for _, other := range l.otherNetworks(n) {
		if listener := other.listener(remote); listener != nil && other.own[remote.Addr()] && !n.isHere(remote.Addr()) {
			l.aimListener(k, listener)
			return k
		}
	}
	k.end, k.remote = observe.EndRemote, remote.String()
	k.text = fmt.Sprintf("the chain leaves this host: %s does not answer the SYN", remote)
	return k
}

// connecting is the wait in connect(2).
func (l *look) connecting(t *thread, fd int) *link {
	o := l.object(t, fd)
	if o.kind != socketObject {
		return l.onObject(t, o, writing)
	}
	if n := l.networkOf(t.p); n != nil {
		if i, ok := n.byInode[o.inode]; ok {
			q := &n.tcp[i]
			if q.State == "SYN_SENT" {
				k := l.synSent(t, o, n, q)
				k.reader = writing
				return k
			}
			return l.onTCP(t, o, n, q, reading)
		}
		l.unixSockets(n)
		if i, ok := n.byUnix[o.inode]; ok {
			return l.connectingUnix(t, o, n, &n.unix[i])
		}
	}
	k := ends(observe.WaitSocket, observe.EndUnseen, "waits for a connection to be made; to what could not be read")
	k.wants, k.object = observe.WantsAccept, o.String()
	return k
}

// accepting is the wait in accept(2).
func (l *look) accepting(t *thread, fd int) *link {
	o := l.object(t, fd)
	k := ends(observe.WaitAccept, observe.EndIdle, "ready for a new connection")
	k.object, k.reader = o.String(), accepting
	if o.kind != socketObject {
		return k
	}
	n := l.networkOf(t.p)
	if n == nil {
		return k
	}
	if i, ok := n.byInode[o.inode]; ok {
		k.object = fmt.Sprintf("fd %d → tcp, listening on %s", fd, netip.AddrPortFrom(n.tcp[i].Src, n.tcp[i].SrcPort))
		return k
	}
	l.unixSockets(n)
	if i, ok := n.byUnix[o.inode]; ok && n.unix[i].Name != "" {
		k.object = fmt.Sprintf("fd %d → unix, listening on %s", fd, n.unix[i].Name)
	}
	return k
}

// stuckSince is how long a queue of bytes to send must not have moved before it
// is called stuck: longer than the longest that a receiver delays its answer.
const stuckSince = 200 * time.Millisecond
