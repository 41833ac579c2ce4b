package report

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/observe"
)

// hostile is what a name or label of the watched host may hold at worst.
const hostile = "a\x1b]0;owned\x07\x1b[2J\u202e\x00\xff\u009bb\"\\\rc\nd\u2028\U000e0041<é"

func served() *observe.Request {
	return &observe.Request{
		Side: observe.Served, StartNS: time.Date(2026, 11, 21, 3, 4, 5, 6007008, time.UTC).UnixNano(), NetNS: 4026531840,
		Local: netip.MustParseAddrPort("10.0.0.5:3306"), Peer: netip.MustParseAddrPort("10.0.0.9:51234"),
		PID: 77, TID: 78, Seq: 3, Requests: 1, Weight: 1,
		Ledger: observe.Ledger{
			observe.AcceptWait: 1_000_000, observe.Upload: 50_000, observe.RecvWait: 20_000, observe.Server: 2_800_123,
			observe.Network: 203_001, observe.Retrans: 201_000_000, observe.AckDelay: 39_900_000,
		},
		BytesIn: 45, BytesOut: 11_000, Retrans: 1, RTTNS: 203_001, MinRTTNS: 97_999, MSS: 1448,
		Status: observe.StatusOK, FirstByte: 3_870_123,
	}
}

func called() *observe.Request {
	return &observe.Request{
		Side: observe.Called, StartNS: 1593684547_000_001_999, NetNS: 4026531840,
		Local: netip.MustParseAddrPort("[::ffff:10.0.0.5]:41000"), Peer: netip.MustParseAddrPort("[fd00::7]:4192"),
		PID: 77, Seq: 1, Requests: 1, Weight: 1,
		Ledger: observe.Ledger{
			observe.Upload: 10_000, observe.RecvWait: 700_000, observe.Server: 2_000_000, observe.Stall: 400_000, observe.Network: 90_000,
		},
		BytesIn: 5000, BytesOut: 300, RTTNS: 90_000, MinRTTNS: 80_000, MSS: 1448, FirstByte: 2_100_000,
	}
}

func names(pid int, _ int64) (observe.Identity, bool) {
	return observe.Identity{Comm: "mariadbd", Cgroup: "/system.slice/mariadb.service", Unit: "mariadb.service"}, pid == 77
}

func TestAppendRequestJSON(t *testing.T) {
	const want = `{"schema":"slowray.request/1","side":"served","start":"2026-11-21T03:04:05.006007008Z","netns":4026531840,` +
		`"addr":"10.0.0.5","port":3306,"peer_addr":"10.0.0.9","peer_port":51234,` +
		`"process":{"pid":77,"comm":"mariadbd","cgroup":"/system.slice/mariadb.service","container":null,"unit":"mariadb.service"},` +
		`"seq":3,"bytes_in":45,"bytes_out":11000,"retrans":1,"rtt_us":203.001,"min_rtt_us":97.999,"total_us":205073.124,` +
		`"ledger_us":{"accept_wait":1000.000,"upload":50.000,"recv_wait":20.000,"server":2800.123,"network":203.001,"retrans":201000.000,"ack_delay":39900.000},` +
		`"status":"ok","http_status":null,"flags":[]}` + "\n"
	if diff := cmp.Diff(want, string(AppendRequestJSON(nil, served(), names, nil))); diff != "" {
		t.Error(diff)
	}

	opened := called()
	opened.Opening = observe.Opening{DNS: 2_000_000, Connect: 31_000_000, Idle: 400_000}
	for _, c := range []struct{ json, text string }{
		{`},"connection_us":{"dns":2000.000,"connect":31000.000,"idle":400.000},"status"`, " (dns 2.00ms, connect 31.0ms) upload "},
		{`},"connection_us":{"connect":31000.000,"idle":5000.000},"status"`, " (connect 31.0ms, idle 5.00ms) upload "},
		{`},"status"`, "  upload "},
	} {
		if got := string(AppendRequestJSON(nil, opened, nil, nil)); !strings.Contains(got, c.json) {
			t.Errorf("%s: has no %s", got, c.json)
		}
		if got := string(AppendRequestText(nil, opened, nil, nil, Style{})); !strings.Contains(got, c.text) {
			t.Errorf("%q: has no %q", got, c.text)
		}
		if opened.Opening.DNS == 0 {
			opened.Opening.Connect = 0 // nothing is known
		}
		opened.Opening.DNS, opened.Opening.Idle = 0, 5_000_000
	}

	r := called()
	r.PID, r.HTTP, r.Status, r.Label = 0, 503, observe.StatusError, "GET /"
	r.Flags = observe.FlagOverlapped | observe.FlagSlow
	r.Requests, r.Weight, r.RTTNS = 4, 16, 0
	r.Ledger = observe.Ledger{observe.Unaccounted: 3_000_000}
	const wantOverlapped = `{"schema":"slowray.request/1","side":"called","start":"2020-07-02T10:09:07.000001999Z","netns":4026531840,` +
		`"addr":"10.0.0.5","port":41000,"peer_addr":"fd00::7","peer_port":4192,"seq":1,"requests":4,"weight":16,` +
		`"bytes_in":5000,"bytes_out":300,"retrans":0,"rtt_us":null,"min_rtt_us":80.000,"total_us":3000.000,` +
		`"ledger_us":{"unaccounted":3000.000},"status":"error","http_status":503,"flags":["overlapped","slow"],"label":"GET /"}` + "\n"
	if diff := cmp.Diff(wantOverlapped, string(AppendRequestJSON(nil, r, names, nil))); diff != "" {
		t.Error(diff)
	}
}

// TestRequestJSONFollowsTheSchema: any request, whatever its bytes, is one
// line that fits the schema, and its parts add up to the nanosecond.
func TestRequestJSONFollowsTheSchema(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema, err := compiler.Compile("../../schema/request.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	hostileNames := func(int, int64) (observe.Identity, bool) {
		return observe.Identity{Comm: hostile, Cgroup: hostile, Container: hostile, Unit: hostile}, true
	}
	rng := rand.New(rand.NewPCG(1, 2))
	requests := []*observe.Request{served(), called(), {Side: observe.Served, Seq: 1}}
	for range 300 {
		requests = append(requests, anyRequest(rng))
	}
	for _, r := range requests {
		line := AppendRequestJSON(nil, r, hostileNames, nil)
		if n := bytes.Count(line, []byte("\n")); n != 1 || line[len(line)-1] != '\n' {
			t.Fatalf("%d newlines in %q", n, line)
		}
		for _, c := range string(line[:len(line)-1]) {
			if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) {
				t.Fatalf("character %U in %q", c, line)
			}
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		if err := schema.Validate(v); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		checkSum(t, line)
	}
}

// checkSum adds the decimal figures of a line up exactly.
func checkSum(t *testing.T, line []byte) {
	t.Helper()
	var got struct {
		Total  json.Number            `json:"total_us"`
		Ledger map[string]json.Number `json:"ledger_us"`
	}
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	sum := new(big.Rat)
	for part, us := range got.Ledger {
		if n, ok := new(big.Rat).SetString(us.String()); ok && part != "ack_delay" {
			sum.Add(sum, n)
		}
	}
	if total, ok := new(big.Rat).SetString(got.Total.String()); !ok || total.Cmp(sum) != 0 {
		t.Errorf("the parts add up to %s µs, the total is %s", sum.FloatString(3), got.Total)
	}
}

func anyRequest(rng *rand.Rand) *observe.Request {
	r := served()
	if rng.IntN(2) == 0 {
		r = called()
	}
	for p := range r.Ledger {
		r.Ledger[p] = 0
		if rng.IntN(3) > 0 {
			r.Ledger[p] = rng.Int64N(1 << rng.IntN(42))
		}
	}
	r.StartNS = rng.Int64N(1 << 62)
	r.PID, r.Seq, r.Requests, r.Weight = rng.IntN(3), 1+rng.Uint32N(9), rng.Uint32N(3), rng.Uint32N(3)
	r.BytesIn, r.BytesOut, r.RTTNS, r.MinRTTNS = rng.Uint64N(1<<40), rng.Uint64N(1<<40), rng.Int64N(2)*rng.Int64N(1<<33), rng.Int64N(1<<33)
	r.Status, r.HTTP, r.Flags = observe.Status(rng.IntN(3)), rng.IntN(2)*(100+rng.IntN(500)), observe.RequestFlags(rng.Uint32())
	if rng.IntN(2) == 0 {
		label := []byte(hostile)
		rng.Shuffle(len(label), func(i, j int) { label[i], label[j] = label[j], label[i] })
		r.Label = string(label)
	}
	return r
}

func TestAppendRequestText(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })

	b := AppendRequestHeader(nil, Style{})
	b = AppendRequestText(b, served(), names, nil, Style{})
	r := called()
	r.HTTP, r.Status, r.Label = 503, observe.StatusError, "GET /a\x1b[2Jb"
	r.Flags = observe.FlagClosed | observe.FlagNagle
	b = AppendRequestText(b, r, nil, nil, Style{})
	r = served()
	r.PID, r.Status, r.Flags, r.Requests, r.Weight = 0, observe.StatusUnknown, observe.FlagOverlapped, 4, 2
	r.Ledger = observe.Ledger{observe.Unaccounted: 42}
	b = AppendRequestText(b, r, names, nil, Style{})
	const want = `start        side   endpoint              client                status  total  time breakdown
03:04:05.006 served 10.0.0.5:3306         10.0.0.9:51234        ok      205ms  accept_wait 1.00ms upload 50.0µs recv_wait 20.0µs server 2.80ms network 203µs retrans 201ms (ack_delay 39.9ms) mariadbd[77]
10:09:07.000 called [fd00::7]:4192        10.0.0.5:41000        503    3.20ms  upload 10.0µs recv_wait 700µs server 2.00ms stall 400µs network 90.0µs [closed,nagle] [77]  GET /a�[2Jb
03:04:05.006 served 10.0.0.5:3306         10.0.0.9:51234        -        42ns  unaccounted 42ns 4 requests 1 of 2 [overlapped]
`
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Error(diff)
	}
}

// TestRequestTextColour: colours change nothing but the colour, and end.
func TestRequestTextColour(t *testing.T) {
	r := served()
	r.Status, r.Flags = observe.StatusError, observe.FlagTimeout
	plain := string(AppendRequestText(AppendRequestHeader(nil, Style{}), r, names, nil, Style{}))
	coloured := string(AppendRequestText(AppendRequestHeader(nil, Style{Color: true}), r, names, nil, Style{Color: true}))
	if !strings.Contains(coloured, "\x1b[1;31merror\x1b[0m") || strings.Contains(plain, "\x1b") {
		t.Errorf("%q\n%q", plain, coloured)
	}
	for _, c := range []color{bold, dim, red, yellow} {
		coloured = strings.ReplaceAll(coloured, "\x1b["+string(c)+"m", "")
	}
	if diff := cmp.Diff(plain, strings.ReplaceAll(coloured, "\x1b[0m", "")); diff != "" {
		t.Error(diff)
	}
}

func TestRequestTextIsHarmless(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		line := AppendRequestText(nil, anyRequest(rng), func(int, int64) (observe.Identity, bool) { return observe.Identity{Comm: hostile}, true }, nil, Style{})
		for _, c := range string(line[:len(line)-1]) {
			if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) {
				t.Fatalf("character %U in %q", c, line)
			}
		}
	}
}

func TestAppendDuration(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0ns", 999: "999ns", 1000: "1.00µs", 9994: "9.99µs", 9995: "10.0µs", 12_345: "12.3µs", 99_949: "99.9µs", 99_950: "100µs",
		999_499: "999µs", 999_500: "1.00ms", 214_000_000: "214ms", 1_299_000_000: "1.30s", 59_960_000_000: "60.0s",
		999_600_000_000: "1000s", 3_600_000_000_000: "3600s", -5: "-5ns",
	} {
		if got := string(AppendDuration(nil, ns)); got != want {
			t.Errorf("%d: %q, want %q", ns, got, want)
		}
	}
}

func TestAppendMicros(t *testing.T) {
	for ns, want := range map[int64]string{0: "0.000", 1: "0.001", 999: "0.999", 1000: "1.000", -1500: "-1.500", 1<<63 - 1: "9223372036854775.807"} {
		if got := string(appendMicros(nil, ns)); got != want {
			t.Errorf("%d: %q, want %q", ns, got, want)
		}
	}
}

// TestRequestLinesAllocateNothing: 100,000 of them may be written a second.
func TestRequestLinesAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 4096)
	r := served()
	r.Label, r.Flags, r.HTTP = "GET /index.html", observe.FlagTimeout|observe.FlagSlow, 200
	var stats TCPRTStats
	stats.Add(r)
	for name, f := range map[string]func(){
		"json":  func() { buf = AppendRequestJSON(buf[:0], r, names, nil) },
		"text":  func() { buf = AppendRequestText(buf[:0], r, names, nil, Style{Color: true}) },
		"tcprt": func() { buf = AppendTCPRT(buf[:0], r) },
		"stats": func() { stats.Add(r) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations per request", name, n)
		}
	}
}

func BenchmarkAppendRequestJSON(b *testing.B) {
	buf, r := make([]byte, 0, 4096), served()
	for b.Loop() {
		buf = AppendRequestJSON(buf[:0], r, names, nil)
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkAppendRequestText(b *testing.B) {
	buf, r := make([]byte, 0, 4096), served()
	for b.Loop() {
		buf = AppendRequestText(buf[:0], r, names, nil, Style{})
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkAppendTCPRT(b *testing.B) {
	buf, r := make([]byte, 0, 4096), served()
	for b.Loop() {
		buf = AppendTCPRT(buf[:0], r)
	}
	b.SetBytes(int64(len(buf)))
}
