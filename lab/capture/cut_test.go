package capture

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	server = netip.MustParseAddrPort("10.0.0.1:80")
	client = netip.MustParseAddrPort("10.0.0.2:40000")
)

// Sequence numbers of the first bytes: both wrap during the tests.
const (
	clientBase = 0xffffffc0
	serverBase = 0xfffffff0
)

// packets reads lines "time from flags seq len ack [win]" as the serving end
// sees them; seq and ack count from the first byte. From is c or s.
func packets(t *testing.T, text string) []Packet {
	t.Helper()
	var list []Packet
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		var (
			p            Packet
			from, flags  string
			seq, ack     int64
			window       = 100
			mine, theirs = uint32(clientBase), uint32(serverBase)
		)
		n, err := fmt.Sscan(line, &p.TimeNS, &from, &flags, &seq, &p.Len, &ack, &window)
		if n < 6 || from != "c" && from != "s" {
			t.Fatalf("line %q: %v", line, err)
		}
		p.Src, p.Dst = client, server
		if from == "s" {
			p.Src, p.Dst, p.Outgoing = server, client, true
			mine, theirs = theirs, mine
		}
		for _, f := range flags {
			p.Flags |= map[rune]Flags{'S': SYN, 'F': FIN, 'R': RST, 'P': PSH, '.': ACK}[f]
		}
		p.Seq, p.Ack, p.Window = mine+uint32(seq), theirs+uint32(ack), uint16(window)
		if p.Flags&SYN != 0 {
			p.MSS, p.TSVal = 1460, 1
		}
		list = append(list, p)
	}
	return list
}

const handshake = `
	1 c S  -1 0 0
	2 s S. -1 0 0
	3 c .  0 0 0
`

func TestCut(t *testing.T) {
	tests := []struct {
		name, packets string
		want          Connection
	}{
		{"keep-alive, acknowledgements with the next request and alone", handshake + `
			10 c P. 0 50 0
			11 s P. 0 20 50
			20 c P. 50 50 20
			22 s P. 20 30 100
			25 c .  100 0 50
		`, Connection{Opened: 1, Established: 3, MSS: 1448, Requests: []Request{
			{First: 10, Last: 10, FirstOut: 11, LastOut: 11, Acked: 20, AckedWithData: true, BytesIn: 50, BytesOut: 20},
			{First: 20, Last: 20, FirstOut: 22, LastOut: 22, Acked: 25, BytesIn: 50, BytesOut: 30},
		}}},
		{"upload in pieces, out of order, one sent twice", handshake + `
			10 c .  0 100 0
			12 c .  200 100 0
			13 s .  0 0 100
			14 c .  300 50 0
			15 c .  100 100 0
			16 c .  100 100 0
			17 c .  150 300 0
			18 s .  0 10 450
			19 c F. 450 0 10
			20 s F. 10 0 451
			21 c .  451 0 11
		`, Connection{Opened: 1, Established: 3, MSS: 1448, ClientClosed: 19, ServerClosed: 20, Requests: []Request{
			{First: 10, Last: 17, FirstOut: 18, LastOut: 18, Acked: 19, BytesIn: 450, BytesOut: 10},
		}}},
		{"response in two halves, idle between", handshake + `
			10 c P. 0 50 0
			20 s P. 0 100 50
			21 c .  50 0 100
			71 s P. 100 100 50
			72 c .  50 0 200
		`, Connection{Opened: 1, Established: 3, MSS: 1448, Requests: []Request{
			{First: 10, Last: 10, FirstOut: 20, LastOut: 71, Acked: 72, BytesIn: 50, BytesOut: 200, Idle: 50},
		}}},
		{"last segments of a response lost", handshake + `
			10 c P. 0 50 0
			20 s .  0 2896 50
			20 s P. 2896 100 50
			21 c .  50 0 1448
			221 s . 1448 1548 50
			222 c . 50 0 2996
		`, Connection{Opened: 1, Established: 3, MSS: 1448, Requests: []Request{
			{First: 10, Last: 10, FirstOut: 20, LastOut: 20, Acked: 222, BytesIn: 50, BytesOut: 2996, Retrans: 2, Resent: []int64{221}},
		}}},
		{"pipelined: sent before the response was received", handshake + `
			10 c P. 0 50 0
			20 s P. 0 100 50
			21 c P. 50 50 0
			22 s P. 100 100 100
			30 c P. 100 50 200
			31 s P. 200 100 150
			32 c .  150 0 300
		`, Connection{Opened: 1, Established: 3, MSS: 1448, Requests: []Request{
			{First: 10, Last: 21, FirstOut: 20, LastOut: 22, Acked: 30, AckedWithData: true, BytesIn: 100, BytesOut: 200, Overlapped: true},
			{First: 30, Last: 30, FirstOut: 31, LastOut: 31, Acked: 32, BytesIn: 50, BytesOut: 100},
		}}},
		{"the server speaks first; closed window; reset", handshake + `
			5 s P.  0 40 0
			6 c .   0 0 40
			10 c P. 0 50 40
			20 s P. 40 100 50
			21 c .  50 0 140 0
			51 c .  50 0 140 9
			52 s P. 140 100 50
			53 c R  50 0 0
			54 c R  50 0 0
		`, Connection{Opened: 1, Established: 3, MSS: 1448, Greeting: 40, Reset: 53, Requests: []Request{
			{First: 10, Last: 10, FirstOut: 20, LastOut: 52, BytesIn: 50, BytesOut: 200, ZeroWindow: 30, Idle: 31},
		}}},
		{"half-closed, the SYN-ACK sent twice", `
			1 c S  -1 0 0
			2 s S. -1 0 0
			900 s S. -1 0 0
			903 c .  0 0 0
			910 c F. 0 50 0
			920 s F. 0 100 51
			930 c .  51 0 101
		`, Connection{Opened: 1, Established: 903, SynRetrans: 1, MSS: 1448, ClientClosed: 910, ServerClosed: 920, Requests: []Request{
			{First: 910, Last: 910, FirstOut: 920, LastOut: 920, Acked: 930, BytesIn: 50, BytesOut: 100},
		}}},
		{"older than the capture", `
			10 c P. 0 50 0
			20 s P. 0 100 50
			30 c .  50 0 100
		`, Connection{Requests: []Request{
			{First: 10, Last: 10, FirstOut: 20, LastOut: 20, Acked: 30, BytesIn: 50, BytesOut: 100},
		}}},
		{"no request", handshake + `
			10 c F. 0 0 0
			11 s F. 0 0 1
			12 c .  1 0 1
		`, Connection{Opened: 1, Established: 3, MSS: 1448, ClientClosed: 10, ServerClosed: 11}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			list := packets(t, test.packets)
			test.want.Server, test.want.Client = server, client
			want := []*Connection{&test.want}
			if diff := cmp.Diff(want, Cut(list, Serving, server.Port()), compareAddrs); diff != "" {
				t.Errorf("serving end (-want +got):\n%s", diff)
			}
			// lo shows every packet twice.
			twice := make([]Packet, 0, 2*len(list))
			for _, p := range list {
				other := p
				other.Outgoing = !p.Outgoing
				twice = append(twice, p, other)
			}
			if diff := cmp.Diff(want, Cut(twice, Serving, server.Port()), compareAddrs); diff != "" {
				t.Errorf("each packet twice (-want +got):\n%s", diff)
			}
		})
	}
}

var compareAddrs = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// TestCutCalling: at the calling end what the client sends again counts.
func TestCutCalling(t *testing.T) {
	list := packets(t, handshake+`
		10 c P. 0 50 0
		210 c P. 0 50 0
		220 s P. 0 100 50
		221 s P. 0 100 50
		222 c .  50 0 100
	`)
	for i := range list {
		list[i].Outgoing = !list[i].Outgoing
	}
	want := []*Connection{{Server: server, Client: client, Opened: 1, Established: 2, MSS: 1448, Requests: []Request{
		{First: 10, Last: 10, FirstOut: 220, LastOut: 220, Acked: 222, BytesIn: 50, BytesOut: 100, Retrans: 1, Resent: []int64{210}},
	}}}
	if diff := cmp.Diff(want, Cut(list, Calling), compareAddrs); diff != "" {
		t.Errorf("calling end (-want +got):\n%s", diff)
	}
}

// TestCutPortReused: a SYN with another sequence number is another connection.
func TestCutPortReused(t *testing.T) {
	one := packets(t, handshake+`
		10 c P. 0 50 0
		11 s F. 0 20 50
		12 c F. 50 0 21
	`)
	two := packets(t, handshake+`
		10 c P. 0 50 0
		11 s F. 0 20 50
		12 c F. 50 0 21
	`)
	for i := range two {
		two[i].TimeNS += 100
		if two[i].Src == client {
			two[i].Seq += 5000
		} else {
			two[i].Ack += 5000
		}
	}
	got := Cut(append(one, two...), Serving)
	if len(got) != 2 || len(got[0].Requests) != 1 || len(got[1].Requests) != 1 || got[1].Requests[0].First != 110 {
		t.Errorf("%d connections: %+v", len(got), got)
	}
}

// TestDirectionSee holds the bytes counted as new against a set of them.
func TestDirectionSee(t *testing.T) {
	for seed := range uint32(200) {
		var (
			d      direction
			seen   [300]bool
			random = seed*2654435761 + 1
		)
		for step := range 60 {
			random = random*1664525 + 1013904223
			from := int64(random >> 8 % 250)
			to := from + int64(random>>24%50)
			want := int64(0)
			for i := from; i < to; i++ {
				if !seen[i] {
					seen[i] = true
					want++
				}
			}
			if got := d.see(from, to); got != want {
				t.Fatalf("seed %d, step %d: [%d,%d) has %d new bytes, want %d", seed, step, from, to, got, want)
			}
		}
	}
}
