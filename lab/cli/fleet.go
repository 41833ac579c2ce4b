package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/target"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/lab/simulate"
)

// fleetHeap is from how many bytes on the heap is collected ever more often: what
// thousands of hosts did is kept.
const fleetHeap = 2 << 30

// injected is what is reported for a run.
type injected struct {
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

// shipFleet ships a fleet.
func shipFleet(ctx context.Context, s *streams, c *commandline.LabFleet) error {
	debug.SetMemoryLimit(fleetHeap)
	scenario, ok := simulate.Find(c.Scenario)
	if !ok && c.Scenario != "" {
		return errors.New("--scenario: there is none of that name (slowray lab fleet --list; see slowray lab fleet --help)")
	}
	if c.List {
		var rows [][]string
		for _, x := range simulate.Scenarios {
			text := x.Summary
			if x.Control {
				text += " [no anomaly]"
			}
			rows = append(rows, []string{x.Name, text})
		}
		_, err := fmt.Fprint(s.out, printable.Table(rows, commandline.Columns(s.out)))
		return err
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
	opt.Balanced = scenario.Balanced
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
	told := injected{Schema: "slowray.lab.fleet/1", Hosts: len(f.Hosts), Seed: c.Seed, From: time.Unix(run.From, 0).UTC(), Causes: []simulate.Cause{}}
	if c.Scenario != "" {
		onset := run.From + int64(c.After/time.Second)
		p := f.Inject(scenario, onset, run.From+int64(c.For/time.Second), c.Seed, c.Size)
		at := time.Unix(onset, 0).UTC()
		told.Scenario, told.Onset, told.Size, told.Causes = scenario.Name, &at, p.Size, append(told.Causes, p.Causes...)
	}
	if !c.JSON {
		told.print(s)
	}
	var at int64
	progress := commandline.NewStage(s.err)
	run.Tell = func(now int64, _ simulate.Shipped) {
		at = now
		progress.Show("shipping", min(float64(now-run.From)/c.For.Seconds(), 1))
	}
	sent, err := f.Ship(ctx, to, run)
	progress.Clear()
	if err != nil && !errors.Is(err, context.Canceled) {
		if advice := clickhouse.Advice(err); advice != "" {
			err = fmt.Errorf("%w: %s", err, advice)
		}
		return fmt.Errorf("lab fleet: %w", err)
	}
	told.To = time.Unix(max(at, run.From), 0).UTC()
	told.Seconds, told.Requests, told.Skipped = sent.Seconds, sent.Requests, sent.Skipped
	if c.JSON {
		return json.NewEncoder(s.out).Encode(told)
	}
	fmt.Fprintf(s.out, "shipped until %s: %d seconds of endpoints, %d requests, %d there already\n", told.To.Format(time.RFC3339), told.Seconds, told.Requests, told.Skipped)
	return nil
}

func (p *injected) print(s *streams) {
	fmt.Fprintf(s.out, "%d hosts, seed %d, from %s\n", p.Hosts, p.Seed, p.From.Format(time.RFC3339))
	switch {
	case p.Onset == nil:
		fmt.Fprintln(s.out, "nothing is injected")
	default:
		fmt.Fprintf(s.out, "injected at %s: %s, size %.2f\n", p.Onset.Format(time.RFC3339), p.Scenario, p.Size)
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
