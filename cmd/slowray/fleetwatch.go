package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/report"
)

type fleetWatchCmd struct {
	For        *time.Duration `placeholder:"D" help:"End after so long; without it watch until it is stopped."`
	JSON       bool           `name:"json" help:"Print events as JSON, one on a line."`
	Alerts     string         `placeholder:"FILE" complete:"files" help:"Notify people by a file of rules, as of slowray record --alerts."`
	AlertsDir  string         `default:"/var/lib/slowray/fleet-alerts" placeholder:"D" complete:"dirs" help:"Where what is open and what waits to be sent is kept (${default})."`
	Page       string         `placeholder:"URL" help:"Where people reach slowray fleet page, for the links in alerts."`
	fleetFlags `embed:""`
}

// Help is printed by --help, above the flags.
func (*fleetWatchCmd) Help() string {
	return `Asks the archive each second, and says on a line when something abnormal begins, when more is known of it, and when it is over. What it says is written to the archive too, where that keeps events.

With --alerts it notifies people, too: one incident is one alert, whatever the number of hosts. A restart goes on where it was.

Exit status: 0 nothing happened; 1 something did; 2 could not run.`
}

// Validate is called by the command line parser.
func (c *fleetWatchCmd) Validate() error {
	if c.For != nil && *c.For < time.Second {
		return fmt.Errorf("--for %s: must be at least 1s", *c.For)
	}
	return nil
}

// Run watches until it is stopped.
func (c *fleetWatchCmd) Run(ctx context.Context, s *streams) error {
	archive, err := c.open()
	if err != nil {
		return err
	}
	defer closeArchive(archive)
	if c.For != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, *c.For)
		defer stop()
	}
	tell := eventPrinter{c: c, s: s, archive: archive}
	alerts, err := c.alerts(ctx, archive, time.Now, func(text string) { tell.trouble(text) })
	if err != nil {
		return fmt.Errorf("fleet watch: --alerts: %w", err)
	}
	defer alerts.close()
	progress := commandline.NewStage(s.err)
	w, err := c.learn(ctx, archive, alerts, progress, &tell)
	progress.Clear()
	if err != nil {
		switch {
		case c.For != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("fleet watch: the archive did not answer within %s", *c.For)
		case ctx.Err() != nil:
			return nil
		}
		return fmt.Errorf("fleet watch: %w", advised(err))
	}
	tell.begin(w)
	for _, i := range w.Open() {
		tell.say(ctx, []answer.Event{{Schema: answer.SchemaEvent, At: time.Now().UTC(), Kind: answer.Onset, Incident: i}})
	}
	away := false
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		events, err := w.Step(ctx, time.Now())
		tell.say(ctx, events)
		alerts.step(w, events)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if !away {
				tell.trouble(advised(err).Error() + "; trying again")
			}
			away = true
		case w.Silent(time.Now()):
			tell.trouble(unheard(w))
		case away:
			tell.trouble("the archive answers again")
			away = false
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if tell.failed != nil {
		return fmt.Errorf("fleet watch: %w", tell.failed)
	}
	if tell.any {
		return exit(exitFindings)
	}
	return nil
}

// learn makes a watcher that knows what is usual. Who sends alerts waits for an archive that
// is away.
func (c *fleetWatchCmd) learn(ctx context.Context, archive fleet.Archive, alerts *fleetAlerts, progress *commandline.Stage, tell *eventPrinter) (*answer.Watcher, error) {
	const again = 5 * time.Second
	away := false
	for {
		w := answer.NewWatcher(archive, progress.Show)
		err := alerts.learn(ctx, w, time.Now())
		if err == nil || ctx.Err() != nil || c.Alerts == "" {
			return w, err
		}
		progress.Clear()
		if !away {
			tell.trouble(advised(err).Error() + "; trying again")
		}
		away = true
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// begin says what is watched: nothing more may come for days.
func (t *eventPrinter) begin(w *answer.Watcher) {
	if now := time.Now(); w.Silent(now) {
		t.trouble(unheard(w))
		return
	}
	fmt.Fprintf(t.s.err, "slowray: fleet watch: %d hosts ship here; what begins is printed from now on\n", len(w.Hosts))
}

// unheard says that nothing can be judged, for nobody sends.
func unheard(w *answer.Watcher) string {
	if len(w.Hosts) == 0 {
		return "no host has ever shipped here: start slowray record --to with this URL on the hosts; waiting"
	}
	return "no host has sent anything since " + w.Heard().Format(time.DateTime) + " UTC (slowray record --status on a host says why); waiting"
}

// eventPrinter prints events, and has the archive keep them.
type eventPrinter struct {
	c       *fleetWatchCmd
	s       *streams
	archive fleet.Archive
	any     bool
	failed  error // of printing: there is nobody who reads

	mu   sync.Mutex
	said string    // the trouble that was reported last
	at   time.Time // and when
}

func (t *eventPrinter) say(ctx context.Context, events []answer.Event) {
	var stored []fleet.Event
	for i := range events {
		e := &events[i]
		t.any = true
		line := string(report.WrapLine([]byte(e.Line()), 0, report.Style{Width: commandline.Columns(t.s.out)}))
		if t.c.JSON {
			text, err := e.JSON()
			if err != nil {
				t.trouble(err.Error())
				continue
			}
			line = string(text)
		}
		if _, err := fmt.Fprintln(t.s.out, line); err != nil {
			t.failed = err
		}
		if x, err := e.Stored(); err == nil {
			stored = append(stored, x)
		}
	}
	if keeps, ok := t.archive.(fleet.EventStore); ok && len(stored) > 0 {
		if err := keeps.AddEvents(ctx, stored); err != nil {
			t.trouble("the archive does not keep what was reported: " + advised(err).Error())
		}
	}
}

// trouble tells of something once, and again when it is something else or a minute later.
func (t *eventPrinter) trouble(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if what == t.said && time.Since(t.at) < time.Minute {
		return
	}
	t.said, t.at = what, time.Now()
	fmt.Fprintf(t.s.err, "slowray: fleet watch: %s\n", printable.Text(what))
}
