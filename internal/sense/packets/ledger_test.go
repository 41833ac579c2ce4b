package packets

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/slowray/slowray/internal/observe"
)

// parts is a ledger in ms.
type parts map[observe.Part]float64

// planted is a request with what is known of it beforehand.
type planted struct {
	parts
	retrans uint32
	flags   observe.RequestFlags
}

const (
	get = "GET /a?token=1 HTTP/1.1\r\n\r\n"
	ok  = "HTTP/1.1 200 OK\r\n"
	bad = "HTTP/1.1 503 Service Unavailable\r\n"
)

func TestLedgers(t *testing.T) {
	for name, c := range map[string]struct {
		write func(*script)
		want  []planted
	}{
		"at the server: one segment each way": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.answer(25.1, ok, 300)
			s.acked(35.1)
		}, []planted{{parts: parts{observe.Server: 5, observe.Network: 10.1}}}},
		"at the client: the server is 10 ms away": {func(s *script) {
			s.open(0, 10, 0.1)
			s.ask(20, get)
			s.answer(35, ok, 300) // 10 on the way, 5 at work
			s.acked(35.1)
		}, []planted{{parts: parts{observe.Server: 5, observe.Network: 10.1}}}},
		"uploaded in pieces": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.ask(50, "more")
			s.answer(60.1, ok, 300)
			s.acked(70.1)
		}, []planted{{parts: parts{observe.Upload: 30, observe.Server: 10, observe.Network: 10.1}}}},
		"the answer is lost on its way: case 1 of TCPRT": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.answer(22.8, ok, 300)
			s.again(224, false, 300)
			s.acked(234)
		}, []planted{{parts: parts{observe.Server: 2.7, observe.Network: 10.1, observe.Retrans: 201.2}, retrans: 1}}},
		"the acknowledgement is late: nobody waits for it": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.answer(34.4, ok, 300)
			s.acked(84.4) // 10 on the way, 40 delayed
		}, []planted{{parts: parts{observe.Server: 14.3, observe.Network: 10.1, observe.AckDelay: 40}}}},
		"acknowledged by the next request": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.answer(25.1, ok, 300)
			s.ask(65.1, get) // the client thought for 30 ms
			s.answer(66.2, bad, 300)
			s.acked(76.2)
		}, []planted{
			{parts: parts{observe.Server: 5, observe.Network: 10.1, observe.AckDelay: 30}},
			{parts: parts{observe.Server: 1, observe.Network: 10.1}},
		}},
		"the application pauses within the answer": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.answer(22.1, ok, 300)
			s.acked(32.1)
			s.answer(432.2, "", 300)
			s.acked(442.2)
		}, []planted{{parts: parts{observe.Server: 2, observe.Network: 20.2, observe.Stall: 400}}}},
		"it pauses while the client delays its acknowledgement": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.answer(22.1, ok, 300)
			s.answer(53.2, "", 300) // before the 40 ms are over
			s.acked(54.2)
		}, []planted{{parts: parts{observe.Server: 2, observe.Network: 2.2, observe.Stall: 30}}}},
		"the client's window is closed for 200 ms": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.answer(22.1, ok, 1400)
			s.answer(22.2, "", 1400)
			s.window(23.2, 0)
			s.window(223.2, 65535)
			s.answer(223.3, "", 1400)
			s.acked(224.3)
		}, []planted{{parts: parts{observe.Server: 2, observe.Network: 2.3, observe.SendWait: 200}, flags: observe.FlagZeroWindow}}},
		"the request is lost behind this place": {func(s *script) {
			s.open(0, 10, 0.1)
			s.ask(20, get)
			s.again(220, true, len(get))
			s.answer(235, ok, 300)
			s.acked(235.1)
		}, []planted{{parts: parts{observe.Server: 5, observe.Network: 10.1, observe.Retrans: 200}, retrans: 1}}},
		"a piece of the request is lost before this place": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			hole := s.up
			s.up += 5
			s.ask(21, "rest")
			s.raw(221, true, flagACK, hole, s.down, 65535, nil, []byte("piece"))
			s.answer(226.1, ok, 300)
			s.acked(236.1)
		}, []planted{{parts: parts{observe.Upload: 1, observe.Retrans: 200, observe.Server: 5, observe.Network: 10.1}}}},
		"pipelined: no false split": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, get)
			ack := s.down
			s.answer(25, ok, 300)
			s.raw(26, true, flagACK, s.up, ack, 65535, nil, []byte(get))
			s.up += uint32(len(get))
			s.answer(30, ok, 300)
			s.acked(40)
		}, []planted{{parts: parts{observe.Unaccounted: 20}, flags: observe.FlagOverlapped}}},
		"100 Continue is no answer": {func(s *script) {
			s.open(0, 0.1, 10)
			s.ask(20, "POST /up HTTP/1.1\r\n\r\n")
			s.answer(21, "HTTP/1.1 100 Continue\r\n", 25)
			s.ask(31, "body")
			s.answer(36.1, ok, 300)
			s.acked(46.1)
		}, []planted{{parts: parts{observe.Upload: 11, observe.Server: 5, observe.Network: 10.1}}}},
		"never answered, the client leaves after 3 s": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.fin(3020, true)
			s.fin(3020.1, false)
		}, []planted{{parts: parts{observe.Server: 3000, observe.Network: 0.1}, flags: observe.FlagHalfClosed | observe.FlagUnanswered}}},
		"the client closes when it has its answer": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.answer(21.1, ok, 300)
			s.acked(22.1)
			s.fin(30, true)
			s.fin(30.1, false)
			s.acked(31.1)
		}, []planted{{parts: parts{observe.Server: 1, observe.Network: 1.1}}}},
		"the server closes with its last answer": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.answer(21.1, ok, 300)
			s.ask(40, get)
			s.answer(42.1, ok, 300)
			s.fin(42.2, false)
			s.down++
			s.fin(43.1, true)
			s.acked(43.2)
		}, []planted{
			{parts: parts{observe.Server: 1, observe.Network: 1.1, observe.AckDelay: 17.9}},
			{parts: parts{observe.Server: 2, observe.Network: 1.1}, flags: observe.FlagClosed},
		}},
		"the client closes its half, and acknowledges the answer last": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.fin(20.1, true)
			s.up++
			s.answer(21.1, ok, 300)
			s.fin(21.2, false)
			s.down++
			s.acked(22.1)
			s.acked(22.3)
		}, []planted{{parts: parts{observe.Server: 1, observe.Network: 1.1}, flags: observe.FlagHalfClosed | observe.FlagClosed}}},
		"closed by both, and the acknowledgement was not captured": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.fin(20.1, true)
			s.up++
			s.answer(21.1, ok, 300)
			s.fin(21.2, false)
		}, []planted{{parts: parts{observe.Server: 1, observe.Network: 0.2}, flags: observe.FlagHalfClosed | observe.FlagClosed | observe.FlagTruncated}}},
		"last words that nobody answers": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, "\x01\x00\x00\x00\x03")
			s.answer(21.1, "", 80)
			s.acked(22.1)
			s.ask(50, "\x01\x00\x00\x00\x01")
			s.fin(50.1, true)
			s.fin(50.2, false)
		}, []planted{{parts: parts{observe.Server: 1, observe.Network: 1.1}}}},
		"reset in the middle": {func(s *script) {
			s.open(0, 0.1, 1)
			s.ask(20, get)
			s.answer(21.1, ok, 1400)
			s.raw(31.1, true, flagRST, s.up, 0, 0, nil, nil)
		}, []planted{{parts: parts{observe.Server: 1, observe.Network: 10.1}, flags: observe.FlagReset | observe.FlagTruncated}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			c.write(s)
			got, _ := requestsOf(t, file(t, layers.LinkTypeRaw, nil, s), Options{})
			if len(got) != len(c.want) {
				t.Fatalf("%d requests, want %d: %+v", len(got), len(c.want), got)
			}
			for i := range got {
				checkRequest(t, &got[i], &c.want[i])
			}
		})
	}
}

func checkRequest(t *testing.T, r *observe.Request, want *planted) {
	t.Helper()
	for p := range observe.NumParts {
		if ms := float64(r.Ledger[p]) / 1e6; math.Abs(ms-want.parts[p]) > 0.011 {
			t.Errorf("request %d: %v takes %.2f ms, want %.2f (%v)", r.Seq, p, ms, want.parts[p], r.Ledger)
		}
	}
	if r.Retrans != want.retrans {
		t.Errorf("request %d: %d segments retransmitted, want %d", r.Seq, r.Retrans, want.retrans)
	}
	if r.Flags != want.flags {
		t.Errorf("request %d: flags %v, want %v", r.Seq, r.Flags.Names(), want.flags.Names())
	}
}

// Every way to write the same packets down gives the same request.
func TestLinks(t *testing.T) {
	mac := make([]byte, 12)
	for name, c := range map[string]struct {
		link layers.LinkType
		head []byte
		v6   bool
	}{
		"Ethernet":                   {layers.LinkTypeEthernet, append(slices.Clone(mac), 8, 0), false},
		"VLAN in VLAN":               {layers.LinkTypeEthernet, append(slices.Clone(mac), 0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0), false},
		"MPLS":                       {layers.LinkTypeEthernet, append(slices.Clone(mac), 0x88, 0x47, 0, 0, 0, 9, 0, 0, 1, 9), false},
		"any (SLL)":                  {layers.LinkTypeLinuxSLL, []byte{0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0}, false},
		"any (SLL2)":                 {layers.LinkTypeLinuxSLL2, append([]byte{8, 0}, make([]byte, 18)...), false},
		"loopback of BSD":            {layers.LinkTypeNull, []byte{2, 0, 0, 0}, false},
		"IPv6 with options":          {layers.LinkTypeRaw, nil, true},
		"Ethernet, IPv6 and options": {layers.LinkTypeEthernet, append(slices.Clone(mac), 0x86, 0xdd), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			if c.v6 {
				s = newScriptV6()
			}
			s.open(0, 0.1, 10)
			s.ask(20, get)
			s.answer(25.1, bad, 300)
			s.acked(35.1)
			got, sum := requestsOf(t, file(t, c.link, c.head, s), Options{Labels: true})
			if len(got) != 1 {
				t.Fatalf("%d requests, want 1 (%+v)", len(got), sum)
			}
			r := &got[0]
			checkRequest(t, r, &planted{parts: parts{observe.Server: 5, observe.Network: 10.1}})
			if r.Local != s.server || r.Peer != s.client || r.HTTP != 503 || r.Status != observe.StatusError || r.Label != "GET /a" ||
				r.BytesIn != uint64(len(get)) || r.BytesOut != 300 || r.StartNS != epoch.UnixNano()+20e6 {
				t.Errorf("request is %+v", r)
			}
		})
	}
}

func TestWithoutHandshake(t *testing.T) {
	// Three connections to one port: it is that which serves, though it is the higher one.
	var scripts []*script
	for i := range 3 {
		s := newScript()
		s.server, s.client = addr("10.0.0.1:60000"), addr("10.0.0.2:"+[]string{"1234", "1235", "1236"}[i])
		s.ask(float64(i), get)
		s.answer(float64(i)+100, ok, 300)
		s.acked(float64(i) + 101)
		scripts = append(scripts, s)
	}
	got, sum := requestsOf(t, file(t, layers.LinkTypeRaw, nil, scripts...), Options{})
	if len(got) != 3 {
		t.Fatalf("%d requests, want 3", len(got))
	}
	for _, r := range got {
		if r.Local.Port() != 60000 || r.Flags != observe.FlagPreexisting || r.Ledger[observe.Server] != 100e6 {
			t.Errorf("request is %+v", r)
		}
	}
	if sum.Connections != 3 || len(sum.Counters) != 1 || sum.Counters[0].Requests != 3 {
		t.Errorf("sums are %+v", sum)
	}
}

func TestCapturedTwice(t *testing.T) {
	s := newScript()
	s.open(0, 0.1, 10)
	s.ask(20, get)
	s.answer(25.1, ok, 300)
	s.acked(35.1)
	for _, p := range slices.Clone(s.packets) { // as "-i any" on a bridge
		s.packets = append(s.packets, wirePacket{p.at + 0.03, p.data})
	}
	got, sum := requestsOf(t, file(t, layers.LinkTypeRaw, nil, s), Options{})
	if len(got) != 1 || got[0].Retrans != 0 {
		t.Fatalf("requests are %+v", got)
	}
	if len(sum.Losses) != 1 || sum.Losses[0].Count != 6 || !strings.Contains(sum.Losses[0].What, "second place") {
		t.Errorf("losses are %+v", sum.Losses)
	}
}
