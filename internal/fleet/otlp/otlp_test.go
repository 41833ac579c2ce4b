package otlp

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// collector takes messages, or fails as asked.
type collector struct {
	t      *testing.T
	status []int // of the next answers; then 200
	spans  []*tracepb.Span
	hosts  map[string]bool
	points []*metricspb.Metric
	logs   []*logspb.LogRecord
	sent   int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.sent++
	if len(c.status) > 0 {
		status := c.status[0]
		c.status = c.status[1:]
		if status != 200 {
			w.WriteHeader(status)
			return
		}
	}
	zip, err := gzip.NewReader(r.Body)
	if err != nil {
		c.t.Error(err)
		return
	}
	body, err := io.ReadAll(zip)
	if err != nil {
		c.t.Error(err)
	}
	switch r.URL.Path {
	case "/v1/traces":
		var m tracepb.TracesData
		err = proto.Unmarshal(body, &m)
		for _, r := range m.ResourceSpans {
			for _, a := range r.Resource.Attributes {
				c.hosts[a.Key+"="+a.Value.GetStringValue()] = true
			}
			for _, s := range r.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
	case "/v1/metrics":
		var m metricspb.MetricsData
		err = proto.Unmarshal(body, &m)
		c.points = append(c.points, m.ResourceMetrics[0].ScopeMetrics[0].Metrics...)
	case "/v1/logs":
		var m logspb.LogsData
		err = proto.Unmarshal(body, &m)
		c.logs = append(c.logs, m.ResourceLogs[0].ScopeLogs[0].LogRecords...)
	default:
		c.t.Errorf("path %s", r.URL.Path)
	}
	if err != nil {
		c.t.Error(err)
	}
}

func requests(first fleet.Position, n int) *fleet.Batch {
	b := &fleet.Batch{Host: &fleet.Host{Name: "db-7", ID: "id-7", Labels: map[string]string{"rack": "r1"}}, Stream: fleet.Requests, First: first, Last: first + fleet.Position(n) - 1, Count: n}
	var r store.Request // the memory of one is that of the next
	b.Requests = func(yield func(fleet.Position, *store.Request) bool) {
		for i := range n {
			r = store.Request{Process: observe.Identity{Comm: "nginx"}}
			r.Side, r.StartNS, r.Seq = observe.Served, 1e18+int64(i), uint32(i+1)
			r.Local, r.Peer = netip.MustParseAddrPort("10.0.0.7:80"), netip.MustParseAddrPort("10.0.0.9:4000")
			if !yield(first+fleet.Position(i), &r) {
				return
			}
		}
	}
	return b
}

func TestTarget(t *testing.T) {
	c := &collector{t: t, hosts: map[string]bool{}}
	srv := httptest.NewServer(c)
	defer srv.Close()
	target, err := Open(Prefix + srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	// The second of three messages fails: only what was not taken is retransmitted.
	c.status = []int{200, 503}
	b := requests(5<<32+1, 600)
	if err := target.Send(t.Context(), b); err == nil || !fleet.Temporary(err) {
		t.Fatalf("after 503: %v", err)
	}
	if err := target.Send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 600 || c.sent != 4 {
		t.Fatalf("%d spans in %d messages", len(c.spans), c.sent)
	}
	ids := map[string]bool{}
	for i, s := range c.spans {
		ids[string(s.TraceId)] = true
		if s.StartTimeUnixNano != uint64(1e18+i) || len(s.SpanId) != 8 {
			t.Fatalf("span %d: %v", i, s)
		}
	}
	if len(ids) != 600 {
		t.Errorf("%d traces", len(ids))
	}
	for _, want := range []string{"host.name=db-7", "host.id=id-7", "slowray.label.rack=r1", "service.name=nginx"} {
		if !c.hosts[want] {
			t.Errorf("the resource has no %s: %v", want, c.hosts)
		}
	}
	// An agent that was killed sends the same again: the IDs are the same.
	again, err := Open(Prefix + srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.spans[600:] {
		if !ids[string(s.TraceId)] {
			t.Fatal("a span that came twice has another ID")
		}
	}

	seconds := &fleet.Batch{Host: b.Host, Stream: fleet.Seconds, First: 1, Last: 100, Count: 100}
	var sec store.Second
	seconds.Seconds = func(yield func(fleet.Position, *store.Second) bool) {
		for i := range 100 {
			sec.At = 1_700_000_000 + int64(i)
			sec.Endpoint.Side, sec.Endpoint.Addr, sec.Endpoint.Port, sec.Endpoint.Requests = "served", "10.0.0.7", 80, uint64(i)
			sec.Endpoint.Total.Reset()
			sec.Endpoint.Total.AddN(1e6, uint64(i))
			if !yield(fleet.Position(i+1), &sec) {
				return
			}
		}
	}
	if err := target.Send(t.Context(), seconds); err != nil {
		t.Fatal(err)
	}
	var sum, histogram uint64
	for _, m := range c.points {
		switch m.Name {
		case "slowray.requests":
			if m.GetSum().AggregationTemporality != metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA {
				t.Error("seconds are reported as sums since a start")
			}
			for _, p := range m.GetSum().DataPoints {
				sum += uint64(p.GetAsInt())
				if p.TimeUnixNano-p.StartTimeUnixNano != 1e9 || p.StartTimeUnixNano != (1_700_000_000+uint64(p.GetAsInt()))*1e9 {
					t.Fatalf("point %v", p)
				}
			}
		case "slowray.request.duration":
			for _, p := range m.GetExponentialHistogram().DataPoints {
				histogram += p.Count
			}
		}
	}
	if sum != 4950 || histogram != 4950 {
		t.Errorf("%d requests, %d in histograms, want 4950", sum, histogram)
	}

	finding := store.Finding{Start: time.Unix(1_700_000_000, 0), End: time.Unix(1_700_000_060, 0), Finding: cause.Finding{Cause: "blocked-on-disk", Title: "Threads wait"}}
	found := &fleet.Batch{Host: b.Host, Stream: fleet.Findings, First: 1, Last: 1, Count: 1,
		Findings: func(yield func(fleet.Position, *store.Finding) bool) { yield(1, &finding) }}
	if err := target.Send(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	if err := target.Hello(t.Context(), b.Host, time.Now()); err != nil {
		t.Fatal(err)
	}
	if len(c.logs) != 2 || c.logs[0].TimeUnixNano != 1_700_000_000e9 || c.logs[1].EventName != "slowray.host" {
		t.Errorf("logs: %v", c.logs)
	}
	c.status = []int{400}
	if err := target.Send(t.Context(), found); err != nil {
		t.Errorf("what was taken is retransmitted: %v", err)
	}
	found.First, found.Last = 2, 2
	found.Findings = func(yield func(fleet.Position, *store.Finding) bool) { yield(2, &finding) }
	if err := target.Send(t.Context(), found); err == nil || fleet.Temporary(err) {
		t.Errorf("after 400: %v", err)
	}
	if _, err := target.Mark(t.Context(), b.Host, fleet.Requests); err != fleet.ErrNoMark {
		t.Errorf("mark: %v", err)
	}
}

// A collector that wants to be left alone says for how long, and that is reported on.
func TestHowLongACollectorWantsToBeLeftAlone(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
		}))
		target, err := Open("otlp+" + srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		err = target.Hello(t.Context(), &fleet.Host{Name: "web-1", ID: "x"}, time.Now())
		if !fleet.Temporary(err) || fleet.After(err) != 7*time.Second {
			t.Errorf("%d: %v, after %s", status, err, fleet.After(err))
		}
		target.Close()
		srv.Close()
	}
}
