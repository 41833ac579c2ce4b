package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/top"
)

type fleetTopCmd struct {
	Every      time.Duration `default:"2s" placeholder:"D" help:"How often the table is renewed (${default})."`
	Once       bool          `help:"Print the table once and end, as is done without a terminal."`
	JSON       bool          `name:"json" help:"With --once: print it as JSON."`
	fleetFlags `embed:""`
}

// Help is printed by --help, above the flags.
func (*fleetTopCmd) Help() string {
	return "The services of all hosts that ship, the hosts, and what is abnormal now. On a terminal: Tab changes between services and hosts, s and r change the order."
}

// Validate is called by the command line parser.
func (c *fleetTopCmd) Validate() error {
	switch {
	case c.Every < time.Second || c.Every > time.Hour:
		return fmt.Errorf("--every %s: must be 1s to 1h", c.Every)
	case c.JSON && !c.Once:
		return errors.New("--json goes with --once")
	}
	return nil
}

// Run shows the table until it is quit, or prints it once.
func (c *fleetTopCmd) Run(ctx context.Context, s *streams) error {
	archive, err := c.open()
	if err != nil {
		return err
	}
	defer closeArchive(archive)
	progress := commandline.NewStage(s.err)
	w := answer.NewWatcher(archive, progress.Show)
	err = w.Learn(ctx, time.Now())
	progress.Clear()
	if err != nil {
		return fmt.Errorf("fleet top: %w", advised(err))
	}
	next := func(ctx context.Context) (*answer.Table, error) {
		if _, err := w.Step(ctx, time.Now()); err != nil {
			return nil, err
		}
		return w.Table(ctx)
	}
	_, in := commandline.TerminalColumns(os.Stdin)
	_, out := commandline.TerminalColumns(s.out)
	if !c.Once && in && out {
		noColor := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" // no-color.org
		if err := top.LiveFleet(ctx, next, c.Every, noColor, os.Stdin, s.out); err != nil {
			return fmt.Errorf("fleet top: %w", advised(err))
		}
		return nil
	}
	t, err := next(ctx)
	if err != nil {
		return fmt.Errorf("fleet top: %w", advised(err))
	}
	if c.JSON {
		return t.JSON(s.out)
	}
	return top.FleetText(s.out, t)
}
