package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/shell"
)

// script is a recorder that hands out what a test says: one step for each poll,
// then what FlushAll brings out.
type script struct {
	steps    [][]any // *observe.Request or *observe.Closed
	final    []any
	flushErr error

	onClosed func(*observe.Closed)
	over     func() // called when there are no more steps
	flushed  bool
}

func (s *script) Poll(each func(*observe.Request)) int {
	var step []any
	switch {
	case s.flushed:
		step, s.final = s.final, nil
	case len(s.steps) > 0:
		step, s.steps = s.steps[0], s.steps[1:]
	case s.over != nil:
		s.over()
	}
	for _, what := range step {
		switch v := what.(type) {
		case *observe.Request:
			passing := *v // valid during the call only
			each(&passing)
			passing = observe.Request{}
		case *observe.Closed:
			if s.onClosed != nil {
				s.onClosed(v)
			}
		}
	}
	return len(step)
}

func (s *script) Flush() error    { return s.flushErr }
func (s *script) FlushAll() error { s.flushed = true; return nil }
func (s *script) Counters() []request.Counters {
	return []request.Counters{{Side: observe.Served, Port: 80, Segments: 1000, Retrans: 30}}
}
func (s *script) Stats() request.Stats           { return request.Stats{} }
func (s *script) Caller(int) (string, int, bool) { return "", 0, false }
func (s *script) Close()                         {}

// streamOf is the stream of a recorder; it ends with the test.
func streamOf(t *testing.T, src request.Source) *request.Stream {
	t.Helper()
	s := request.NewStream(src)
	t.Cleanup(s.Close)
	return s
}

// ask is a request of a client, answered at port 80 by process 7.
func ask(seq uint32, client string, took time.Duration) *observe.Request {
	return &observe.Request{
		Side: observe.Served, StartNS: time.Now().Add(-took).UnixNano(), NetNS: 1, Seq: seq, Requests: 1, Weight: 1, PID: 7,
		Local: netip.MustParseAddrPort("10.0.0.1:80"), Peer: netip.MustParseAddrPort(client),
		Ledger: observe.Ledger{observe.Server: int64(took)}, BytesIn: 10, BytesOut: 20, MSS: 1000,
	}
}

func unfinished(r *observe.Request) *observe.Request {
	r.Flags |= observe.FlagUnfinished
	return r
}

// brief is a format that tests can read: client, number and milliseconds.
var brief = requestFormat{
	line: func(dst []byte, r *observe.Request, _ observe.IdentityOf, _ *observe.Workload, _ report.Style) []byte {
		return fmt.Appendf(dst, "%s#%d %d\n", r.Peer, r.Seq, r.TotalNS()/1e6)
	},
}

// drain runs a stream until its source has nothing more.
func drain(t *testing.T, s *requestStream, src *script) error {
	t.Helper()
	if s.src = request.NewStream(src); s.stats != nil {
		src.onClosed = s.closed
	}
	defer s.src.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	src.over = cancel
	return s.run(ctx)
}

func TestRequestStreamFilters(t *testing.T) {
	steps := [][]any{
		{ask(1, "10.1.0.9:1000", 5*time.Millisecond), ask(1, "[::ffff:10.2.0.9]:1001", 50*time.Millisecond)},
		{ask(2, "10.1.0.9:1000", 500*time.Millisecond)},
		{},
		{ask(1, "[fd00::1]:1002", 7*time.Millisecond)},
	}
	for _, c := range []*struct {
		name string
		s    requestStream
		want string
	}{
		{"none", requestStream{}, "10.1.0.9:1000#1 5\n[::ffff:10.2.0.9]:1001#1 50\n10.1.0.9:1000#2 500\n[fd00::1]:1002#1 7\n"},
		{"slow", requestStream{slow: 50 * time.Millisecond}, "[::ffff:10.2.0.9]:1001#1 50\n10.1.0.9:1000#2 500\n"},
		{"peer", requestStream{peer: netip.MustParsePrefix("10.2.0.0/16")}, "[::ffff:10.2.0.9]:1001#1 50\n"},
		{"IPv6 peer", requestStream{peer: netip.MustParsePrefix("fd00::/8")}, "[fd00::1]:1002#1 7\n"},
		{"process", requestStream{ours: func(r *observe.Request) bool { return r.Seq == 2 }}, "10.1.0.9:1000#2 500\n"},
		{"port", requestStream{ports: []int{80, 81}}, "10.1.0.9:1000#1 5\n[::ffff:10.2.0.9]:1001#1 50\n10.1.0.9:1000#2 500\n[fd00::1]:1002#1 7\n"},
		{"another port", requestStream{ports: []int{1000, 81}}, ""},
		{"side", requestStream{side: observe.Served, limit: 1}, "10.1.0.9:1000#1 5\n"},
		{"the other side", requestStream{side: observe.Called}, ""},
		{"limit", requestStream{limit: 3}, "10.1.0.9:1000#1 5\n[::ffff:10.2.0.9]:1001#1 50\n10.1.0.9:1000#2 500\n"},
		{"slow and limit", requestStream{slow: 6 * time.Millisecond, limit: 1}, "[::ffff:10.2.0.9]:1001#1 50\n"},
	} {
		var out bytes.Buffer
		c.s.out, c.s.format = &out, brief
		if err := drain(t, &c.s, &script{steps: steps}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestRequestsInProgress: a request that is reported while it lasts has one
// line all the same: when it is over, or at the end.
func TestRequestsInProgress(t *testing.T) {
	hanging := unfinished(ask(1, "10.1.0.9:1003", time.Second))
	still := unfinished(ask(1, "10.1.0.9:1003", 10*time.Second))
	gone := unfinished(ask(2, "10.1.0.9:1005", time.Second)) // and not told of any more
	src := &script{
		steps: [][]any{
			{unfinished(ask(4, "10.1.0.9:1000", 1500*time.Millisecond)), hanging, gone},
			{ask(4, "10.1.0.9:1000", 1600*time.Millisecond)},
		},
		final: []any{ask(5, "10.1.0.9:1000", time.Millisecond), unfinished(ask(9, "10.1.0.9:1004", 2*time.Second)), still},
	}
	var out bytes.Buffer
	s := &requestStream{out: &out, format: requestFormat{
		line: func(dst []byte, r *observe.Request, _ observe.IdentityOf, _ *observe.Workload, _ report.Style) []byte {
			return fmt.Appendf(dst, "%s#%d %d %d %v\n", r.Peer, r.Seq, r.TotalNS()/1e9, r.Ledger[observe.Unaccounted]/1e9, r.Flags.Names())
		},
	}}
	if err := drain(t, s, src); err != nil {
		t.Fatal(err)
	}
	const want = "10.1.0.9:1000#4 1 0 []\n10.1.0.9:1000#5 0 0 []\n10.1.0.9:1003#1 10 0 [unfinished]\n10.1.0.9:1004#9 2 0 [unfinished]\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestRequestStreamTCPRT(t *testing.T) {
	closed := &observe.Closed{Side: observe.Served, Local: netip.MustParseAddrPort("10.0.0.1:80"),
		Peer: netip.MustParseAddrPort("10.1.0.9:1000"), Seq: 2, BytesOut: 40, BytesIn: 20}
	steps := [][]any{
		{ask(1, "10.1.0.9:1000", 5*time.Millisecond), ask(2, "10.1.0.9:1000", 7*time.Millisecond)},
		{closed},
	}
	run := func(change func(*requestStream)) []string {
		var out bytes.Buffer
		s := &requestStream{out: &out, format: requestFormats[formatTCPRT]}
		s.stats = newPortStats(0, true)
		change(s)
		if err := drain(t, s, &script{steps: steps}); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for line := range strings.Lines(out.String()) {
			f := strings.Fields(line)
			if f[1] == "all" {
				kinds = append(kinds, strings.Join(f[1:], " "))
				continue
			}
			kinds = append(kinds, f[1])
		}
		return kinds
	}
	stats := "all 80 6000 6000 %d 0 0 20 0 10 2"
	for name, c := range map[string]struct {
		change func(*requestStream)
		want   []string
	}{
		"all": {func(*requestStream) {}, []string{"R", "R", "E", fmt.Sprintf(stats, 30)}},
		// The statistics are of the port, whatever is slow enough for a line.
		"slow": {func(s *requestStream) { s.slow = 6 * time.Millisecond }, []string{"R", "E", fmt.Sprintf(stats, 30)}},
		// What the kernel counted for the address is not that of the filter.
		"process": {func(s *requestStream) {
			s.ours = func(*observe.Request) bool { return true }
			s.stats = newPortStats(0, false)
		}, []string{"R", "R", fmt.Sprintf(stats, 0)}},
		"other peer": {func(s *requestStream) { s.peer = netip.MustParsePrefix("10.9.0.0/16") }, nil},
	} {
		if diff := cmp.Diff(c.want, run(c.change)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPortStatsInterval(t *testing.T) {
	p := newPortStats(time.Minute, false)
	now := time.Unix(1000, 0)
	p.begin(now)
	p.sums.Add(ask(1, "10.1.0.9:1000", time.Millisecond))
	for _, c := range []struct {
		after time.Duration
		lines int
	}{{59 * time.Second, 0}, {60 * time.Second, 1}, {61 * time.Second, 0}, {119 * time.Second, 0}, {120 * time.Second, 1}, {600 * time.Second, 1}, {610 * time.Second, 0}} {
		var lines []byte
		if at := now.Add(c.after); p.due(at) {
			lines = p.append(nil, at, nil)
		}
		if got := bytes.Count(lines, []byte("\n")); got != c.lines {
			t.Errorf("after %s: %d lines, want %d", c.after, got, c.lines)
		}
		if c.lines > 0 {
			p.sums.Add(ask(1, "10.1.0.9:1000", time.Millisecond))
		}
	}
}

// TestRequestStreamIsPrompt: a line does not wait for the next one.
func TestRequestStreamIsPrompt(t *testing.T) {
	r, w := io.Pipe()
	s := &requestStream{src: streamOf(t, &script{steps: [][]any{{ask(1, "10.1.0.9:1000", time.Millisecond)}}}), out: w, format: brief}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- s.run(ctx) }()
	line := make([]byte, 100)
	if n, err := r.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "10.1.0.9:1000#1 ") {
		t.Errorf("%q, %v", line[:n], err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the line came after %s", took)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestReaderGone: whoever reads the lines may leave; any other failure is reported.
func TestReaderGone(t *testing.T) {
	for want, failure := range map[bool]error{true: &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, false: syscall.ENOSPC} {
		s := &requestStream{src: streamOf(t, &script{steps: [][]any{{ask(1, "10.1.0.9:1000", time.Millisecond)}}}), out: failing{failure}, format: brief}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := s.run(ctx)
		if ctx.Err() != nil {
			t.Errorf("%v did not end the stream", failure)
		}
		cancel()
		if quiet := err == nil; quiet != want {
			t.Errorf("%v: ended with %v", failure, err)
		}
	}
}

// TestReaderGoneInSilence: the reader's leaving is noticed although there is
// nothing to write.
func TestReaderGoneInSilence(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	gone := readerGone(w)
	if gone() {
		t.Fatal("the reader is still there")
	}
	r.Close()
	s := &requestStream{src: streamOf(t, &script{}), out: w, format: brief, gone: gone}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.run(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("ended with %v, %v", err, ctx.Err())
	}
	if readerGone(io.Discard) != nil {
		t.Error("nothing can be known of what is no file")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestFailingSource(t *testing.T) {
	broken := errors.New("iterator is gone")
	var out bytes.Buffer
	s := &requestStream{src: streamOf(t, &script{flushErr: broken, final: []any{ask(1, "10.1.0.9:1000", time.Millisecond)}}), out: &out, format: brief}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.run(ctx); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	if out.String() != "10.1.0.9:1000#1 1\n" {
		t.Errorf("what was there already was not written: %q", out.String())
	}
}

// TestRequestStreamAllocatesNothing: of what passes and what does not.
func TestRequestStreamAllocatesNothing(t *testing.T) {
	for format := range requestFormats {
		s := &requestStream{out: io.Discard, format: requestFormats[format], peer: netip.MustParsePrefix("10.1.0.0/16")}
		s.processOf = func(int, int64) (observe.Identity, bool) { return observe.Identity{Comm: "nginx"}, true }
		if format == formatTCPRT {
			s.stats = newPortStats(0, true)
		}
		in, out := ask(1, "10.1.0.9:1000", time.Millisecond), ask(1, "10.2.0.9:1000", time.Millisecond)
		for range 1000 {
			s.add(in)
		}
		if n := testing.AllocsPerRun(1000, func() { s.add(in); s.add(out) }); n != 0 {
			t.Errorf("%s: %v allocations per request", format, n)
		}
	}
}

// TestSummaryIsOfAllRequests: those too fast, or beyond the limit, have no line but are in
// the rate of the service.
func TestSummaryIsOfAllRequests(t *testing.T) {
	var out bytes.Buffer
	begin := time.Now()
	s := &requestStream{out: &out, format: brief, slow: 100 * time.Millisecond, limit: 2, table: request.NewTable(begin)}
	for i := range uint32(50) {
		took := time.Millisecond
		if i%10 == 0 {
			took = 200 * time.Millisecond
		}
		s.add(ask(i, "10.1.0.9:1000", took))
	}
	s.write()
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines, not 2", n)
	}
	if err := s.summary(begin, begin.Add(time.Second), shell.Command{}); err != nil || !strings.Contains(out.String(), "50 requests in 1 s, 2 listed,") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
