package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/store"
)

// atFlags choose a time of the history instead of now.
type atFlags struct {
	At  *string `placeholder:"T" help:"From the history that slowray record keeps: 12:03, 12:03:20, \"2026-11-22 12:03\", 2026-11-22T12:03:00Z or -10m."`
	Dir string  `default:"${history}" placeholder:"D" complete:"dirs" help:"With --at: where the history is (${default})."`
}

const (
	// longestRange is how much of the history is judged together at most: a
	// day is 1,440 windows.
	longestRange = 24 * time.Hour
	// between is how much time may lie between two windows next to each other: a
	// moment in there is reported by the nearer one.
	between = 5 * time.Second
)

// validate refuses a --dir that would be left out.
func (f *atFlags) validate() error {
	if f.At == nil && f.Dir != "" && f.Dir != historyDir { // empty: of a command that asks as why does, and has no history
		return errors.New("--dir goes with --at T: without it slowray looks at what happens now")
	}
	return nil
}

// moment is the time of --at.
func (f *atFlags) moment() (time.Time, error) {
	t, err := parseAt(value(f.At), time.Now())
	if err != nil {
		return t, fmt.Errorf("--at: %w", err)
	}
	return t, nil
}

// open opens the history.
func (f *atFlags) open() (*store.Reader, error) {
	r, err := store.OpenReader(f.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no history in %s: slowray record keeps one", f.Dir)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the history in %s may only be read by who recorded it: run this as root", f.Dir)
	}
	return r, err
}

// none says that there is nothing of a time, and of which there is.
func (f *atFlags) none(r *store.Reader, what string, from, to time.Time) error {
	when := clockText(from)
	if !to.Equal(from) {
		when += " to " + clockText(to)
	}
	first, last, err := r.Span()
	if err != nil {
		return err
	}
	if first.IsZero() {
		return fmt.Errorf("there is no history in %s yet: slowray record keeps one", f.Dir)
	}
	return fmt.Errorf("%s of %s: the history in %s goes from %s to %s", what, when, f.Dir, clockText(first), clockText(last))
}

// noWindow says that there is no window of a time, and of which there are.
func (f *atFlags) noWindow(r *store.Reader, from, to time.Time) error {
	all, err := r.Observations(time.Time{}, time.Time{})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no window in %s yet: slowray record writes one each minute", f.Dir)
	}
	hint := ""
	if last := all[len(all)-1].End; from.After(last) && time.Since(last) < 3*time.Minute {
		hint = "; what is watched now can be asked for when its minute is over"
	}
	when := clockText(from)
	if !to.Equal(from) {
		when += " to " + clockText(to)
	}
	return fmt.Errorf("there is no window of %s: those in %s go from %s to %s%s", when, f.Dir, clockText(all[0].Start), clockText(all[len(all)-1].End), hint)
}

// windows are the stored ones of the time that was asked for: the one of that
// moment, or, when a length is given, all that lie in it by the better half. What
// they are, and what is missing, is reported.
func (f *atFlags) windows(s *streams, length time.Duration) ([]store.Window, error) {
	at, err := f.moment()
	if err != nil {
		return nil, err
	}
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	to := at.Add(length)
	all, err := r.Observations(at.Add(-between), to.Add(between))
	if err != nil {
		return nil, err
	}
	chosen := within(all, at, to)
	if len(chosen) == 0 {
		return nil, f.noWindow(r, at, to)
	}
	first, last := chosen[0], chosen[len(chosen)-1]
	if len(chosen) == 1 {
		what := "the window"
		if at.After(last.End) || to.Before(first.Start) {
			what = "nothing was watched at " + clockText(at) + "; the nearest window is the one"
		}
		fmt.Fprintf(s.err, "slowray: %s from %s to %s\n", what, clockText(first.Start), clockText(last.End))
		return chosen, nil
	}
	gap := func(from, to time.Time) {
		if to.Sub(from) > diagnose.Apart {
			fmt.Fprintf(s.err, "slowray: nothing was recorded from %s to %s\n", clockText(from), clockText(to))
		}
	}
	gap(at, first.Start)
	for i := range chosen[1:] {
		gap(chosen[i].End, chosen[i+1].Start)
	}
	gap(last.End, earlier(to, time.Now()))
	return chosen, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// within picks the windows of a range, or the one of a moment.
func within(all []store.Window, from, to time.Time) []store.Window {
	var in []store.Window
	best, distance := -1, between+1
	for i, w := range all {
		if from.Before(to) && w.In(from, to) {
			in = append(in, w)
		}
		if away := max(w.Start.Sub(to), from.Sub(w.End), 0); away < distance {
			best, distance = i, away
		}
	}
	if len(in) == 0 && best >= 0 {
		return all[best : best+1]
	}
	return in
}

// judgeWindows judges one window as it would have been live, or several
// together; those that cannot be read are reported and left out. The Observation is
// the last one.
func judgeWindows(ctx context.Context, s *streams, windows []store.Window, filter observe.Filter) (*diagnose.Report, *observe.Observation, error) {
	over := diagnose.NewRange()
	var last *observe.Observation
	var missing error
	for _, w := range windows {
		if last != nil && ctx.Err() != nil {
			fmt.Fprintf(s.err, "slowray: not judged: the windows from %s on\n", clockText(w.Start))
			break
		}
		o, err := observe.Load(w.Path)
		if err != nil {
			missing = err
			if len(windows) > 1 {
				tellUnreadable(s, err)
			}
			continue
		}
		if filter != (observe.Filter{}) {
			if err := filtered(o, filter); err != nil {
				missing = err
				continue
			}
		}
		last = o
		if len(windows) > 1 {
			over.Add(ctx, o, diagnose.Saved)
		}
	}
	if last == nil {
		return nil, nil, missing
	}
	if len(windows) == 1 {
		r := diagnose.Diagnose(ctx, last, diagnose.Saved)
		return &r, last, nil
	}
	r := over.Report()
	return &r, last, nil
}

// filtered makes o what it would have been if it had been watched with a filter:
// that is a matter of judging it. The error says that the filter names nothing.
// A container that was started anew has another id in the next window.
func filtered(o *observe.Observation, f observe.Filter) error {
	when := "at " + clockText(o.Window.Start)
	if r, err := observe.ParseWorkloadRef(f.Pod); err == nil {
		f.Container = o.Kubernetes.ContainersOf(r)
	}
	if f.Pod != "" && f.Container == "" {
		return fmt.Errorf("no pod of this node was %q %s", f.Pod, when)
	}
	if f.Container != "" {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.Name == f.Container {
				f.Container = c.ID
			}
		}
	}
	// What began to listen after the ports were read, or ended before, answered requests.
	listens := func() bool {
		for i := range o.Namespaces {
			if slices.ContainsFunc(o.Namespaces[i].Listeners, func(l observe.Listener) bool { return l.Port == f.Port }) {
				return true
			}
		}
		return slices.ContainsFunc(o.Endpoints, func(e observe.Endpoint) bool { return e.Port == f.Port && e.Side == observe.Served.String() })
	}
	process := func(match func(*observe.Process) bool) bool {
		for i := range o.Processes {
			if match(&o.Processes[i]) {
				return true
			}
		}
		return false
	}
	switch {
	case f.Port != 0 && !listens():
		return fmt.Errorf("nothing listened on TCP port %d %s", f.Port, when)
	case f.PID != 0 && !process(func(p *observe.Process) bool { return p.PID == f.PID }):
		return fmt.Errorf("there was no process with pid %d %s", f.PID, when)
	case f.Unit != "" && !process(func(p *observe.Process) bool { return f.InUnit(p.Unit) }):
		return fmt.Errorf("no process ran in unit %q %s", f.Unit, when)
	case f.Container != "" && !process(func(p *observe.Process) bool { return f.InContainer(p.Container) }):
		return fmt.Errorf("no process ran in container %q %s", f.Container, when)
	}
	o.Filter = f
	return nil
}

// describe names a stored request's process.
func describe(r *store.Request) observe.IdentityOf {
	return func(int, int64) (observe.Identity, bool) { return r.Process, r.Process.Comm != "" }
}

// tellUnreadable says that a window is left out.
func tellUnreadable(s *streams, err error) {
	fmt.Fprintln(s.err, "slowray: not read: "+printable.Text(err.Error()))
}

// tellSkipped says which files of the history could not be read.
func tellSkipped(s *streams, r *store.Reader) {
	for _, line := range r.Skipped() {
		fmt.Fprintln(s.err, "slowray: not read: "+printable.Text(strings.TrimSpace(line)))
	}
}
