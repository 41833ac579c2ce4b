package bench

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// The bounds of answers to assistants (docs/mcp.md), and how often each is asked for.
const (
	whyWithin  = 1.0 // s after its window
	pastWithin = 300 // ms
	asked      = 8
)

// assistant is a client of a slowray mcp of its own, as a session with an assistant begins.
func assistant(b *testing.B, slowray string, args ...string) *mcp.ClientSession {
	b.Helper()
	cmd := exec.Command(slowray, append([]string{"mcp"}, args...)...)
	cmd.Stderr = os.Stderr
	s, err := mcp.NewClient(&mcp.Implementation{Name: "bench"}, nil).Connect(b.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// answer asks, reads the answer, and says how long it took.
func answer(b *testing.B, s *mcp.ClientSession, tool string, args map[string]any, into any) time.Duration {
	b.Helper()
	begin := time.Now()
	r, err := s.CallTool(b.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	took := time.Since(begin)
	if err != nil || len(r.Content) != 1 {
		b.Fatalf("%s: %v", tool, err)
	}
	text := r.Content[0].(*mcp.TextContent).Text
	if r.IsError {
		b.Fatalf("%s: %s", tool, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		b.Fatalf("%s: %v", tool, err)
	}
	return took
}

// BenchmarkAssistantWhy asks why of a host with 30,000 sockets (see Window): how long after its
// window the answer is there.
func BenchmarkAssistantWhy(b *testing.B) {
	slowray := built(b)
	startWorld(b)
	var late sample
	for range asked {
		s := assistant(b, slowray)
		var v struct {
			Window struct {
				Start   time.Time
				Seconds float64
			}
		}
		answer(b, s, "why", map[string]any{"seconds": 5}, &v)
		late = append(late, time.Since(v.Window.Start.Add(time.Duration(v.Window.Seconds*float64(time.Second)))).Seconds())
		s.Close()
	}
	b.ReportMetric(late.median(), "s_after_window")
	b.ReportMetric(0, "ns/op")
	reportFigures(b, "assistants: why, of a host with 30,000 sockets", figure{name: "answered after its window", format: "%.2f s", sample: late, target: atMost(whyWithin)})
}

// BenchmarkAssistantPast asks of an hour of a history with 50 endpoints, 36,000 requests and a
// finding in each minute. Each question is the first one of a session.
func BenchmarkAssistantPast(b *testing.B) {
	slowray := built(b)
	dir, begin := b.TempDir(), time.Now().Add(-2*time.Hour).Truncate(time.Hour)
	fillHistory(b, dir, begin)
	hour := map[string]any{"at": begin.UTC().Format(time.RFC3339), "seconds": 3600}
	part := map[string]any{"at": begin.Add(30 * time.Minute).UTC().Format(time.RFC3339), "seconds": 600}
	var figures []figure
	var slow struct{ Requests []struct{ ID string } }
	for _, q := range []struct {
		name, tool string
		args       func() map[string]any
		into       any
	}{
		{"services", "services", func() map[string]any { return hour }, &struct{}{}},
		{"slow_requests", "slow_requests", func() map[string]any { return hour }, &slow},
		{"request", "request", func() map[string]any { return map[string]any{"id": slow.Requests[0].ID} }, &struct{}{}},
		{"history", "history", func() map[string]any { return hour }, &struct{}{}},
		{"history_10min", "history", func() map[string]any { return part }, &struct{}{}}, // which differs from the rest of the hour, or does not
	} {
		var took sample
		for range asked {
			s := assistant(b, slowray, "--dir", dir)
			took = append(took, float64(answer(b, s, q.tool, q.args(), q.into))/1e6)
			s.Close()
		}
		b.ReportMetric(took.median(), "ms_"+q.name)
		figures = append(figures, figure{name: q.name, format: "%.0f ms", sample: took, target: atMost(pastWithin)})
	}
	b.ReportMetric(0, "ns/op")
	reportFigures(b, "assistants: questions about an hour of history", figures...)
}

// fillHistory is an hour of 50 endpoints that answer 20 requests a second each, of which 10
// requests in all are kept, and of a window in each minute.
func fillHistory(b *testing.B, dir string, begin time.Time) {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	o, err := observe.Load("../internal/diagnose/testdata/corpus/lab-nginx-throughput-1/observation.json.zst")
	must(err)
	found := diagnose.Diagnose(b.Context(), o, diagnose.Saved).Findings
	s, err := store.Open(dir, store.Options{})
	must(err)
	r := rand.New(rand.NewPCG(1, 1))
	for at := range 3600 {
		now := begin.Unix() + int64(at)
		for n := range 50 {
			e := observe.Endpoint{Side: observe.Served.String(), NetNS: 1, Addr: "10.0.0.5", Port: 8000 + n, Comm: fmt.Sprintf("service-%d", n), PID: n + 1,
				Requests: 20, OK: 20, Recorded: 20, Segments: 40, Parts: map[string]observe.PartStats{}}
			for range 20 {
				e.Total.AddN(int64(1e6+r.ExpFloat64()*5e6), 1)
			}
			for _, part := range []observe.Part{observe.Server, observe.Network} {
				p := observe.PartStats{SumNS: 20e6}
				p.Hist.AddN(1e6, 20)
				e.Parts[part.String()] = p
			}
			s.AddSecond(&store.Second{At: now, Endpoint: e, Process: observe.Identity{Comm: e.Comm}})
		}
		for n := range 10 {
			q := store.Request{Process: observe.Identity{Comm: fmt.Sprintf("service-%d", n)}}
			q.Side, q.NetNS, q.Local, q.Weight, q.Requests, q.Status = observe.Served, 1, netip.AddrPortFrom(netip.MustParseAddr("10.0.0.5"), uint16(8000+n)), 1, 1, observe.StatusOK
			q.StartNS, q.PID, q.Seq = now*1e9+int64(n), n+1, uint32(at)
			q.Peer = netip.MustParseAddrPort("10.1.0.1:4000")
			q.Ledger[observe.Server], q.Ledger[observe.Network] = int64(r.ExpFloat64()*5e6)+1, 200_000
			s.AddRequest(&q)
		}
		if at%60 == 59 {
			window := *o
			window.Window = observe.Window{Start: time.Unix(now-59, 0), Seconds: 60}
			must(s.AddObservation(&window, found))
		}
		must(s.Sync())
	}
	must(s.Close())
}
