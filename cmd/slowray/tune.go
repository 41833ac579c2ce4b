package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/prove/tune"
	"github.com/slowray/slowray/internal/watch"
)

type tuneCmd struct {
	Load      string        `placeholder:"CMD" help:"Make load with this command, as often as needed: wrk, wrk2, hey, ab, k6, vegeta, oha, sysbench are understood. Without it the service's own traffic is measured."`
	Apply     bool          `help:"Make changes, keep those that help. Without it nothing is changed: the first change is reported."`
	For       time.Duration `default:"15m" placeholder:"D" help:"No step begins that would not be over after this time (${default})."`
	Look      time.Duration `default:"5s" placeholder:"D" help:"How long each look takes (${default})."`
	Block     time.Duration `default:"2s" placeholder:"D" help:"How long each of the nine measurements of a step takes at least (${default})."`
	Port      *int          `placeholder:"N" help:"Only the service on this TCP port, and what it calls."`
	PID       *int          `name:"pid" placeholder:"N" help:"Only the services of this process, and what they call."`
	Unit      *string       `placeholder:"X" help:"Only the services of this systemd unit, and what they call."`
	Container *string       `placeholder:"X" help:"Only the services of this container (name or id), and what they call."`
	Skip      []string      `placeholder:"CAUSE" complete:"causes" help:"Do not try what fixes this cause; may be given more than once."`
	UndoAtEnd bool          `help:"Take back at the end what was kept."`
	JSON      bool          `name:"json" help:"Print the report as JSON."`
	HTML      string        `name:"html" placeholder:"FILE" help:"Write a page with charts of each step."`
	State     string        `default:"${state}" placeholder:"DIR" help:"Where the journal of changes is (${default})."`
}

// Bounds of the times of a run.
const (
	minBlock   = time.Second
	maxBlock   = time.Minute
	minTuneFor = 10 * time.Second
	maxTuneFor = 24 * time.Hour
)

// Validate is called by the command line parser.
func (c *tuneCmd) Validate() error {
	why := whyCmd{For: &c.Look, Port: c.Port, PID: c.PID, Unit: c.Unit, Container: c.Container}
	switch {
	case c.For < minTuneFor || c.For > maxTuneFor:
		return fmt.Errorf("--for %s: must be %s to %s", c.For, minTuneFor, maxTuneFor)
	case c.Look < minWindow || c.Look > time.Minute:
		return fmt.Errorf("--look %s: must be %s to %s", c.Look, minWindow, time.Minute)
	case c.Block < minBlock || c.Block > maxBlock:
		return fmt.Errorf("--block %s: must be %s to %s", c.Block, minBlock, maxBlock)
	case c.UndoAtEnd && !c.Apply:
		return errors.New("--undo-at-end goes with --apply")
	}
	return why.Validate()
}

// Run runs the loop.
func (c *tuneCmd) Run(ctx context.Context, s *streams) error {
	if c.HTML != "" {
		if err := writable(c.HTML); err != nil {
			return err
		}
	}
	host, err := c.host()
	if err != nil {
		return err
	}
	if host.Journal != nil {
		defer host.Journal.Close()
	}
	said := newTuneProgress(s.err, c.JSON)
	said.lasting(c, host)
	host.Progress = said.step
	r, err := tune.Run(ctx, host, tune.Options{
		Apply: c.Apply, For: c.For, LookTime: host.LookTime(), StepTime: host.StepTime(), UndoAtEnd: c.UndoAtEnd, Skip: c.Skip,
		Service: tune.Filter(host.Watch.Filter), Load: c.Load, Say: said.say,
	})
	said.clear()
	if err != nil {
		return err
	}
	if c.Apply {
		keepResult(s, c.State, "tune", func(w io.Writer) error { return tune.WriteJSON(w, r) })
	}
	return c.report(r, s)
}

// host is what the loop acts on.
func (c *tuneCmd) host() (*tune.Host, error) {
	h := &tune.Host{
		Watch: watch.Options{
			// What is changed by it is to be found among all requests.
			Budget: -1,
			For:    c.Look, Version: version(),
			Filter: observe.Filter{Port: value(c.Port), PID: value(c.PID), Unit: value(c.Unit), Container: value(c.Container)},
		},
		Why: "slowray tune", Block: c.Block,
	}
	if c.Load != "" {
		load, err := loadgen.Parse(c.Load)
		if err != nil {
			return nil, err
		}
		h.Load = &load
	}
	if !c.Apply {
		return h, nil
	}
	if err := h.CanMeasure(); err != nil {
		return nil, err
	}
	var err error
	h.Journal, err = journal.OpenHost(c.State)
	return h, err
}

// tuneProgress tells what a run does: on a terminal in one line, which is gone at the end,
// else in a line each.
type tuneProgress struct {
	w     io.Writer
	quiet bool
	began time.Time
	stage *commandline.Stage // nil off a terminal
}

func newTuneProgress(w io.Writer, quiet bool) *tuneProgress {
	return &tuneProgress{w: w, quiet: quiet, began: time.Now()}
}

// lasting says beforehand how long the run takes.
func (p *tuneProgress) lasting(c *tuneCmd, h *tune.Host) {
	switch {
	case p.quiet:
		return
	case c.Apply:
		fmt.Fprintf(p.w, "slowray: each look takes about %s and each change that is tried about %s; ends after %s at the latest\n",
			minutes(h.LookTime()), minutes(h.StepTime()), minutes(c.For))
	default:
		fmt.Fprintf(p.w, "slowray: looks for %s; nothing is changed without --apply\n", c.Look)
	}
	if commandline.Redraws(p.w) {
		p.stage = commandline.NewTimedStage(p.w, "looking", "Ctrl-C: put back and end", 0)
	}
}

func (p *tuneProgress) say(what string) {
	switch {
	case p.quiet:
	case p.stage != nil:
		p.stage.Show(strings.TrimSpace(strings.ReplaceAll(what, "\n", " ")), -1)
	default:
		fmt.Fprintf(p.w, "slowray: %3.0f s  %s\n", time.Since(p.began).Seconds(), strings.ReplaceAll(what, "\n", " "))
	}
}

// step tells how far an experiment is.
func (p *tuneProgress) step(s experiment.Step) {
	if p.stage != nil || s.Settling || s.Block > 0 {
		p.say("  " + stepText(&s))
	}
}

func (p *tuneProgress) clear() {
	if p.stage != nil {
		p.stage.Clear()
	}
}

// report writes what the run came to; the error is the exit status.
func (c *tuneCmd) report(r *tune.Report, s *streams) error {
	if c.HTML != "" {
		if err := writePrivate(c.HTML, func(w io.Writer) error { return tune.HTML(w, r) }); err != nil {
			return err
		}
	}
	write := func() error { return tune.Text(s.out, r, textColumns(s.out)) }
	if c.JSON {
		write = func() error { return tune.WriteJSON(s.out, r) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	switch r.Ending {
	case tune.Healthy:
		return nil
	case tune.Failed, tune.Harmed:
		return exit(exitFailed)
	}
	return exit(exitFindings)
}
