package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/store"
)

// historyDir is where the history is, unless --dir says otherwise.
const historyDir = "/var/lib/slowray/history"

type recordCmd struct {
	Dir     string         `default:"${history}" placeholder:"D" help:"Where the history is kept (${default})."`
	MaxSize string         `default:"2G" placeholder:"N" help:"How large it may become, as 500M or 2G: the oldest goes first (${default})."`
	MaxAge  time.Duration  `default:"168h" placeholder:"D" help:"How long it is kept (${default}: seven days)."`
	Window  time.Duration  `default:"60s" placeholder:"D" help:"How long each window is that is judged (${default})."`
	Slow    *time.Duration `placeholder:"D" help:"Keep every request that took at least this long; otherwise what is slow for its endpoint."`
	Labels  bool           `help:"Also keep what was asked for: method and path, statement or command."`
	Silent  bool           `help:"Ask no server for its status."`
	Budget  float64        `default:"1" placeholder:"P" help:"Share of the host's CPU, in percent, that slowray may take before one record stands for several requests (${default}; 0: no limit)."`
	JSON    bool           `name:"json" help:"Print what is found, and what goes wrong, as JSON: one object a line."`
}

// Help is printed by --help, above the flags.
func (*recordCmd) Help() string {
	return `Records until Ctrl-C or SIGTERM, and then writes what is left: the sums of each endpoint and second, requests that were slow or failed and a sample of the others, and a window for each minute, which is judged as slowray why does.

What was recorded is read back with --at: slowray why --at 12:03, slowray requests --at -10m. docs/record.md tells more.

Exit status: 0 ended as it was told to, 2 could not record.`
}

// Bounds of the windows: shorter ones cost too much to put together, longer ones
// say too late what happened.
const (
	shortestWindow = 5 * time.Second
	longestWindow  = 10 * time.Minute
)

// Validate is called by the command line parser.
func (c *recordCmd) Validate() error {
	if _, err := byteSize(c.MaxSize); err != nil {
		return fmt.Errorf("--max-size %s: %w", c.MaxSize, err)
	}
	switch {
	case c.Dir == "":
		return errors.New("--dir: is empty")
	case c.MaxAge < time.Hour:
		return fmt.Errorf("--max-age %s: must be at least 1h", c.MaxAge)
	case c.Window < shortestWindow || c.Window > longestWindow:
		return fmt.Errorf("--window %s: must be %s to %s", c.Window, shortestWindow, longestWindow)
	case c.Slow != nil && *c.Slow <= 0:
		return fmt.Errorf("--slow %s: must be more than nothing", *c.Slow)
	case !(c.Budget >= 0 && c.Budget <= 100):
		return fmt.Errorf("--budget %g: must be 0 to 100 percent", c.Budget)
	}
	return nil
}

// The recorder's memory: it runs for weeks on hosts that need theirs.
const (
	recordMemory = 120 << 20 // bytes of heap, from where on it is collected ever more often
	recordGC     = 50        // percent
)

// Run records until it is told to end.
func (c *recordCmd) Run(ctx context.Context, s *streams) (err error) {
	debug.SetGCPercent(recordGC)
	debug.SetMemoryLimit(recordMemory)
	size, _ := byteSize(c.MaxSize)
	history, err := store.Open(c.Dir, store.Options{MaxBytes: size, MaxAge: c.MaxAge})
	if err != nil {
		return fmt.Errorf("record: %w", stateHint(err))
	}
	defer func() {
		if e := history.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("record: %w", e))
		}
	}()
	signal.Ignore(syscall.SIGPIPE) // whoever reads the lines may leave
	told := newRecordLog(s, c.JSON)
	rec, err := record.New(history, record.Options{
		Window: c.Window, Slow: value(c.Slow), Labels: c.Labels, Budget: c.budget(), Silent: c.Silent, Version: version(),
		Names:   func() *host.Names { return namesWithContainers() },
		Sinks:   []record.Sink{told},
		Alive:   func() { record.Notify("WATCHDOG=1") },
		Trouble: told.trouble,
	})
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	told.begin(c.Dir, "")
	record.Notify("READY=1")
	context.AfterFunc(ctx, func() { record.Notify("STOPPING=1") })
	rec.Run(ctx)
	told.end(rec.Status())
	return nil
}

// budget is the share of the host's CPU as the recorder takes it.
func (c *recordCmd) budget() float64 {
	if c.Budget == 0 {
		return -1
	}
	return c.Budget / 100
}

// byteSize reads a size as 500M or 2G; a number alone is bytes.
func byteSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "KMGT")
	shift, known := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !known || n <= 0 || n > 1<<62>>shift {
		return 0, errors.New("give a size as 500M or 2G")
	}
	if n<<shift < leastHistory {
		return 0, errors.New("must be at least 16M")
	}
	return n << shift, nil
}

const leastHistory = 16 << 20

// stateHint says who may write where, for a directory that cannot be made.
func stateHint(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w (run it as root, or choose another --dir)", err)
	}
	return err
}
