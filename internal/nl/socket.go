package nl

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Timeout bounds each wait for the kernel: one that does not answer must not
// hang whoever asks.
const Timeout = 5 * time.Second

// Sizes of what is received at once. netlink_dump() builds messages of at most
// 32 KiB (since 4.9), so nothing of a dump is cut.
const (
	dumpBuffer  = 64 << 10
	batchBuffer = 256 << 10
)

// A Socket stays in the network namespace of the thread that opened it,
// whichever thread uses it. It is for one goroutine at a time.
type Socket struct {
	fd  int
	seq uint32
	buf []byte
}

// Open makes a socket of a protocol (unix.NETLINK_ROUTE…) in the network
// namespace of the calling thread. EPROTONOSUPPORT: the kernel has no such one.
func Open(protocol int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, err
	}
	tv := unix.NsecToTimeval(Timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Socket{fd: fd, buf: make([]byte, dumpBuffer)}, nil
}

// Close closes the socket.
func (s *Socket) Close() { unix.Close(s.fd) }

// ForBatches makes room for large batches, whose answers come all at once.
func (s *Socket) ForBatches() {
	s.buf = make([]byte, batchBuffer)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
}

// Pack is a message as it is sent, with the sequence number that its answers have.
func (s *Socket) Pack(m Message) (packed []byte, seq uint32) {
	s.seq++
	return m.pack(s.seq), s.seq
}

// Send sends packed messages to the kernel.
func (s *Socket) Send(packed []byte) error {
	return unix.Sendto(s.fd, packed, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// Receive calls visit with every message that comes, until visit wants no more.
// flags are those of recv(2).
func (s *Socket) Receive(flags int, visit func(seq uint32, m Message) (more bool, err error)) error {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if more, err := Messages(s.buf[:n], visit); err != nil || !more {
			return err
		}
	}
}

// Dump sends a dump request and calls visit with each answer, whose payload is
// valid until visit returns. Messages of another sequence number are left over
// from a dump that failed, and are skipped. interrupted says that something
// changed meanwhile (NLM_F_DUMP_INTR), which is no error: of what moves, the
// answers are as good as any.
func (s *Socket) Dump(kind uint16, request []byte, visit func(Message)) (interrupted bool, err error) {
	packed, seq := s.Pack(Message{Kind: kind, Flags: unix.NLM_F_DUMP, Payload: request})
	if err := s.Send(packed); err != nil {
		return false, err
	}
	d := dump{seq: seq, visit: visit}
	err = s.Receive(0, d.take)
	return d.interrupted, err
}

// dump is one while it comes.
type dump struct {
	seq         uint32
	interrupted bool
	visit       func(Message)
}

func (d *dump) take(seq uint32, m Message) (more bool, err error) {
	if seq != d.seq {
		return true, nil
	}
	d.interrupted = d.interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
	switch m.Kind {
	case unix.NLMSG_DONE, unix.NLMSG_ERROR:
		return false, m.Err()
	case unix.NLMSG_NOOP, unix.NLMSG_OVERRUN:
	default:
		d.visit(m)
	}
	return true, nil
}

// Ask sends one message and waits for its acknowledgement.
func (s *Socket) Ask(m Message) error {
	m.Flags |= unix.NLM_F_ACK
	packed, own := s.Pack(m)
	if err := s.Send(packed); err != nil {
		return err
	}
	return s.Receive(0, func(seq uint32, got Message) (bool, error) {
		if seq != own || got.Kind != unix.NLMSG_ERROR {
			return true, nil
		}
		return false, got.Err()
	})
}
