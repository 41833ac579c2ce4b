package change

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A netlinkSocket is in the network namespace of the thread that made it.
type netlinkSocket struct {
	fd  int
	seq uint32
}

// message is one netlink message without its header.
type message struct {
	kind, flags uint16
	payload     []byte
}

func openNetlink(protocol int) (*netlinkSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.New("this kernel has no such netlink protocol")
	}
	if err != nil {
		return nil, err
	}
	tv := unix.Timeval{Sec: 5} // a kernel that does not answer must not hang us
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return nil, err
	}
	// Answers to a large batch come all at once.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	return &netlinkSocket{fd: fd}, nil
}

func (s *netlinkSocket) close() { unix.Close(s.fd) }

func (s *netlinkSocket) pack(m message) []byte {
	s.seq++
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(m.payload)+3)
	ne := binary.NativeEndian
	ne.PutUint32(b, uint32(unix.NLMSG_HDRLEN+len(m.payload)))
	ne.PutUint16(b[4:], m.kind)
	ne.PutUint16(b[6:], m.flags|unix.NLM_F_REQUEST)
	ne.PutUint32(b[8:], s.seq)
	b = append(b, m.payload...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func (s *netlinkSocket) send(b []byte) error {
	return unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// each calls visit with every message that has come. It stops when visit says so.
func (s *netlinkSocket) each(flags int, visit func(seq uint32, m message) (bool, error)) error {
	buf := make([]byte, 256<<10)
	for {
		n, _, err := unix.Recvfrom(s.fd, buf, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if more, err := messages(buf[:n], visit); err != nil || !more {
			return err
		}
	}
}

// messages calls visit with every message of a datagram, until it says no more.
func messages(b []byte, visit func(seq uint32, m message) (bool, error)) (more bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(ne.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errors.New("malformed netlink message")
		}
		m := message{ne.Uint16(b[4:]), ne.Uint16(b[6:]), b[unix.NLMSG_HDRLEN:size]}
		if more, err := visit(ne.Uint32(b[8:]), m); err != nil || !more {
			return false, err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return true, nil
}

// failure is the error in a message of kind NLMSG_ERROR or NLMSG_DONE.
func (m message) failure() error {
	if len(m.payload) >= 4 {
		if code := int32(binary.NativeEndian.Uint32(m.payload)); code < 0 {
			return unix.Errno(-code)
		}
	}
	return nil
}

// dump gives the payloads of all answers. One that something came into between
// is asked for again.
func (s *netlinkSocket) dump(m message) ([][]byte, error) {
	m.flags |= unix.NLM_F_DUMP
	for try := 0; ; try++ {
		var out [][]byte
		torn := false
		if err := s.send(s.pack(m)); err != nil {
			return nil, err
		}
		err := s.each(0, func(seq uint32, got message) (bool, error) {
			if seq != s.seq {
				return true, nil
			}
			torn = torn || got.flags&unix.NLM_F_DUMP_INTR != 0
			if got.kind == unix.NLMSG_DONE || got.kind == unix.NLMSG_ERROR {
				return false, got.failure()
			}
			out = append(out, append([]byte(nil), got.payload...))
			return true, nil
		})
		torn = torn || errors.Is(err, unix.EINTR)
		if !torn || try == 5 {
			return out, err
		}
	}
}

// ask sends one message and waits for its acknowledgement.
func (s *netlinkSocket) ask(m message) error {
	m.flags |= unix.NLM_F_ACK
	if err := s.send(s.pack(m)); err != nil {
		return err
	}
	return s.each(0, func(seq uint32, got message) (bool, error) {
		if seq != s.seq || got.kind != unix.NLMSG_ERROR {
			return true, nil
		}
		return false, got.failure()
	})
}

// batch makes all changes at once, or none (nfnetlink_rcv_batch). Without
// commit the kernel checks them all and then drops them, as nft --check has it
// do: it does so with a batch that has no end.
func (s *netlinkSocket) batch(messages []message, commit bool) error {
	mark := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	all := s.pack(message{kind: unix.NFNL_MSG_BATCH_BEGIN, payload: mark})
	first := s.seq
	for _, m := range messages {
		m.kind |= unix.NFNL_SUBSYS_NFTABLES << 8
		m.flags |= unix.NLM_F_ACK
		all = append(all, s.pack(m)...)
	}
	if commit {
		all = append(all, s.pack(message{kind: unix.NFNL_MSG_BATCH_END, payload: mark})...)
	}
	if err := s.send(all); err != nil {
		return err
	}
	answered := 0
	var failed error
	// The answers are there when the call returns.
	err := s.each(unix.MSG_DONTWAIT, func(seq uint32, m message) (bool, error) {
		if m.kind != unix.NLMSG_ERROR || seq < first {
			return true, nil
		}
		answered++
		if err := m.failure(); err != nil && failed == nil {
			failed = err
		}
		return true, nil
	})
	if failed != nil {
		return failed
	}
	if answered < len(messages) {
		return fmt.Errorf("%d of %d messages answered: %w", answered, len(messages), err)
	}
	return nil
}

// attr is a netlink attribute; its kind keeps the flag bits.
type attr struct {
	kind  uint16
	value []byte
}

const attrKind = 1<<14 - 1

// attrs cuts b into attributes. What is malformed ends it.
func attrs(b []byte) []attr {
	var out []attr
	ne := binary.NativeEndian
	for len(b) >= 4 {
		size := int(ne.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		out = append(out, attr{ne.Uint16(b[2:]), b[4:size]})
		b = b[min((size+3)&^3, len(b)):]
	}
	return out
}

// nfgenHeader is the size of struct nfgenmsg, which nfnetlink's messages begin with.
const nfgenHeader = 4

// nfgen is the family of a message of nfnetlink, and its attributes.
func nfgen(b []byte) (family byte, list []attr) {
	if len(b) < nfgenHeader {
		return unix.AF_UNSPEC, nil
	}
	return b[0], attrs(b[nfgenHeader:])
}

// find gives the value of the first attribute of a kind.
func find(list []attr, kind uint16) []byte {
	for _, a := range list {
		if a.kind&attrKind == kind {
			return a.value
		}
	}
	return nil
}

// put appends an attribute, of at most 65,531 bytes.
func put(b []byte, kind uint16, value []byte) []byte {
	ne := binary.NativeEndian
	b = ne.AppendUint16(b, uint16(4+len(value)))
	b = ne.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func cstring(s string) []byte { return append([]byte(s), 0) }

func goString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func be64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func fromBE64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func fromBE32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}
