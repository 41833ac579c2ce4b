package wait

import (
	"bytes"
	"fmt"
	"net/netip"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// maxUDP bounds what is read of a table of UDP sockets, bytes: at 128 a socket.
const maxUDP = 8 << 20

// onUDP is the wait for a datagram, or for room to send one.
func (l *look) onUDP(t *thread, o object, does direction) *link {
	for _, name := range []string{"udp", "udp6"} {
		b, err := budget.Head(fmt.Sprintf("%s/%d/net/%s", l.fs.Proc, t.p.pid, name), maxUDP)
		if err != nil {
			continue
		}
		s, found := findUDP(b, func(s udpSocket) bool { return s.inode == o.inode && o.inode != 0 })
		if !found {
			continue
		}
		return l.udpLink(t, o, s, b, does)
	}
	return ends(observe.WaitUDP, observe.EndUnseen, "waits on a UDP socket that is not seen")
}

func (l *look) udpLink(t *thread, o object, s udpSocket, table []byte, does direction) *link {
	switch {
	case does == writing:
		k := ends(observe.WaitUDP, observe.EndKernel, "waits until the network interface takes more")
		k.wants, k.object = observe.WantsRoom, fmt.Sprintf("fd %d → udp from %s", o.fd, s.local)
		return k
	case s.remote.Port() == 0:
		k := ends(observe.WaitUDP, observe.EndIdle, "ready for a datagram")
		k.object = fmt.Sprintf("fd %d → udp, bound to %s", o.fd, s.local)
		return k
	}
	k := &link{kind: observe.WaitUDP, wants: observe.WantsAnswer, object: fmt.Sprintf("fd %d → udp to %s", o.fd, s.remote)}
	if s.remote.Addr().IsLoopback() {
		there, found := findUDP(table, func(other udpSocket) bool {
			return other.local.Port() == s.remote.Port() && (other.local.Addr() == s.remote.Addr() || other.local.Addr().IsUnspecified())
		})
		if found {
			other := object{kind: socketObject, inode: there.inode}
			l.aim(t, k, other, distinct(l.holdersOf(other)), reading)
		}
		if len(k.targets) == 0 {
			k.end, k.text = observe.EndNoHolder, "no process is seen that has the other end"
		}
		return k
	}
	k.end, k.remote = observe.EndRemote, s.remote.String()
	k.text = "the chain leaves this host: no datagram of " + s.remote.String()
	return k
}

// udpSocket is one line of /proc/PID/net/udp.
type udpSocket struct {
	local, remote netip.AddrPort
	inode         uint64
}

// findUDP finds the first socket that matches in /proc/PID/net/udp or udp6
// (udp4_format_sock, net/ipv4/udp.c): "sl local remote st queues tr:tm retr uid
// timeout inode …".
func findUDP(b []byte, match func(udpSocket) bool) (udpSocket, bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		f := bytes.Fields(line)
		if len(f) < 10 {
			continue
		}
		var s udpSocket
		var ok1, ok2, ok3 bool
		s.local, ok1 = host.HexAddrPort(f[1])
		s.remote, ok2 = host.HexAddrPort(f[2])
		s.inode, ok3 = host.ParseUint(f[9])
		if ok1 && ok2 && ok3 && match(s) {
			return s, true
		}
	}
	return udpSocket{}, false
}
