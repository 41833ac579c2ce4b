package web

import (
	"context"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/fleet/ship"
)

// unix is a time as it stands in answers: seconds since 1970, to a microsecond.
func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

type spanJSON struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

type statusJSON struct {
	Version   string              `json:"version"`
	Host      diagnose.ReportHost `json:"host"`
	Span      *spanJSON           `json:"span"` // null when there is no history yet
	Now       float64             `json:"now"`
	Recording bool                `json:"recording"`
	Stats     *statsJSON          `json:"stats,omitempty"`
	Shipping  []ship.Status       `json:"shipping,omitempty"` // of each target of --to
	Losses    losses              `json:"losses"`
}

// statsJSON is store.Stats, as JSON has names.
type statsJSON struct {
	Requests       uint64  `json:"requests"`
	Seconds        uint64  `json:"seconds"`
	Findings       uint64  `json:"findings"`
	Observations   uint64  `json:"observations"`
	Bytes          int64   `json:"bytes"`
	Recovered      uint64  `json:"recovered"`
	Torn           uint64  `json:"torn_bytes"`
	Dropped        uint64  `json:"dropped"`
	DroppedSeconds uint64  `json:"dropped_seconds"`
	Removed        uint64  `json:"removed"`
	LastError      string  `json:"last_error"`
	CostCPUShare   float64 `json:"cost_cpu_share"`
}

// status says what is served, and what is known to be missing.
func (s *server) status(context.Context, *query) (answer, error) {
	span, err := s.span()
	if err != nil {
		return answer{}, err
	}
	st := statusJSON{Version: s.opt.Version, Host: s.opt.Host, Now: unix(s.opt.Now()), Recording: s.opt.Recording, Losses: losses{}}
	if !span.zero() {
		st.Span = &spanJSON{unix(span.from), unix(span.to)}
	}
	if s.opt.Losses != nil {
		st.Losses = append(st.Losses, s.opt.Losses()...)
	}
	if src, ok := s.source.(Skipper); ok {
		st.Losses.add("files of the history could not be read", int64(len(src.Skipped())))
	}
	if s.opt.Stats != nil {
		x, cost := s.opt.Stats()
		st.Stats = &statsJSON{x.Requests, x.Seconds, x.Findings, x.Observations, x.Bytes, x.Recovered, x.Torn, x.Dropped, x.DroppedSeconds, x.Removed, x.LastError, cost}
		st.Losses.add("requests were not stored: the disk was too slow or full", int64(x.Dropped))
		st.Losses.add("seconds of endpoints and findings were not stored: the disk was too slow or full", int64(x.DroppedSeconds))
	}
	if s.opt.Targets != nil {
		st.Shipping = s.opt.Targets()
	}
	return jsonAnswer(st)
}
