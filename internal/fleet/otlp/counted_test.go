package otlp

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// mostRefused is how many spans a receiver leaves out of a message that it takes in part.
const mostRefused = 2

// receiver counts what it takes, as a collector does, and fails in the ways there are.
type receiver struct {
	t  *testing.T
	mu sync.Mutex

	faults  map[string][]string // by path: what becomes of the next messages; then they are taken
	spans   map[string]int      // by ID: how often it came
	unsure  map[string]int      // of these, how often it came in a message whose answer was lost
	seconds map[string]int      // points of slowray.requests
	lost    map[string]int      // points in messages whose answer was lost
	refused map[string]int      // spans, by ID
	failed  map[string]int
}

func newReceiver(t *testing.T) *receiver {
	return &receiver{t: t, refused: map[string]int{}, spans: map[string]int{}, unsure: map[string]int{}, seconds: map[string]int{}, lost: map[string]int{}, failed: map[string]int{}}
}

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		c.t.Error(err)
		return
	}
	body, err := io.ReadAll(zip)
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fault := ""
	if next := c.faults[r.URL.Path]; len(next) > 0 {
		fault, c.faults[r.URL.Path] = next[0], next[1:]
		c.failed[fault]++
	}
	switch fault {
	case "503":
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case "429":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case "cut before":
		panic(http.ErrAbortHandler)
	}
	again := fault == "cut after"
	count := func(all, unsure map[string]int, key string) {
		all[key]++
		if again {
			unsure[key]++
		}
	}
	switch r.URL.Path {
	case "/v1/traces":
		var m tracepb.TracesData
		if err := proto.Unmarshal(body, &m); err != nil {
			c.t.Error(err)
		}
		n := 0
		for _, r := range m.ResourceSpans {
			for _, s := range r.ScopeSpans {
				for _, span := range s.Spans {
					id := hex.EncodeToString(span.TraceId)
					if n++; fault == "partial" && n <= mostRefused {
						c.refused[id]++
						continue
					}
					count(c.spans, c.unsure, id)
				}
			}
		}
		if fault == "partial" {
			inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(min(n, mostRefused)))
			inner = protowire.AppendString(protowire.AppendTag(inner, 2, protowire.BytesType), "too\x1b[31m old")
			w.Write(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner))
		}
	case "/v1/metrics":
		var m metricspb.MetricsData
		if err := proto.Unmarshal(body, &m); err != nil {
			c.t.Error(err)
		}
		for _, metric := range m.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			if metric.Name != "slowray.requests" {
				continue
			}
			for _, p := range metric.GetSum().DataPoints {
				var attributes []string
				for _, a := range p.Attributes {
					attributes = append(attributes, a.String())
				}
				slices.Sort(attributes)
				count(c.seconds, c.lost, fmt.Sprint(p.TimeUnixNano, attributes))
			}
		}
	}
	if again {
		panic(http.ErrAbortHandler)
	}
}

// shipTo records numbered requests and seconds in lots, with what ships them to a
// target, and gives a function that waits until all is taken and ends it.
func shipTo(t *testing.T, url string, said func(string)) (record func(n int), status func() ship.Status, end func()) {
	t.Helper()
	dir := t.TempDir()
	target, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	s, links, err := ship.Prepare(dir, ship.Options{
		Targets: []ship.Destination{{Target: target, Name: "otlp", Title: "otlp"}},
		Host:    func() fleet.Host { return fleet.Host{Name: "db-7", Labels: map[string]string{"rack": "r1"}} }, Say: said,
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(dir, store.Options{Links: links})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Run(ctx, st)
		close(done)
	}()
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	seq := 0
	record = func(n int) {
		t.Helper()
		for i := range n {
			seq++
			r := store.Request{Process: observe.Identity{Comm: "nginx"}}
			r.Side, r.StartNS, r.Seq, r.Weight = observe.Served, at.UnixNano()+int64(i), uint32(seq), 1
			r.Local, r.Peer = netip.MustParseAddrPort("10.0.0.7:80"), netip.MustParseAddrPort("10.0.0.9:4000")
			st.AddRequest(&r)
		}
		sec := store.Second{At: at.Unix(), Process: observe.Identity{Comm: "nginx"}}
		sec.Endpoint = observe.Endpoint{Side: "served", Addr: "10.0.0.7", Port: 80, Comm: "nginx", Requests: uint64(n)}
		sec.Endpoint.Total.AddN(1e6, uint64(n))
		st.AddSecond(&sec)
		at = at.Add(time.Second)
		if err := st.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	status = func() ship.Status { return s.Status()[0] }
	end = func() {
		t.Helper()
		for limit := time.Now().Add(time.Minute); status().Bytes > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("not all is taken: %+v", status())
			}
		}
		cancel()
		<-done
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	return record, status, end
}

// A collector that fails in every way there is has each request and second in the end;
// what came twice is what was in messages whose answers were lost, and no more; what it
// refused is counted and told.
func TestEachRecordIsThereWhateverFails(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: retries take 10 s: NOT tested with -short")
	}
	c := newReceiver(t)
	c.faults = map[string][]string{
		"/v1/traces":  {"503", "", "cut after", "partial", "", "cut before", "partial", "429", "", "cut after"},
		"/v1/metrics": {"cut after", "503"},
	}
	srv := httptest.NewServer(c)
	defer srv.Close()
	var mu sync.Mutex
	var said []string
	record, status, end := shipTo(t, Prefix+srv.URL, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, text)
	})
	const lots, each = 12, 500
	for range lots {
		record(each)
		time.Sleep(50 * time.Millisecond)
	}
	end()
	c.mu.Lock()
	defer c.mu.Unlock()
	refused, all := 0, maps.Clone(c.spans)
	for id, n := range c.refused {
		refused += n
		all[id] += n
	}
	if len(all) != lots*each || refused != 2*mostRefused {
		t.Errorf("%d spans are there or were refused, of %d; %d were refused", len(all), lots*each, refused)
	}
	for path, rest := range c.faults {
		if len(rest) > 0 {
			t.Errorf("%s did not fail by %v: that was not tested", path, rest)
		}
	}
	if len(c.seconds) != lots {
		t.Errorf("%d seconds are there, want %d", len(c.seconds), lots)
	}
	twice := 0
	for _, kind := range []struct{ all, unsure map[string]int }{{c.spans, c.unsure}, {c.seconds, c.lost}} {
		for id, n := range kind.all {
			twice += n - 1
			if n > 1+kind.unsure[id] {
				t.Errorf("%s came %d times, with %d answers lost", id, n, kind.unsure[id])
			}
		}
	}
	if got := status(); int(got.Refused) != refused {
		t.Errorf("%d are reported to be refused, %d were", got.Refused, refused)
	}
	mu.Lock()
	defer mu.Unlock()
	if text := strings.Join(said, "\n"); !strings.Contains(text, "has left out") || strings.Contains(text, "\x1b") {
		t.Errorf("said:\n%q", text)
	}
	t.Logf("failures: %v; %d spans and points came twice, %d spans were refused", c.failed, twice, refused)
}

var spanLine = regexp.MustCompile(`(?m)^\s*Trace ID\s*: ([0-9a-f]{32})$`)

// TestRealCollectorIsKilled: a real collector has each request, once or, where its answer
// was lost, twice, though it is killed meanwhile. It is only run where SLOWRAY_COLLECTOR
// names one, as that of internal/export.
func TestRealCollectorIsKilled(t *testing.T) {
	program := os.Getenv("SLOWRAY_COLLECTOR")
	if program == "" {
		t.Skip("SKIP: SLOWRAY_COLLECTOR names no OpenTelemetry Collector (internal/export/testdata/collector/builder.yaml)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	dir := t.TempDir()
	config, out := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "out")
	if err := os.WriteFile(config, fmt.Appendf(nil, `receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed, sampling_initial: 1000000}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [debug]}
    traces: {receivers: [otlp], exporters: [debug]}
    logs: {receivers: [otlp], exporters: [debug]}
`, address), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (kill func()) {
		t.Helper()
		log, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd := exec.Command(program, "--config", config)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		kill = func() {
			once.Do(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
		}
		t.Cleanup(kill)
		return kill
	}
	kill := start()
	record, status, end := shipTo(t, Prefix+"http://"+address, func(text string) { t.Log(text) })
	const lots, each = 40, 500
	for i := range lots {
		record(each)
		if i == lots/2 {
			for limit := time.Now().Add(20 * time.Second); status().Sent == 0 && time.Now().Before(limit); {
				time.Sleep(5 * time.Millisecond)
			}
			kill()
			kill = start()
		}
		time.Sleep(20 * time.Millisecond)
	}
	end()
	kill()
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]int{}
	for _, m := range spanLine.FindAllSubmatch(text, -1) {
		ids[string(m[1])]++
	}
	if len(ids) != lots*each {
		t.Errorf("%d requests are there, want %d", len(ids), lots*each)
	}
	most := 0
	for n := range maps.Values(ids) {
		most = max(most, n)
	}
	if most > 2 {
		t.Errorf("a request came %d times after one kill", most)
	}
	t.Logf("%d requests are there; %+v", len(ids), status())
}
