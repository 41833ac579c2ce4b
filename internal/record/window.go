package record

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/watch"
)

func hostCPUs() int { return max(runtime.NumCPU(), 1) }

// watch watches one window after the other until ctx is done.
func (r *Recorder) watch(ctx context.Context) {
	var findings course
	for ctx.Err() == nil {
		o, err := r.window(ctx)
		if err != nil {
			r.failed(err)
			select {
			case <-ctx.Done():
			case <-time.After(min(retry, r.opt.Window)):
			}
			continue
		}
		r.judge(ctx, o, &findings)
		// Symbol tables and the like were for this window only.
		debug.FreeOSMemory()
	}
}

// window watches one. A bug in one of its readers costs this window, not the
// history.
func (r *Recorder) window(ctx context.Context) (o *observe.Observation, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a reader crashed, which is a bug of slowray: %v\n%s", p, debug.Stack())
		}
	}()
	o, err = watch.Run(ctx, watch.Options{
		Kube: r.opt.Kube,
		For:  r.opt.Window, Version: r.opt.Version, Silent: r.opt.Silent, Requests: r.stream,
		KeepStacks: true, SampleInterval: int(min(max(r.opt.Window/shortWindow, 1), 4)), SkipUnwinder: time.Since(r.looked) < lookEvery,
		Memory: r.memory, NAT: r.nat,
	})
	if o != nil && (o.Stacks != nil || slices.ContainsFunc(o.Gaps, func(g observe.Gap) bool { return g.Subject == watch.SubjectFunctions })) {
		r.looked = time.Now() // or in vain, at the same price
	}
	return o, err
}

// shortWindow is a window in which things are looked at as often as slowray why
// does.
const shortWindow = 15 * time.Second

// lookEvery is how often the stacks of services that compute may be recorded with
// all frames: that takes some two seconds of CPU time, and up to 200 MB of memory
// for a moment.
const lookEvery = 10 * time.Minute

func (r *Recorder) failed(err error) {
	r.mu.Lock()
	r.status.Failed++
	r.status.LastFail = err.Error()
	r.mu.Unlock()
	err = fmt.Errorf("a window could not be watched: %w", err)
	r.trouble(err)
	for _, s := range r.opt.Sinks {
		s.Window(&Window{Err: err})
	}
}

// judged is the judgement of a window. A bug in one of the causes costs this
// window's, not the history.
func (r *Recorder) judged(ctx context.Context, o *observe.Observation) (report diagnose.Report, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("judging crashed, which is a bug of slowray: %v\n%s", p, debug.Stack())
		}
	}()
	ctx, cancel := budget.Grace(ctx, watch.JudgeGrace)
	defer cancel()
	return r.diagnose(ctx, o, diagnose.Live), nil
}

// judge judges a window, and keeps and tells what came of it.
func (r *Recorder) judge(ctx context.Context, o *observe.Observation, findings *course) {
	length := time.Duration(o.Window.Seconds * float64(time.Second))
	if length < min(leastWindow, r.opt.Window) {
		return
	}
	judged, err := r.judged(ctx, o)
	if err != nil {
		r.failed(err)
		// It can be looked into with slowray replay.
		if err := r.store.AddObservation(o, nil); err != nil {
			r.trouble(err)
		}
		return
	}
	w := &Window{Observation: o, Report: judged}
	if netns := ownNetNS(); r.opt.OwnNamespace {
		w.Report.Findings = slices.DeleteFunc(w.Report.Findings, func(f cause.Finding) bool {
			return f.Subject.NetNS != 0 && f.Subject.NetNS != netns
		})
	}
	w.Findings = findings.add(o.Window.Start, o.Window.Start.Add(length), w.Report.Findings)
	r.mu.Lock()
	late := r.over
	r.status.Windows++
	r.mu.Unlock()
	if late {
		return
	}
	if err := r.store.AddObservation(o, w.Report.Findings); err != nil {
		r.trouble(err)
	}
	for _, s := range r.opt.Sinks {
		s.Window(w)
	}
}
