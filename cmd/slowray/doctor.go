package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/doctor"
	"github.com/slowray/slowray/internal/printable"
)

type doctorCmd struct {
	For       time.Duration `default:"2s" placeholder:"D" help:"How long to watch the host, after the parts were tried (${default})."`
	JSON      bool          `name:"json" help:"Print JSON (schema slowray.doctor/1)."`
	kubeFlags `embed:""`
}

// Help is printed by --help, above the flags.
func (*doctorCmd) Help() string {
	return `Everything is tried for real: each program is loaded into the kernel, attached, and taken back; then the host is watched for a moment. What does not work is reported with the reason, and with the commands and causes that go without it. What slowrays that run here take is shown, too: themselves, their programs in the kernel, and their breakpoints in the code of others.

Exit status: 0 all works, 1 something is missing, 2 could not run.`
}

// Validate is called by the command line parser.
func (c *doctorCmd) Validate() error {
	switch {
	case c.For < minWindow:
		return fmt.Errorf("--for %s: must be at least %s", c.For, minWindow)
	case c.For > time.Hour:
		return fmt.Errorf("--for %s: must be at most an hour", c.For)
	}
	return nil
}

// Run tries everything and tells.
func (c *doctorCmd) Run(ctx context.Context, s *streams) error {
	pods := c.start(ctx)
	defer pods.Close()
	stage := commandline.NewTimedStage(s.err, "trying this host", "Ctrl-C: give up", 0)
	checkup, err := doctor.Check(ctx, c.For, pods, func(what string) { stage.Show("trying "+what, -1) })
	stage.Clear()
	if err != nil {
		return err
	}
	if c.JSON {
		err = printable.WriteJSON(s.out, checkup)
	} else {
		err = checkup.Text(s.out, commandline.Columns(s.out))
	}
	if err != nil {
		return fmt.Errorf("write checkup: %w", err)
	}
	if !checkup.OK() {
		return exit(exitFindings)
	}
	return nil
}
