package export

import (
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/observe"
)

// convention is a metric by the name and with the buckets that OpenTelemetry's semantic
// conventions give it (1.43), of endpoints of which slowray measures what it means.
// docs/export-otlp.md has the table, also of those that are not sent, and why.
type convention struct {
	metric
	side   observe.Side
	of     func(s *sums) *observe.Histogram
	bounds []float64
	// attributes are those that the conventions require.
	attributes func(id *identity, s *sums) []*commonpb.KeyValue
}

// httpBounds are the conventions' advice, in seconds.
var httpBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

var conventions = []convention{
	{metric: metric{otel: "http.server.request.duration", unit: "s", kind: histogram, help: "Duration of HTTP server requests."},
		side: observe.Served, of: func(s *sums) *observe.Histogram { return &s.http }, bounds: httpBounds, attributes: httpAttributes},
	{metric: metric{otel: "http.client.request.duration", unit: "s", kind: histogram, help: "Duration of HTTP client requests."},
		side: observe.Called, of: func(s *sums) *observe.Histogram { return &s.http }, bounds: httpBounds, attributes: httpAttributes},
}

// httpAttributes has no method: "_OTHER" is the conventions' word for one that is not known,
// as the sums of an endpoint are over all. They have no status code for the same reason.
func httpAttributes(id *identity, s *sums) []*commonpb.KeyValue {
	scheme := "http"
	if s.tls > 0 {
		scheme = "https"
	}
	return append(attributes("http.request.method", "_OTHER", "url.scheme", scheme, "server.address", id.addr), attribute("server.port", intValue(int64(id.port))))
}

// addHTTP adds a second to the requests that are known to be of HTTP. An endpoint that has
// answered by HTTP speaks it, also in a second in which nobody gets an answer; but not in
// one in which most answers are none of HTTP.
func (s *sums) addHTTP(e *observe.Endpoint) {
	s.tls += e.TLS
	var known uint64
	for _, n := range e.Statuses {
		known += n
	}
	answered := e.Requests - min(e.Unanswered, e.Requests)
	if speaks := 2*known > answered; speaks || s.isHTTP && answered == 0 {
		s.isHTTP = true
		s.http.Merge(&e.Total)
	}
}

// conventional is the metrics of a series by their conventional names, with the program
// as the resource, as they would come from itself; nil where there are none.
func (x *Exporter) conventional(s *series, now uint64) (*metricspb.ResourceMetrics, int) {
	if s.id.addr == other {
		return nil, 0 // of all protocols
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*metricspb.Metric
	for i := range conventions {
		c := &conventions[i]
		h := c.of(&s.sums)
		if c.side.String() != s.id.side || h.Count() == 0 {
			continue
		}
		list = append(list, &metricspb.Metric{Name: c.otel, Unit: c.unit, Description: c.help, Data: &metricspb.Metric_Histogram{Histogram: &metricspb.Histogram{
			AggregationTemporality: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE,
			DataPoints:             []*metricspb.HistogramDataPoint{explicit(h, c.bounds, c.attributes(&s.id, &s.sums), uint64(s.since.UnixNano()), now)},
		}}})
	}
	if len(list) == 0 {
		return nil, 0
	}
	of := x.program(&s.program)
	of.Attributes = append(of.Attributes, attributes("service.instance.id", label(x.opt.Host))...)
	return &metricspb.ResourceMetrics{Resource: of, ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: x.scope(), Metrics: list}}}, len(list)
}

// explicit is a histogram with given bounds. A time that is less than 1.6 % from one may
// count on its other side.
func explicit(h *observe.Histogram, bounds []float64, labels []*commonpb.KeyValue, since, now uint64) *metricspb.HistogramDataPoint {
	var e exponential
	e.convert(h)
	counts := append(classic(h, bounds, nil), e.count)
	for i := len(counts) - 1; i > 0; i-- {
		counts[i] -= counts[i-1] // classic ones are of all up to the bound
	}
	return &metricspb.HistogramDataPoint{Attributes: labels, StartTimeUnixNano: since, TimeUnixNano: now,
		Count: e.count, Sum: proto.Float64(e.sum), Max: proto.Float64(e.max), ExplicitBounds: bounds, BucketCounts: counts}
}
