// Package otlp sends what hosts ship to an OpenTelemetry collector.
//
// In: batches. Out: OTLP, by HTTP or gRPC (internal/export makes it): requests as
// spans, what endpoints did in a second as metrics of that second (delta
// temporality), findings as log records, each with the time at which it happened. It
// answers no questions.
//
// A collector cannot tell what it has, and a batch is several messages to it: of a
// batch that fails in the middle the messages that were taken are not retransmitted, but
// those of an agent that was killed are. The spans of a request that comes twice have
// the same IDs.
package otlp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/export"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// Prefix is what the URL of a collector begins with: otlp+http://host:4318,
// otlp+https://, otlp+grpc://host:4317, otlp+grpcs://.
const Prefix = "otlp+"

// headersVariable has what is sent along, as with --otlp: a token, mostly.
const headersVariable = "OTEL_EXPORTER_OTLP_HEADERS"

// secondsInMessage bounds a message of metrics: see export.Batches.
const secondsInMessage = export.MostInMessage / 4

// Target is a collector.
type Target struct {
	out *export.Batches

	mu    sync.Mutex
	taken map[series]progress
}

// series is a stream of a host: a simulated fleet ships by one Target.
type series struct {
	history string
	stream  fleet.Stream
}

// progress is what was taken of a batch that is under way.
type progress struct {
	first fleet.Position // of the batch
	last  fleet.Position // that was taken
}

var (
	_ fleet.Target  = (*Target)(nil)
	_ fleet.Refuser = (*Target)(nil)
)

// Open makes a Target of a URL; nothing is asked before the first use.
func Open(url string) (*Target, error) {
	rest, ok := strings.CutPrefix(url, Prefix)
	if !ok {
		return nil, errors.New("a URL of a collector begins with " + Prefix + "http://, https://, grpc:// or grpcs://")
	}
	out, err := export.NewBatches(rest, os.Getenv(headersVariable))
	if err != nil {
		return nil, err
	}
	return &Target{out: out, taken: map[series]progress{}}, nil
}

// Close implements fleet.Target.
func (t *Target) Close() error {
	t.out.Close()
	return nil
}

// Mark implements fleet.Target: a collector cannot tell.
func (*Target) Mark(context.Context, *fleet.Host, fleet.Stream) (fleet.Position, error) {
	return 0, fleet.ErrNoMark
}

// Hello implements fleet.Target.
func (t *Target) Hello(ctx context.Context, h *fleet.Host, now time.Time) error {
	host := hostOf(h)
	host.Attributes["os.version"] = h.Kernel
	host.Attributes["host.cpus"] = fmt.Sprint(h.CPUs)
	host.Attributes["host.ip"] = strings.Join(h.Addresses, ",")
	if list, err := json.Marshal(h.Programs); err == nil && len(h.Programs) > 0 {
		host.Attributes["slowray.programs"] = string(list)
	}
	return failure(t.out.Hello(ctx, host, now))
}

// Refused implements fleet.Refuser: items of messages that the collector took in part
// ("partial success"), which OTLP forbids to send again.
func (t *Target) Refused() (items uint64, why string) { return t.out.Refused() }

func hostOf(h *fleet.Host) *export.BatchHost {
	out := &export.BatchHost{Name: h.Name, ID: h.ID, Version: h.Version, Attributes: map[string]string{}}
	for name, value := range h.Labels {
		out.Attributes["slowray.label."+name] = value
	}
	return out
}

// failure says whether an error may pass.
func failure(err error) error {
	var e *export.BatchError
	switch {
	case !errors.As(err, &e):
		return err
	case !e.Again:
		return fleet.Permanent(err)
	}
	return fleet.Later(err, e.After)
}

// Send implements fleet.Target.
func (t *Target) Send(ctx context.Context, b *fleet.Batch) error {
	of := series{b.Host.ID, b.Stream}
	t.mu.Lock()
	done := t.taken[of]
	t.mu.Unlock()
	if done.first != b.First {
		done = progress{first: b.First}
	}
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.taken[of] = done
	}()
	host := hostOf(b.Host)
	var err error
	switch b.Stream {
	case fleet.Requests:
		err = inLots(b.Requests, export.MostInMessage, &done, func(p fleet.Position, r *store.Request) export.BatchRequest {
			return export.BatchRequest{Number: uint64(p), Request: *r}
		}, func(list []export.BatchRequest) error { return t.out.Requests(ctx, host, list) })
	case fleet.Seconds:
		var m export.BatchSeconds
		err = inLots(b.Seconds, secondsInMessage, &done, func(_ fleet.Position, s *store.Second) struct{} {
			m.Add(s)
			return struct{}{}
		}, func([]struct{}) error {
			err := t.out.Seconds(ctx, host, &m)
			m = export.BatchSeconds{}
			return err
		})
	case fleet.Findings:
		err = inLots(b.Findings, export.MostInMessage, &done, func(_ fleet.Position, f *store.Finding) store.Finding { return *f },
			func(list []store.Finding) error { return t.out.Findings(ctx, host, list) })
	}
	return failure(err)
}

// inLots sends records in lots of some, from the first that was not taken on.
func inLots[T, U any](records func(func(fleet.Position, *T) bool), most int, done *progress, keep func(fleet.Position, *T) U, send func([]U) error) error {
	var lot []U
	var last fleet.Position
	var err error
	flush := func() bool {
		if len(lot) == 0 {
			return true
		}
		if err = send(lot); err != nil {
			return false
		}
		lot, done.last = lot[:0], last
		return true
	}
	records(func(p fleet.Position, r *T) bool {
		if p <= done.last {
			return true
		}
		lot, last = append(lot, keep(p, r)), p
		return len(lot) < most || flush()
	})
	if err == nil {
		flush()
	}
	return err
}
