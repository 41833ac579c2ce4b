package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/simulate"
	"github.com/slowray/slowray/internal/fleet/target"
	"github.com/slowray/slowray/internal/store"
)

type labFleetCmd struct {
	List      bool          `help:"List the scenarios."`
	Hosts     int           `default:"50" placeholder:"N" help:"How many hosts (${default})."`
	Endpoints int           `default:"10" placeholder:"N" help:"How many endpoints each, about (${default})."`
	For       time.Duration `default:"5m" placeholder:"D" help:"How long (${default})."`
	Scenario  string        `placeholder:"NAME" help:"What is planted; without it all is well."`
	After     time.Duration `default:"2m" placeholder:"D" help:"When it begins (${default} after the first second)."`
	Size      float64       `default:"1" placeholder:"X" help:"How hard it hits, times the scenario's own (${default})."`
	To        string        `placeholder:"URL" help:"Where to ship it: clickhouse://host/database, victorialogs://host:9428, otlp+http://host:4318. Without it nothing is sent, and counted only."`
	Fast      bool          `help:"Ship as fast as it can be taken, up to now, and not as time passes."`
	From      string        `placeholder:"TIME" help:"With --fast: the first second, as 2026-11-22T12:00:00Z; otherwise so that it ends now."`
	Every     time.Duration `default:"5s" placeholder:"D" help:"How much a batch holds (${default})."`
	Like      string        `placeholder:"DIR" type:"existingdir" help:"A history of slowray record: the services' requests take the shapes of its endpoints'."`
	Seed      uint64        `default:"1" placeholder:"N" help:"Another fleet, and other seconds (${default})."`
	JSON      bool          `name:"json" help:"Print what was planted and shipped as JSON."`
}

// Help is printed by --help, above the flags.
func (*labFleetCmd) Help() string {
	return `Simulates a fleet: web servers, applications, databases and caches that call each other, with days and weekends, bursts, deploys, restarts and scheduled jobs, and ships what its hosts would ship. What is planted is printed, to compare with slowray fleet why. docs/fleet.md tells more.`
}

// Validate is called by the command line parser.
func (c *labFleetCmd) Validate() error {
	switch {
	case c.Hosts < 8 || c.Hosts > 10_000:
		return errors.New("--hosts: must be 8 to 10000")
	case c.Endpoints < 4 || c.Endpoints > 100:
		return errors.New("--endpoints: must be 4 to 100")
	case c.For < time.Second || c.For > 30*24*time.Hour:
		return errors.New("--for: must be 1s to 720h")
	case c.Every < time.Second || c.Every > 5*time.Minute:
		return errors.New("--every: must be 1s to 5m")
	case c.After < 0 || c.Scenario != "" && c.After >= c.For:
		return errors.New("--after: must be less than --for")
	case !(c.Size > 0) || c.Size > 1000:
		return errors.New("--size: must be above 0, at most 1000")
	case c.From != "" && !c.Fast:
		return errors.New("--from goes with --fast")
	}
	if _, ok := simulate.Find(c.Scenario); !ok && c.Scenario != "" {
		return errors.New("--scenario: there is none of that name (slowray lab fleet --list)")
	}
	return nil
}

// planted is what is told of a run.
type planted struct {
	Schema   string           `json:"schema"`
	Hosts    int              `json:"hosts"`
	Seed     uint64           `json:"seed"`
	From     time.Time        `json:"from"`
	To       time.Time        `json:"to"`
	Scenario string           `json:"scenario,omitempty"`
	Onset    *time.Time       `json:"onset,omitempty"`
	Size     float64          `json:"size,omitempty"`
	Causes   []simulate.Cause `json:"causes"`
	Seconds  uint64           `json:"seconds"`
	Requests uint64           `json:"requests"`
	Skipped  uint64           `json:"skipped"`
}

// Run ships a fleet.
func (c *labFleetCmd) Run(ctx context.Context, s *streams) error {
	debug.SetMemoryLimit(fleetHeap)
	if c.List {
		w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
		for _, x := range simulate.Scenarios {
			kind := ""
			if x.Control {
				kind = "(no anomaly)"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", x.Name, x.Summary, kind)
		}
		return w.Flush()
	}
	opt := simulate.Options{Hosts: c.Hosts, Endpoints: c.Endpoints, Seed: c.Seed}
	if c.Like != "" {
		r, err := store.OpenReader(c.Like)
		if err != nil {
			return err
		}
		defer r.Close()
		if opt.Shapes, err = simulate.Shapes(r); err != nil {
			return fmt.Errorf("%s: %w", c.Like, err)
		}
	}
	var to fleet.Target = nowhere{}
	if c.To != "" {
		d, err := target.Open(c.To)
		if err != nil {
			return fmt.Errorf("--to: %w", err)
		}
		defer d.Target.Close()
		to = d.Target
	}
	if x, ok := simulate.Find(c.Scenario); ok {
		opt.Balanced = x.Balanced
	}
	f := simulate.New(opt)
	run := simulate.Run{From: time.Now().Unix(), For: c.For, Every: int(c.Every / time.Second), Fast: c.Fast}
	if c.Fast {
		run.From -= int64(c.For / time.Second)
	}
	if c.From != "" {
		at, err := time.Parse(time.RFC3339, c.From)
		if err != nil {
			return fmt.Errorf("--from %q: give a time as 2026-11-22T12:00:00Z", c.From)
		}
		run.From = at.Unix()
	}
	told := planted{Schema: "slowray.lab.fleet/1", Hosts: len(f.Hosts), Seed: c.Seed, From: time.Unix(run.From, 0).UTC(), Causes: []simulate.Cause{}}
	if c.Scenario != "" {
		x, _ := simulate.Find(c.Scenario)
		onset := run.From + int64(c.After/time.Second)
		p := f.Plant(x, onset, run.From+int64(c.For/time.Second), c.Seed, c.Size)
		at := time.Unix(onset, 0).UTC()
		told.Scenario, told.Onset, told.Size, told.Causes = x.Name, &at, p.Size, append(told.Causes, p.Causes...)
	}
	if !c.JSON {
		told.print(s)
	}
	var at int64
	progress := newStage(s.err)
	run.Tell = func(now int64, _ simulate.Shipped) {
		at = now
		progress.show("shipping", min(float64(now-run.From)/c.For.Seconds(), 1))
	}
	sent, err := f.Ship(ctx, to, run)
	progress.clear()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("lab fleet: %w", advised(err))
	}
	told.To = time.Unix(max(at, run.From), 0).UTC()
	told.Seconds, told.Requests, told.Skipped = sent.Seconds, sent.Requests, sent.Skipped
	if c.JSON {
		return json.NewEncoder(s.out).Encode(told)
	}
	fmt.Fprintf(s.out, "shipped until %s: %d seconds of endpoints, %d requests, %d there already\n", told.To.Format(time.RFC3339), told.Seconds, told.Requests, told.Skipped)
	return nil
}

func (p *planted) print(s *streams) {
	fmt.Fprintf(s.out, "%d hosts, seed %d, from %s\n", p.Hosts, p.Seed, p.From.Format(time.RFC3339))
	switch {
	case p.Onset == nil:
		fmt.Fprintln(s.out, "nothing is planted")
	default:
		fmt.Fprintf(s.out, "planted at %s: %s, size %.2f\n", p.Onset.Format(time.RFC3339), p.Scenario, p.Size)
		for _, c := range p.Causes {
			fmt.Fprintf(s.out, "  the cause is the %s %s\n", c.Kind, c.Value)
		}
	}
}

// nowhere takes batches and keeps nothing.
type nowhere struct{}

func (nowhere) Send(ctx context.Context, b *fleet.Batch) error { return ctx.Err() }
func (nowhere) Mark(context.Context, *fleet.Host, fleet.Stream) (fleet.Position, error) {
	return 0, nil
}
func (nowhere) Hello(context.Context, *fleet.Host, time.Time) error { return nil }
func (nowhere) Close() error                                        { return nil }
