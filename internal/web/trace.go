package web

import (
	"context"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/waterfall"
)

const (
	// aroundTrace is how far apart the requests of one trace are, where one of them is shown.
	aroundTrace = time.Minute
	// maxTraceHops bounds what is shown of a trace.
	maxTraceHops = 500
)

// traced are the steps of each trace that was asked for, the trace that began first first.
func (s *server) traced(ctx context.Context, q store.Query) ([][]waterfall.Step, error) {
	var hops []waterfall.Hop
	err := s.source.Requests(q, func(r *store.Request) bool {
		hops = append(hops, waterfall.Hop{Request: keep(r)})
		return len(hops) < maxTraceHops && ctx.Err() == nil
	})
	return waterfall.Traces(hops), err
}

// traceOf is the path of a request: the steps of its trace.
func (s *server) traceOf(ctx context.Context, r *store.Request) ([]hopJSON, error) {
	at := time.Unix(0, r.StartNS)
	traces, err := s.traced(ctx, store.Query{From: at.Add(-aroundTrace), To: at.Add(time.Duration(r.TotalNS()) + aroundTrace), Trace: observe.TraceOf(&r.Trace)})
	if err != nil || len(traces) == 0 {
		return nil, err
	}
	return stepsJSON(traces[0], requestID(r)), nil
}

// traceLines are traces as lines, each under its first request.
func (s *server) traceLines(ctx context.Context, q *query) ([]line, error) {
	traces, err := s.traced(ctx, store.Query{From: q.from, To: q.to, Trace: q.trace})
	var lines []line
	for _, steps := range traces {
		first := steps[0].Called
		if first == nil {
			first = steps[0].Served
		}
		lines = append(lines, line{&first.Request, stepsJSON(steps, "")})
	}
	return lines, err
}

// stepsJSON is nil where there is but one record.
func stepsJSON(steps []waterfall.Step, chosen string) []hopJSON {
	if len(steps) == 1 && (steps[0].Called == nil || steps[0].Served == nil) {
		return nil
	}
	out := make([]hopJSON, 0, len(steps))
	for i := range steps {
		j := hopJSON{Depth: steps[i].Depth}
		if h := steps[i].Called; h != nil {
			j.Called, j.Chosen = requestJSON(&h.Request), requestID(&h.Request) == chosen
		}
		if h := steps[i].Served; h != nil {
			j.Served, j.Chosen = requestJSON(&h.Request), j.Chosen || requestID(&h.Request) == chosen
		}
		out = append(out, j)
	}
	return out
}
