package host

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// QueueSample is one TCP socket with what lies in its queues.
type QueueSample struct {
	SocketSample
	// Receive is bytes not read, Send bytes not acknowledged. Of a listener they
	// are connections waiting for accept(), and the limit of those.
	Receive, Send uint32

	InfoKnown    bool          // the fields below; not in LISTEN, SYN_RECV, TIME_WAIT
	Unanswered   int           // retransmissions or window probes in a row without an answer
	LastSent     time.Duration // since data was sent last, also again; since boot when never
	LastReceived time.Duration // since data was received last; since boot when never
	// NeverSent and NeverReceived: no data was sent, received yet (since Linux 4.6;
	// false before).
	NeverSent, NeverReceived bool
}

// Layout of struct tcp_info (include/uapi/linux/tcp.h), of which old kernels
// have a shorter one.
const (
	inetDiagInfo        = 2 // attribute INET_DIAG_INFO, struct tcp_info
	diagExtInfo         = 1 << (inetDiagInfo - 1)
	tcpInfoRetransmits  = 2  // u8
	tcpInfoProbes       = 3  // u8
	tcpInfoLastDataSent = 44 // u32, ms
	tcpInfoLastDataRecv = 52 // u32, ms
	tcpInfoLeast        = 60
	tcpInfoDataSegsIn   = 152 // u32
	tcpInfoDataSegsOut  = 156 // u32
)

// Queues calls visit with each TCP socket of the namespace and its queues, IPv4
// first, in all states. The sample is reused: visit must copy what it keeps.
// Some three times the price of Sockets.
func (n *NetNS) Queues(visit func(*QueueSample)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, err := n.diagSock()
	if err != nil {
		return err
	}
	var sample QueueSample
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := dumpSockets(s, inetDiagRequest(family, diagAllStates, diagExtInfo), func(b []byte) {
			if parseQueues(b, &sample) {
				visit(&sample)
			}
		})
		if err != nil && !noFamily(family, err) {
			return n.diagFailed("tcp sockets", err)
		}
	}
	return nil
}

// parseQueues reads a struct inet_diag_msg and its attributes into q; false
// when it is not one.
func parseQueues(b []byte, q *QueueSample) bool {
	*q = QueueSample{}
	if !parseSocket(b, &q.SocketSample) {
		return false
	}
	q.Receive = binary.NativeEndian.Uint32(b[diagMsgRQueue:])
	q.Send = binary.NativeEndian.Uint32(b[diagMsgWQueue:])
	for kind, value := range nl.Attrs(b[inetDiagMsgSize:]) {
		if kind == inetDiagInfo && len(value) >= tcpInfoLeast && b[diagMsgState] != tcpListen {
			q.InfoKnown = true
			q.Unanswered = int(max(value[tcpInfoRetransmits], value[tcpInfoProbes]))
			q.LastSent = milliseconds(value[tcpInfoLastDataSent:])
			q.LastReceived = milliseconds(value[tcpInfoLastDataRecv:])
			if len(value) >= tcpInfoDataSegsOut+4 {
				q.NeverSent = binary.NativeEndian.Uint32(value[tcpInfoDataSegsOut:]) == 0
				q.NeverReceived = binary.NativeEndian.Uint32(value[tcpInfoDataSegsIn:]) == 0
			}
		}
	}
	return true
}

func milliseconds(b []byte) time.Duration {
	return time.Duration(binary.NativeEndian.Uint32(b)) * time.Millisecond
}
