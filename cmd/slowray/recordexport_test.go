package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestRecorderExports makes requests whose number and times are known, and holds
// /metrics and what a collector is sent against them.
func TestRecorderExports(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root, to load BPF programs")
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short: takes six seconds")
	}
	const quick, slow, failed, pause = 150, 5, 10, 60 * time.Millisecond
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			time.Sleep(pause)
		case "/failed":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(service.Close)
	at, err := url.Parse(service.URL)
	if err != nil {
		t.Fatal(err)
	}
	collector := &spanCollector{}
	receiving := httptest.NewServer(collector)
	t.Cleanup(receiving.Close)

	page := startExporting(t, "--otlp", receiving.URL, "--slow", "50ms", "--labels", "--budget", "0") // no sampling: each request has its record
	for path, n := range map[string]int{"/quick": quick, "/slow": slow, "/failed": failed} {
		for range n {
			resp, err := http.Get(service.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}

	const all = quick + slow + failed
	var got map[string]float64
	for range 400 {
		if got = metricsOf(t, page, at.Port()); got["slowray_requests_total"] >= all {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for name, want := range map[string]float64{"slowray_requests_total": all, "slowray_request_errors_total": failed, "slowray_requests_unanswered_total": 0} {
		if got[name] != want {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
	if got["parts"] < (slow * pause).Seconds() {
		t.Errorf("the parts of the ledger add up to %g s; the slow requests alone took %s", got["parts"], slow*pause)
	}
	// The sums above are exact whatever happens. What follows needs the records.
	deadline := time.Now().Add(40 * time.Second)
	for collector.of("GET", "/slow") < slow || collector.of("GET", "/failed") < failed {
		if lostRecords(t, page) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the collector has %d spans of slow requests and %d of failed ones, want %d and %d", collector.of("GET", "/slow"), collector.of("GET", "/failed"), slow, failed)
		}
		time.Sleep(50 * time.Millisecond)
	}
	got = metricsOf(t, page, at.Port())
	if lostRecords(t, page) {
		return
	}
	for name, want := range map[string]float64{
		"slowray_request_duration_seconds": all, "slowray_http_responses_total 5xx": failed, "slowray_http_responses_total 2xx": quick + slow,
	} {
		if got[name] != want {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
	// On a busy machine others may take long, too.
	if n := got["le 0.05"]; n > quick+failed || n < (quick+failed)/2 {
		t.Errorf("%g requests took less than 50 ms, want %d", n, quick+failed)
	}
	if math.Abs(got["sum"]-got["parts"]) > got["parts"]/64 {
		t.Errorf("the ledger's parts add up to %g s, the histogram to %g s", got["parts"], got["sum"])
	}
	if n := collector.of("GET", "/slow"); n != slow {
		t.Errorf("%d spans of %d slow requests", n, slow)
	}
}

// lostRecords says whether the recorder lost records, as it does where it gets no
// CPU; nothing can be said then of single requests.
func lostRecords(t *testing.T, page string) bool {
	t.Helper()
	for _, m := range scraped(t, page)["slowray_lost_total"].GetMetric() {
		if m.Counter.GetValue() > 0 {
			t.Logf("SKIPPED in part: this machine is too busy to look at single requests: lost %g %s", m.Counter.GetValue(), m.Label[0].GetValue())
			return true
		}
	}
	return false
}

// startExporting runs slowray record until the test ends, and gives the address of
// its page.
func startExporting(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"record", "--json", "--listen", "127.0.0.1:0", "--dir", t.TempDir()}, args...)...)
	cmd.Env = append(os.Environ(), beSlowray+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadBytes('\n')
	var begin recordEvent
	if err != nil || json.Unmarshal(line, &begin) != nil || begin.Page == "" {
		t.Fatalf("the recorder began with %q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return begin.Page
}

// scraped is what the page answers Prometheus.
func scraped(t *testing.T, page string) map[string]*dto.MetricFamily {
	t.Helper()
	resp, err := http.Get(strings.TrimSuffix(page, "/") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	return families
}

// metricsOf are the metrics of what is served at a port, by name.
func metricsOf(t *testing.T, page, port string) map[string]float64 {
	t.Helper()
	families := scraped(t, page)
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["side"] != "served" || labels["port"] != port {
				continue
			}
			switch {
			case labels["class"] != "":
				out[name+" "+labels["class"]] += m.Counter.GetValue()
			case f.GetType() == dto.MetricType_HISTOGRAM:
				out[name] += float64(m.Histogram.GetSampleCount())
				if name != "slowray_request_duration_seconds" {
					continue
				}
				out["sum"] += m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					if b.GetUpperBound() == 0.05 {
						out["le 0.05"] += float64(b.GetCumulativeCount())
					}
				}
			case name == "slowray_request_ledger_seconds_total":
				out["parts"] += m.Counter.GetValue()
			default:
				out[name] += m.Counter.GetValue()
			}
		}
	}
	return out
}

// spanCollector takes spans.
type spanCollector struct {
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *spanCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var data tracepb.TracesData
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(zip)
	if r.URL.Path != "/v1/traces" {
		return
	}
	if err != nil || proto.Unmarshal(body, &data) != nil {
		http.Error(w, "no spans", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range data.ResourceSpans {
		for _, s := range of.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
}

// of counts the spans of requests served, by name and path.
func (c *spanCollector) of(name, path string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Kind != tracepb.Span_SPAN_KIND_SERVER { // the other end is this test, and has its own
			continue
		}
		for _, a := range s.Attributes {
			if s.Name == name && a.Key == "slowray.label" && a.Value.GetStringValue() == name+" "+path {
				n++
			}
		}
	}
	return n
}
