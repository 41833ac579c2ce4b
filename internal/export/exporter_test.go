package export

import (
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
)

// scrape is the exposition of x as text, parsed by Prometheus' own parser.
func scrape(t testing.TB, x *Exporter) (map[string]*dto.MetricFamily, string) {
	t.Helper()
	r := httptest.NewRequest("GET", "/metrics", nil)
	w := httptest.NewRecorder()
	x.Handler().ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("status %d: %.500s", w.Code, w.Body)
	}
	text := w.Body.String()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("not an exposition: %v", err)
	}
	return families, text
}

func scraped(t testing.TB, x *Exporter) map[string]*dto.MetricFamily {
	t.Helper()
	families, _ := scrape(t, x)
	return families
}

// value is that of the one metric with these labels ("name=value").
func value(t testing.TB, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	list := matching(families, name, labels...)
	if len(list) != 1 {
		t.Fatalf("%d metrics %s%v, want 1", len(list), name, labels)
	}
	m := list[0]
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return float64(m.Histogram.GetSampleCount())
}

func matching(families map[string]*dto.MetricFamily, name string, labels ...string) []*dto.Metric {
	var out []*dto.Metric
	for _, m := range families[name].GetMetric() {
		has := map[string]bool{}
		for _, l := range m.Label {
			has[l.GetName()+"="+l.GetValue()] = true
		}
		all := true
		for _, l := range labels {
			all = all && has[l]
		}
		if all {
			out = append(out, m)
		}
	}
	return out
}

// TestWhatIsCountedIsShown: the sums of three seconds, each figure by itself.
func TestWhatIsCountedIsShown(t *testing.T) {
	x := fed(1, 3, Options{Version: "v1", Now: newClock().now})
	f, text := scrape(t, x)
	const served = "side=served"
	for name, want := range map[string]float64{
		"slowray_requests_total": 21, "slowray_request_errors_total": 3, "slowray_requests_unanswered_total": 3,
		"slowray_received_bytes_total": 2100, "slowray_sent_bytes_total": 210_000,
		"slowray_tcp_segments_total": 150, "slowray_tcp_retransmitted_segments_total": 6, "slowray_connections_opened_total": 3,
		"slowray_request_duration_seconds": 21, "slowray_round_trip_time_seconds": 21, "slowray_round_trip_time_min_seconds": 80e-6,
	} {
		if got := value(t, f, name, served, "process=nginx", "port=1", "address=127.0.0.1", "unit=nginx.service", "netns=4026531840"); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	var sum float64
	for _, ns := range durationsNS {
		sum += 3 * float64(ns) / 1e9
	}
	var parts, server float64
	for _, m := range matching(f, "slowray_request_ledger_seconds_total", served) {
		parts += m.Counter.GetValue()
	}
	for _, m := range matching(f, "slowray_request_server_seconds_total", served) {
		server += m.Counter.GetValue()
	}
	if math.Abs(parts-sum) > 1e-9 {
		t.Errorf("the parts add up to %g s, the requests took %g s", parts, sum)
	}
	if want := value(t, f, "slowray_request_ledger_seconds_total", served, "part=server"); math.Abs(server-want) > 1e-9 {
		t.Errorf("the server's parts add up to %g s, not %g s", server, want)
	}
	h := matching(f, "slowray_request_duration_seconds", served)[0].Histogram
	if math.Abs(h.GetSampleSum()-sum) > sum/64 {
		t.Errorf("sum of the histogram %g, want %g", h.GetSampleSum(), sum)
	}
	if got := value(t, f, "slowray_http_responses_total", served, "class=5xx"); got != 3 {
		t.Errorf("5xx: %g, want 3", got)
	}
	if got := value(t, f, "slowray_finding", "cause=blocked-on-disk", "process=nginx", "port=80", "role=cause"); got != 1 {
		t.Errorf("finding is %g", got)
	}
	if got := value(t, f, "slowray_finding_impact_ratio", "cause=blocked-on-disk"); got != 0.75 {
		t.Errorf("impact is %g", got)
	}
	if got := value(t, f, "slowray_lost_total", "what=requests whose record had no room"); got != 3 {
		t.Errorf("lost: %g", got)
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes"} {
		if f[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if strings.Contains(text, "pid=") {
		t.Error("a process ID is a label")
	}
}

// TestEveryMetricIsDeclaredWell: names and units by Prometheus' conventions.
func TestEveryMetricIsDeclaredWell(t *testing.T) {
	last := ""
	for _, m := range declared() {
		if !model.LegacyValidation.IsValidMetricName(m.name) || !strings.HasPrefix(m.name, "slowray_") {
			t.Errorf("%s: not a good name", m.name)
		}
		if strings.HasSuffix(m.name, "_total") != (m.kind == counter) {
			t.Errorf("%s: a %s by that name", m.name, m.kind)
		}
		if seconds := strings.Contains(m.name, "_seconds"); seconds != (m.unit == "s") && m.unit != "{second}" {
			t.Errorf("%s: in %q", m.name, m.unit)
		}
		if strings.Contains(m.name, "_bytes") != (m.unit == "By") {
			t.Errorf("%s: in %q", m.name, m.unit)
		}
		if m.help == "" || m.otel == "" || m.unit == "" {
			t.Errorf("%s: without help, unit or name in OpenTelemetry", m.name)
		}
		for _, l := range m.labels {
			if !model.LegacyValidation.IsValidLabelName(l) {
				t.Errorf("%s: label %q", m.name, l)
			}
		}
		last = m.name
	}
	if last == "" {
		t.Fatal("no metric is declared")
	}
}

// TestBothNamesAreOne: what Prometheus makes of a name of OpenTelemetry is the name
// that it scrapes, so that the dashboard and the alerts do for both ways
// (opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics).
func TestBothNamesAreOne(t *testing.T) {
	suffix := map[string]string{"s": "_seconds", "By": "_bytes"}
	seen := map[string]bool{}
	for _, m := range declared() {
		name := strings.ReplaceAll(m.otel, ".", "_") + suffix[m.unit]
		switch {
		case m.kind == counter:
			name += "_total"
		case m.kind == gauge && m.unit == "1":
			name += "_ratio"
		}
		if name != m.name {
			t.Errorf("%s in %q becomes %s, not %s", m.otel, m.unit, name, m.name)
		}
		if seen[m.otel] {
			t.Errorf("%s is there twice", m.otel)
		}
		seen[m.otel] = true
	}
}

// TestCardinalityIsBounded: endpoints beyond the limit are one series; no
// request is lost on the way.
func TestCardinalityIsBounded(t *testing.T) {
	at := newClock()
	x := New(Options{Endpoints: 10, Now: at.now})
	for range 2 {
		for i := range 500 {
			x.add(secondOf(observe.Called, fmt.Sprintf("10.1.%d.%d", i/250, i%250), 443, "crawler"))
		}
		x.add(secondOf(observe.Served, "127.0.0.1", 80, "nginx"))
	}
	f, _ := scrape(t, x)
	called := matching(f, "slowray_requests_total", "side=called")
	if len(called) != 11 {
		t.Errorf("%d series, want 10 and one for the others", len(called))
	}
	var sum float64
	for _, m := range called {
		sum += m.Counter.GetValue()
	}
	if want := float64(2 * 500 * len(durationsNS)); sum != want {
		t.Errorf("%g requests, want %g", sum, want)
	}
	if got := value(t, f, "slowray_requests_total", "side=served", "process=nginx"); got != 14 {
		t.Errorf("the other side has %g requests, want 14", got)
	}
	if got := value(t, f, "slowray_endpoint_seconds_crowded_total"); got != 2*490 {
		t.Errorf("%g seconds are counted among others, want 980", got)
	}

	// Who has been idle gives its place to one with traffic.
	at.pass(2 * displaceIdle)
	x.add(secondOf(observe.Called, "10.9.9.9", 443, "crawler"))
	f, _ = scrape(t, x)
	if got := value(t, f, "slowray_requests_total", "address=10.9.9.9"); got != 7 {
		t.Errorf("the new endpoint has %g requests, want 7", got)
	}
	if n := len(matching(f, "slowray_requests_total", "side=called")); n != 11 {
		t.Errorf("%d series, want 11", n)
	}
	at.pass(defaultIdle)
	x.add(secondOf(observe.Served, "127.0.0.1", 80, "nginx"))
	f, _ = scrape(t, x)
	if n := len(matching(f, "slowray_requests_total", "side=called")); n != 1 {
		t.Errorf("%d series of the called side are left, want that of the others", n)
	}
	if got := value(t, f, "slowray_requests_total", "side=served"); got != 7 {
		t.Errorf("nginx has %g requests, want 7: it begins anew", got)
	}
}

// TestFindingsAreOfTheLatestWindow: those of the window before are gone, their
// count stays; two processes of a name are one series; there are at most 100.
func TestFindingsAreOfTheLatestWindow(t *testing.T) {
	x := New(Options{})
	one := findingOf("blocked-on-disk", "mariadbd", 3306)
	two := one
	two.Subject.PID, two.Impact.Share = 200, 0.9
	x.Window(windowOf(one, two))
	f, _ := scrape(t, x)
	if got := value(t, f, "slowray_finding_impact_ratio", "process=mariadbd"); got != 0.9 {
		t.Errorf("impact is %g, want the greater, 0.9", got)
	}
	var many []cause.Finding
	for i := range 300 {
		many = append(many, findingOf("fd-limit", "nginx", 1+i))
	}
	x.Window(windowOf(many...))
	f, _ = scrape(t, x)
	if n := len(matching(f, "slowray_finding")); n != mostFindings {
		t.Errorf("%d findings are shown, want %d", n, mostFindings)
	}
	if got := value(t, f, "slowray_findings"); got != 300 {
		t.Errorf("%g findings, want 300", got)
	}
	if n := len(matching(f, "slowray_finding", "cause=blocked-on-disk")); n != 0 {
		t.Error("a finding of the window before is shown")
	}
	for id, want := range map[string]float64{"blocked-on-disk": 1, "fd-limit": 1} {
		if got := value(t, f, "slowray_finding_windows_total", "cause="+id, "role=cause"); got != want {
			t.Errorf("%s was found in %g windows, want %g", id, got, want)
		}
	}
	x.Window(windowOf())
	f, _ = scrape(t, x)
	x.Window(&record.Window{Err: errors.New("no rights")})
	if got := value(t, scraped(t, x), "slowray_windows_failed_total"); got != 1 {
		t.Errorf("%g windows failed, want 1", got)
	}
	if value(t, f, "slowray_windows_total") != 3 || value(t, f, "slowray_findings") != 0 || f["slowray_finding"] != nil {
		t.Error("a window without findings still has some")
	}
}

// Hostile are texts that a watched host may give its processes, containers and
// so on.
var hostile = []string{
	"\x1b]0;owned\x07\x1b[2J", "<script>alert(1)</script>", "a\"b\\c\nd", "\n# HELP evil x\nevil 1", strings.Repeat("A", 64<<10),
	strings.Repeat("é", 40<<10), "\xff\xfe\x80invalid", "x\x00y", "\u202Egnp.exe", "{}=,\"", "\xe2\x82", "",
}

// TestHostileNames: whatever a name is, the exposition is valid, and no label is
// longer than it may be or drives a terminal.
func TestHostileNames(t *testing.T) {
	x := New(Options{Endpoints: 5000, Version: hostile[0], Status: func() record.Status {
		var s record.Status
		for i, a := range hostile {
			s.Losses = append(s.Losses, observe.Loss{What: a, Count: int64(i)})
		}
		return s
	}})
	n := 0
	for i, a := range hostile {
		for j, b := range hostile {
			s := secondOf(observe.Served, a, i, b)
			s.Process.ContainerName, s.Process.Unit, s.Process.Container = hostile[(i+j)%len(hostile)], a, b
			s.Endpoint.Statuses[a] = 1
			x.add(s)
			n++
			f := findingOf(a, b, i)
			f.Role, f.ConsequenceOf, f.Subject.Addr, f.Subject.Container, f.Subject.Interface = cause.Role(b), new(cause.ID), b, a, b
			*f.ConsequenceOf = cause.ID(a)
			f.Impact.Share = math.NaN()
			x.Window(windowOf(f))
		}
	}
	families, text := scrape(t, x)
	if families["evil"] != nil {
		t.Error("a name has become a metric")
	}
	for name, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				v := l.GetValue()
				if len(v) > maxLabel || !utf8.ValidString(v) || strings.ContainsAny(v, "\x1b\x00\n\x07\u202E") {
					t.Fatalf("%s: label %s=%.200q", name, l.GetName(), v)
				}
			}
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("the exposition drives a terminal")
	}
	var sum float64
	for _, m := range matching(families, "slowray_requests_total") {
		sum += m.Counter.GetValue()
	}
	if want := float64(n * len(durationsNS)); sum != want {
		t.Errorf("%g requests, want %g", sum, want)
	}
}

// TestNoSeriesTwice: what is given passes the checks of a pedantic client: no
// series twice, labels in order, all of one kind.
func TestNoSeriesTwice(t *testing.T) {
	x := fed(30, 2, Options{Version: "v1"})
	for i, a := range hostile {
		x.add(secondOf(observe.Served, a, 80, hostile[len(hostile)-1-i]))
	}
	if _, err := (prometheus.Gatherers{x}).Gather(); err != nil {
		t.Errorf("%.2000v", err)
	}
}

// TestManyScrapesWhileItGrows: scrapes at once, in both forms, while seconds come:
// each is whole, and no counter goes back.
func TestManyScrapesWhileItGrows(t *testing.T) {
	x := fed(20, 1, Options{})
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				x.add(secondOf(observe.Served, "127.0.0.1", 1+i%40, "nginx"))
			}
		}
	})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			last := 0.0
			for range 10 {
				now := value(t, scraped(t, x), "slowray_requests_total", "side=served", "port=1")
				if now < last {
					t.Errorf("a counter went back from %g to %g", last, now)
				}
				last = now
			}
		})
	}
	readers.Wait()
	close(stop)
	all.Wait()
}

// TestOnlyReads: other methods are refused, HEAD has no body.
func TestOnlyReads(t *testing.T) {
	h := New(Options{}).Handler()
	for method, want := range map[string]int{"HEAD": 200, "POST": 405, "GET": 200} {
		r := httptest.NewRequest(method, "/metrics", strings.NewReader("x"))
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || (method == "HEAD") != (w.Body.Len() == 0) {
			t.Errorf("%s: status %d, %d bytes", method, w.Code, w.Body.Len())
		}
	}
}

// TestNamesThatBecomeOne: two names that are shown alike are one series.
func TestNamesThatBecomeOne(t *testing.T) {
	x := New(Options{Now: time.Now})
	x.add(secondOf(observe.Served, "127.0.0.1", 80, "a\x01"))
	x.add(secondOf(observe.Served, "127.0.0.1", 80, "a\x02"))
	f, _ := scrape(t, x)
	if got := value(t, f, "slowray_requests_total"); got != 14 {
		t.Errorf("%g requests, want 14", got)
	}
}

// TestLossesOnlyGrow: whatever is reported, no counter of losses goes back, and
// there is a bound to their kinds.
func TestLossesOnlyGrow(t *testing.T) {
	var losses []observe.Loss
	x := New(Options{Status: func() record.Status { return record.Status{Losses: losses} }})
	losses = []observe.Loss{{What: "a", Count: 3}, {What: "a", Count: 2}, {What: "b", Count: -1}}
	if got := value(t, scraped(t, x), "slowray_lost_total", "what=a"); got != 5 {
		t.Errorf("a: %g, want 5", got)
	}
	losses = []observe.Loss{{What: "a", Count: 4}}
	if got := value(t, scraped(t, x), "slowray_lost_total", "what=a"); got != 5 {
		t.Errorf("a went back to %g", got)
	}
	losses = nil
	for i := range 5000 {
		losses = append(losses, observe.Loss{What: fmt.Sprint("kind ", i), Count: 1})
	}
	f := scraped(t, x)
	if n := len(f["slowray_lost_total"].Metric); n > mostLosses+2 {
		t.Errorf("%d kinds of losses", n)
	}
	if got := value(t, f, "slowray_lost_total", "what=other"); got < 4000 {
		t.Errorf("others: %g", got)
	}
}

var _ record.Sink = (*Exporter)(nil)
