package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// SocketSample is one TCP socket.
type SocketSample struct {
	State            string // "ESTABLISHED", "SYN_RECV", "TIME_WAIT"… as in include/net/tcp_states.h
	Family           uint8  // AF_INET or AF_INET6 of the socket itself
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Inode            uint64 // 0 in SYN_RECV, TIME_WAIT, and when the process has closed it or not yet accepted it
}

// ListenerSample is one listening stream socket at one moment.
type ListenerSample struct {
	Proto string     // "tcp", "tcp6", "unix"
	Addr  netip.Addr // tcp
	Port  uint16     // tcp
	Path  string     // unix; an abstract name begins with "@"
	Inode uint64
	Queue uint32 // connections waiting for accept()
	Limit uint32 // backlog in force; the kernel refuses when Queue > Limit
	Drops uint64 // sk_drops since the socket was made; 32 bits in the kernel. Zero for unix
}

// TCP states (include/net/tcp_states.h).
const (
	tcpListen    = 10
	tcpLastState = 12 // NEW_SYN_RECV; 13 is BOUND_INACTIVE (6.8), sockets that are only bound
)

// tcpStates is the states' names by number. Request sockets are NEW_SYN_RECV
// inside the kernel, and a listener's SYN queue to everyone else.
var tcpStates = [...]string{
	"UNKNOWN", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT",
	"CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "SYN_RECV",
}

// Layout of include/uapi/linux/inet_diag.h and sock_diag.h.
const (
	sockDiagByFamily   = 20 // SOCK_DIAG_BY_FAMILY
	inetDiagReqSize    = 56 // struct inet_diag_req_v2
	inetDiagMsgSize    = 72 // struct inet_diag_msg
	inetDiagSKMeminfo  = 7  // attribute INET_DIAG_SKMEMINFO, u32[SK_MEMINFO_VARS]
	skMeminfoDrops     = 8  // index SK_MEMINFO_DROPS
	diagAllStates      = 1<<(tcpLastState+1) - 2
	diagListenOnly     = 1 << tcpListen
	diagReqFamily      = 0
	diagReqProtocol    = 1
	diagReqExt         = 2
	diagReqStates      = 4
	diagMsgState       = 1
	diagMsgSrcPort     = 4
	diagMsgDstPort     = 6
	diagMsgSrc         = 8
	diagMsgDst         = 24
	diagMsgRQueue      = 56
	diagMsgWQueue      = 60
	diagMsgInode       = 68
	diagExtSKMeminfo   = 1 << (inetDiagSKMeminfo - 1)
	diagAddrBytesInet4 = 4
	diagAddrBytesInet6 = 16
)

// Sockets calls visit with each TCP socket of the namespace, IPv4 first, in all
// states (sockets that are only bound are not shown). The sample is reused:
// visit must copy what it keeps. IPv4-mapped addresses come as IPv4. Sockets
// that are opened and closed meanwhile may be missed or seen twice.
func (n *NetNS) Sockets(visit func(*SocketSample)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.diagSock()
	if err != nil {
		return err
	}
	var sample SocketSample
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dumpSockets(s, inetDiagRequest(family, diagAllStates, 0), func(b []byte) {
			if parseSocket(b, &sample) {
				visit(&sample)
			}
		})
		if err != nil && !noFamily(family, err) {
			return n.diagFailed("tcp sockets", err)
		}
	}
	return nil
}

// Listeners is the listening stream sockets of the namespace: TCP of both
// families, and unix. On an error, those that could be read come with it.
func (n *NetNS) Listeners() ([]ListenerSample, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.diagSock()
	if err != nil {
		return nil, err
	}
	var out []ListenerSample
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dumpSockets(s, inetDiagRequest(family, diagListenOnly, diagExtSKMeminfo), func(b []byte) {
			if l, ok := parseListener(b); ok {
				out = append(out, l)
			}
		})
		if err != nil && !noFamily(family, err) {
			return out, n.diagFailed("tcp listeners", err)
		}
	}
	err = dumpSockets(s, unixDiagRequest(), func(b []byte) {
		if l, ok := parseUnixListener(b); ok {
			out = append(out, l)
		}
	})
	if err != nil {
		return out, n.diagFailed("unix listeners", err)
	}
	return out, nil
}

// noFamily says whether err means that the kernel runs without IPv6.
func noFamily(family uint8, err error) bool {
	return family == unix.AF_INET6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL))
}

// diagFailed drops the socket, whose answers may be out of step, and names the
// usual cause of ENOENT. n.mu is held.
func (n *NetNS) diagFailed(what string, err error) error {
	n.diag.Close()
	n.diag = nil
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%s: kernel without this part of sock_diag: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// inetDiagRequest is a struct inet_diag_req_v2 for TCP: states is a mask of
// 1<<state, ext of 1<<(attribute-1).
func inetDiagRequest(family uint8, states uint32, ext uint8) []byte {
	b := make([]byte, inetDiagReqSize)
	b[diagReqFamily], b[diagReqProtocol], b[diagReqExt] = family, unix.IPPROTO_TCP, ext
	binary.NativeEndian.PutUint32(b[diagReqStates:], states)
	return b
}

// parseSocket reads a struct inet_diag_msg into s; false when it is not one.
func parseSocket(b []byte, s *SocketSample) bool {
	if len(b) < inetDiagMsgSize || (b[0] != unix.AF_INET && b[0] != unix.AF_INET6) {
		return false
	}
	s.Family = b[0]
	s.State = tcpStates[0]
	if state := int(b[diagMsgState]); state < len(tcpStates) {
		s.State = tcpStates[state]
	}
	s.Src, s.Dst = diagAddr(b[0], b[diagMsgSrc:]), diagAddr(b[0], b[diagMsgDst:])
	s.SrcPort = binary.BigEndian.Uint16(b[diagMsgSrcPort:])
	s.DstPort = binary.BigEndian.Uint16(b[diagMsgDstPort:])
	s.Inode = uint64(binary.NativeEndian.Uint32(b[diagMsgInode:]))
	return true
}

// diagAddr is one of the two 16-byte addresses of a struct inet_diag_sockid.
func diagAddr(family uint8, b []byte) netip.Addr {
	if family == unix.AF_INET {
		return netip.AddrFrom4([diagAddrBytesInet4]byte(b))
	}
	return netip.AddrFrom16([diagAddrBytesInet6]byte(b)).Unmap()
}

// parseListener reads a struct inet_diag_msg of a listening socket. For those
// the queues are the accept queue and its limit (tcp_diag_get_info).
func parseListener(b []byte) (ListenerSample, bool) {
	var s SocketSample
	if !parseSocket(b, &s) || b[diagMsgState] != tcpListen {
		return ListenerSample{}, false
	}
	l := ListenerSample{
		Proto: "tcp", Addr: s.Src, Port: s.SrcPort, Inode: s.Inode,
		Queue: binary.NativeEndian.Uint32(b[diagMsgRQueue:]),
		Limit: binary.NativeEndian.Uint32(b[diagMsgWQueue:]),
	}
	if s.Family == unix.AF_INET6 {
		l.Proto = "tcp6"
	}
	for kind, value := range nl.Attrs(b[inetDiagMsgSize:]) {
		if kind == inetDiagSKMeminfo && len(value) >= 4*(skMeminfoDrops+1) {
			l.Drops = uint64(binary.NativeEndian.Uint32(value[4*skMeminfoDrops:]))
		}
	}
	return l, true
}
