package change

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// A netlinkSocket is in the network namespace of the thread that made it.
type netlinkSocket struct{ *nl.Socket }

func openNetlink(protocol int) (*netlinkSocket, error) {
	sock, err := nl.Open(protocol)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.New("this kernel has no such netlink protocol")
	}
	if err != nil {
		return nil, err
	}
	sock.ForBatches()
	return &netlinkSocket{sock}, nil
}

// dump gives the payloads of all answers. One that something came into between
// is asked for again.
func (s *netlinkSocket) dump(kind uint16, request []byte) ([][]byte, error) {
	for try := 0; ; try++ {
		var out [][]byte
		interrupted, err := s.Dump(kind, request, func(m nl.Message) { out = append(out, bytes.Clone(m.Payload)) })
		if !interrupted && !errors.Is(err, unix.EINTR) || try == 5 {
			return out, err
		}
	}
}

// batch makes all changes at once, or none (nfnetlink_rcv_batch). Without
// commit the kernel checks them all and then drops them, as nft --check has it
// do: it does so with a batch that has no end.
func (s *netlinkSocket) batch(messages []nl.Message, commit bool) error {
	mark := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	all, first := s.Pack(nl.Message{Kind: unix.NFNL_MSG_BATCH_BEGIN, Payload: mark})
	for _, m := range messages {
		m.Kind |= unix.NFNL_SUBSYS_NFTABLES << 8
		m.Flags |= unix.NLM_F_ACK
		packed, _ := s.Pack(m)
		all = append(all, packed...)
	}
	if commit {
		end, _ := s.Pack(nl.Message{Kind: unix.NFNL_MSG_BATCH_END, Payload: mark})
		all = append(all, end...)
	}
	if err := s.Send(all); err != nil {
		return err
	}
	answered := 0
	var failed error
	// The answers are there when the call returns.
	err := s.Receive(unix.MSG_DONTWAIT, func(seq uint32, m nl.Message) (bool, error) {
		if m.Kind != unix.NLMSG_ERROR || seq < first {
			return true, nil
		}
		answered++
		if err := m.Err(); err != nil && failed == nil {
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

// attrs lists the attributes of b.
func attrs(b []byte) []attr {
	var out []attr
	for kind, value := range nl.RawAttrs(b) {
		out = append(out, attr{kind, value})
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
		if a.kind&nl.KindMask == kind {
			return a.value
		}
	}
	return nil
}

func cstring(s string) []byte { return append([]byte(s), 0) }

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
