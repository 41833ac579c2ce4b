package report

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

func TestAppendTCPRT(t *testing.T) {
	with := func(r *observe.Request, change func(*observe.Request)) *observe.Request {
		change(r)
		return r
	}
	for _, c := range []struct {
		name string
		r    *observe.Request
		want string
	}{
		// The start is that of the first segment: a millisecond after the
		// connection was complete. 205,073 µs less that; the acknowledgement
		// that was 39.9 ms late is nobody's time.
		{"served", served(), "V6 R 1795230245 7007 10.0.0.9:51234 10.0.0.5:3306 11000 204073 97 1 3 2820 50 45 0 1448\n"},
		{"reordered", with(served(), func(r *observe.Request) { r.Flags |= observe.FlagReordered }),
			"V6 R 1795230245 7007 10.0.0.9:51234 10.0.0.5:3306 11000 204073 97 1 3 2820 50 45 1 1448\n"},
		{"IPv6", with(served(), func(r *observe.Request) {
			r.Local, r.Peer = netip.MustParseAddrPort("[::1]:80"), netip.MustParseAddrPort("[2001:db8::9]:5")
		}), "V6 R 1795230245 7007 [2001:db8::9]:5 [::1]:80 11000 204073 97 1 3 2820 50 45 0 1448\n"},
		{"cut off", with(served(), func(r *observe.Request) { r.Flags |= observe.FlagTruncated | observe.FlagReset; r.Unacked = 9552 }),
			"V6 W 1795230245 7007 10.0.0.9:51234 10.0.0.5:3306 11000 204073 97 1 3 2820 50 9552 0 1448\n"},
		{"no answer", with(served(), func(r *observe.Request) { r.Flags |= observe.FlagUnanswered | observe.FlagTruncated; r.BytesOut = 0 }),
			"V6 N 1795230245 7007 10.0.0.9:51234 10.0.0.5:3306 3 204073 45 0 1448\n"},
		{"in progress", with(served(), func(r *observe.Request) { r.Flags |= observe.FlagUnfinished }), ""},
		// 3,200 µs less the 700 until the answer was read; the first byte came
		// after 2,100, the last 400 later.
		{"called", called(), "V6 P 1593684547 1 [fd00::7]:4192 10.0.0.5:41000 300 2500 80 0 1 2100 400 5000 0 1448\n"},
		{"called, no answer", with(called(), func(r *observe.Request) { r.Flags |= observe.FlagUnanswered }), ""},
	} {
		if diff := cmp.Diff(c.want, string(AppendTCPRT(nil, c.r))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestAppendTCPRTClosed(t *testing.T) {
	c := observe.Closed{
		Side: observe.Served, TimeNS: 1593684547_123456_789, Local: netip.MustParseAddrPort("10.0.0.5:3306"), Peer: netip.MustParseAddrPort("10.0.0.9:51234"),
		Seq: 12, BytesOut: 34567, BytesIn: 890, Unacked: 3, Retrans: 2, MinRTTNS: 97_999, MSS: 1448,
	}
	const want = "V6 E 1593684547 123456 10.0.0.9:51234 10.0.0.5:3306 12 34570 3 890 2 97\n"
	if got := string(AppendTCPRTClosed(nil, &c)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Seq = 0
	if got := AppendTCPRTClosed(nil, &c); len(got) > 0 {
		t.Errorf("a connection without a request: %q", got)
	}
}

// TestTCPRTStats sums up a minute of known requests. Its figures are those of
// a line that TCPRT itself wrote.
func TestTCPRTStats(t *testing.T) {
	var s TCPRTStats
	r := served()
	r.Ledger = observe.Ledger{observe.AcceptWait: 5_000_000, observe.Upload: 0, observe.RecvWait: 95_000, observe.Server: 4_300_000,
		observe.Network: 2_793_000, observe.AckDelay: 40_000_000}
	r.Retrans, r.MinRTTNS, r.BytesOut, r.BytesIn, r.Weight = 0, 97_000, 141, 45, 1_367_174
	s.Add(r)
	now := time.Unix(1593684547, 0)
	if got, want := string(s.Append(nil, now)), "1593684547 all 3306 7188 4395 0 97 0 141 0 45 1367174\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := s.Append(nil, now); len(got) > 0 {
		t.Errorf("counted twice: %q", got)
	}
}

func TestTCPRTStatsOfManyPorts(t *testing.T) {
	var s TCPRTStats
	// 1,000 answers of four segments, of which 120 were lost: 120 of 4,120.
	for i := range 1000 {
		r := served()
		r.Local = netip.MustParseAddrPort("10.0.0.5:443")
		r.Ledger = observe.Ledger{observe.Upload: 10_000, observe.Server: 90_000}
		r.BytesOut, r.BytesIn, r.Retrans = 4*1448, 100, 0
		if i < 120 {
			r.Retrans = 1
		}
		s.Add(r)
	}
	cut := served()
	cut.Local = netip.MustParseAddrPort("10.0.0.5:443")
	cut.Flags = observe.FlagTruncated
	for range 10 {
		s.Add(cut)
	}
	none := served() // not in the statistics
	none.Flags = observe.FlagUnanswered
	s.Add(none)
	going := served()
	going.Flags = observe.FlagUnfinished
	s.Add(going)
	again := served()
	again.Flags = observe.FlagAmended
	s.Add(again)
	s.Add(called())
	refused := called()
	refused.Flags = observe.FlagUnanswered
	s.Add(refused)
	pipelined := served()
	pipelined.Local = netip.MustParseAddrPort("10.0.0.5:6379")
	pipelined.Ledger = observe.Ledger{observe.Unaccounted: 500_000}
	pipelined.Requests, pipelined.BytesIn, pipelined.BytesOut, pipelined.Retrans, pipelined.MSS = 5, 500, 1000, 0, 0
	s.Add(pipelined)
	const want = `1593684547 all 443 100 90 29 97 10 5792 10 100 1000
1593684547 all 6379 500 0 0 97 0 200 0 100 5
1593684547 all P4192 2500 2100 0 80 500 300 400 5000 1
`
	if diff := cmp.Diff(want, string(s.Append(nil, time.Unix(1593684547, 0)))); diff != "" {
		t.Error(diff)
	}
}

// TestTCPRTStatsExactLoss: what the kernel counted goes before the records.
func TestTCPRTStatsExactLoss(t *testing.T) {
	var s TCPRTStats
	s.AddSegments(observe.Served, 3306, 1000, 50) // a port without a request has no line
	if got := s.Append(nil, time.Unix(1, 0)); len(got) > 0 {
		t.Errorf("%q", got)
	}
	r := served()
	r.Retrans = 0
	s.Add(r)
	s.AddSegments(observe.Served, 3306, 600, 10) // of two addresses with this port
	s.AddSegments(observe.Served, 3306, 400, 20)
	if got := string(s.Append(nil, time.Unix(1, 0))); !strings.HasPrefix(got, "1 all 3306 204073 2820 30 ") {
		t.Errorf("%q", got)
	}
}

// TestTCPRTFilters runs the awk lines that people have for TCPRT.
func TestTCPRTFilters(t *testing.T) {
	awk, err := exec.LookPath("awk")
	if err != nil {
		t.Skip("SKIPPED: there is no awk")
	}
	slow, fast, app := served(), served(), served()
	fast.Ledger = observe.Ledger{observe.AcceptWait: 90_000_000, observe.Server: 2_800_000, observe.Network: 9_999_000, observe.AckDelay: 39_000_000}
	app.Ledger = observe.Ledger{observe.Server: 300_000_000, observe.Network: 100_000} // slow, but not for the network
	fast.Seq, app.Seq = 4, 5
	var s TCPRTStats
	var log []byte
	for _, r := range []*observe.Request{slow, fast, app, called()} {
		log = AppendTCPRT(log, r)
		s.Add(r)
	}
	log = s.Append(log, time.Unix(1593684547, 0))
	run := func(program string) string {
		cmd := exec.Command(awk, program)
		cmd.Stdin = strings.NewReader(string(log))
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got, want := run(`/ R / { if (($8-$12)>10000) print }`), string(AppendTCPRT(nil, slow)); got != want {
		t.Errorf("requests whose total exceeds the server time by 10 ms: %q, want %q", got, want)
	}
	// Three answers of 8 segments, each of which lost one.
	if got, want := run(`/ all 3306 / { print $6 }`), "111\n"; got != want {
		t.Errorf("loss in per mille: %q, want %q", got, want)
	}
}
