package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/waterfall"
)

type fleetRequestsCmd struct {
	Trace      string         `required:"" placeholder:"ID" help:"The trace: its ID in traceparent, or at least 8 digits that it begins with."`
	At         *string        `placeholder:"T" help:"From this time on, instead of the last D: 12:03, 12:03:20, \"2026-11-22 12:03\", 2026-11-22T12:03:00Z or -10m."`
	For        *time.Duration `placeholder:"D" help:"How much time is searched: the last D, or with --at the D from then on (10m)."`
	JSON       bool           `name:"json" help:"One object per line (schema slowray.request/1, with host)."`
	fleetFlags `embed:""`
}

// Help is printed by --help, above the flags.
func (*fleetRequestsCmd) Help() string {
	return `Shows the requests of one trace on all hosts that ship, as a waterfall: who called whom, and with what each end spent its time. Hosts keep traces with record --labels, of those that were neither slow nor failed a sample.

Exit status: 0 done, 2 could not run.`
}

// Validate is called by the command line parser.
func (c *fleetRequestsCmd) Validate() error {
	if _, err := observe.ParseTraceMatch(c.Trace); err != nil {
		return fmt.Errorf("--trace %q: %w", c.Trace, err)
	}
	return (&fleetWhyCmd{At: c.At, For: c.For}).Validate()
}

// Run asks and writes.
func (c *fleetRequestsCmd) Run(ctx context.Context, s *streams) error {
	q := fleet.Question{Most: waterfall.MaxHops}
	q.Trace, _ = observe.ParseTraceMatch(c.Trace)
	now, length := time.Now(), fleetRange
	if c.For != nil {
		length = *c.For
	}
	q.From, q.To = now.Add(-length), now
	if c.At != nil {
		at, err := parseAt(*c.At, now)
		if err != nil {
			return fmt.Errorf("--at: %w", err)
		}
		q.From, q.To = at, at.Add(length)
	}
	archive, err := c.open()
	if err != nil {
		return err
	}
	defer closeArchive(archive)
	var found *hops
	if !c.JSON {
		found = &hops{}
	}
	var line []byte
	var failed error
	err = archive.Requests(ctx, q, func(host string, r *store.Request) bool {
		if found != nil {
			found.add(host, r)
			return true
		}
		line = report.AppendRequestJSON(line[:0], &r.Request, describe(r), &r.PeerWorkload)
		line = append(report.AppendJSONString(append(line[:len(line)-2], `,"host":`...), host), "}\n"...)
		_, failed = s.out.Write(line)
		return failed == nil
	})
	if failed != nil {
		return fmt.Errorf("write requests: %w", failed)
	}
	if err != nil {
		return fmt.Errorf("fleet requests: %w", advised(err))
	}
	return found.write(s, q.Trace, 1)
}
