package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

const (
	measureWarm   = 1500 * time.Millisecond // load before a measurement, if the incident asks for no more
	measureWindow = 4 * time.Second
	briefWindow   = 2 * time.Second  // the same, when it is to be brief: what is too close to call is measured again
	watchWarm     = 2 * time.Second  // load before the window slowray looks at
	watchAfter    = time.Second      // load after that window, at least
	watchSpare    = 40 * time.Second // … and at most so much longer, until slowray is done: nobody knows how long it takes to begin
	quick         = 2                // slowray's window is divided by this for a quick incident

	// The same for an incident that is what it is at once. The window has two
	// marks a second apart at least, see goodRates.
	quickMeasureWarm   = 600 * time.Millisecond
	quickMeasureWindow = 1600 * time.Millisecond
	quickWatchWarm     = 800 * time.Millisecond
	quickWatchAfter    = 700 * time.Millisecond

	lookPause   = 1500 * time.Millisecond // from the end of a window to the next look, for the verdict
	insideShare = 2                       // a load that ends inside a window ends after 1/insideShare of it
)

// trial is one set of faults under load in a sandbox of its own.
type trial struct {
	*runner
	faults []incident.Fault
	window time.Duration
	warm   time.Duration // load before the window
	after  time.Duration // load after the window
	// watch is called when the window begins.
	watch func(context.Context, *sandbox.Box) error
	// ready is called when the servers serve, before the load begins.
	ready func(context.Context, *sandbox.Box) error
	// alongside is the sandboxes that are part of the same measurement, by init.
	alongside func() []int
}

// view is what slowray found when it looked, and what was measured meanwhile:
// there, and next to it without its fault.
type view struct {
	sample  *Sample // nil if it did not look
	without *Sample // nil if that was not measured at the same time
	reports []*Report
}

// look has slowray look at the faults, once or several times under the same
// load, and measures meanwhile. It looks again while other programs disturb it,
// whatever was found.
func (r *runner) look(ctx context.Context, faults []incident.Fault) (view, error) {
	for {
		seen, err := r.lookOnce(ctx, faults)
		if err != nil || seen.sample.Others <= othersMax || r.patience <= 0 {
			return seen, err
		}
		r.patience--
		r.print.progress(fmt.Sprintf("other programs used %.0f %% of the CPUs; looking again", 100*seen.sample.Others))
	}
}

func (r *runner) lookOnce(ctx context.Context, faults []incident.Fault) (view, error) {
	var reports []*Report
	t := r.watched(faults, &reports)
	r.print.progress(fmt.Sprintf("slowray looks for %v", t.window))
	if r.twinned(faults) {
		s, without, err := t.withTwin(ctx)
		return view{&s, &without, reports}, err
	}
	s, err := t.run(ctx)
	return view{&s, nil, reports}, err
}

// watched is the trial in which slowray looks; what it says is added to reports.
func (r *runner) watched(faults []incident.Fault, reports *[]*Report) *trial {
	looks := r.opt.Looks
	if r.EndInside {
		looks = 1 // the load ends only once
	}
	warm, after := watchWarm, watchAfter
	if r.Quick {
		warm, after = quickWatchWarm, quickWatchAfter
	}
	each := r.opt.Window + lookPause
	t := &trial{runner: r, faults: faults, window: time.Duration(looks)*each - lookPause, warm: max(warm, r.Lead), after: after}
	if r.EndInside {
		t.after = -r.opt.Window / insideShare
	}
	t.watch = func(ctx context.Context, box *sandbox.Box) error {
		began := time.Now()
		for n := range looks {
			if err := pause(ctx, time.Until(began.Add(time.Duration(n)*each))); err != nil {
				return err
			}
			if time.Since(began) > t.window-r.opt.Window+lookPause/2 {
				break // looks took too long: this one would see the load end
			}
			report, err := r.slowray(ctx, box)
			if err != nil {
				return err
			}
			*reports = append(*reports, report)
		}
		return nil
	}
	return t
}

func (t *trial) run(ctx context.Context) (s Sample, err error) {
	duration := t.warm + t.window + t.after
	box, err := sandbox.Open(ctx, t.lock, t.boxOptions(t.faults, 2*duration+time.Minute))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, duration+time.Minute)
	defer cancel()
	go func() { // a sandbox that dies ends the trial
		select {
		case <-box.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	stack, err := server.Start(ctx, box, t.exe, t.Injected(t.faults), t.plan)
	if err != nil {
		return s, err
	}
	if t.ready != nil {
		if err := t.ready(ctx, box); err != nil {
			return s, err
		}
	}
	return t.observe(ctx, box, stack, duration)
}

func (r *runner) boxOptions(faults []incident.Fault, lifetime time.Duration) sandbox.Options {
	setup := r.Injected(faults)
	opt := sandbox.Options{
		Executable: r.exe,
		ServerAddr: r.plan.ServerAddr + "/30",
		ClientAddr: r.plan.ClientAddr + "/30",
		Lifetime:   lifetime,
		Wire:       setup.Wire,
		BackWire:   setup.BackWire,
	}
	if setup.HasBackend() {
		opt.ServerBackAddr, opt.BackendAddr = r.plan.BackAddr+"/30", r.plan.BackendAddr+"/30"
	}
	opt.Wire.Seed, opt.BackWire.Seed = uint64(r.opt.Seed), uint64(r.opt.Seed)+1
	return opt
}

// observe makes the load and measures in the window.
func (t *trial) observe(ctx context.Context, box *sandbox.Box, stack *server.Stack, duration time.Duration) (s Sample, err error) {
	spare := time.Duration(0)
	if t.watch != nil && !t.EndInside {
		spare = watchSpare
	}
	traffic, err := t.startLoad(ctx, box, t.LoadWith(t.faults), duration, spare)
	if err != nil {
		return s, err
	}
	if err := pause(ctx, t.warm); err != nil {
		return s, err
	}
	watched := make(chan error, 1)
	go func() {
		if t.watch == nil {
			watched <- nil
			return
		}
		watched <- t.watch(ctx, box)
	}()
	ours := []int{box.PID()}
	if t.alongside != nil {
		ours = append(ours, t.alongside()...)
	}
	before, began := otherProcesses(ours...), time.Now()
	wires := readWires(box)
	if s.Rates, err = goodRates(ctx, stack.AccessLog, t.window); err != nil {
		return s, err
	}
	cpus := time.Since(began).Seconds() * float64(runtime.NumCPU())
	s.Wires = wires.until(readWires(box))
	s.Others = usedBetween(before, otherProcesses(ours...)) / cpus
	if err := <-watched; err != nil || traffic == nil {
		return s, err
	}
	outcome, err := traffic.end(ctx)
	if err != nil {
		return s, err
	}
	s.Outcome = &outcome
	if stack.AccessLog == "" {
		s.Rates = []float64{outcome.GoodRate()}
	}
	return s, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// traffic is a running load generator.
type traffic struct {
	load.Load
	proc  *sandbox.Proc
	out   string
	until time.Time // when it is to end, or later
	asked bool      // it ends when it is asked to
}

// startLoad begins a load that lasts for d; with spare until [traffic.end] is called after
// that, and at most so much longer.
func (r *runner) startLoad(ctx context.Context, box *sandbox.Box, l load.Load, d, spare time.Duration) (*traffic, error) {
	if l.None() {
		return nil, nil
	}
	until := time.Now().Add(d)
	d += spare
	if err := r.holdIdle(ctx, box, l, d); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	args, env := l.Command(r.exe, sandbox.RoleEnv, r.plan.ServerAddr, r.plan.FrontPort, d)
	t := &traffic{Load: l, out: filepath.Join(box.Dir, "load.out"), until: until, asked: l.UsesWrk() || spare > 0} // wrk takes whole seconds
	err := os.Remove(t.out)                                                                                        // of an earlier load there
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("load: %w", err)
	}
	t.proc, err = box.Client.Start(ctx, sandbox.Spec{Args: args, Env: env, Stdout: t.out, Stderr: t.out})
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return t, nil
}

// holdIdle opens the idle connections of the load and waits until they are open.
func (r *runner) holdIdle(ctx context.Context, box *sandbox.Box, l load.Load, d time.Duration) error {
	if l.Idle == 0 {
		return nil
	}
	args, env := l.HoldCommand(r.exe, sandbox.RoleEnv, r.plan.ServerAddr, r.plan.FrontPort, d+time.Minute)
	out := filepath.Join(box.Dir, "idle.out")
	if _, err := box.Client.Start(ctx, sandbox.Spec{Args: args, Env: env, Stdout: out, Stderr: out}); err != nil {
		return err
	}
	for range 100 {
		if said, _ := os.ReadFile(out); len(said) > 0 {
			if string(said) == "open\n" {
				return nil
			}
			return fmt.Errorf("%s", bytes.TrimSpace(said))
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("idle connections: not open after 5 s")
}

func (t *traffic) end(ctx context.Context) (load.Outcome, error) {
	if t.asked { // it tells what it saw so far
		if err := pause(ctx, time.Until(t.until)); err != nil {
			return load.Outcome{}, err
		}
		if err := t.proc.Signal(ctx, syscall.SIGINT); err != nil {
			return load.Outcome{}, fmt.Errorf("load: %w", err)
		}
	}
	if _, err := t.proc.Wait(ctx); err != nil {
		return load.Outcome{}, fmt.Errorf("load: %w", err)
	}
	out, err := os.ReadFile(t.out)
	if err != nil {
		return load.Outcome{}, err
	}
	return t.Parse(out)
}

// goodRates gives the good answers of each second of a window that begins now,
// as the access log has them. The log is marked at each second by its size and
// read afterwards, so that reading takes no CPU from the servers.
func goodRates(ctx context.Context, log string, window time.Duration) ([]float64, error) {
	type mark struct {
		at     time.Time
		offset int64
	}
	var marks []mark
	for end := time.Now().Add(window); ; {
		size := int64(0)
		if st, err := os.Stat(log); err == nil {
			size = st.Size()
		}
		marks = append(marks, mark{time.Now(), size})
		left := time.Until(end)
		if left < time.Second/2 {
			break
		}
		if err := pause(ctx, min(time.Second, left)); err != nil {
			return nil, err
		}
	}
	if log == "" {
		return nil, nil
	}
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rates []float64
	for n := 1; n < len(marks); n++ {
		part := io.NewSectionReader(f, marks[n-1].offset, marks[n].offset-marks[n-1].offset)
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		rates = append(rates, float64(countGood(data))/marks[n].at.Sub(marks[n-1].at).Seconds())
	}
	return rates, nil
}

// countGood counts the lines of a combined log whose status is 2xx or 3xx.
func countGood(log []byte) int {
	good := 0
	for line := range bytes.Lines(log) {
		_, after, _ := bytes.Cut(line, []byte(` HTTP/`)) // 1.1 or 2.0
		_, after, ok := bytes.Cut(after, []byte(`" `))
		if ok && len(after) > 3 && (after[0] == '2' || after[0] == '3') {
			good++
		}
	}
	return good
}
