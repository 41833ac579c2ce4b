package export

import (
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exposed is the identity of a series in the form of an exposition. What it leads to
// is shared by all scrapes and never changed.
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

// pairs keeps the pairs of labels that metrics have next to those of their
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

// families gives all metrics of x, one family after the other, in the order of
// their names. What it gives is used again for the next one. Of each family it
// takes one series after the other, so that whoever adds to one never waits for
// a scrape of all; two families may be a second apart.
func (x *Exporter) families(yield func(*dto.MetricFamily) bool) {
	all, seen, since := x.all(), x.look(), timestamppb.New(x.since)
	e, h := endpointMetrics, hostMetrics
	var b builder
	for len(e) > 0 || len(h) > 0 {
		if len(h) == 0 || (len(e) > 0 && e[0].name < h[0].name) {
			b.begin(&e[0].metric)
			b.endpoints(&e[0], all)
			e = e[1:]
		} else {
			b.begin(&h[0].metric)
			b.host(&h[0], seen, since)
			h = h[1:]
		}
		if len(b.family.Metric) > 0 && !yield(&b.family) {
			return
		}
	}
}

// Gather implements prometheus.Gatherer, for those who check what is given.
func (x *Exporter) Gather() ([]*dto.MetricFamily, error) {
	var list []*dto.MetricFamily
	for f := range x.families {
		list = append(list, proto.Clone(f).(*dto.MetricFamily))
	}
	return list, nil
}

// builder makes one family after the other in the same memory.
type builder struct {
	family dto.MetricFamily
	of     *metric
	kind   dto.MetricType
	slots  []*slot // one for each sample, also of families before
	native exponential
}

// slot is a sample with all that it points to.
type slot struct {
	metric  dto.Metric
	counter dto.Counter
	gauge   dto.Gauge
	value   float64
	labels  []*dto.LabelPair
	upTo    []uint64      // of classic buckets
	buckets []*dto.Bucket // that point into upTo
	deltas  []int64
}

func (b *builder) begin(m *metric) {
	b.of = m
	b.kind = [...]dto.MetricType{counter: dto.MetricType_COUNTER, gauge: dto.MetricType_GAUGE, histogram: dto.MetricType_HISTOGRAM}[m.kind]
	b.family.Name, b.family.Help, b.family.Type, b.family.Metric = &m.name, &m.help, &b.kind, b.family.Metric[:0]
}

// next is a sample that has no value yet.
func (b *builder) next() *slot {
	n := len(b.family.Metric)
	if n == len(b.slots) {
		b.slots = append(b.slots, &slot{})
	}
	s := b.slots[n]
	s.metric.Counter, s.metric.Gauge, s.metric.Histogram, s.metric.Label = nil, nil, nil, nil
	b.family.Metric = append(b.family.Metric, &s.metric)
	return s
}

// set makes a sample a counter or gauge.
func (s *slot) set(k kind, v float64, since *timestamppb.Timestamp) {
	s.value = v
	if k == gauge {
		s.gauge.Value, s.metric.Gauge = &s.value, &s.gauge
		return
	}
	s.counter.Value, s.counter.CreatedTimestamp, s.metric.Counter = &s.value, since, &s.counter
}

// endpoints adds a sample, or several, for each endpoint.
func (b *builder) endpoints(m *endpointMetric, all []*series) {
	for _, s := range all {
		s.mu.Lock()
		if m.kind == histogram {
			if h := m.histogram(&s.sums); h.Count() > 0 {
				b.native.convert(h)
				to := b.next()
				to.upTo = classic(h, m.bounds, to.upTo)
				to.metric.Label, to.metric.Histogram = s.exposed.labels, b.native.expose(to, m.bounds, s.exposed.since)
			}
		} else {
			m.values(&s.sums, func(value string, v float64) {
				to := b.next()
				to.set(m.kind, v, s.exposed.since)
				to.metric.Label = s.exposed.labels
				if len(m.labels) > 0 {
					to.labels = withPair(to.labels[:0], s.exposed.labels, sharedPair(m.labels[0], value))
					to.metric.Label = to.labels
				}
			})
		}
		s.mu.Unlock()
	}
}

// host adds the samples of a metric that is of no endpoint.
func (b *builder) host(m *hostMetric, seen *snapshot, since *timestamppb.Timestamp) {
	m.values(seen, func(v float64, labels ...string) {
		to := b.next()
		to.set(m.kind, v, since)
		to.labels = to.labels[:0]
		for i, value := range labels {
			to.labels = append(to.labels, pair(m.labels[i], value))
		}
		to.metric.Label = to.labels
	})
}

// withPair appends labels and one more, in the order of the names.
func withPair(to, labels []*dto.LabelPair, p *dto.LabelPair) []*dto.LabelPair {
	at, _ := slices.BinarySearchFunc(labels, p.GetName(), func(l *dto.LabelPair, name string) int { return strings.Compare(l.GetName(), name) })
	return append(append(append(to, labels[:at]...), p), labels[at:]...)
}

// expose writes the histogram as a native one, with classic buckets for those
// that do not know them.
func (e *exponential) expose(to *slot, bounds []float64, since *timestamppb.Timestamp) *dto.Histogram {
	count, sum, schema, threshold, zero := e.count, e.sum, e.schema, float64(zeroThreshold), e.zero
	for len(to.buckets) < len(bounds) {
		to.buckets = append(to.buckets, &dto.Bucket{})
	}
	h := &dto.Histogram{
		SampleCount: &count, SampleSum: &sum, CreatedTimestamp: since,
		Schema: &schema, ZeroThreshold: &threshold, ZeroCount: &zero,
		Bucket: to.buckets[:len(bounds)], PositiveDelta: to.deltas[:0],
	}
	for i := range bounds {
		h.Bucket[i].CumulativeCount, h.Bucket[i].UpperBound = &to.upTo[i], &bounds[i]
	}
	var last int64 // count of the bucket before
	var next int32 // index after the bucket before
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
	to.deltas = h.PositiveDelta
	return h
}
