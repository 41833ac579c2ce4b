package export

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/store"
)

// Batches sends what was recorded before, of any host, by OTLP: requests as spans,
// seconds as metrics of that second (delta temporality), findings as log records. It
// is for those who know what was sent and what was not; a Push sends what happens.
// Its methods may be called from several goroutines.
type Batches struct {
	wire    *wire
	timeout time.Duration

	mu      sync.Mutex
	refused uint64 // items of messages that were taken
	why     string
}

// BatchHost is whose records a batch is of.
type BatchHost struct {
	Name, ID, Version string
	Attributes        map[string]string // of the resource: what else is known of it
}

// BatchRequest is a request with the number that it has at its host: by it, and the
// host's ID, its trace is known, so that one that comes twice is the same.
type BatchRequest struct {
	Number uint64
	store.Request
}

// MostInMessage is how many requests, seconds or findings are to be sent at once: a
// collector takes 4 MB by gRPC.
const MostInMessage = 256

// NewBatches takes what PushOptions take.
func NewBatches(target, headers string) (*Batches, error) {
	w, err := newWire(target, headers)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	return &Batches{wire: w, timeout: pushTimeout}, nil
}

// Close lets go of connections.
func (b *Batches) Close() { b.wire.client.CloseIdleConnections() }

// BatchError is why a message was not taken.
type BatchError struct {
	Err   error
	Again bool          // another attempt may go better
	After time.Duration // not sooner than that, up to an hour; 0 where the collector did not say
}

func (e *BatchError) Error() string { return e.Err.Error() }
func (e *BatchError) Unwrap() error { return e.Err }

// send sends a message. Items of a message that was taken may have been refused: the
// same ones would be again.
func (b *Batches) send(ctx context.Context, s signal, m proto.Message) error {
	body, err := proto.Marshal(m)
	if err != nil {
		return &BatchError{Err: fmt.Errorf("otlp: %w", err)}
	}
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	a := b.wire.send(limited, s, body)
	if a.err != nil {
		return &BatchError{fmt.Errorf("otlp: %s: %s: %w", b.wire, s, a.err), a.again, a.after}
	}
	if a.rejected > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refused += uint64(min(a.rejected, int64(len(body)))) // none is shorter than a byte
		b.why = bounded(a.why, 2*maxLabel)
	}
	return nil
}

// Refused is how many spans, points of metrics and log records the collector has refused
// of messages that it took, and why it last did, as it says.
func (b *Batches) Refused() (items uint64, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused, b.why
}

// of is an exporter that has nothing but the names of a host.
func (h *BatchHost) of() *Exporter {
	return &Exporter{opt: Options{Host: h.Name, Version: h.Version, Now: time.Now}}
}

func (h *BatchHost) attributes() []*commonpb.KeyValue {
	list := attributes("host.id", label(h.ID))
	for name, value := range h.Attributes {
		list = append(list, attributes(label(name), label(value))...)
	}
	return list
}

func (h *BatchHost) resource() *resourcepb.Resource {
	r := h.of().itself()
	r.Attributes = append(r.Attributes, h.attributes()...)
	return r
}

// identify has the numbers of a span that were drawn follow from the request's own, so that
// what comes twice is the same span. One that is part of a trace has its place in it.
func (h *BatchHost) identify(s *tracepb.Span, r *BatchRequest) {
	id := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(h.ID+"/requests/"), r.Number))
	if len(s.ParentSpanId) == 0 { // a trace of its own
		s.TraceId = id[:16]
	}
	if !r.Request.Trace.Known() {
		s.SpanId = id[16:24]
	}
}

// Requests sends requests, MostInMessage at most.
func (b *Batches) Requests(ctx context.Context, h *BatchHost, list []BatchRequest) error {
	requests := make([]store.Request, len(list))
	for i := range list {
		requests[i] = list[i].Request
	}
	data := h.of().spansOf(requests, func(i int, s *tracepb.Span) {
		h.identify(s, &list[i])
	})
	for _, r := range data.ResourceSpans {
		r.Resource.Attributes = append(r.Resource.Attributes, h.attributes()...)
	}
	return b.send(ctx, requestSignal, data)
}

// BatchSeconds is what endpoints did in some seconds, in the making.
type BatchSeconds struct{ m *metricsMessage }

// Add adds what an endpoint did in a second; MostInMessage/4 are enough. It keeps
// nothing of s.
func (b *BatchSeconds) Add(s *store.Second) {
	if b.m == nil {
		b.m = newMetricsMessage(time.Time{})
		b.m.sum = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	}
	at := time.Unix(s.At, 0)
	one := &series{id: identityOf(s).shown().clone(), since: at}
	one.seen(&s.Process, at)
	one.sums.add(&s.Endpoint)
	b.m.now = uint64(at.Add(time.Second).UnixNano())
	b.m.endpoint(one)
}

// Seconds sends what endpoints did in seconds.
func (b *Batches) Seconds(ctx context.Context, h *BatchHost, s *BatchSeconds) error {
	return b.send(ctx, metricSignal, &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: h.resource(), ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: h.of().scope(), Metrics: s.m.list()}},
	}}})
}

// Findings sends findings of windows, MostInMessage at most.
func (b *Batches) Findings(ctx context.Context, h *BatchHost, list []store.Finding) error {
	found := make([]foundAt, len(list))
	for i := range list {
		found[i] = foundAt{Finding: list[i].Finding, at: list[i].Start, windows: 1}
	}
	m := h.of().logs(found).(*logspb.LogsData)
	for i, r := range m.ResourceLogs[0].ScopeLogs[0].LogRecords {
		r.EventName = "slowray.finding.window"
		r.Attributes = append(r.Attributes, attribute("slowray.window.end", textValue(list[i].End.UTC().Format(time.RFC3339Nano))))
	}
	m.ResourceLogs[0].Resource = h.resource()
	return b.send(ctx, findingSignal, m)
}

// Hello sends that a host is there, and its attributes.
func (b *Batches) Hello(ctx context.Context, h *BatchHost, now time.Time) error {
	at := uint64(now.UnixNano())
	return b.send(ctx, findingSignal, &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: h.resource(), ScopeLogs: []*logspb.ScopeLogs{{Scope: h.of().scope(), LogRecords: []*logspb.LogRecord{{
			TimeUnixNano: at, ObservedTimeUnixNano: at, EventName: "slowray.host", Body: textValue(label(h.Name) + " ships"),
			SeverityNumber: logspb.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
		}}}},
	}}})
}
