package tcprt

import (
	"bytes"
	"compress/gzip"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rt-network-log0")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// parts are those of a ledger that take time, in µs.
func parts(r *observe.Request) map[string]int64 {
	m := map[string]int64{}
	for p := range observe.NumParts {
		if ns := r.Ledger[p]; ns != 0 {
			m[p.String()] = ns / 1000
		}
	}
	return m
}

func TestLedgers(t *testing.T) {
	const head = "1593684547 123456 10.0.0.9:51234 10.0.0.5:3306 "
	for _, c := range []struct {
		name, line string
		want       map[string]int64
		rtt        int64 // µs
		flags      observe.RequestFlags
	}{
		{"plain", "V6 R " + head + "141 3306 97 0 1 2800 10 45 0 1448", map[string]int64{"upload": 10, "server": 2800, "network": 496}, 496, 0},
		{"far away", "V6 R " + head + "141 19900 17000 0 1 2800 0 45 0 1448", map[string]int64{"server": 2800, "network": 17_100}, 17_100, 0},
		// Incident E: a lost segment of the answer, and the timer that retransmits it.
		{"lost", "V6 R " + head + "141 214000 97 1 1 2800 0 45 0 1448", map[string]int64{"server": 2800, "network": 1097, "retrans": 210_103}, 97, observe.FlagTimeout},
		{"lost and retransmitted fast", "V6 R " + head + "141 9000 1000 1 1 2800 0 45 0 1448", map[string]int64{"server": 2800, "network": 2000, "retrans": 4200}, 1000, 0},
		// A client that acknowledges 18.4 ms late: nobody can tell it from a pause.
		{"late acknowledgement", "V6 R " + head + "141 32800 97 0 1 14400 0 45 0 1448", map[string]int64{"server": 14_400, "network": 1097, "unaccounted": 17_303}, 97, observe.FlagEstimated},
		{"large answer", "V6 R " + head + "144800 10000 1000 0 1 1000 0 45 0 1448", map[string]int64{"server": 1000, "network": 8000, "unaccounted": 1000}, 1000, observe.FlagEstimated},
		{"no round trip known", "V6 R " + head + "141 5000 0 0 1 1000 0 45 0 1448", map[string]int64{"server": 1000, "network": 4000}, 4000, 0},
		{"parts that exceed the whole", "V6 R " + head + "141 1000 100 0 1 5000 600 45 1 1448", map[string]int64{"upload": 600, "server": 400}, 100, observe.FlagReordered},
		{"more fields than are known", "V6 R " + head + "141 3306 97 0 1 2800 10 45 0 1448 7 8 9", map[string]int64{"upload": 10, "server": 2800, "network": 496}, 496, 0},
		{"no answer", "V6 N " + head + "3 204073 45 0 1448", map[string]int64{"unaccounted": 204_073}, 0, observe.FlagUnanswered | observe.FlagClosed},
		{"cut off", "V6 W " + head + "11000 204073 97 1 3 2820 50 9552 0 1448", map[string]int64{"upload": 50, "server": 2820, "network": 1097, "retrans": 200_106}, 97,
			observe.FlagTruncated | observe.FlagClosed | observe.FlagTimeout},
		{"called", "V6 P " + head + "300 2500 80 0 1 2100 400 5000 0 1448", map[string]int64{"server": 2020, "network": 480}, 80, 0},
		{"called, retransmitted", "V6 P " + head + "300 252500 80 1 1 252100 400 5000 0 1448", map[string]int64{"server": 52_020, "network": 480, "unaccounted": 200_000}, 80, observe.FlagEstimated},
		{"called, as the source has it", "V6 P " + head + "300 2500 0 1 80 0 1448", map[string]int64{"server": 2420, "network": 80}, 80, observe.FlagEstimated},
	} {
		l, err := parse([]byte(c.line))
		var r observe.Request
		if err != nil || !l.request(&r) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, parts(&r)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if r.RTTNS/1000 != c.rtt || r.Flags != c.flags || r.StartNS != 1593684547_123456_000 || r.Peer != netip.MustParseAddrPort("10.0.0.9:51234") {
			t.Errorf("%s: round trip %d µs, flags %v, %+v", c.name, r.RTTNS/1000, r.Flags.Names(), r)
		}
		if whole := int64(l.total) * 1000; r.TotalNS() != whole {
			t.Errorf("%s: the parts add up to %d of %d ns", c.name, r.TotalNS(), whole)
		}
	}
}

// What slowray writes as TCPRT's log it reads as the same.
func TestWrittenAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) * 1000 }
		r := observe.Request{Side: observe.Served, StartNS: us("start", 1e9)*1000 + 1593684547e9, Local: netip.MustParseAddrPort("[fd00::5]:3306"),
			Peer: netip.MustParseAddrPort("10.0.0.9:51234"), Seq: rapid.Uint32Min(1).Draw(t, "seq"), Requests: 1, Weight: 1,
			BytesIn: uint64(us("in", 1e6)), BytesOut: uint64(us("out", 1e9)), Retrans: rapid.Uint32Max(9).Draw(t, "again"), MinRTTNS: us("rtt", 1e6), MSS: 1448,
			Flags: rapid.SampledFrom([]observe.RequestFlags{0, observe.FlagUnanswered, observe.FlagTruncated, observe.FlagReordered}).Draw(t, "flags")}
		for _, p := range []observe.Part{observe.AcceptWait, observe.Upload, observe.RecvWait, observe.Server, observe.Stall, observe.Network, observe.Retrans} {
			r.Ledger[p] = us(p.String(), 1e7)
		}
		if r.Flags&observe.FlagTruncated != 0 {
			r.Unacked = rapid.Uint32().Draw(t, "unacked")
		}
		text := report.AppendTCPRT(nil, &r)
		l, err := parse(bytes.TrimSuffix(text, []byte("\n")))
		var again observe.Request
		if err != nil || !l.request(&again) {
			t.Fatalf("%s: %v", text, err)
		}
		if back := report.AppendTCPRT(nil, &again); !bytes.Equal(back, text) {
			t.Fatalf("%s is written again as\n%s", text, back)
		}
	})
}

var hostileLines = []string{
	"V6", "V6 R", "V6 X 1593684547 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1", "V7 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1",
	"V6 R 1593684547 1 10.0.0.9 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1", "V6 R 1593684547 1 evil.example:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1", "V6 R 1593684547 1 10.0.0.9:70000 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1",
	"V6 R -1 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1", "V6 R 99999999999999999999 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1", "V6 R 0 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1",
	"V6 R 1593684547 1000000 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0 1", "V6 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 18446744073709551615 1 1 1 1 1 1 1 0 1",
	"V6 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 1 18446744073709551615 1 1 1 1 1 1 0 1", "V6 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 0 1 1 1 0 1", "V6 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 7 1",
	"V6 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 0x1 1 1 1 1 1 1 1 0 1", "V6 R 1593684547 1 10.0.0.9:1 10.0.0.5:2 1 1 1 1 1 1 1 1 0", "1593684547 all x 1 1 0 1 0 1 0 1 1", "1593684547 all 99999 1 1 0 1 0 1 0 1 1",
	"1593684547 all 80 1 1 1001 1 0 1 0 1 1", "1593684547 all 80 1 1 0 1 0 1 0 1", "\x1b[2J", "<script>", strings.Repeat("V6 R ", 1000), strings.Repeat("9", 5<<20), "V6 R " + strings.Repeat("1 ", 100), "\xff\xfe\x00",
}

func TestHostileLinesAreCounted(t *testing.T) {
	const good = "V6 R 1593684547 123456 10.0.0.9:51234 10.0.0.5:3306 141 3306 97 0 1 2800 10 45 0 1448\n"
	path := write(t, good+strings.Join(hostileLines, "\n")+"\n\n \r\n"+strings.ReplaceAll(good, "\n", "\r\n")+strings.TrimSuffix(good, "\n"))
	n := 0
	s, err := Requests(path, Options{}, func(*observe.Request) { n++ })
	if err != nil {
		t.Fatal(err)
	}
	if n != 3 || s.Lines != 3 || len(s.Losses) != 1 || s.Losses[0].Count != int64(len(hostileLines)) {
		t.Errorf("%d requests, %d lines, %+v; want 3, 3, %d", n, s.Lines, s.Losses, len(hostileLines))
	}
	for _, line := range hostileLines {
		if _, err := Requests(write(t, line), Options{}, func(*observe.Request) {}); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q alone: %v", line, err)
		}
		if Recognises(write(t, line)) {
			t.Errorf("%.40q is taken for a log", line)
		}
	}
}

func TestRecognises(t *testing.T) {
	const good = "V6 R 1593684547 123456 10.0.0.9:51234 10.0.0.5:3306 141 3306 97 0 1 2800 10 45 0 1448\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write([]byte(good))
	z.Close()
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"a log": {good, true}, "in the middle of a line": {"5 2800 10 45 0 1448\n" + good, true}, "averages": {"1593684547 all 3306 7188 4395 0 97 0 141 0 45 1367174\n", true},
		"packed": {packed.String(), true}, "empty": {"", false}, "text": {"hello\n", false}, "a capture": {"\xd4\xc3\xb2\xa1\x02\x00\x04\x00", false}, "JSON": {`{"schema":"slowray.request/1"}`, false},
		"half packed": {packed.String()[:20], false},
	} {
		if got := Recognises(write(t, c.text)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if Recognises("/nonexistent") || Recognises(t.TempDir()) {
		t.Error("what is no file is a log")
	}
}

func TestObserve(t *testing.T) {
	var b strings.Builder
	for i := range 100 {
		b.WriteString("V6 R 15936845" + string(rune('0'+i/10)) + "0 0 10.0.0.9:51234 10.0.0.5:3306 14480 20000 17000 0 1 2800 0 45 0 1448\n")
	}
	b.WriteString("V6 P 1593684550 0 10.0.0.7:4192 10.0.0.5:40000 300 2500 80 0 1 2100 400 5000 0 1448\n")
	b.WriteString("V6 E 1593684590 1 10.0.0.9:51234 10.0.0.5:3306 100 1448000 0 4500 3 17000\nV6 E 1593684590 1 10.0.0.7:4192 10.0.0.5:40000 1 300 0 5000 0 80\n")
	// Averages count only where there is no line of a request.
	b.WriteString("1593684560 all 3306 7188 4395 0 97 0 141 0 45 1367174\n1593684560 all 8080 5000 4000 10 500 0 141 0 45 600\n1593684560 all P11211 300 0 0 80 0 10 0 900 50\n")
	o, err := Observe(write(t, b.String()), "test", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Window.Seconds < 90 || o.Capture.Lines != 106 || o.Capture.Connections != 2 || len(o.Endpoints) != 4 {
		t.Fatalf("%+v, %d endpoints of %+v", o.Window, len(o.Endpoints), o.Capture)
	}
	type sum struct {
		Side             string
		Port             int
		Requests, Conns  uint64
		ServerUS, Retran int64
	}
	var got []sum
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		got = append(got, sum{e.Side, e.Port, e.Requests, e.Connections, int64(e.MeanNS(observe.Server)) / 1000, int64(e.Retrans)})
	}
	want := []sum{{"served", 8080, 600, 0, 4000, 6}, {"served", 3306, 100, 1, 2800, 0}, {"called", 11211, 50, 0, 0, 0}, {"called", 4192, 1, 1, 2020, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if one, err := Observe(write(t, b.String()), "test", Options{Ports: []int{4192}}); err != nil || len(one.Endpoints) != 1 || one.Filter.Port != 4192 || len(diagnose.Diagnose(t.Context(), one, diagnose.Saved).Endpoints) != 1 {
		t.Errorf("%v %+v", err, one)
	}
	if _, err := Observe(write(t, "V6 E 1593684590 1 10.0.0.9:51234 10.0.0.5:3306 100 1448000 0 4500 3 17000\n"), "test", Options{}); err == nil {
		t.Error("a log without a request is read")
	}
	averages, err := Observe(write(t, "1593684547 all 3306 7188 4395 0 97 0 141 0 45 1367174\n1593684607 all 3306 7188 4395 0 97 0 141 0 45 1367174\n"), "test", Options{})
	if err != nil || averages.Window.Seconds != 120 || averages.Endpoints[0].Requests != 2*1367174 {
		t.Errorf("averages alone: %v %+v", err, averages)
	}
}

func FuzzParse(f *testing.F) {
	for _, l := range hostileLines {
		if len(l) < 1000 {
			f.Add([]byte(l))
		}
	}
	f.Add([]byte("V6 W 1593684547 123456 [::1]:51234 10.0.0.5:3306 11000 204073 97 1 3 2820 50 9552 0 1448"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parse(text)
		if err != nil {
			return
		}
		var r observe.Request
		if !l.request(&r) {
			return
		}
		for p, ns := range r.Ledger {
			if ns < 0 {
				t.Fatalf("%s: %s is %d ns", text, observe.Part(p), ns)
			}
		}
		if r.TotalNS() != int64(l.total)*1000 {
			t.Fatalf("%s: parts add up to %d of %d", text, r.TotalNS(), l.total*1000)
		}
	})
}
