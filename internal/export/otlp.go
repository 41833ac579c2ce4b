package export

import (
	"cmp"
	"iter"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/observe"
)

// What is exported of OTLP is written with the messages of the data itself:
// MetricsData has the same form on the wire as ExportMetricsServiceRequest, and
// so have those of spans and logs (opentelemetry/proto/metrics/v1/metrics.proto).

// seriesInMessage bounds the size of a message: 64 endpoints are some 700 KB
// before they are compressed, and a collector takes 4 MB by gRPC.
const seriesInMessage = 64

func attribute(key string, value *commonpb.AnyValue) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: value}
}

func textValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func intValue(n int64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}
}

func numberValue(f float64) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: f}}
}

func listValue(texts []string) *commonpb.AnyValue {
	list := &commonpb.ArrayValue{}
	for _, s := range texts {
		list.Values = append(list.Values, textValue(s))
	}
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
}

// attributes are for texts; those that are empty are left out.
func attributes(pairs ...string) []*commonpb.KeyValue {
	var list []*commonpb.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, attribute(pairs[i], textValue(pairs[i+1])))
		}
	}
	return list
}

// itself is slowray as a resource.
func (x *Exporter) itself() *resourcepb.Resource {
	return &resourcepb.Resource{Attributes: attributes("service.name", "slowray", "service.version", label(x.opt.Version),
		"service.instance.id", label(x.opt.Host), "host.name", label(x.opt.Host), "k8s.node.name", label(x.opt.Node))}
}

func (x *Exporter) scope() *commonpb.InstrumentationScope {
	return &commonpb.InstrumentationScope{Name: "github.com/slowray/slowray", Version: label(x.opt.Version)}
}

// metrics gives all metrics in a few messages, each with how many points it has.
func (x *Exporter) metrics() iter.Seq2[proto.Message, int] {
	return func(yield func(proto.Message, int) bool) {
		now := x.opt.Now()
		all := x.all()
		for first := true; first || len(all) > 0; first = false {
			part := all[:min(seriesInMessage, len(all))]
			all = all[len(part):]
			m := newMetricsMessage(now)
			if first {
				m.host(x.look(), x.since)
			}
			for _, s := range part {
				m.endpoint(s)
			}
			data := &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
				Resource:     x.itself(),
				ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: x.scope(), Metrics: m.list()}},
			}}}
			for _, s := range part {
				if r, points := x.conventional(s, m.now); r != nil {
					data.ResourceMetrics = append(data.ResourceMetrics, r)
					m.points += points
				}
			}
			if !yield(data, m.points) {
				return
			}
		}
	}
}

// metricsMessage is a message in the making.
type metricsMessage struct {
	now     uint64
	points  int
	metrics map[string]*metricspb.Metric
	order   []string
	native  exponential
	sum     metricspb.AggregationTemporality
}

func newMetricsMessage(now time.Time) *metricsMessage {
	return &metricsMessage{now: uint64(now.UnixNano()), metrics: map[string]*metricspb.Metric{},
		sum: metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE}
}

func (m *metricsMessage) list() []*metricspb.Metric {
	list := make([]*metricspb.Metric, len(m.order))
	for i, name := range m.order {
		list[i] = m.metrics[name]
	}
	return list
}

// of is the metric of a declaration, with no points yet when it is new.
func (m *metricsMessage) of(d *metric) *metricspb.Metric {
	if got := m.metrics[d.otel]; got != nil {
		return got
	}
	made := &metricspb.Metric{Name: d.otel, Unit: d.unit, Description: d.help}
	switch d.kind {
	case counter:
		made.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{IsMonotonic: true, AggregationTemporality: m.sum}}
	case gauge:
		made.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{}}
	case histogram:
		made.Data = &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{AggregationTemporality: m.sum}}
	}
	m.metrics[d.otel] = made
	m.order = append(m.order, d.otel)
	return made
}

// add adds a point of a counter or gauge.
func (m *metricsMessage) add(d *metric, v float64, labels []*commonpb.KeyValue, since time.Time) {
	p := &metricspb.NumberDataPoint{Attributes: labels, TimeUnixNano: m.now}
	if d.kind == counter {
		p.StartTimeUnixNano = uint64(since.UnixNano())
	}
	if d.unit == "s" || d.unit == "1" {
		p.Value = &metricspb.NumberDataPoint_AsDouble{AsDouble: v}
	} else {
		p.Value = &metricspb.NumberDataPoint_AsInt{AsInt: int64(v)}
	}
	switch data := m.of(d).Data.(type) {
	case *metricspb.Metric_Sum:
		data.Sum.DataPoints = append(data.Sum.DataPoints, p)
	case *metricspb.Metric_Gauge:
		data.Gauge.DataPoints = append(data.Gauge.DataPoints, p)
	}
	m.points++
}

// host adds what is of no endpoint.
func (m *metricsMessage) host(seen *snapshot, since time.Time) {
	for i := range hostMetrics {
		d := &hostMetrics[i]
		d.values(seen, func(v float64, labels ...string) {
			var list []*commonpb.KeyValue
			for i, value := range labels {
				list = append(list, attributes(d.labels[i], value)...)
			}
			m.add(&d.metric, v, list, since)
		})
	}
}

// endpoint adds what one endpoint did.
func (m *metricsMessage) endpoint(s *series) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.attributes()
	for i := range endpointMetrics {
		d := &endpointMetrics[i]
		if d.kind == histogram {
			h := d.histogram(&s.sums)
			if h.Count() > 0 {
				m.native.convert(h)
				data := m.of(&d.metric).GetExponentialHistogram()
				data.DataPoints = append(data.DataPoints, m.native.point(own, s.since, m.now))
				m.points++
			}
			continue
		}
		d.values(&s.sums, func(value string, v float64) {
			labels := own
			if len(d.labels) > 0 {
				labels = append(own[:len(own):len(own)], attributes(d.labels[0], value)...)
			}
			m.add(&d.metric, v, labels, s.since)
		})
	}
}

// point is the histogram as OpenTelemetry has it.
func (e *exponential) point(labels []*commonpb.KeyValue, since time.Time, now uint64) *metricspb.ExponentialHistogramDataPoint {
	p := &metricspb.ExponentialHistogramDataPoint{
		Attributes: labels, StartTimeUnixNano: uint64(since.UnixNano()), TimeUnixNano: now,
		Count: e.count, Sum: proto.Float64(e.sum), Max: proto.Float64(e.max), Scale: e.schema, ZeroCount: e.zero, ZeroThreshold: zeroThreshold,
		Positive: &metricspb.ExponentialHistogramDataPoint_Buckets{},
	}
	if len(e.indices) > 0 {
		p.Positive.Offset = e.indices[0]
		p.Positive.BucketCounts = make([]uint64, e.span())
		for i, index := range e.indices {
			p.Positive.BucketCounts[index-e.indices[0]] = e.counts[i]
		}
	}
	return p
}

// serviceName is what OpenTelemetry calls the program that somebody watches: what a user
// edits in Kubernetes, as its conventions have it, else a container, a unit, a process.
func serviceName(p *observe.Identity) string {
	return label(cmp.Or(p.Workload.Name, p.ContainerName, strings.TrimSuffix(p.Unit, ".service"), p.Comm, "unknown_service"))
}
