package main

import (
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/watch"
)

// recorderSource is the kernel's requests as a source.
type recorderSource struct {
	*request.Recorder
	counted []request.Counters // when the segments were last asked for
}

func openSource(opt request.Options) (*recorderSource, error) {
	watch.Hurry() // on a busy host the rings would run full
	r, err := request.Start(opt)
	if err != nil {
		return nil, err
	}
	return &recorderSource{Recorder: r}, nil
}

// OnClosed hides the recorder's method of that name: the report has its own
// form of a closed connection.
func (s *recorderSource) OnClosed(each func(*report.ClosedConnection)) {
	s.Recorder.OnClosed(func(c *request.Closed) { each((*report.ClosedConnection)(c)) })
}

// Segments tells what was sent for each address since the last call.
func (s *recorderSource) Segments(each func(side observe.Side, port uint16, segments, retrans uint64)) {
	now := s.Counters()
	for _, c := range request.Since(s.counted, now) {
		each(c.Side, c.Port, c.Segments, c.Retrans)
	}
	s.counted = now
}

// Losses tells which requests have no record.
func (s *recorderSource) Losses() sourceLosses {
	st := s.Stats()
	return sourceLosses{lost: st.Lost, sampled: st.Sampled, unwatched: st.Connections, missed: st.Missed, missing: st.Missing}
}

var _ requestSource = (*recorderSource)(nil)
