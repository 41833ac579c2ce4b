package export

import (
	"slices"
	"testing"

	otelmetric "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// meter takes down how an instrument is made.
type meter struct {
	noop.Meter
	name   string
	config otelmetric.Float64HistogramConfig
}

func (m *meter) Float64Histogram(name string, opt ...otelmetric.Float64HistogramOption) (otelmetric.Float64Histogram, error) {
	m.name, m.config = name, otelmetric.NewFloat64HistogramConfig(opt...)
	return m.Meter.Float64Histogram(name, opt...)
}

// TestConventions: names, units and buckets are those of OpenTelemetry's own code.
func TestConventions(t *testing.T) {
	for i, make := range []func(otelmetric.Meter) error{
		func(m otelmetric.Meter) error { _, err := httpconv.NewServerRequestDuration(m); return err },
		func(m otelmetric.Meter) error { _, err := httpconv.NewClientRequestDuration(m); return err },
	} {
		var m meter
		if err := make(&m); err != nil {
			t.Fatal(err)
		}
		c := &conventions[i]
		if c.otel != m.name || c.unit != m.config.Unit() || c.help != m.config.Description() || !slices.Equal(c.bounds, m.config.ExplicitBucketBoundaries()) {
			t.Errorf("%s: unit %q, %q, bounds %v; want %s: %q, %q, %v", c.otel, c.unit, c.help, c.bounds, m.name, m.config.Unit(), m.config.Description(), m.config.ExplicitBucketBoundaries())
		}
	}
}

// conventionalOf are the points by conventional names, by service.
func conventionalOf(x *Exporter) map[string]*metricspb.HistogramDataPoint {
	got := map[string]*metricspb.HistogramDataPoint{}
	for message := range x.metrics() {
		for _, r := range message.(*metricspb.MetricsData).ResourceMetrics[1:] {
			service := attributesOf(r.Resource.Attributes)["service.name"]
			for _, m := range r.ScopeMetrics[0].Metrics {
				got[service+" "+m.Name] = m.GetHistogram().DataPoints[0]
			}
		}
	}
	return got
}

// TestConventional: only what is known to be HTTP is called so, in the conventions' buckets,
// also where nobody gets an answer any more, and nothing where nobody asked for it.
func TestConventional(t *testing.T) {
	x := New(Options{Version: "v1", Host: "web1", Conventions: true})
	add := func(side observe.Side, addr string, port int, comm string, change func(*observe.Endpoint)) {
		s := secondOf(side, addr, port, comm)
		if change != nil {
			change(&s.Endpoint)
		}
		x.Second(0, []store.Second{*s})
	}
	unknown := func(e *observe.Endpoint) { e.Statuses = nil }
	nobody := func(e *observe.Endpoint) { e.Statuses, e.Unanswered = nil, e.Requests }
	add(observe.Served, "10.0.0.1", 80, "nginx", nobody) // not known yet
	add(observe.Served, "10.0.0.1", 80, "nginx", nil)
	add(observe.Served, "10.0.0.1", 80, "nginx", nobody)
	add(observe.Served, "10.0.0.1", 80, "nginx", unknown) // something else, on the same port
	add(observe.Called, "10.0.0.9", 8443, "shop", func(e *observe.Endpoint) { e.TLS = 1 })
	add(observe.Served, "10.0.0.1", 6379, "redis", unknown)
	got := conventionalOf(x)
	if len(got) != 2 {
		t.Fatalf("%v", got)
	}
	p := got["nginx http.server.request.duration"]
	// 0.9, 1.1, 1.3, 2.1, 4, 12 and 215 ms, twice.
	if want := []uint64{10, 0, 2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0}; p == nil || !slices.Equal(p.BucketCounts, want) || p.Count != 14 || len(p.ExplicitBounds) != 14 {
		t.Fatalf("%v", p)
	}
	if sum := 2 * 0.2364; p.GetSum() < 0.98*sum || p.GetSum() > 1.02*sum || p.GetMax() != 0.215 {
		t.Errorf("sum %g, max %g", p.GetSum(), p.GetMax())
	}
	a := attributesOf(p.Attributes)
	for key, want := range map[string]string{"http.request.method": "_OTHER", "url.scheme": "http", "server.address": "10.0.0.1", "server.port": "80"} {
		if a[key] != want {
			t.Errorf("%s is %q, want %q", key, a[key], want)
		}
	}
	if c := got["shop http.client.request.duration"]; c == nil || attributesOf(c.Attributes)["url.scheme"] != "https" || attributesOf(c.Attributes)["server.port"] != "8443" {
		t.Errorf("%v", c)
	}
	y := fed(1, 3, Options{})
	if got := conventionalOf(y); len(got) != 0 {
		t.Errorf("nobody asked for %v", got)
	}
}
