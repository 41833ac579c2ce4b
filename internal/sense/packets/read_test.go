package packets

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/klauspost/compress/zstd"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// answered is one request, well answered.
func answered(t testing.TB) string {
	s := newScript()
	s.open(0, 0.1, 10)
	s.ask(20, get)
	s.answer(25.1, ok, 300)
	s.acked(35.1)
	return file(t, layers.LinkTypeRaw, nil, s)
}

func write(t testing.TB, content []byte) string {
	path := filepath.Join(t.TempDir(), "c")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompressed(t *testing.T) {
	plain, err := os.ReadFile(answered(t))
	if err != nil {
		t.Fatal(err)
	}
	var gz, zst bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(plain)
	w.Close()
	z, _ := zstd.NewWriter(&zst)
	z.Write(plain)
	z.Close()
	for name, content := range map[string][]byte{"gzip": gz.Bytes(), "zstd": zst.Bytes()} {
		path := write(t, content)
		if !Recognises(path) {
			t.Errorf("%s: is not recognised", name)
		}
		if got, _ := requestsOf(t, path, Options{}); len(got) != 1 {
			t.Errorf("%s: %d requests, want 1", name, len(got))
		}
	}
}

// A capture whose end is missing is read up to there, and that is said.
func TestTruncated(t *testing.T) {
	plain, err := os.ReadFile(answered(t))
	if err != nil {
		t.Fatal(err)
	}
	got, sum := requestsOf(t, write(t, plain[:len(plain)-10]), Options{})
	if len(got) != 1 || got[0].Flags&observe.FlagUnfinished == 0 {
		t.Errorf("requests are %+v", got)
	}
	if !strings.Contains(strings.Join(sum.Missing, "\n"), "ends in the middle of a packet") {
		t.Errorf("missing is %q", sum.Missing)
	}
}

func TestNoCapture(t *testing.T) {
	plain, err := os.ReadFile(answered(t))
	if err != nil {
		t.Fatal(err)
	}
	arp := newScript()
	arp.packets = []wirePacket{{0, make([]byte, 40)}}
	for name, c := range map[string]struct{ path, want string }{
		"text":           {write(t, []byte("no capture\n")), "is no capture of packets"},
		"empty":          {write(t, nil), "is no capture of packets"},
		"absent":         {filepath.Join(t.TempDir(), "none"), "no such file"},
		"no packet":      {write(t, plain[:24]), "holds no packet"},
		"only the magic": {write(t, plain[:4]), "EOF"},
		"no TCP":         {file(t, layers.LinkTypeRaw, nil, arp), "holds no TCP packet"},
		"a radio":        {file(t, layers.LinkTypeIEEE802_11, nil, arp), "not known"},
	} {
		_, err := Requests(c.path, Options{}, func(*observe.Request) {})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error is %v, want one line with %q", name, err, c.want)
		}
	}
}

func TestOnlyPorts(t *testing.T) {
	if got, _ := requestsOf(t, answered(t), Options{Ports: []int{80}}); len(got) != 0 {
		t.Errorf("%d requests, want none", len(got))
	}
}

// What a capture tells is judged as what a kernel tells; of the rest it is said
// that it was not looked at.
func TestObserve(t *testing.T) {
	var scripts []*script
	for i := range 40 { // half of the answers are lost once
		s := newScript()
		s.client = addr("10.8.0.9:" + []string{"5", "6"}[i%2] + "00" + string(rune('0'+i/10)) + string(rune('0'+i%10)))
		at := float64(i) * 50
		s.open(at, 0.1, 2)
		s.ask(at+5, get)
		s.answer(at+6.1, ok, 300)
		if i%2 == 0 {
			s.again(at+210, false, 300)
			s.acked(at + 212)
		} else {
			s.acked(at + 8.1)
		}
		scripts = append(scripts, s)
	}
	path := file(t, layers.LinkTypeRaw, nil, scripts...)
	o, err := Observe(path, "test", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Endpoints) != 1 || o.Endpoints[0].Requests != 40 || o.Endpoints[0].Retrans != 20 || o.Endpoints[0].Connections != 40 {
		t.Fatalf("endpoints are %+v", o.Endpoints)
	}
	r := diagnose.Diagnose(t.Context(), o, diagnose.Saved)
	if len(r.Findings) == 0 || r.Findings[0].Cause != "network-loss" && r.Findings[0].Cause != "rto-tail-loss" {
		t.Errorf("findings are %+v", r.Summary())
	}
	for _, e := range r.RuledOut {
		// Why bytes waited in the send queue only the host knows, so Nagle's algorithm too.
		if e.Cause == "conntrack-full" || e.Cause == "rp-filter-drop" || e.Cause == "nagle-delayed-ack" {
			t.Errorf("%s is ruled out: %s", e.Cause, e.Because)
		}
	}
	one, err := Observe(path, "test", Options{Ports: []int{7001}})
	if err != nil {
		t.Fatal(err)
	}
	if got := diagnose.Diagnose(t.Context(), one, diagnose.Saved); len(got.Endpoints) != 1 || got.Summary() != r.Summary() {
		t.Errorf("of the only port: %+v, %s", got.Endpoints, got.Summary())
	}
}

// Whatever is in a file, reading it ends, and the parts of each request add up.
func FuzzRequests(f *testing.F) {
	plain, err := os.ReadFile(answered(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Add(plain[:50])
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 1<<16 {
			t.Skip()
		}
		_, _ = Requests(write(t, content), Options{Labels: true}, func(r *observe.Request) {
			for p, ns := range r.Ledger {
				if ns < 0 {
					t.Errorf("%v takes %d ns", observe.Part(p), ns)
				}
			}
		})
	})
}
