package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/lab"
)

type labCmd struct {
	List  labListCmd  `cmd:"" help:"List the incidents."`
	Run   labRunCmd   `cmd:"" help:"Plant an incident, measure what really hurts, let slowray look, compare."`
	Demo  labDemoCmd  `cmd:"" help:"Plant an incident and print slowray's report on it."`
	Shell labShellCmd `cmd:"" help:"Plant an incident, keep its load running, and give a shell inside."`
	Fleet labFleetCmd `cmd:"" help:"Simulate a fleet of hosts with a planted anomaly, and ship what it does."`
	Clean labCleanCmd `cmd:"" help:"Put back what a killed run left behind."`
}

type labListCmd struct{}

// Run lists the incidents.
func (*labListCmd) Run(s *streams) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, i := range lab.List() {
		expect := strings.Join(i.Causes, " ")
		if i.Control {
			expect = "(no finding)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", i.Name, i.Summary, expect)
	}
	return w.Flush()
}

type labRunCmd struct {
	Names     []string      `arg:"" optional:"" name:"name" complete:"incidents" help:"Incidents, or \"all\"."`
	All       bool          `help:"All incidents and controls, as a scoreboard."`
	Score     bool          `help:"Tell those that are named as a scoreboard; pairs may be named too."`
	Pairs     int           `placeholder:"N" help:"Scoreboard: N times two faults at once."`
	Healthy   int           `placeholder:"N" help:"Scoreboard: N times a healthy machine, idle or at work."`
	Window    time.Duration `default:"8s" placeholder:"D" help:"How long slowray looks (${default})."`
	Looks     int           `default:"1" placeholder:"N" help:"Look this often under the same load."`
	Seed      int64         `placeholder:"N" help:"Of addresses and ports; printed by each run."`
	WholeHost bool          `help:"Let slowray find the service by itself, without --port."`
	TruthOnly bool          `help:"Measure only; do not run slowray."`
	Times     int           `default:"1" placeholder:"N" help:"Run this often."`
	Tune      bool          `help:"Let slowray tune mend the incident, judge what it leaves, and take it back."`
	HTML      string        `name:"html" placeholder:"FILE" help:"With --tune: the page that slowray tune writes."`
	Prove     bool          `help:"Have slowray prove the cause, or show that its fix has no effect where it is harmless."`
	JSON      bool          `name:"json" help:"Print the results as JSON."`
	Save      string        `placeholder:"DIR" type:"existingdir" help:"Save there what slowray saw each time, for slowray replay."`
	Verbose   bool          `short:"v" help:"Say what is going on."`
}

// Validate is called by the command line parser.
func (c *labRunCmd) Validate() error {
	switch {
	case c.Pairs < 0 || c.Healthy < 0 || c.Pairs > 10_000 || c.Healthy > 10_000:
		return errors.New("--pairs, --healthy: must be 0 to 10000")
	case c.Pairs+c.Healthy == 0 && !c.All && len(c.Names) == 0:
		return errors.New("which incident? (slowray lab list; or --all)")
	case c.Prove && (c.Score || c.Pairs+c.Healthy > 0):
		return errors.New("--prove goes without a scoreboard")
	case c.All && len(c.Names) > 0:
		return errors.New("--all goes without names")
	case c.Tune && c.Prove:
		return errors.New("--tune or --prove, not both")
	case c.Tune && (len(c.Names) != 1 || c.Score || c.Pairs+c.Healthy > 0 || c.TruthOnly || c.Looks != 1 || c.Save != ""):
		return errors.New("--tune goes with one incident, and without --score, --pairs, --healthy, --truth-only, --looks and --save")
	case c.HTML != "" && !c.Tune:
		return errors.New("--html goes with --tune")
	}
	return nil
}

// Run runs incidents; the exit status is 1 when slowray was wrong.
func (c *labRunCmd) Run(ctx context.Context, s *streams) error {
	switch {
	case c.Tune:
		return c.tune(ctx, s)
	case c.Prove:
		return c.prove(ctx, s)
	case c.All || c.Score || c.Pairs+c.Healthy > 0:
		return c.score(ctx, s)
	}
	names := c.Names
	if len(names) == 1 && names[0] == "all" {
		names = nil
		for _, i := range lab.List() {
			names = append(names, i.Name)
		}
	}
	var wrong []string
	for range max(c.Times, 1) {
		for _, name := range names {
			r, err := lab.Run(ctx, name, lab.Options{
				Out: s.out, Seed: c.Seed, Window: c.Window, WholeHost: c.WholeHost,
				TruthOnly: c.TruthOnly, JSON: c.JSON, Save: c.Save, Looks: c.Looks, Verbose: c.Verbose,
			})
			if err != nil {
				return err
			}
			if !r.OK {
				wrong = append(wrong, fmt.Sprintf("%s (seed %d)", name, r.Seed))
			}
		}
	}
	if len(wrong) > 0 {
		if !c.JSON {
			fmt.Fprintf(s.out, "mismatch: %s\n", strings.Join(wrong, ", "))
		}
		return exit(exitFindings)
	}
	return nil
}

// tune lets slowray tune mend an incident; the exit status is 1 when what it leaves
// is not as it should be.
func (c *labRunCmd) tune(ctx context.Context, s *streams) error {
	right := true
	for range max(c.Times, 1) {
		r, err := lab.Tune(ctx, c.Names[0], lab.Options{
			Out: s.out, Seed: c.Seed, WholeHost: c.WholeHost, JSON: c.JSON, Verbose: c.Verbose,
		}, lab.TuneOptions{HTML: c.HTML})
		if err != nil {
			return err
		}
		right = right && r.OK
	}
	if !right {
		return exit(exitFindings)
	}
	return nil
}

// prove makes proofs; the exit status is 1 when a verdict is wrong, or something
// was not put back.
func (c *labRunCmd) prove(ctx context.Context, s *streams) error {
	names := c.Names
	if c.All {
		for _, p := range lab.Proofs() {
			if !slices.Contains(names, p.Incident) {
				names = append(names, p.Incident)
			}
		}
	}
	var all []lab.ProofResult
	wrong := false
	for _, name := range names {
		results, err := lab.Prove(ctx, name, lab.Options{Out: s.out, Seed: c.Seed, JSON: c.JSON, Verbose: c.Verbose})
		if err != nil {
			return err
		}
		for _, r := range results {
			wrong = wrong || !r.OK
		}
		all = append(all, results...)
	}
	if c.JSON {
		if err := printable.WriteJSON(s.out, all); err != nil {
			return err
		}
	}
	if wrong {
		return exit(exitFindings)
	}
	return nil
}

// score runs a scoreboard; the exit status is 1 when it is not what is asked for.
func (c *labRunCmd) score(ctx context.Context, s *streams) error {
	names := c.Names
	if c.All {
		for _, i := range lab.List() {
			names = append(names, i.Name)
		}
	}
	score, err := lab.RunBoard(ctx, lab.Board{Names: names, Pairs: c.Pairs, Healthy: c.Healthy, Times: c.Times}, lab.Options{
		Out: s.out, Seed: c.Seed, Window: c.Window, WholeHost: c.WholeHost, JSON: c.JSON, Save: c.Save, Verbose: c.Verbose,
	})
	if err != nil {
		return err
	}
	if !score.OK() {
		return exit(exitFindings)
	}
	return nil
}

type labDemoCmd struct {
	Name   string        `arg:"" default:"nginx-throughput" complete:"incidents" help:"An incident (${default})."`
	Window time.Duration `default:"8s" placeholder:"D" help:"How long slowray looks (${default})."`
	Seed   int64         `placeholder:"N" help:"Of addresses and ports."`
}

// Run shows slowray at work on an incident.
func (c *labDemoCmd) Run(ctx context.Context, s *streams) error {
	return lab.Demo(ctx, c.Name, lab.Options{Out: s.out, Window: c.Window, Seed: c.Seed})
}

type labShellCmd struct {
	Name string        `arg:"" complete:"incidents" help:"An incident."`
	Keep time.Duration `default:"10m" placeholder:"D" help:"How long the load lasts (${default})."`
	Seed int64         `placeholder:"N" help:"Of addresses and ports."`
}

// Run gives a shell inside an incident.
func (c *labShellCmd) Run(ctx context.Context, s *streams) error {
	err := lab.Shell(ctx, c.Name, lab.Options{Out: s.out, Keep: c.Keep, Seed: c.Seed})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type labCleanCmd struct{}

// Run repairs what a killed run left.
func (*labCleanCmd) Run() error { return lab.Clean() }
