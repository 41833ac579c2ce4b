package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/export"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/callstack"
	"github.com/slowray/slowray/internal/sense/callstack/interpreter"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/symbol"
)

type flameCmd struct {
	PID       *int           `name:"pid" placeholder:"N" help:"Only this process, its master and their workers, and all that they start."`
	OffCPU    bool           `name:"off-cpu" help:"Where threads wait, instead of where they use the CPU."`
	For       *time.Duration `placeholder:"D" help:"How long to record (10s). With --at: so much of the history."`
	Out       []string       `short:"o" name:"out" placeholder:"FILE" sep:"none" help:"Write a file, by its ending: .html, .svg, .folded, .pb.gz (pprof); may be repeated. Without it a summary is printed."`
	Hz        int            `default:"99" placeholder:"N" help:"Samples a second on each CPU (${default})."`
	Min       time.Duration  `default:"1ms" placeholder:"D" help:"With --off-cpu: leave out shorter waits (${default})."`
	Slow      *time.Duration `placeholder:"D" help:"Only the time in which a thread was at work on a request that took at least this long."`
	Diff      string         `placeholder:"FILE" help:"Compare with an earlier recording, a .pb.gz that slowray flame wrote; with --slow, normal compares with the other requests."`
	Threads   bool           `help:"Keep the threads of a process apart."`
	OTLP      string         `name:"experimental-otlp-profiles" placeholder:"URL" help:"Send the stacks to an OpenTelemetry collector: http(s)://host:4318 or grpc(s)://host:4317. Its profiles are in development: a collector of another version may refuse them. $$OTEL_EXPORTER_OTLP_HEADERS is sent along."`
	kubeFlags `embed:""`
	atFlags   `embed:""`
}

// Help is printed by --help, above the flags.
func (*flameCmd) Help() string {
	return `A stack has the frames of the kernel, native ones (C++ and Rust demangled), and those of Go, Python, Java, PHP, Node and Ruby. Nothing is stopped, attached to or changed, and no program needs to be built or started in a special way.

With --off-cpu a thread's time is cut where it is woken: until then it was blocked (off-cpu), from then on it wanted a CPU (runnable).

With --at the stacks are those that slowray record kept: on the CPU the functions of services that used a tenth of a CPU or more, and how much the others used; whole stacks of times in which services computed while requests were slow; with --off-cpu the waits in which threads of services were seen.

With --slow the threads are those that read the requests; what others do for them is not seen.

Exit status: 0 written, 2 could not.`
}

// flameFormats write stacks, by the ending of the file's name. Those without
// diff have no form for a comparison, and are written without it.
var flameFormats = []struct {
	ending string
	write  func(io.Writer, *observe.Stacks, flame.Options) error
	diff   func(io.Writer, flame.Pair, flame.Options) error
}{
	{".html", flame.HTML, flame.DiffHTML},
	{".svg", flame.SVG, flame.DiffSVG},
	{".folded", flame.Folded, nil},
	{pprofEnding, flame.Pprof, nil},
}

const (
	pprofEnding = ".pb.gz"
	diffNormal  = "normal"         // of --diff: slow requests against the others
	leastWait   = time.Millisecond // of --min, unless told otherwise
)

// Validate is called by the command line parser.
func (c *flameCmd) Validate() error {
	for _, name := range c.Out {
		if flameFormat(name) < 0 {
			var endings []string
			for _, f := range flameFormats {
				endings = append(endings, f.ending)
			}
			return fmt.Errorf("-o %s: the name must end in one of %s", name, strings.Join(endings, ", "))
		}
	}
	if err := c.atFlags.validate(); err != nil {
		return err
	}
	switch {
	case c.PID != nil && *c.PID < 1:
		return fmt.Errorf("--pid %d: must be positive", *c.PID)
	case c.At != nil && c.Slow != nil:
		return errors.New("--at: the history does not know which stacks were those of slow requests; --slow is for what is recorded now")
	case c.At != nil && c.OffCPU && c.Min != leastWait:
		return errors.New("--at: the history has the waits that were seen, however long; --min is for what is recorded now")
	case c.At != nil && c.OffCPU && c.Diff != "":
		return errors.New("--at --off-cpu: the history has no whole stacks off the CPU to compare")
	case c.For != nil && (*c.For < 100*time.Millisecond || *c.For > time.Hour):
		return fmt.Errorf("--for %s: must be 100ms to 1h", *c.For)
	case c.Hz < 1 || c.Hz > 1000:
		return fmt.Errorf("--hz %d: must be 1 to 1000", c.Hz)
	case c.Slow != nil && *c.Slow <= 0:
		return fmt.Errorf("--slow %s: must be more than nothing", *c.Slow)
	case c.Diff == diffNormal && c.Slow == nil:
		return errors.New("--diff normal goes with --slow")
	case c.Min < 10*time.Microsecond || c.Min > time.Minute:
		return fmt.Errorf("--min %s: must be 10us to 1m", c.Min)
	}
	return nil
}

// flameFormat is the index of the format of a file of this name, -1 when no
// ending fits.
func flameFormat(name string) int {
	for i, f := range flameFormats {
		if strings.HasSuffix(strings.ToLower(name), f.ending) {
			return i
		}
	}
	return -1
}

// quietWindow is how long a window may be before progress is shown.
const quietWindow = 2 * time.Second

// Run records, and writes what was asked for.
func (c *flameCmd) Run(ctx context.Context, s *streams) error {
	// The heap is not small here: symbol tables of everything that runs.
	debug.SetGCPercent(100)
	debug.SetMemoryLimit(1 << 30)
	for _, name := range c.Out {
		if err := writable(name); err != nil {
			return fmt.Errorf("flame: %w", err)
		}
	}
	if c.OTLP != "" {
		if err := export.CheckURL(c.OTLP); err != nil {
			return fmt.Errorf("flame: %w", err)
		}
	}
	var before *observe.Stacks
	if c.Diff != "" && c.Diff != diffNormal {
		var err error
		if before, err = readStacks(ctx, c.Diff); err != nil {
			return fmt.Errorf("flame: --diff: %w", err)
		}
		if want := callstack.Types(c.OffCPU); !slices.Equal(before.Types, want) {
			return fmt.Errorf("flame: --diff %s: was recorded %s", c.Diff, map[bool]string{true: "on the CPU: leave --off-cpu out", false: "with --off-cpu"}[c.OffCPU])
		}
	}
	names := host.Default().Names()
	if c.OTLP != "" && c.At == nil { // a pid of the history is another process now
		pods := c.start(ctx)
		defer pods.Close()
		names = namesWithContainers(pods)
	}
	record := func() (*observe.Stacks, error) { return c.record(ctx, s) }
	if c.At != nil {
		record = func() (*observe.Stacks, error) { return c.fromHistory(s) }
	}
	after, err := record()
	if err != nil {
		return fmt.Errorf("flame: %w", err)
	}
	opt := flame.Options{Subtitle: c.subtitle()}
	if c.Threads {
		opt.Roots = flame.RootThread
	}
	if err := c.send(ctx, s, after, names); err != nil {
		return fmt.Errorf("flame: %w", err)
	}
	if c.Diff == diffNormal {
		return c.write(s, onlySlow(after), flame.SlowAgainstNormal(after), opt)
	}
	if c.Slow != nil {
		after = onlySlow(after)
	}
	if before != nil {
		takeKinds(before, after)
		return c.write(s, after, flame.Diff(before, after), opt)
	}
	return c.write(s, after, flame.Pair{}, opt)
}

// send sends what was recorded to a collector, where that was asked for.
func (c *flameCmd) send(ctx context.Context, s *streams, stacks *observe.Stacks, names *host.Names) error {
	if c.OTLP == "" {
		return nil
	}
	if c.Slow != nil {
		stacks = onlySlow(stacks)
	}
	name, _ := os.Hostname()
	who := map[int]observe.Identity{}
	if c.At == nil {
		for i := range stacks.Samples {
			pid := stacks.Samples[i].PID
			if id, ok := names.Of(pid, stacks.StartNS+stacks.WindowNS); ok && who[pid].Comm == "" {
				who[pid] = id.Identity
			}
		}
	}
	n, err := export.SendProfiles(ctx, export.Options{Version: version(), Host: name}, c.OTLP, os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), who, stacks)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "slowray: %s sent\n", figure.Counted(n, "profile"))
	return nil
}

// write writes all files, or a summary to the terminal.
func (c *flameCmd) write(s *streams, stacks *observe.Stacks, pair flame.Pair, opt flame.Options) error {
	for _, name := range c.Out {
		format := flameFormats[flameFormat(name)]
		err := writePrivate(name, func(w io.Writer) error {
			if c.Diff != "" && format.diff != nil {
				return format.diff(w, pair, opt)
			}
			return format.write(w, stacks, opt)
		})
		if err != nil {
			return fmt.Errorf("flame: %w", err)
		}
	}
	if len(c.Out) > 0 {
		fmt.Fprintf(s.err, "slowray: %s written to %s\n", figure.Counted(len(stacks.Samples), "stack"), strings.Join(c.Out, ", "))
		return nil
	}
	style := terminalStyle(s.out)
	opt.Color, opt.Width = style.Color, style.Width
	var err error
	if c.Diff != "" {
		err = flame.DiffText(s.out, pair, opt)
	} else {
		err = flame.Text(s.out, stacks, opt)
	}
	if err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// record records the stacks.
func (c *flameCmd) record(ctx context.Context, s *streams) (*observe.Stacks, error) {
	pids, err := c.pids()
	if err != nil {
		return nil, err
	}
	window := defaultWindow
	if c.For != nil {
		window = *c.For
	}
	bar := newProgress(s.err, window)
	opt := callstack.Options{
		PIDs: pids, OnCPU: !c.OffCPU, OffCPU: c.OffCPU, Hz: c.Hz, Min: c.Min, Threads: c.Threads,
		Unwinder: unwinder,
		Progress: func(elapsed time.Duration) {
			if window > quietWindow {
				bar.show(elapsed)
			}
		},
	}
	var requests *requestTimes
	if c.Slow != nil {
		if requests, err = watchRequests(*c.Slow, pids); err != nil {
			return nil, fmt.Errorf("--slow: %w", err)
		}
		end := sync.OnceFunc(requests.end)
		defer end()
		opt.Requests = func() callstack.Requests { end(); return requests }
	}
	opt.Progress(0) // the first sign of life, while the programs load
	stacks, err := callstack.Record(ctx, window, opt)
	bar.clear()
	if errors.Is(err, callstack.ErrNoProcess) {
		return nil, fmt.Errorf("there is no process with pid %d", value(c.PID))
	}
	if err == nil && requests != nil {
		requests.tell(stacks)
	}
	return stacks, err
}

// onlySlow is what was inside slow requests.
func onlySlow(s *observe.Stacks) *observe.Stacks {
	slow := *s
	slow.Samples = slices.DeleteFunc(slices.Clone(s.Samples), func(x observe.StackSample) bool { return !x.Slow })
	return &slow
}

// unwinder starts the unwinder that knows interpreters.
func unwinder(space *symbol.Space, pids []int) (callstack.Unwinder, error) {
	u, err := interpreter.Start(space, pids)
	if err != nil {
		return nil, err // not u: that would be no nil interface
	}
	return u, nil
}

// pids are the processes of the family of the one that was asked for, and those
// that they started; none for all.
func (c *flameCmd) pids() ([]int, error) {
	if c.PID == nil {
		return nil, nil
	}
	names := host.Default().Names()
	now := time.Now().UnixNano()
	if _, ok := names.Of(*c.PID, now); !ok {
		return nil, fmt.Errorf("there is no process with pid %d", *c.PID)
	}
	family := names.Family(*c.PID, now)
	all, err := processNumbers()
	if err != nil {
		return nil, err
	}
	self := os.Getpid() // which the shell that is asked for may have started
	return slices.DeleteFunc(all, func(pid int) bool {
		if pid == self && pid != *c.PID {
			return true
		}
		for range maxGenerations {
			if names.Family(pid, now) == family {
				return false
			}
			id, ok := names.Of(pid, now)
			if !ok {
				return true
			}
			pid = id.PPID
		}
		return true
	}), nil
}

// maxGenerations bounds how far up a process is looked for its ancestor.
const maxGenerations = 64

// processNumbers lists the processes of this host.
func processNumbers() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if pid, ok := host.ParseSmall([]byte(e.Name())); ok {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// subtitle says what was recorded.
func (c *flameCmd) subtitle() string {
	what := "on the CPU"
	switch {
	case c.OffCPU && c.At != nil:
		what = "waiting"
	case c.OffCPU:
		what = "waiting at least " + c.Min.String()
	}
	if c.Slow != nil {
		what += ", in requests of " + c.Slow.String() + " or more"
	}
	if c.PID != nil {
		return fmt.Sprintf("%s, pid %d", what, *c.PID)
	}
	name, err := os.Hostname()
	if err != nil {
		return what
	}
	return what + ", " + name
}
