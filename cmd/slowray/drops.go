package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/watch"
)

type dropsCmd struct {
	For  time.Duration `default:"5s" placeholder:"D" help:"How long to watch (${default})."`
	Port int           `placeholder:"N" help:"Only packets from or to this TCP port that something listens at here."`
	JSON bool          `name:"json" help:"Print JSON (schema slowray.drops/1)."`
}

// Help is printed by --help, above the flags.
func (*dropsCmd) Help() string {
	return `Packets die at the device, in XDP and traffic control, in a CPU's backlog, at a firewall rule (also one without a counter), for lack of a route, a neighbour or room in a queue, at a link whose ends have different MTUs, at a socket. Each place is named, in every network namespace in which something listens, with the processes at both ends as far as they are on this host. Nothing is changed, and no counter is reset. docs/drops.md has more.

Most drops hurt nobody: firewalls are there to drop. Whether requests wait for these packets tells slowray why.

Exit status: 0 nothing was dropped, 1 something was, 2 could not look.`
}

// Validate is called by the command line parser.
func (c *dropsCmd) Validate() error {
	switch {
	case c.For <= 0 || c.For > 24*time.Hour:
		return fmt.Errorf("--for %s: must be more than 0 and at most a day", c.For)
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf("--port %d: must be 1 to 65535", c.Port)
	}
	return nil
}

// Run watches and reports.
func (c *dropsCmd) Run(ctx context.Context, s *streams) error {
	bar := newProgress(s.err, c.For)
	o, err := watch.Drops(ctx, watch.Options{For: c.For, Filter: observe.Filter{Port: c.Port}, Version: version(), Progress: bar.show})
	bar.clear()
	if err != nil {
		return fmt.Errorf("drops: %w", err)
	}
	r := diagnose.Drops(ctx, o, diagnose.Live)
	if c.JSON {
		err = report.DropsJSON(s.out, &r)
	} else {
		err = report.Drops(s.out, &r, terminalStyle(s.out))
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if r.Packets > 0 {
		return exit(exitFindings)
	}
	return nil
}
