package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// Info is one line of [List].
type Info struct {
	Name    string   `json:"name"`
	Summary string   `json:"summary"`
	Causes  []string `json:"causes"`  // expected; empty for a control, where no finding is right
	Control bool     `json:"control"` // nothing is wrong, whatever it looks like
	Phases  bool     `json:"phases"`  // a table of phases is measured and compared, no cause is looked for
	Calm    bool     `json:"calm"`    // it may be run next to others that are calm, see RunSeveral
	Quick   bool     `json:"quick"`   // slowray looks for half as long
	Needs   []string `json:"needs"`   // Debian packages

	Unsteady string `json:"unsteady,omitempty"` // why make test does not judge it
}

// Options of [Run] and [Shell]. The zero value is good.
type Options struct {
	Slowray   []string      // slowray's executable and leading arguments; default slowray in this executable's directory
	Out       io.Writer     // default standard output
	Seed      int64         // of addresses and ports; 0 = a new one
	Window    time.Duration // that slowray looks; default 8 s
	Looks     int           // how often slowray looks at what is injected; default once
	Keep      time.Duration // how long Shell's load lasts; default 10 min
	WholeHost bool          // do not tell slowray the port
	TruthOnly bool          // measure, do not run slowray
	Brief     bool          // measure for half as long, and not what is only noted and decides nothing: the harm that controls do
	Declared  bool          // where there is one fault, take it for what hurts, as is declared, and measure nothing
	Verbose   bool          // each trial
	JSON      bool          // print the Result as JSON instead of tables
	Save      string        // directory for what slowray saw each time it looked, for slowray replay; "" = not kept
}

func (o Options) withDefaults() (Options, error) {
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Seed == 0 {
		o.Seed = time.Now().UnixNano() % 1_000_000
	}
	if o.Window == 0 {
		o.Window = 8 * time.Second
	}
	o.Looks = max(o.Looks, 1)
	if o.Keep == 0 {
		o.Keep = 10 * time.Minute
	}
	if len(o.Slowray) == 0 && !o.TruthOnly {
		exe, err := safefile.Sibling("slowray")
		if err != nil {
			return o, fmt.Errorf("lab: slowray next to slowray-lab: %w", err)
		}
		o.Slowray = []string{exe}
	}
	return o, nil
}

// Result is one run of an incident.
type Result struct {
	Incident string       `json:"incident"`
	Seed     int64        `json:"seed"`
	OK       bool         `json:"ok"`
	Steps    []StepResult `json:"steps,omitempty"`
	Seconds  float64      `json:"seconds"`

	Phases  []PhaseResult `json:"phases,omitempty"`  // of an incident that has phases
	Reasons []string      `json:"reasons,omitempty"` // of a mismatch in them
}

// StepResult is one set of injected faults.
type StepResult struct {
	Name     string   `json:"name"`
	Injected []string `json:"injected"` // names of faults, decoys included
	Truth    Truth    `json:"truth"`
	Found    *Report  `json:"found,omitempty"`  // nil when slowray was not run
	Looked   *Sample  `json:"looked,omitempty"` // what was measured meanwhile
	OK       bool     `json:"ok"`
	Reasons  []string `json:"reasons,omitempty"` // of a mismatch
	Notes    []string `json:"notes,omitempty"`   // worth knowing, not a mismatch
	False    []string `json:"false,omitempty"`   // causes that are found and are not there
	harmless bool     // of a control: nothing that is injected may be found
	stepped  bool     // a first fault may hide what the others do
}

// List gives all incidents.
func List() []Info {
	var list []Info
	for _, i := range incident.All() {
		list = append(list, Info{Name: i.Name, Summary: i.Summary, Causes: i.Causes(), Control: i.Control, Phases: len(i.Phases) > 0, Calm: i.Calm(), Quick: i.Quick, Needs: i.Needs(), Unsteady: i.Unsteady})
	}
	return list
}

// Run injects an incident, measures what really hurts, lets slowray look, and
// judges. The error is for what kept it from doing so; a wrong answer of
// slowray's is in the Result.
func Run(ctx context.Context, name string, opt Options) (Result, error) {
	r, err := open(ctx, name, opt)
	if err != nil {
		return Result{}, err
	}
	return r.run(ctx)
}

// run is Run for a runner that has the lock, and gives that back.
func (r *runner) run(ctx context.Context) (Result, error) {
	defer r.lock.Release()
	var err error
	started := time.Now()
	result := Result{Incident: r.Name, Seed: r.opt.Seed, OK: true}
	r.print.heading(r.Incident, r.opt.Seed)
	if len(r.Phases) > 0 {
		if result.Phases, result.Reasons, err = r.phases(ctx); err != nil {
			return result, fmt.Errorf("lab: %s: %w", r.Name, err)
		}
		result.OK = len(result.Reasons) == 0
		return r.finish(result, started)
	}
	if result.Steps, err = r.stepByStep(ctx); err != nil {
		return result, err
	}
	for _, s := range result.Steps {
		result.OK = result.OK && s.OK
	}
	return r.finish(result, started)
}

// stepByStep looks at each set and measures. What a set is without its first
// fault is the next one: that has been looked at, and measured, before the truth
// about this one is.
func (r *runner) stepByStep(ctx context.Context) (done []StepResult, err error) {
	sets := r.steps()
	seen := make([]view, len(sets)+1)
	for n, s := range sets {
		for m := n; m <= n+1 && m < len(sets); m++ {
			if seen[m].sample != nil || r.opt.TruthOnly {
				continue
			}
			if seen[m], err = r.look(ctx, sets[m].faults); err != nil {
				return done, fmt.Errorf("lab: %s %s: %w", r.Name, sets[m].name, err)
			}
		}
		next := seen[n+1].sample
		if next == nil {
			next = seen[n].without
		}
		step, err := r.step(ctx, s, seen[n], next)
		if err != nil {
			return done, fmt.Errorf("lab: %s %s: %w", r.Name, s.name, err)
		}
		done = append(done, step)
	}
	return done, nil
}

func (r *runner) finish(result Result, started time.Time) (Result, error) {
	result.Seconds = time.Since(started).Seconds()
	if r.opt.JSON {
		enc := json.NewEncoder(r.opt.Out)
		enc.SetIndent("", "  ")
		return result, enc.Encode(result)
	}
	if len(result.Phases) > 0 {
		r.print.phases(result)
	} else {
		r.print.summary(result)
	}
	return result, nil
}

// Clean takes back what a killed run left. It waits for a run that is going on.
func Clean() error {
	return sandbox.Repair(context.Background(), func(s string) { fmt.Fprintln(os.Stderr, "lab:", s) })
}

// InitMain runs the part of the lab that this process is, if a run of the lab
// started it as one, and then does not return. Call it first in main.
func InitMain() {
	sandbox.Main()
	var err error
	switch role := os.Getenv(sandbox.RoleEnv); role {
	case "":
		return
	case load.ClientRole:
		err = load.ClientMain()
	case server.AppRole, server.BurnRole, server.WebRole, server.GoRole, server.HopRole, server.AlongsideRole:
		err = server.Main(role)
	default:
		err = fmt.Errorf("lab: no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runner is one run of one incident.
type runner struct {
	incident.Incident
	opt   Options
	exe   string
	lock  *sandbox.Lock
	plan  server.Plan
	print *printer

	patience int  // repetitions of disturbed trials that are left
	looks    int  // how often slowray has looked
	counted  bool // without a budget: all requests, whatever that costs
}

func open(ctx context.Context, name string, opt Options) (*runner, error) {
	i, err := incident.Find(name)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	r, err := prepare(i, opt)
	if err != nil {
		return nil, err
	}
	return r, r.acquire(ctx)
}

// acquire waits for the lock of the lab.
func (r *runner) acquire(ctx context.Context) (err error) {
	r.lock, err = sandbox.Acquire(ctx, func(what string) { fmt.Fprintln(os.Stderr, "slowray: lab: "+what) })
	return err
}

// prepare makes a runner that has no lock yet.
func prepare(i incident.Incident, opt Options) (_ *runner, err error) {
	if opt, err = opt.withDefaults(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("lab: network namespaces: not permitted (run it as root)")
	}
	if err := missing(i); err != nil {
		return nil, err
	}
	if i.Quick {
		opt.Window /= quick
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	r := &runner{Incident: i, opt: opt, exe: exe, print: newPrinter(opt), patience: patience}
	r.plan = server.NewPlan(rand.New(rand.NewPCG(uint64(opt.Seed), 0)))
	return r, nil
}

// injectedSet is one step: what is injected while slowray looks.
type injectedSet struct {
	name   string
	faults []incident.Fault
}

// steps gives one set for each look: all faults, and for a stepped incident
// one less each time. Decoys stay.
func (i runner) steps() []injectedSet {
	if !i.Stepped {
		return []injectedSet{{name: i.Name, faults: i.Faults}}
	}
	var sets []injectedSet
	left := i.Faults
	for n := 0; ; n++ {
		sets = append(sets, injectedSet{name: fmt.Sprintf("S%d", n), faults: left})
		if len(left) == 0 || left[0].Decoy {
			return sets
		}
		left = left[1:]
	}
}

// step measures the truth about a set that slowray has seen, and judges. next is
// what was measured while it looked at the next set, or nil.
func (r *runner) step(ctx context.Context, s injectedSet, seen view, next *Sample) (StepResult, error) {
	r.print.step(s)
	result := StepResult{Name: s.name, Looked: seen.sample}
	for _, f := range s.faults {
		result.Injected = append(result.Injected, f.Name)
	}
	if len(seen.reports) > 0 {
		result.Found = seen.reports[0]
	}
	var err error
	if result.Truth, err = r.truth(ctx, s.faults, result.Looked, next); err != nil {
		return result, err
	}
	judge(&result, r.Incident, s.faults)
	if len(seen.reports) > 1 {
		result.judgeOthers(seen.reports[1:], r.Incident, s.faults)
	}
	r.print.result(result, s)
	return result, nil
}
