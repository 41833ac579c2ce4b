package packets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/layers"
	"github.com/klauspost/compress/zstd"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// most is what reading any capture may take, bytes.
const most = 300 << 20

// step is what happens in each of many connections before the next one happens in any.
type step func(s *script, at float64)

// many writes a capture of n connections, in which one step after the other happens
// within so many ms.
func many(t testing.TB, n int, ms float64, ends func(i int, s *script), steps ...step) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "many.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	head := make([]byte, 24) // https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html
	copy(head, magic[2])
	binary.LittleEndian.PutUint16(head[4:], 2)
	binary.LittleEndian.PutUint16(head[6:], 4)
	binary.LittleEndian.PutUint32(head[16:], 1<<16)
	binary.LittleEndian.PutUint32(head[20:], 101) // raw IP
	w.Write(head)
	scripts := make([]*script, n)
	for i := range scripts {
		scripts[i] = newScript()
		ends(i, scripts[i])
	}
	for p, do := range steps {
		for i, s := range scripts {
			do(s, (float64(p)+float64(i)/float64(n))*ms)
			for _, packet := range s.packets {
				at := epoch.Add(time.Duration(packet.at * float64(time.Millisecond)))
				b := binary.LittleEndian.AppendUint32(nil, uint32(at.Unix()))
				b = binary.LittleEndian.AppendUint32(b, uint32(at.Nanosecond()))
				b = binary.LittleEndian.AppendUint32(b, uint32(len(packet.data)))
				b = binary.LittleEndian.AppendUint32(b, uint32(len(packet.data)))
				w.Write(append(b, packet.data...))
			}
			s.packets = nil
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return path
}

// end is one of many, none of which is another.
func end(net byte, i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{net, 1, byte(i >> 16), byte(i >> 8)}), uint16(1024+i&255))
}

func client(i int, s *script) { s.client = end(10, i) }
func both(i int, s *script)   { s.client, s.server = end(10, i), end(11, i) }

func TestManyFlows(t *testing.T) {
	const flows = 600_000
	opens := func(s *script, at float64) { s.open(at, 0.0001, 0.0001) }
	asks := func(s *script, at float64) { s.ask(at, get) }
	answers := func(s *script, at float64) { s.answer(at, ok, 40) }
	acks := func(s *script, at float64) { s.acked(at) }
	closes := func(s *script, at float64) { s.fin(at, true); s.fin(at, false) }
	for name, c := range map[string]struct {
		n     int
		ms    float64
		ends  func(int, *script)
		steps []step
		want  string
	}{
		"one server":   {flows, 5000, client, []step{opens, asks, answers, acks, closes}, "packets of connections that were left out: 131072 are followed"},
		"begun before": {flows, 5000, both, []step{asks, answers, acks}, "more than 524288 ends: which of those beyond serve is known by their ports alone"},
		"scan":         {flows, 5000, both, []step{func(s *script, at float64) { s.raw(at, true, flagSYN, 1, 0, 1024, nil, nil) }}, "there are more than 4096 servers"},
		"servers":      {flows, 1800e3, both, []step{opens, asks, answers, acks}, "there are more than 233 servers"},
		"busy servers": {flows / 2, 5000, func(i int, s *script) {
			s.client, s.server = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1024), end(11, i%maxEndpoints)
		}, []step{func(s *script, at float64) {
			s.open(at, 0.0001, 0.0001)
			s.ask(at, get)
			s.answer(at, "HTTP/1.1 500 ", 40)
			s.acked(at)
			closes(s, at)
		}}, "1536 300000 "},
		"holes": {20_000, 5000, client, []step{opens, asks, answers, func(s *script, at float64) {
			for i := range uint32(60) {
				s.raw(at, false, flagACK, s.down+10+10*i, isnClient+1, 65535, nil, []byte("x"))
				s.raw(at, true, flagACK, s.up+10+10*i, isnServer+1, 65535, nil, []byte("x"))
			}
		}}, "times that the holes of a connection were forgotten"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				if name != "one server" {
					t.Skip("takes long")
				}
				c.n /= 4
			}
			used := budgettest.Peak(t, func() []string { return []string{many(t, c.n, c.ms, c.ends, c.steps...)} }, func(args []string) {
				debug.SetGCPercent(400) // as the command does
				debug.SetMemoryLimit(200 << 20)
				o, err := Observe(args[0], "test", Options{})
				if err != nil {
					t.Fatal(err)
				}
				r := diagnose.Diagnose(t.Context(), o, diagnose.Saved)
				fmt.Println(len(o.Endpoints), o.Capture.Connections, r.Summary())
				for _, g := range o.Gaps {
					if g.Kind == observe.KindRequests {
						fmt.Println(g.Because)
					}
				}
				for _, l := range o.Losses {
					fmt.Println(l.Count, l.What)
				}
			})
			t.Logf("%d MB, %v CPU\n%s", used.Peak>>20, used.CPU, used.Output)
			if !strings.Contains(used.Output, c.want) {
				t.Errorf("it is not said that %s", c.want)
			}
			if used.Peak > most {
				t.Errorf("it takes %d MB, at most %d", used.Peak>>20, int64(most)>>20)
			}
		})
	}
}

// What has a place is reported as in a capture that holds nothing else, also after many
// others that had none.
func TestPlacesAreExact(t *testing.T) {
	const others = maxConnections
	honest := func(s *script, at float64) {
		s.server, s.client = addr("192.0.2.1:80"), addr("192.0.2.2:40000")
		s.open(at, 0.1, 10)
		s.ask(at+20, get)
		s.answer(at+25.1, ok, 300)
		s.acked(at + 35.1)
	}
	var first *script
	path := many(t, others+1000, 100, func(i int, s *script) {
		if client(i, s); i == 0 {
			first = s
		}
	}, func(s *script, at float64) {
		if s == first {
			honest(s, at)
		} else {
			s.raw(at+100, true, flagSYN, 1, 0, 1024, nil, nil)
		}
	})
	alone := newScript()
	honest(alone, 0)
	want, _ := requestsOf(t, file(t, layers.LinkTypeRaw, nil, alone), Options{})
	got, sum := requestsOf(t, path, Options{})
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || len(got) != 1 {
		t.Errorf("requests (-alone +with others):\n%s", diff)
	}
	if sum.Connections != others || len(sum.Losses) != 1 || sum.Losses[0].Count != 1000 {
		t.Errorf("%d connections, losses %+v", sum.Connections, sum.Losses)
	}
}

// ng is a pcapng file of one section.
type ng struct{ bytes.Buffer }

func (b *ng) block(kind uint32, body []byte) {
	b.blockOf(kind, uint32(12+len(body)), body)
	b.Write(binary.LittleEndian.AppendUint32(nil, uint32(12+len(body))))
}

// blockOf is the beginning of a block that says that it has such a length.
func (b *ng) blockOf(kind, length uint32, body []byte) {
	b.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, kind), length))
	b.Write(body)
}

func words(w ...uint32) (b []byte) {
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// option is one of a block, padded.
func option(kind, length uint16, value string) []byte {
	b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, kind), length)
	return append(append(b, value...), make([]byte, -len(value)&3)...)
}

const unknownLength = ^uint32(0)

func newNG() *ng {
	b := new(ng)
	b.block(blockSection, words(byteOrderMagic, 1, unknownLength, unknownLength))
	return b
}

// packets adds those of a script, by a clock of nanoseconds.
func (b *ng) packets(s *script, options []byte) {
	for _, p := range s.packets {
		at := uint64(epoch.Add(time.Duration(p.at * float64(time.Millisecond))).UnixNano())
		body := words(0, uint32(at>>32), uint32(at), uint32(len(p.data)), uint32(len(p.data)))
		body = append(append(body, p.data...), make([]byte, -len(p.data)&3)...)
		b.block(blockEnhanced, append(body, options...))
	}
}

func oneRequest() *script {
	s := newScript()
	s.open(0, 0.1, 10)
	s.ask(20, get)
	s.answer(25.1, ok, 300)
	s.acked(35.1)
	return s
}

// rawDevice describes an interface of raw IP with a clock of nanoseconds.
func rawDevice() []byte {
	return append(append(words(101, 0), option(optionResolution, 1, "\x09")...), option(optionEnd, 0, "")...)
}

// A pcapng file tells the same as a pcap file, whatever else is in it.
func TestPcapng(t *testing.T) {
	want, _ := requestsOf(t, file(t, layers.LinkTypeRaw, nil, oneRequest()), Options{})
	b := newNG()
	b.block(4, make([]byte, 4096)) // names
	b.block(blockInterface, rawDevice())
	b.block(0x80000001, []byte("of a vendor\x00"))
	b.packets(oneRequest(), option(1, 7, "comment"))
	b.block(5, words(0, 0, 0)) // statistics
	got, sum := requestsOf(t, write(t, b.Bytes()), Options{})
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || len(sum.Missing) != 1 {
		t.Errorf("missing is %q; requests (-pcap +pcapng):\n%s", sum.Missing, diff)
	}
}

// Whatever lengths a file names, and however much it unpacks to: what is before is
// told, the rest is said to be missing, and memory is bounded.
func TestHostileFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	begin := func(after func(b *ng)) []byte {
		b := newNG()
		b.block(blockInterface, rawDevice())
		b.packets(oneRequest(), nil)
		after(b)
		return b.Bytes()
	}
	zeros := make([]byte, 1<<20)
	packet := func(captured uint32) []byte { return words(0, 0, 0, captured, captured) }
	endless := func(kind uint32, body []byte, option []byte) func(*ng) {
		return func(b *ng) {
			b.blockOf(kind, unknownLength&^3, body)
			for range 2000 {
				b.Write(option)
			}
		}
	}
	comment := append(option(1, 65532, ""), bytes.Repeat([]byte("c"), 65532)...)
	for name, c := range map[string]struct {
		content []byte
		want    string // what is missing
	}{
		"a block of 4 GB":              {begin(func(b *ng) { b.blockOf(77, unknownLength&^3, zeros) }), "unexpected EOF"},
		"a block of nothing":           {begin(func(b *ng) { b.blockOf(77, 0, zeros) }), "shorter than what it holds"},
		"a block of 8 bytes":           {begin(func(b *ng) { b.blockOf(77, 8, zeros) }), "shorter than what it holds"},
		"a packet of 4 GB":             {begin(func(b *ng) { b.blockOf(blockEnhanced, unknownLength&^3, packet(unknownLength)) }), "a packet of 4294967295 bytes"},
		"a packet longer than it":      {begin(func(b *ng) { b.block(blockEnhanced, packet(100)) }), "shorter than what it holds"},
		"a simple packet of 4 GB":      {begin(func(b *ng) { b.blockOf(blockSimple, unknownLength&^3, words(unknownLength)) }), "a packet of 429496"},
		"a packet of no interface":     {begin(func(b *ng) { b.block(blockEnhanced, words(9, 0, 0, 0, 0)) }), "a packet of interface 9"},
		"a clock too fine":             {begin(func(b *ng) { b.block(blockInterface, append(words(101, 0), option(optionResolution, 1, "\x7f")...)) }), "a clock of 10"},
		"a time past counting":         {begin(func(b *ng) { b.block(blockEnhanced, words(0, unknownLength, unknownLength, 0, 0)) }), ""},
		"endless comments of a packet": {begin(endless(blockEnhanced, packet(0), comment)), "unexpected EOF"},
		"endless options of a section": {begin(endless(blockSection, words(byteOrderMagic, 1, 0, 0), comment)), "unexpected EOF"},
		"endless options":              {begin(endless(blockInterface, words(101, 0), comment)), "unexpected EOF"},
		"endless empty options":        {begin(endless(blockInterface, words(101, 0), zeros[:4096])), "unexpected EOF"},
		"endless names": {begin(func(b *ng) {
			for range 2000 {
				b.block(4, append(option(1, 65532, "\x01\x02\x03\x04"), bytes.Repeat([]byte("n"), 65528)...))
			}
		}), ""},
		"endless interfaces": {begin(func(b *ng) {
			for range 2 * maxInterfaces {
				b.block(blockInterface, words(101, 0))
			}
		}), "more than 65536 interfaces"},
		"half a block": {begin(func(b *ng) { b.Write(words(blockEnhanced)) }), "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, c.content)
			var got []observe.Request
			var sum *Summary
			budgettest.Within(t, 0, budgettest.Cost{Fixed: 24 << 20, CPU: 10 * time.Second}, func() {
				got, sum = requestsOf(t, path, Options{})
			})
			missing := strings.Join(sum.Missing[1:], "\n")
			if len(got) != 1 || !strings.Contains(missing, c.want) || (missing == "") != (c.want == "") || strings.Contains(missing, "\n") {
				t.Errorf("%d requests, missing %q, want %q", len(got), missing, c.want)
			}
		})
	}
}

// A file of some MB that unpacks to more than any disk holds, or that says that it
// refers to what was gigabytes ago.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	used := budgettest.Peak(t, func() []string {
		var zst bytes.Buffer
		z, err := zstd.NewWriter(&zst, zstd.WithWindowSize(maxDistance))
		if err != nil {
			t.Fatal(err)
		}
		b := newNG()
		b.block(blockInterface, rawDevice())
		b.packets(oneRequest(), nil)
		b.blockOf(77, unknownLength&^3, nil)
		z.Write(b.Bytes())
		zeros := make([]byte, 1<<20)
		for range 1200 {
			z.Write(zeros)
		}
		z.Close()
		far := append(slices.Clone(zstdMagic), 0, 21<<3) // a frame with a window of 2 GB
		return []string{write(t, zst.Bytes()), write(t, append(far, make([]byte, 100)...))}
	}, func(args []string) {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(200 << 20)
		got, sum := requestsOf(t, args[0], Options{})
		fmt.Println(len(got), sum.Missing[1:])
		_, err := Requests(args[1], Options{}, func(*observe.Request) {})
		fmt.Println(err)
	})
	if used.Peak > most || !strings.Contains(used.Output, "1 [what the file unpacks to is more than captures do (over the reading budget: more than 1.02e+03 MB unpacked)") ||
		!strings.Contains(used.Output, "is no capture") {
		t.Errorf("%d MB, %v: %s", used.Peak>>20, used.CPU, used.Output)
	}
}
