package nl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

func TestDumpEnds(t *testing.T) {
	msg := func(kind uint16, seq uint32, payload ...byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(payload)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = binary.NativeEndian.AppendUint16(b, 0)
		b = binary.NativeEndian.AppendUint32(b, seq)
		b = binary.NativeEndian.AppendUint32(b, 0)
		return append(b, payload...)
	}
	code := func(e unix.Errno) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e))) }
	for _, c := range []struct {
		name string
		in   []byte
		done bool
		err  error
		seen int
	}{
		{"two and done", append(append(msg(20, 7, 1, 2, 3, 4), msg(20, 7)...), msg(unix.NLMSG_DONE, 7, 0, 0, 0, 0)...), true, nil, 2},
		{"not done yet", msg(20, 7), false, nil, 1},
		{"of another request", msg(20, 6), false, nil, 0},
		{"refused", msg(unix.NLMSG_ERROR, 7, code(unix.EPERM)...), true, unix.EPERM, 0},
		{"done with an error", msg(unix.NLMSG_DONE, 7, code(unix.ENOENT)...), true, unix.ENOENT, 0},
		{"cut", msg(20, 7, 1, 2, 3, 4)[:18], true, ErrMalformed, 0},
		{"odd length at the end", msg(20, 7, 1), false, nil, 1},
		{"empty", nil, false, nil, 0},
	} {
		seen := 0
		d := dump{seq: 7, visit: func(Message) { seen++ }}
		more, err := Messages(c.in, d.take)
		if done := !more; done != c.done || err != c.err || seen != c.seen {
			t.Errorf("%s: more %v, %v, %d seen", c.name, more, err, seen)
		}
	}
}

// TestDumpInterrupted: who dumps hears of a change meanwhile.
func TestDumpInterrupted(t *testing.T) {
	for flags, want := range map[uint16]bool{0: false, unix.NLM_F_MULTI: false, unix.NLM_F_MULTI | unix.NLM_F_DUMP_INTR: true} {
		d := dump{seq: 1, visit: func(Message) {}}
		if _, err := Messages(Message{Kind: 20, Flags: flags}.pack(1), d.take); err != nil || d.interrupted != want {
			t.Errorf("%#x: %v, %v", flags, d.interrupted, err)
		}
	}
}

func TestAttrs(t *testing.T) {
	b := Append(Append(nil, 1, []byte("eth0\x00")), 2|unix.NLA_F_NESTED, Append(nil, 3, []byte{4}))
	if got := Text(Find(b, 1)); got != "eth0" {
		t.Errorf("%q", got)
	}
	if got := Find(Find(b, 2), 3); !bytes.Equal(got, []byte{4}) {
		t.Error(got)
	}
	if Find(b, 9) != nil {
		t.Error("one that is not there")
	}
	for kind, value := range RawAttrs(b) {
		if kind == 2|unix.NLA_F_NESTED && len(value) != 8 {
			t.Error(value)
		}
	}
	// What is malformed ends the attributes.
	for _, bad := range [][]byte{nil, {4}, {3, 0, 1, 0}, {9, 0, 1, 0, 0}} {
		for kind := range Attrs(append(Append(nil, 1, nil), bad...)) {
			if kind != 1 || len(bad) > 0 && bad[0] == 0 {
				t.Error(kind, bad)
			}
		}
	}
}

// TestSocket lists the network devices of this host.
func TestSocket(t *testing.T) {
	s, err := Open(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.ForBatches()
	names := map[string]bool{}
	for range 2 { // the second answers have another sequence number
		_, err = s.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg), func(m Message) {
			names[Text(Find(m.Payload[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME))] = true
		})
		if err != nil || !names["lo"] {
			t.Fatal(names, err)
		}
	}
	if err := s.Ask(Message{Kind: unix.RTM_GETLINK, Payload: make([]byte, 1)}); !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// FuzzMessages reads datagrams and attributes. What was packed is read as it was; what
// is read of any bytes is written the same, and read again.
func FuzzMessages(f *testing.F) {
	f.Add([]byte("hello"), uint16(5), uint16(unix.NLM_F_ACK))
	f.Add(Append(Append(nil, 1, []byte("name\x00")), 2|unix.NLA_F_NESTED, Append(nil, 3, []byte{7})), uint16(unix.NLMSG_ERROR), uint16(0))
	f.Add(Message{Payload: binary.NativeEndian.AppendUint32(nil, 1<<31)}.pack(1), uint16(unix.NLMSG_DONE), uint16(0))
	f.Add([]byte{4, 0, 1, 0, 255, 255, 1, 0}, uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, payload []byte, kind, flags uint16) {
		budgettest.Within(t, len(payload), budgettest.Usual, func() {
			n := 0
			_, err := Messages(payload, func(_ uint32, m Message) (bool, error) {
				n++
				_ = m.Err()
				return true, nil
			})
			if n > len(payload)/unix.NLMSG_HDRLEN || err == nil && n == 0 && len(payload) >= unix.NLMSG_HDRLEN {
				t.Fatalf("%d messages in %d bytes: %v", n, len(payload), err)
			}
			both := append(Message{kind, flags, payload}.pack(1), Message{kind + 1, 0, nil}.pack(2)...)
			var got []Message
			more, err := Messages(both, func(seq uint32, m Message) (bool, error) {
				if got = append(got, m); int(seq) != len(got) {
					t.Fatalf("message %d has the number %d", len(got), seq)
				}
				return true, nil
			})
			if err != nil || !more || len(got) != 2 || got[0].Kind != kind || !bytes.Equal(got[0].Payload, payload) || got[1].Kind != kind+1 || len(got[1].Payload) != 0 {
				t.Fatalf("%+v, %v", got, err)
			}
			var again []byte
			for kind, value := range RawAttrs(payload) {
				again = Append(again, kind, value)
				if Find(payload, kind&KindMask) == nil {
					t.Fatalf("attribute %d is not found", kind)
				}
			}
			var third []byte
			for kind, value := range RawAttrs(again) {
				third = Append(third, kind, value)
			}
			if !bytes.Equal(again, third) {
				t.Fatalf("%x, and then %x", again, third)
			}
			if s := Text(payload); strings.ContainsRune(s, 0) || Text(append([]byte(s), 0)) != s {
				t.Errorf("%q", s)
			}
		})
	})
}
