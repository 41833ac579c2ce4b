package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/fleet/answer"
)

type fleetWhyCmd struct {
	Service    string         `placeholder:"S" help:"Only what is wrong with this service: nginx:80, or nginx for all its ports."`
	Host       string         `placeholder:"H" help:"Only what is wrong on this host."`
	At         *string        `placeholder:"T" help:"What was at this time, instead of now: 12:03, 12:03:20, \"2026-11-22 12:03\", 2026-11-22T12:03:00Z or -10m."`
	For        *time.Duration `placeholder:"D" help:"How much time is judged: the last D, or with --at the D from then on (10m; with --at alone from 5m before to 5m after)."`
	JSON       bool           `name:"json" help:"Print the report as JSON."`
	fleetFlags `embed:""`
}

// fleetRange is how much time is judged where nothing else was asked for.
const fleetRange = 10 * time.Minute

// Help is printed by --help, above the flags.
func (*fleetWhyCmd) Help() string {
	return `Says which services of many hosts are slow or fail beyond what is usual for them, what those have in common that others have not, and where it comes from: host, process, and what that host itself found.

Exit status: 0 nothing found; 1 something found; 2 could not run, or nothing could be judged: no host has figures of that time, or nobody knows the service.`
}

// Validate is called by the command line parser.
func (c *fleetWhyCmd) Validate() error {
	switch {
	case c.For != nil && (*c.For < time.Minute || *c.For > 24*time.Hour):
		return fmt.Errorf("--for %s: must be 1m to 24h", *c.For)
	case c.At != nil:
		if _, err := parseAt(*c.At, time.Now()); err != nil {
			return fmt.Errorf("--at: %w", err)
		}
	}
	return nil
}

// question is what was asked, as seen from now.
func (c *fleetWhyCmd) question(now time.Time) (answer.Question, error) {
	q := answer.Question{Service: c.Service, Host: c.Host, Now: now}
	length := fleetRange
	if c.For != nil {
		length = *c.For
	}
	if c.At == nil {
		q.From, q.To = now.Add(-length), now
		return q, nil
	}
	at, err := parseAt(*c.At, now)
	if err != nil {
		return q, fmt.Errorf("--at: %w", err)
	}
	if c.For == nil {
		at = at.Add(-fleetRange / 2)
	}
	q.From, q.To = at, at.Add(length)
	if q.To.After(now) {
		q.To = now
	}
	if q.To.Sub(q.From) < time.Second {
		return q, errors.New("--at: that is now: leave it out")
	}
	return q, nil
}

// settled leaves out the seconds that hosts have not shipped yet: they look as if there
// were no requests in them.
func settled(q answer.Question, now time.Time, settle time.Duration) answer.Question {
	if newest := now.Add(-settle); q.To.After(newest) && newest.Sub(q.From) >= time.Second {
		q.To = newest
	}
	return q
}

// Run asks and reports.
func (c *fleetWhyCmd) Run(ctx context.Context, s *streams) error {
	now := time.Now()
	q, err := c.question(now)
	if err != nil {
		return err
	}
	archive, err := c.open()
	if err != nil {
		return err
	}
	defer closeArchive(archive)
	q = settled(q, now, answer.SettleOf(archive))
	progress := commandline.NewStage(s.err)
	q.Progress = progress.Show
	r, err := answer.Why(ctx, archive, q)
	progress.Clear()
	if err != nil {
		return fmt.Errorf("fleet why: %w", advised(err))
	}
	write := func(w io.Writer) error { return r.Text(w, textColumns(w)) }
	if c.JSON {
		write = r.JSON
	}
	if err := write(s.out); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if r.Found() {
		return exit(exitFindings)
	}
	if blind := r.Blind(); blind != "" {
		return fmt.Errorf("fleet why: nothing could be judged: %s", blind)
	}
	return nil
}
