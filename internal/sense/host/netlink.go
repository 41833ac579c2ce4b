package host

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// netlinkHeader is sizeof(struct nlmsghdr) (netlink(7)).
const netlinkHeader = 16

var errNetlink = errors.New("malformed netlink message")

// A diagSocket is a netlink socket for dumps. Netlink sockets stay in the
// network namespace they were made in, whichever thread uses them.
type diagSocket struct {
	fd  int
	seq uint32
	buf []byte
}

// openNetlink makes a netlink socket in the namespace of the calling thread.
func openNetlink(protocol int) (*diagSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	// A kernel that does not answer must not hang us.
	tv := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		closeFD(fd)
		return nil, err
	}
	// netlink_dump() builds messages of at most 32 KiB (since 4.9), so nothing is cut.
	return &diagSocket{fd: fd, buf: make([]byte, 64<<10)}, nil
}

func (s *diagSocket) close() { closeFD(s.fd) }

// dump sends one dump request and calls visit with the payload of each answer,
// valid until visit returns. An interrupted dump (NLM_F_DUMP_INTR) is not an
// error: the answers are as good as any snapshot of moving sockets.
func (s *diagSocket) dump(kind uint16, request []byte, visit func(payload []byte)) error {
	s.seq++
	msg := make([]byte, netlinkHeader, netlinkHeader+len(request))
	msg = append(msg, request...)
	ne := binary.NativeEndian
	ne.PutUint32(msg[0:], uint32(len(msg)))
	ne.PutUint16(msg[4:], kind)
	ne.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	ne.PutUint32(msg[8:], s.seq)
	if err := unix.Sendto(s.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		n, err := unix.Read(s.fd, s.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		done, err := parseDump(s.buf[:n], s.seq, visit)
		if done || err != nil {
			return err
		}
	}
}

// parseDump walks the messages of one datagram. done is true at the end of the
// dump. Messages of another sequence number are left over from a dump that
// failed, and are skipped.
func parseDump(b []byte, seq uint32, visit func(payload []byte)) (done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= netlinkHeader {
		size := ne.Uint32(b)
		if size < netlinkHeader || uint64(size) > uint64(len(b)) {
			return false, errNetlink
		}
		payload := b[netlinkHeader:size]
		kind, from := ne.Uint16(b[4:]), ne.Uint32(b[8:])
		b = b[min(align4(int(size)), len(b)):]
		if from != seq {
			continue
		}
		switch kind {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			// Both may carry a negative errno.
			if len(payload) >= 4 {
				if code := int32(ne.Uint32(payload)); code < 0 && code > -4096 {
					return true, unix.Errno(-code)
				}
			}
			return true, nil
		case unix.NLMSG_NOOP, unix.NLMSG_OVERRUN:
		default:
			visit(payload)
		}
	}
	return false, nil
}

func align4(n int) int { return (n + 3) &^ 3 }

// nextAttr cuts the first netlink attribute off b. ok is false at the end, or
// when what is left is malformed.
func nextAttr(b []byte) (kind uint16, value, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < 4 || size > len(b) {
		return 0, nil, nil, false
	}
	// The top two bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
	kind = binary.NativeEndian.Uint16(b[2:]) &^ (3 << 14)
	return kind, b[4:size], b[min(align4(size), len(b)):], true
}

// diagSock returns the namespace's sock_diag socket, made at the first use.
// n.mu is held.
func (n *NetNS) diagSock() (*diagSocket, error) {
	if n.diag != nil {
		return n.diag, nil
	}
	err := n.Do(func() (err error) {
		n.diag, err = openNetlink(unix.NETLINK_SOCK_DIAG)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sock_diag socket: %w", err)
	}
	return n.diag, nil
}
