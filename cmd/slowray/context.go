package main

import (
	"context"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// traced is how far back the onset of what a window has from its beginning is looked for.
const traced = time.Hour

// complete adds to a report what other windows of the history tell: what the windows next to the
// one that was judged name as the cause, and when it began.
func (f *atFlags) complete(ctx context.Context, report *diagnose.Report, windows []store.Window, filter observe.Filter) error {
	if len(report.Findings) == 0 {
		return nil
	}
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close()
	first := windows[0]
	if len(windows) == 1 {
		all, err := r.Observations(first.Start.Add(-2*traced), first.End.Add(2*traced))
		if err != nil {
			return err
		}
		for _, w := range nextTo(all, first) {
			if !report.Unfolded() || ctx.Err() != nil {
				break
			}
			o, err := observe.Load(w.Path)
			if err == nil && filter != (observe.Filter{}) {
				err = filtered(o, filter)
			}
			if err != nil {
				continue // as if nobody had looked then
			}
			next := diagnose.Diagnose(ctx, o, diagnose.Saved)
			report.Explain(&next)
		}
	}
	earlier, err := judgedBefore(r, first.Start)
	if err != nil {
		return err
	}
	report.Trace(earlier, diagnose.Apart)
	return nil
}

// recorded looks for the onset of what was found just now in what a recorder on this host found
// before; it has not judged the window that it is in.
func (f *atFlags) recorded(report *diagnose.Report) {
	if len(report.Findings) == 0 {
		return
	}
	r, err := store.OpenReader(f.Dir)
	if err != nil {
		return // nobody recorded, or it is not ours to read
	}
	defer r.Close()
	if earlier, err := judgedBefore(r, report.Window.Start); err == nil {
		report.Trace(earlier, 2*diagnose.Apart)
	}
}

// nextTo are the windows right after and before one.
func nextTo(all []store.Window, of store.Window) (near []store.Window) {
	for i, w := range all {
		if !w.Start.Equal(of.Start) {
			continue
		}
		if i+1 < len(all) && all[i+1].Start.Sub(w.End) <= diagnose.Apart {
			near = append(near, all[i+1])
		}
		if i > 0 && w.Start.Sub(all[i-1].End) <= diagnose.Apart {
			near = append(near, all[i-1])
		}
	}
	return near
}

// judgedBefore are the windows that were judged in the time before a moment, with what was found.
func judgedBefore(r *store.Reader, to time.Time) ([]diagnose.Judged, error) {
	windows, err := r.Observations(to.Add(-traced), to)
	if err != nil {
		return nil, err
	}
	found, err := r.Findings(to.Add(-traced), to)
	if err != nil {
		return nil, err
	}
	all := make([]diagnose.Judged, 0, len(windows))
	for _, w := range windows {
		j := diagnose.Judged{Start: w.Start, End: w.End}
		for i := range found {
			if found[i].Start.Sub(w.Start).Abs() < time.Second { // which may tell it in other precision
				j.Findings = append(j.Findings, found[i].Finding)
			}
		}
		all = append(all, j)
	}
	return all, nil
}
