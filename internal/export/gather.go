package export

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Handler answers scrapes of Prometheus, as text, or as protobuf with native
// histograms for those that ask for it.
func (x *Exporter) Handler() http.Handler {
	process := prometheus.NewPedanticRegistry()
	process.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	const most = 4 // scrapes at once; they share what is gathered
	return promhttp.HandlerFor(prometheus.Gatherers{x, process}, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: most, CoalesceGather: true,
	})
}

// exposed is the identity of a series in the form of an exposition. It is shared
// by all scrapes and never changed.
type exposed struct {
	labels []*dto.LabelPair // in the order of their names
	since  *timestamppb.Timestamp
}

func expose(id identity, since time.Time) exposed {
	e := exposed{since: timestamppb.New(since)}
	for _, l := range id.labels() {
		e.labels = append(e.labels, pair(l.name, l.value))
	}
	return e
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// pairs keeps the pairs of labels that metrics have beside those of their
// endpoint; there are few.
var pairs struct {
	sync.Mutex
	of map[labelPair]*dto.LabelPair
}

func sharedPair(name, value string) *dto.LabelPair {
	pairs.Lock()
	defer pairs.Unlock()
	key := labelPair{name, value}
	p := pairs.of[key]
	if p == nil {
		if pairs.of == nil {
			pairs.of = map[labelPair]*dto.LabelPair{}
		}
		p = pair(name, value)
		pairs.of[key] = p
	}
	return p
}

// Gather implements prometheus.Gatherer.
func (x *Exporter) Gather() ([]*dto.MetricFamily, error) {
	families := make([]*dto.MetricFamily, 0, len(hostMetrics)+len(endpointMetrics))
	families = append(families, x.gatherEndpoints()...)
	seen := x.look()
	since := timestamppb.New(x.since)
	for i := range hostMetrics {
		m := &hostMetrics[i]
		f := m.family()
		m.values(seen, func(v float64, labels ...string) {
			pairs := make([]*dto.LabelPair, len(labels))
			for i, value := range labels {
				pairs[i] = pair(m.labels[i], value)
			}
			f.Metric = append(f.Metric, m.sample(pairs, v, since))
		})
		if len(f.Metric) > 0 {
			families = append(families, f)
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, nil
}

// gatherEndpoints takes one series after the other, so that whoever adds to one
// never waits for a scrape of all.
func (x *Exporter) gatherEndpoints() []*dto.MetricFamily {
	all := x.all()
	families := make([]*dto.MetricFamily, len(endpointMetrics))
	for i := range endpointMetrics {
		families[i] = endpointMetrics[i].family()
		families[i].Metric = make([]*dto.Metric, 0, len(all))
	}
	var native exponential
	for _, s := range all {
		s.mu.Lock()
		for i := range endpointMetrics {
			m, f := &endpointMetrics[i], families[i]
			if m.kind == histogram {
				h := m.histogram(&s.sums)
				if h.Count() > 0 {
					native.convert(h)
					f.Metric = append(f.Metric, &dto.Metric{Label: s.exposed.labels, Histogram: native.expose(classic(h, m.bounds, nil), m.bounds, s.exposed.since)})
				}
				continue
			}
			m.values(&s.sums, func(value string, v float64) {
				labels := s.exposed.labels
				if len(m.labels) > 0 {
					labels = withPair(labels, sharedPair(m.labels[0], value))
				}
				f.Metric = append(f.Metric, m.sample(labels, v, s.exposed.since))
			})
		}
		s.mu.Unlock()
	}
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
}

// withPair is labels with one more, in the order of the names.
func withPair(labels []*dto.LabelPair, p *dto.LabelPair) []*dto.LabelPair {
	at, _ := slices.BinarySearchFunc(labels, p.GetName(), func(l *dto.LabelPair, name string) int { return strings.Compare(l.GetName(), name) })
	out := make([]*dto.LabelPair, 0, len(labels)+1)
	return append(append(append(out, labels[:at]...), p), labels[at:]...)
}

// family is an empty family of the metric.
func (m *metric) family() *dto.MetricFamily {
	t := [...]dto.MetricType{counter: dto.MetricType_COUNTER, gauge: dto.MetricType_GAUGE, histogram: dto.MetricType_HISTOGRAM}[m.kind]
	return &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &t}
}

// sample is a value of a counter or gauge.
func (m *metric) sample(labels []*dto.LabelPair, v float64, since *timestamppb.Timestamp) *dto.Metric {
	if m.kind == gauge {
		return &dto.Metric{Label: labels, Gauge: &dto.Gauge{Value: &v}}
	}
	return &dto.Metric{Label: labels, Counter: &dto.Counter{Value: &v, CreatedTimestamp: since}}
}

// expose writes the histogram as a native one, with classic buckets for those
// that do not know them.
func (e *exponential) expose(upTo []uint64, bounds []float64, since *timestamppb.Timestamp) *dto.Histogram {
	count, sum, schema, threshold, zero := e.count, e.sum, e.schema, float64(zeroThreshold), e.zero
	h := &dto.Histogram{
		SampleCount: &count, SampleSum: &sum, CreatedTimestamp: since,
		Schema: &schema, ZeroThreshold: &threshold, ZeroCount: &zero,
		Bucket: make([]*dto.Bucket, len(bounds)),
	}
	for i := range bounds {
		h.Bucket[i] = &dto.Bucket{CumulativeCount: &upTo[i], UpperBound: &bounds[i]}
	}
	var last int64 // count of the bucket before
	var next int32 // index after the bucket before
	h.PositiveDelta = make([]int64, 0, len(e.counts))
	for i, index := range e.indices {
		index++ // Prometheus counts from the upper bound
		gap := index - next
		switch k := len(h.PositiveSpan); {
		case k == 0 || gap > 2:
			var length uint32
			h.PositiveSpan = append(h.PositiveSpan, &dto.BucketSpan{Offset: &gap, Length: &length})
		default: // a few empty buckets are shorter than a span
			for range gap {
				h.PositiveDelta = append(h.PositiveDelta, -last)
				last = 0
			}
			*h.PositiveSpan[k-1].Length += uint32(gap)
		}
		*h.PositiveSpan[len(h.PositiveSpan)-1].Length++
		h.PositiveDelta = append(h.PositiveDelta, int64(e.counts[i])-last)
		last = int64(e.counts[i])
		next = index + 1
	}
	return h
}
