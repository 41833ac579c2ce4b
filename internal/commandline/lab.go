package commandline

import (
	"errors"
	"time"
)

// Lab is the command line of slowray lab. slowray checks it, and leaves the rest to
// slowray-lab.
type Lab struct {
	List  LabList  `cmd:"" help:"List the incidents."`
	Run   LabRun   `cmd:"" help:"Inject an incident, measure what really hurts, let slowray look, compare."`
	Bench LabBench `cmd:"" help:"Draw incidents that nobody designed, and score what slowray says of them."`
	Demo  LabDemo  `cmd:"" help:"Inject an incident and print slowray's report on it."`
	Shell LabShell `cmd:"" help:"Inject an incident, keep its load running, and give a shell inside."`
	Fleet LabFleet `cmd:"" help:"Simulate a fleet of hosts with an injected anomaly, and ship what it does."`
	Clean LabClean `cmd:"" help:"Put back what a killed run left behind."`
}

// LabList lists the incidents.
type LabList struct{}

// LabRun injects incidents; the exit status is 1 where slowray was wrong.
type LabRun struct {
	Names     []string      `arg:"" optional:"" name:"name" complete:"incidents" help:"Incidents, or \"all\"."`
	All       bool          `help:"All incidents and controls, as a scoreboard."`
	Score     bool          `help:"Tell those that are named as a scoreboard; pairs may be named too."`
	Pairs     int           `placeholder:"N" help:"Scoreboard: N times two faults at once."`
	Healthy   int           `placeholder:"N" help:"Scoreboard: N times a healthy machine, idle or at work."`
	Window    time.Duration `default:"8s" placeholder:"D" help:"How long slowray looks (${default}; half of it at incidents that need little)."`
	Looks     int           `default:"1" placeholder:"N" help:"Look this often under the same load."`
	Seed      int64         `placeholder:"N" help:"Of addresses and ports; printed by each run."`
	WholeHost bool          `help:"Let slowray find the service by itself, without --port."`
	TruthOnly bool          `help:"Measure only; do not run slowray."`
	Times     int           `default:"1" placeholder:"N" help:"Run this often."`
	Tune      bool          `help:"Let slowray tune fix the incident, judge what it leaves, and take it back."`
	HTML      string        `name:"html" placeholder:"FILE" help:"With --tune: the page that slowray tune writes."`
	Prove     bool          `help:"Have slowray prove the cause, or show that its fix has no effect where it is harmless."`
	JSON      bool          `name:"json" help:"Print the results as JSON."`
	Save      string        `placeholder:"DIR" type:"existingdir" help:"Save there what slowray saw each time, for slowray replay."`
	Verbose   bool          `short:"v" help:"Say what is going on."`
}

// Validate is called by the command line parser.
func (c *LabRun) Validate() error {
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

// LabBench draws incidents; the exit status is 1 where slowray was wrong.
type LabBench struct {
	Seed    int64  `placeholder:"N" help:"Of all draws; otherwise the clock's, which is printed."`
	Count   int    `default:"6" placeholder:"M" help:"So many draws with a fault that does harm (${default})."`
	Healthy int    `placeholder:"M" help:"So many draws without a fault."`
	From    int    `default:"1" placeholder:"K" help:"Number of the first draw (${default})."`
	Only    int    `placeholder:"K" help:"Only draw number K; with --healthy, the one without its fault."`
	Kind    string `placeholder:"NAME" help:"Draw only this kind of fault."`
	Out     string `placeholder:"FILE" type:"path" help:"Add each result to this file."`
	Save    string `placeholder:"DIR" type:"existingdir" help:"Keep there what slowray saw in draws on which it was wrong, for slowray replay."`
	JSON    bool   `name:"json" help:"Print the results as JSON."`
	Verbose bool   `short:"v" help:"Say what is going on."`

	Results []string `placeholder:"FILE" type:"existingfile" help:"Draw nothing: take the results of these files."`
	Proofs  []string `placeholder:"FILE" type:"existingfile" help:"With --results: what slowray prove --json wrote, to compare with how sure the findings were."`
	Board   string   `placeholder:"FILE" type:"path" help:"With --results: write the scoreboard there."`
	Fit     string   `placeholder:"FILE" type:"path" help:"With --results: fit confidence to them, and write the table there."`
}

// Validate is called by the command line parser.
func (c *LabBench) Validate() error {
	switch {
	case c.Count < 0 || c.Healthy < 0 || c.Count+c.Healthy > 10_000:
		return errors.New("--count, --healthy: must be 0 to 10000")
	case c.From < 1 || c.Only < 0:
		return errors.New("--from, --only: draws are numbered from 1")
	case len(c.Results) == 0 && c.Board+c.Fit != "":
		return errors.New("--board, --fit: of which --results?")
	case c.Only > 0 && c.Seed == 0:
		return errors.New("--only goes with --seed")
	}
	return nil
}

// LabDemo shows slowray at work on an incident.
type LabDemo struct {
	Name   string        `arg:"" default:"nginx-throughput" complete:"incidents" help:"An incident (${default})."`
	Window time.Duration `default:"8s" placeholder:"D" help:"How long slowray looks (${default})."`
	Seed   int64         `placeholder:"N" help:"Of addresses and ports."`
}

// LabShell gives a shell inside an incident.
type LabShell struct {
	Name string        `arg:"" complete:"incidents" help:"An incident."`
	Keep time.Duration `default:"10m" placeholder:"D" help:"How long the load lasts (${default})."`
	Seed int64         `placeholder:"N" help:"Of addresses and ports."`
}

// LabClean repairs what a killed run left.
type LabClean struct{}

// LabFleet ships a simulated fleet.
type LabFleet struct {
	List      bool          `help:"List the scenarios."`
	Hosts     int           `default:"50" placeholder:"N" help:"How many hosts (${default})."`
	Endpoints int           `default:"10" placeholder:"N" help:"How many endpoints each, about (${default})."`
	For       time.Duration `default:"5m" placeholder:"D" help:"How long (${default})."`
	Scenario  string        `placeholder:"NAME" help:"What is injected; without it all is well."`
	After     time.Duration `default:"2m" placeholder:"D" help:"When it begins (${default} after the first second)."`
	Size      float64       `default:"1" placeholder:"X" help:"How hard it hits, times the scenario's own (${default})."`
	To        string        `placeholder:"URL" help:"Where to ship it: clickhouse://host/database, victorialogs://host:9428, otlp+http://host:4318. Without it nothing is sent, and counted only."`
	Fast      bool          `help:"Ship as fast as it can be taken, up to now, and not as time passes."`
	From      string        `placeholder:"TIME" help:"With --fast: the first second, as 2026-11-22T12:00:00Z; otherwise so that it ends now."`
	Every     time.Duration `default:"5s" placeholder:"D" help:"How much a batch holds (${default})."`
	Like      string        `placeholder:"DIR" type:"existingdir" help:"A history of slowray record: the services' requests take the shapes of its endpoints'."`
	Seed      uint64        `default:"1" placeholder:"N" help:"Another fleet, and other seconds (${default})."`
	JSON      bool          `name:"json" help:"Print what was injected and shipped as JSON."`
}

// Help is printed by --help, above the flags.
func (*LabFleet) Help() string {
	return `Simulates a fleet: web servers, applications, databases and caches that call each other, with days and weekends, bursts, deploys, restarts and scheduled jobs, and ships what its hosts would ship. What is injected is printed, to compare with slowray fleet why. docs/fleet-accuracy.md has more.`
}

// Validate is called by the command line parser.
func (c *LabFleet) Validate() error {
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
	return nil
}
