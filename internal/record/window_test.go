package record

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// A cause that crashes costs the judgement of a window: the window is kept, it is
// told, and recording goes on.
func TestJudgingThatCrashes(t *testing.T) {
	m := &memory{}
	var told []string
	r := &Recorder{store: m, opt: Options{Window: time.Minute, Sinks: []Sink{m}, Trouble: func(err error) { told = append(told, err.Error()) }},
		diagnose: func(_ context.Context, o *observe.Observation, _ diagnose.Bound) diagnose.Report {
			if o.Window.Seconds == 60 {
				panic("no such process")
			}
			return diagnose.Report{}
		}}
	var findings course
	r.judge(t.Context(), &observe.Observation{Window: observe.Window{Start: time.Unix(1, 0), Seconds: 60}}, &findings)
	if r.status.Failed != 1 || r.status.Windows != 0 || len(told) != 1 || !strings.Contains(told[0], "no such process") {
		t.Errorf("%+v, told %q", r.status, told)
	}
	r.judge(t.Context(), &observe.Observation{Window: observe.Window{Start: time.Unix(61, 0), Seconds: 59}}, &findings)
	if r.status.Windows != 1 || len(m.windows) != 2 || m.told.windows != 2 {
		t.Errorf("%+v, %d windows stored, %d told", r.status, len(m.windows), m.told.windows)
	}
}
