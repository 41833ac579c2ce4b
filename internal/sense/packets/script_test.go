package packets

import (
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/slowray/slowray/internal/observe"
)

// script is the packets of one connection, written by hand: what passes when.
// Times are in ms.
type script struct {
	server, client netip.AddrPort
	packets        []wirePacket
	up, down       uint32 // next sequence numbers
	id             uint16
}

type wirePacket struct {
	at   float64
	data []byte // from the IP header on
}

// Numbers that wrap within the first bytes.
const isnClient, isnServer = 0xffffff00, 0xfffffffe

func newScript() *script {
	return &script{server: addr("10.7.0.1:7001"), client: addr("10.8.0.9:50123"), up: isnClient, down: isnServer}
}

func newScriptV6() *script {
	s := newScript()
	s.server, s.client = addr("[fd00::7]:7001"), addr("[fd00::9]:50123")
	return s
}

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// raw adds a packet.
func (s *script) raw(at float64, fromClient bool, flags uint8, seq, ack uint32, window uint16, options, payload []byte) {
	src, dst := s.server, s.client
	if fromClient {
		src, dst = dst, src
	}
	tcp := make([]byte, 20, 60+len(payload))
	binary.BigEndian.PutUint16(tcp, src.Port())
	binary.BigEndian.PutUint16(tcp[2:], dst.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = byte(20+len(options))/4<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], window)
	tcp = append(append(tcp, options...), payload...)
	s.id++
	var ip []byte
	if src.Addr().Is4() {
		ip = make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, 64, protoTCP
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(tcp)))
		binary.BigEndian.PutUint16(ip[4:], s.id)
		copy(ip[12:], src.Addr().AsSlice())
		copy(ip[16:], dst.Addr().AsSlice())
	} else {
		ip = make([]byte, 48) // with a header of options
		ip[0], ip[6], ip[7] = 0x60, 0, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(8+len(tcp)))
		copy(ip[8:], src.Addr().AsSlice())
		copy(ip[24:], dst.Addr().AsSlice())
		ip[40] = protoTCP
	}
	s.packets = append(s.packets, wirePacket{at, append(ip, tcp...)})
}

// open is the handshake, as seen at near ms from the server and far from the client.
func (s *script) open(at, near, far float64) {
	mss := []byte{2, 4, 0x05, 0xb4} // 1460
	s.raw(at, true, flagSYN, s.up, 0, 65535, mss, nil)
	s.raw(at+near, false, flagSYN|flagACK, s.down, s.up+1, 65535, mss, nil)
	s.up, s.down = s.up+1, s.down+1
	s.raw(at+near+far, true, flagACK, s.up, s.down, 65535, nil, nil)
}

// ask sends bytes of the client, and acknowledges all of the server's.
func (s *script) ask(at float64, payload string) {
	s.raw(at, true, flagACK, s.up, s.down, 65535, nil, []byte(payload))
	s.up += uint32(len(payload))
}

// answer sends n bytes of the server.
func (s *script) answer(at float64, payload string, n int) {
	b := make([]byte, n)
	copy(b, payload)
	s.raw(at, false, flagACK, s.down, s.up, 65535, nil, b)
	s.down += uint32(n)
}

// acked is the client's acknowledgement of all that was sent.
func (s *script) acked(at float64) { s.window(at, 65535) }

func (s *script) window(at float64, window uint16) {
	s.raw(at, true, flagACK, s.up, s.down, window, nil, nil)
}

// again sends once more the last n bytes of an end.
func (s *script) again(at float64, fromClient bool, n int) {
	if fromClient {
		s.raw(at, true, flagACK, s.up-uint32(n), s.down, 65535, nil, make([]byte, n))
		return
	}
	s.raw(at, false, flagACK, s.down-uint32(n), s.up, 65535, nil, make([]byte, n))
}

func (s *script) fin(at float64, fromClient bool) {
	if fromClient {
		s.raw(at, true, flagACK|flagFIN, s.up, s.down, 65535, nil, nil)
	} else {
		s.raw(at, false, flagACK|flagFIN, s.down, s.up, 65535, nil, nil)
	}
}

// epoch is when scripts begin.
var epoch = time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)

// file writes the packets of scripts as a capture, in the order of time.
func file(t testing.TB, link layers.LinkType, head []byte, scripts ...*script) string {
	t.Helper()
	var all []wirePacket
	for _, s := range scripts {
		all = append(all, s.packets...)
	}
	sortByTime(all)
	path := filepath.Join(t.TempDir(), "c.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriterNanos(f)
	if err := w.WriteFileHeader(65535, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		data := append(append([]byte{}, head...), p.data...)
		at := epoch.Add(time.Duration(p.at * float64(time.Millisecond)))
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(data), Length: len(data)}, data); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func sortByTime(p []wirePacket) {
	for i := 1; i < len(p); i++ {
		for j := i; j > 0 && p[j].at < p[j-1].at; j-- {
			p[j], p[j-1] = p[j-1], p[j]
		}
	}
}

// requestsOf reads a capture.
func requestsOf(t testing.TB, path string, opt Options) ([]observe.Request, *Summary) {
	t.Helper()
	var list []observe.Request
	s, err := Requests(path, opt, func(r *observe.Request) { list = append(list, *r) })
	if err != nil {
		t.Fatal(err)
	}
	return list, s
}
