package link

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// segment builds an IP packet with a TCP segment.
func segment(src, dst netip.AddrPort, flags byte, payload int) []byte {
	tcp := make([]byte, 20+payload)
	binary.BigEndian.PutUint16(tcp, src.Port())
	binary.BigEndian.PutUint16(tcp[2:], dst.Port())
	tcp[12], tcp[13] = 5<<4, flags
	if src.Addr().Is6() {
		ip := make([]byte, 40)
		ip[0], ip[6] = 6<<4, protoTCP
		binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
		return append(ip, tcp...)
	}
	ip := make([]byte, 24) // with one word of options
	ip[0], ip[9] = 4<<4|6, protoTCP
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(tcp)))
	return append(ip, tcp...)
}

func TestPickMatches(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:4000")
	a6, b6 := netip.MustParseAddrPort("[fd::1]:80"), netip.MustParseAddrPort("[fd::2]:4000")
	udp := segment(a, b, 0, 9)
	udp[9] = 17
	fragment := segment(a, b, 0, 9)
	fragment[7] = 1
	const ack = 0x10
	for _, tt := range []struct {
		name   string
		pick   Pick
		packet []byte
		want   bool
	}{
		{"payload", Pick{}, segment(a, b, ack, 1), true},
		{"no payload", Pick{}, segment(a, b, ack, 0), false},
		{"from the port", Pick{Port: 80}, segment(a, b, ack, 1), true},
		{"to the port", Pick{Port: 80}, segment(b, a, ack, 1), true},
		{"another port", Pick{Port: 81}, segment(a, b, ack, 1), false},
		{"SYN wanted", Pick{SYN: true}, segment(b, a, flagSYN, 0), true},
		{"SYN wanted, payload", Pick{SYN: true}, segment(b, a, ack, 5), false},
		{"SYN", Pick{}, segment(b, a, flagSYN, 0), false},
		{"pushed", Pick{Push: true}, segment(b, a, ack|flagPSH, 5), true},
		{"not pushed", Pick{Push: true}, segment(b, a, ack, 5), false},
		{"IPv6", Pick{Port: 80}, segment(b6, a6, ack, 5), true},
		{"IPv6 without payload", Pick{Port: 80}, segment(b6, a6, ack, 0), false},
		{"UDP", Pick{}, udp, false},
		{"later fragment", Pick{}, fragment, false},
		{"cut short", Pick{}, segment(a, b, ack, 9)[:50], false},
		{"nothing", Pick{}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := (&picker{Pick: tt.pick}).takes(tt.packet); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func FuzzPick(f *testing.F) {
	f.Add(segment(netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:4000"), 0, 3))
	f.Fuzz(func(t *testing.T, packet []byte) {
		(&picker{}).takes(packet)
	})
}

func TestRingGrows(t *testing.T) {
	var r ring
	in, out := int64(0), int64(0)
	for range 5000 {
		for range 3 {
			r.spare().due = in
			r.push()
			in++
		}
		if p := r.first(); p.due != out {
			t.Fatalf("got %d, want %d", p.due, out)
		}
		r.drop()
		out++
	}
	if got := int64(r.waiting(-1)); got != in-out {
		t.Errorf("%d wait, want %d", got, in-out)
	}
	if r.waiting(0); r.first().due != out {
		t.Error("waiting takes packets")
	}
}
