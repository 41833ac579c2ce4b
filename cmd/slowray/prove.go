package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	_ "github.com/slowray/slowray/internal/prove/config" // the kinds of changes that it makes
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/prove/meter"
	"github.com/slowray/slowray/internal/prove/proof"
	"github.com/slowray/slowray/internal/prove/results"
	"github.com/slowray/slowray/internal/watch"
)

type proveCmd struct {
	Cause     string        `arg:"" complete:"causes" help:"A cause, as slowray why names it (slowray causes lists them)."`
	Port      *int          `placeholder:"N" help:"Only the service on this TCP port, and what it calls."`
	PID       *int          `name:"pid" placeholder:"N" help:"Only the services of this process, and what they call."`
	Unit      *string       `placeholder:"X" help:"Only the services of this systemd unit, and what they call."`
	Container *string       `placeholder:"X" help:"Only the services of this container (name or id), and what they call."`
	For       time.Duration `default:"5s" placeholder:"D" help:"How long to look first (${default})."`
	Load      string        `placeholder:"CMD" help:"Measure under this load, run anew for each measurement: wrk, wrk2, hey, ab, k6, vegeta, oha, sysbench are understood. Without it the service's own traffic is measured."`
	Blocks    int           `default:"3" placeholder:"N" help:"Measurements before, with and after the change, 3 to 20 each (${default}); more rounds are made when they do not decide."`
	Block     time.Duration `default:"3s" placeholder:"D" help:"How long each takes (${default}); longer where requests are few."`
	Apply     bool          `help:"Make the change, measure, and put it back. Without it nothing is changed: what would be done is printed."`
	Keep      bool          `help:"Leave a change that is proved, and tell how to make it last."`
	JSON      bool          `name:"json" help:"Print the result as JSON."`
	State     string        `default:"${state}" placeholder:"DIR" help:"Directory of the journal of changes (${default})."`

	languageFlag `embed:""`
}

// Help is printed by --help, above the flags.
func (*proveCmd) Help() string {
	return `Looks, then changes the one thing that the cause calls for, measures before, with and after it, and puts it back: also on Ctrl-C, when slowray is killed, and at once when the service gets much worse. A cause that was not found is tried all the same where there is something to try it on.

It says beforehand how long it takes: longer where requests are few, or where the effect is not clear and the change is made again.

Exit status: 0 proved, or nothing was to be changed; 1 not proved; 2 could not run.`
}

// Validate is called by the command line parser.
func (c *proveCmd) Validate() error {
	why := whyCmd{For: &c.For, Port: c.Port, PID: c.PID, Unit: c.Unit, Container: c.Container}
	switch {
	case c.Keep && !c.Apply:
		return errors.New("--keep goes with --apply")
	case c.Blocks < 3 || c.Blocks > 20:
		return fmt.Errorf("--blocks %d: must be 3 to 20", c.Blocks)
	case c.Block < shortestBlock || c.Block > longestBlock:
		return fmt.Errorf("--block %s: must be %s to %s", c.Block, shortestBlock, longestBlock)
	}
	return why.Validate()
}

// Bounds of the length of a measurement.
const (
	shortestBlock = time.Second
	longestBlock  = time.Minute
)

// warmUp is for how long a load runs before slowray looks.
const warmUp = time.Second

// Run looks, tells what would be done, and does it if asked to.
func (c *proveCmd) Run(ctx context.Context, s *streams) error {
	var load *loadgen.Command
	if c.Load != "" {
		parsed, err := loadgen.Parse(c.Load)
		if err != nil {
			return err
		}
		load = &parsed
	}
	switch err := diagnose.Provable(cause.ID(c.Cause)); { // before the look: it takes a while
	case errors.Is(err, diagnose.ErrNoCause):
		return noSuchCause(c.Cause)
	case err != nil:
		return err
	}
	quiet := s
	if c.JSON {
		quiet = &streams{s.out, io.Discard}
	}
	if c.Apply {
		fmt.Fprintf(quiet.err, "slowray: watches for %s, then %s\n", c.For, measuringText(c.options(), load))
	}
	o, err := c.look(ctx, quiet, load)
	if err != nil {
		return err
	}
	judging, cancel := afterLook(ctx)
	changes, finding, err := diagnose.Plan(judging, o, cause.ID(c.Cause), diagnose.Live)
	cancel()
	if err != nil {
		if os.Geteuid() != 0 {
			err = fmt.Errorf("%w (run it as root: others see little of what there is)", err)
		}
		return err
	}
	doc, err := c.document(o, changes, finding)
	if err != nil {
		return err
	}
	doc.Takes = measuringText(c.options(), load)
	if !c.Apply || ctx.Err() != nil {
		return c.print(doc, s)
	}
	return c.prove(ctx, s, doc, changes, load)
}

// prove makes the experiment and tells what it came to.
func (c *proveCmd) prove(ctx context.Context, s *streams, doc *proof.Document, changes []cause.Change, load *loadgen.Command) error {
	if !c.JSON { // what is done is reported before it is done
		reader, err := c.language()
		if err != nil {
			return err
		}
		for _, step := range doc.Steps {
			fmt.Fprintf(s.err, "slowray: %s\n", reader.Text(step.Change.Text))
		}
	}
	if err := c.try(ctx, s, doc, changes, load); err != nil {
		if doc.Result != nil {
			err = errors.Join(c.print(doc, s), err)
		}
		return err
	}
	if err := c.print(doc, s); err != nil {
		return err
	}
	if !doc.Proved() {
		return exit(exitFindings)
	}
	return nil
}

// look watches the service, under the load if there is one.
func (c *proveCmd) look(ctx context.Context, s *streams, load *loadgen.Command) (*observe.Observation, error) {
	opt := watch.Options{
		// What is changed by it is to be found among all requests.
		Budget: -1,
		For:    c.For, Version: version(),
		Filter: observe.Filter{Port: value(c.Port), PID: value(c.PID), Unit: value(c.Unit), Container: value(c.Container)},
	}
	bar := newProgress(s.err, c.For)
	opt.Progress = bar.show
	defer bar.clear()
	if load == nil {
		return watch.Run(ctx, opt)
	}
	loading, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	run := load.For(warmUp + c.For + 2*time.Second)
	go func() {
		for loading.Err() == nil {
			if _, _, err := run.Run(loading); err != nil && !errors.Is(err, loadgen.ErrUnknown) {
				failed <- err
				return
			}
		}
		failed <- loading.Err()
	}()
	select {
	case err := <-failed:
		return nil, err
	case <-time.After(warmUp):
	case <-ctx.Done():
	}
	o, err := watch.Run(ctx, opt)
	stop()
	if bad := <-failed; err == nil && ctx.Err() == nil && bad != nil && !errors.Is(bad, context.Canceled) {
		return nil, bad
	}
	return o, err
}

// document is what is known before anything is changed.
func (c *proveCmd) document(o *observe.Observation, changes []cause.Change, f *cause.Finding) (*proof.Document, error) {
	steps, err := proof.Steps(changes)
	if err != nil {
		return nil, fmt.Errorf("prove %s: %w", c.Cause, err)
	}
	doc := &proof.Document{
		Schema: proof.SchemaProve, Host: o.Host.Name, Cause: c.Cause, Found: f != nil, Finding: f,
		Service: proof.Measured(o, f), Load: c.Load, Steps: steps,
	}
	doc.Title = diagnose.Title(cause.ID(c.Cause))
	if f != nil {
		doc.Persist = f.Fix.Persist
	}
	return doc, nil
}

// options are how long the experiment takes.
func (c *proveCmd) options() experiment.Options {
	return experiment.Options{Blocks: c.Blocks, Length: c.Block}
}

// try makes the experiment.
func (c *proveCmd) try(ctx context.Context, s *streams, doc *proof.Document, changes []cause.Change, load *loadgen.Command) error {
	m, closeMeter, err := c.meter(doc, load)
	if err != nil {
		return err
	}
	defer closeMeter()
	j, err := journal.OpenHost(c.State)
	if err != nil {
		return err
	}
	defer j.Close()
	said := newTrialProgress(s.err, c.JSON)
	opt := c.options()
	opt.Sure, opt.Harmful, opt.TurnedAway, opt.Progress = doc.Found, proof.Harmful(c.Cause), proof.TurnedAway(c.Cause), said.show
	trial := proof.Trial{
		Journal: j, Cause: c.Cause, Why: "slowray " + strings.Join(os.Args[1:], " "), Keep: c.Keep, Meter: m,
		Options: opt,
	}
	result, kept, err := trial.Try(ctx, changes)
	said.clear()
	if len(result.Phases) > 0 {
		doc.Conclude(result, kept)
		keepResult(s, c.State, c.Cause, doc.JSON)
	}
	return err
}

// keepResult keeps what an experiment came to, for the page. That it cannot be
// kept does not make the experiment fail.
func keepResult(s *streams, journal, subject string, write func(io.Writer) error) {
	var doc bytes.Buffer
	err := write(&doc)
	if err == nil {
		err = results.Keep(journal, time.Now(), subject, doc.Bytes())
	}
	if err != nil {
		fmt.Fprintf(s.err, "slowray: %v\n", err)
	}
}

// meter measures the service's own traffic, or under the load.
func (c *proveCmd) meter(doc *proof.Document, load *loadgen.Command) (experiment.Meter, func(), error) {
	service, closeNS := doc.Service, func() {}
	if service.Port == 0 && doc.Finding != nil && len(proof.Harmful(c.Cause)) > 0 {
		service.Port, service.NetNS, service.PID = doc.Finding.Subject.Port, doc.Finding.Subject.NetNS, doc.Finding.Subject.PID
	}
	if service.Port == 0 {
		if load == nil {
			return nil, nil, fmt.Errorf("prove %s: no service on TCP was seen whose requests could be measured: give --load CMD", c.Cause)
		}
		return &meter.Load{Command: *load}, closeNS, nil
	}
	scope := meter.Scope{Port: service.Port, NetNS: service.NetNS}
	if service.PID != 0 {
		read, shut, err := proof.CountersOf(service.PID)
		if err == nil { // without them it is only not told what they say
			scope.Counters, closeNS = read, shut
		}
	}
	watch.RaisePriority()
	traffic, err := meter.Start(scope)
	if err != nil {
		closeNS()
		return nil, nil, err
	}
	shut := func() {
		traffic.Close()
		closeNS()
	}
	if load != nil {
		return &meter.Load{Command: *load, Traffic: traffic}, shut, nil
	}
	return traffic, shut, nil
}

// print writes the document.
func (c *proveCmd) print(doc *proof.Document, s *streams) error {
	reader, err := c.language()
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return doc.Text(w, textColumns(w), reader) }
	if c.JSON {
		write = doc.JSON
	}
	if err := write(s.out); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
