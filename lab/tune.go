package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

const (
	// TuneLimit is how long slowray may take to fix an incident.
	TuneLimit   = 12 * time.Minute
	tuneMeasure = 6 * time.Second // of the load before, after, and after undoing
	tuneStuck   = 5 * time.Second // a load that takes so much longer got no connection at all
	tuneBlock   = 2 * time.Second // of the load in a block of an experiment
	undoLimit   = time.Minute
)

// TuneOptions are what is reported slowray tune next to what [Options] say.
type TuneOptions struct {
	For   time.Duration // default TuneLimit
	Look  time.Duration // how long a look takes; default as slowray has it
	Block time.Duration // of the load; default 2 s
	HTML  string        // file for slowray's page; "" = none
}

// TuneReport is the part of slowray tune's JSON that the lab judges.
type TuneReport struct {
	Schema  string     `json:"schema"`
	Ending  string     `json:"ending"`
	Text    string     `json:"text"`
	Seconds float64    `json:"seconds"`
	Steps   []TuneStep `json:"steps"`
	Lasting []string   `json:"lasting"`
}

// TuneStep is one change that was tried.
type TuneStep struct {
	Cause   string   `json:"cause"`
	Also    []string `json:"also"`
	Verdict string   `json:"verdict"`
	Text    string   `json:"text"`
	Kept    bool     `json:"kept"`
	Again   string   `json:"again"`
	Changes []struct {
		Name string `json:"name"`
		Text string `json:"text"`
	} `json:"changes"`
	Before TuneFigures `json:"before"`
	With   TuneFigures `json:"with"`
	After  TuneFigures `json:"after"`
}

// TuneFigures are what slowray measured.
type TuneFigures struct {
	Good float64  `json:"good_per_s"`
	P99  *float64 `json:"p99_ms"`
}

// TuneResult is one incident, fixed by slowray tune. All outcomes are the load
// generator's own.
type TuneResult struct {
	Incident string       `json:"incident"`
	Seed     int64        `json:"seed"`
	OK       bool         `json:"ok"`
	Healthy  load.Outcome `json:"healthy"` // nothing injected
	Start    load.Outcome `json:"start"`   // all injected
	End      load.Outcome `json:"end"`     // as slowray tune left it
	Undone   load.Outcome `json:"undone"`  // after slowray undo
	Report   TuneReport   `json:"tune"`
	Faults   []TuneFault  `json:"faults"`
	Set      []string     `json:"set"` // what differed from before, before undoing
	Reasons  []string     `json:"reasons,omitempty"`
	Notes    []string     `json:"notes,omitempty"`
	Seconds  float64      `json:"seconds"` // of slowray tune
}

// TuneFault is what became of an injected fault.
type TuneFault struct {
	Name    string `json:"name"`
	Cause   string `json:"cause,omitempty"`
	Decoy   bool   `json:"decoy,omitempty"`
	Verdict string `json:"verdict"` // of the step that fixed it; "" = none did
}

// Tune injects an incident with all its faults, lets slowray tune fix it under
// load, and judges what it left: whether the service is healthy by the load
// generator's word, what was fixed and what was touched, and whether slowray
// undo puts everything back.
func Tune(ctx context.Context, name string, opt Options, tune TuneOptions) (TuneResult, error) {
	r, err := open(ctx, name, opt)
	if err != nil {
		return TuneResult{}, err
	}
	defer r.lock.Release()
	return r.tune(ctx, tune)
}

// tune is Tune for a runner that has the lock.
func (r *runner) tune(ctx context.Context, opt TuneOptions) (TuneResult, error) {
	if opt.For <= 0 {
		opt.For = TuneLimit
	}
	if opt.Block <= 0 {
		opt.Block = tuneBlock
	}
	result := TuneResult{Incident: r.Name, Seed: r.opt.Seed}
	if !r.LoadWith(r.Faults).UsesWrk() {
		return result, fmt.Errorf("lab: %s: its load is not made by wrk: it cannot be tuned here", r.Name)
	}
	r.print.heading(r.Incident, r.opt.Seed)
	r.print.step(injectedSet{name: "injected", faults: r.Faults})
	var decoys []incident.Fault
	for _, f := range r.Faults {
		if f.Decoy {
			decoys = append(decoys, f)
		}
	}
	r.patience = 0 // it is only to compare with
	r.print.progress("measuring the healthy stack")
	healthy, err := r.measure(ctx, decoys)
	if err == nil && healthy.Outcome == nil {
		err = errors.New("it has no load")
	}
	if err != nil {
		return result, fmt.Errorf("lab: %s: healthy: %w", r.Name, err)
	}
	result.Healthy = *healthy.Outcome
	if err := r.repair(ctx, opt, &result); err != nil {
		return result, fmt.Errorf("lab: %s: %w", r.Name, err)
	}
	result.judge(r.Incident, opt)
	if r.opt.JSON {
		enc := json.NewEncoder(r.opt.Out)
		enc.SetIndent("", "  ")
		return result, enc.Encode(result)
	}
	r.print.tuned(result)
	return result, nil
}

// others are causes that are fixed by changing programs that are not the lab's:
// those that the machine happens to run.
var others = []string{"cpu-saturated", "run-queue-wait", "scheduled-job-collision", "short-lived-process-storm", "realtime-hog", "low-cpu-weight"}

// tuning is an injected incident that slowray is to fix.
type tuning struct {
	*runner
	TuneOptions
	box   *sandbox.Box
	state string // directory of slowray's journal
}

// fix injects, has slowray fix and undo, and measures.
func (r *runner) repair(ctx context.Context, opt TuneOptions, result *TuneResult) (err error) {
	lifetime := opt.For + 3*tuneMeasure + 3*time.Minute
	box, err := sandbox.Open(ctx, r.lock, r.boxOptions(r.Faults, lifetime))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, lifetime)
	defer cancel()
	if _, err := server.Start(ctx, box, r.exe, r.Injected(r.Faults), r.plan); err != nil {
		return err
	}
	if err := r.holdIdle(ctx, box, r.LoadWith(r.Faults), lifetime); err != nil {
		return err
	}
	t := &tuning{r, opt, box, filepath.Join(box.Dir, "journal")}
	before, err := t.steady(ctx)
	if err != nil {
		return err
	}
	if result.Start, err = t.measure(ctx, "as injected"); err != nil {
		return err
	}
	began := time.Now()
	if err := t.slowrayTune(ctx, &result.Report); err != nil {
		return err
	}
	result.Seconds = time.Since(began).Seconds()
	if result.End, err = t.measure(ctx, "as slowray left it"); err != nil {
		return err
	}
	if result.End.Bad() > 0 { // the machine may be used by others: once more
		result.Notes = append(result.Notes, fmt.Sprintf("measured twice at the end; first: %s", errorsOf(result.End)))
		if result.End, err = t.measure(ctx, "as slowray left it, once more"); err != nil {
			return err
		}
	}
	fixed, err := t.snapshot(ctx)
	if err != nil {
		return err
	}
	result.Set = before.differences(fixed)
	if err := t.undo(ctx); err != nil {
		return err
	}
	undone, err := t.snapshot(ctx)
	if err != nil {
		return err
	}
	for _, d := range before.differences(undone) {
		result.Reasons = append(result.Reasons, "not as before after slowray undo: "+d)
	}
	result.Undone, err = t.measure(ctx, "after slowray undo")
	return err
}

// measure puts the servers under load for a while, with new connections.
func (t *tuning) measure(ctx context.Context, what string) (load.Outcome, error) {
	t.print.progress("measuring " + what)
	l := t.LoadWith(t.Faults)
	l.Idle = 0 // they are held all the time
	traffic, err := t.startLoad(ctx, t.box, l, tuneMeasure, 0)
	if err != nil {
		return load.Outcome{}, err
	}
	limited, cancel := context.WithTimeout(ctx, tuneMeasure+tuneStuck)
	defer cancel()
	o, err := traffic.end(limited)
	if limited.Err() != nil && ctx.Err() == nil {
		// wrk begins with a connection that it waits for as long as the kernel tries.
		err = traffic.proc.Signal(ctx, syscall.SIGKILL)
		o = load.Outcome{Duration: tuneMeasure, Timeout: int64(l.Conns)}
	}
	return o, errors.Join(err, os.Remove(traffic.out)) // the next one's is not to be added to it
}

// loadCommand is the load as slowray on the host can make it.
func (t *tuning) loadCommand(ctx context.Context) (string, error) {
	_, clients, _, err := namespaces(ctx, t.box)
	if err != nil {
		return "", err
	}
	pid, err := inNetNS(clients)
	if err != nil {
		return "", err
	}
	l := t.LoadWith(t.Faults)
	l.Idle = 0
	args, _ := l.Command(t.exe, sandbox.RoleEnv, t.plan.ServerAddr, t.plan.FrontPort, t.Block)
	return fmt.Sprintf("nsenter --net=/proc/%d/ns/net -- %s", pid, strings.Join(args, " ")), nil
}

// inNetNS is the oldest process in a network namespace.
func inNetNS(inode uint64) (int, error) {
	want, oldest := fmt.Sprintf("net:[%d]", inode), 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if link, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || link != want {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && (oldest == 0 || pid < oldest) {
			oldest = pid
		}
	}
	if oldest == 0 {
		return 0, fmt.Errorf("network namespace %d: no process is in it", inode)
	}
	return oldest, nil
}

// slowrayTune runs slowray tune on the host. What it says meanwhile is shown.
func (t *tuning) slowrayTune(ctx context.Context, report *TuneReport) error {
	load, err := t.loadCommand(ctx)
	if err != nil {
		return err
	}
	args := []string{"tune", "--apply", "--json", "--load", load, "--for", t.For.String(), "--block", t.Block.String(), "--state", t.state}
	for _, id := range others {
		if !slices.Contains(t.Causes(), id) {
			args = append(args, "--skip", id)
		}
	}
	if !t.opt.WholeHost {
		args = append(args, "--port", strconv.Itoa(t.plan.FrontPort))
	}
	if t.Look > 0 {
		args = append(args, "--look", t.Look.String())
	}
	if t.HTML != "" {
		args = append(args, "--html", t.HTML)
	}
	out, err := t.run(ctx, t.For+2*time.Minute, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, report); err != nil {
		return fmt.Errorf("slowray tune: its JSON: %w: %.300s", err, out)
	}
	if report.Schema != "slowray.tune/1" {
		return fmt.Errorf("slowray tune: schema %q: not known", report.Schema)
	}
	return nil
}

func (t *tuning) undo(ctx context.Context) error {
	t.print.progress("slowray undo")
	_, err := t.run(ctx, undoLimit, "undo", "--state", t.state)
	return err
}

// run runs slowray and gives its output. It is ended gently, so that it undoes
// what it has in hand.
func (t *tuning) run(ctx context.Context, limit time.Duration, args ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	all := append(t.opt.Slowray[1:len(t.opt.Slowray):len(t.opt.Slowray)], args...)
	cmd := exec.CommandContext(limited, t.opt.Slowray[0], all...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = undoLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	var stdout bytes.Buffer
	var said string
	cmd.Stdout = &stdout
	messages, writer := io.Pipe()
	cmd.Stderr = writer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for sc := bufio.NewScanner(messages); sc.Scan(); {
			said = sc.Text()
			t.print.note(said)
		}
		io.Copy(io.Discard, messages) // of a line that is too long
	}()
	// Pdeathsig goes by thread: the one that starts it must outlive it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	writer.Close()
	<-read
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, fmt.Errorf("slowray %s: not done within %s", args[0], limit)
	case errors.As(err, &exit) && exit.ExitCode() == 1: // something is left to find
	case errors.As(err, &exit) && stdout.Len() > 0: // it failed, or did harm, and its report tells
	case err != nil:
		return nil, fmt.Errorf("slowray %s: %w: %s", args[0], err, said)
	}
	return stdout.Bytes(), nil
}
