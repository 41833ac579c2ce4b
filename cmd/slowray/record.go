package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/export"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/kube"
	"github.com/slowray/slowray/internal/store"
)

// historyDir is where the history is, unless --dir says otherwise.
const historyDir = "/var/lib/slowray/history"

type recordCmd struct {
	Dir             string         `default:"${history}" placeholder:"D" complete:"dirs" help:"Where the history is kept (${default})."`
	Listen          string         `default:"127.0.0.1:7788" placeholder:"A" help:"Where the page and /metrics are served (${default}): host:port, unix:/path or off. Elsewhere than on loopback a token is needed, which is printed, or taken from $$SLOWRAY_TOKEN."`
	ListenName      []string       `placeholder:"NAME" sep:"," help:"A further host name of the page, as behind a reverse proxy; may be repeated."`
	OTLP            string         `name:"otlp" placeholder:"URL" help:"Send metrics, slow requests and findings to an OpenTelemetry collector: http(s)://host:4318 or grpc(s)://host:4317. $$OTEL_EXPORTER_OTLP_HEADERS is sent along."`
	MaxSize         string         `default:"2G" placeholder:"N" help:"How large it may become, as 500M or 2G: the oldest goes first (${default})."`
	MaxAge          time.Duration  `default:"168h" placeholder:"D" help:"How long it is kept (${default}: seven days)."`
	Window          time.Duration  `default:"60s" placeholder:"D" help:"How long each window is that is judged (${default})."`
	Slow            *time.Duration `placeholder:"D" help:"Keep every request that took at least this long; otherwise what is slow for its endpoint."`
	Labels          bool           `help:"Also keep what was asked for: method and path, statement or command."`
	Silent          bool           `help:"Ask no server for its status."`
	OTLPConventions bool           `name:"otlp-conventions" help:"With --otlp: also metrics by the names of OpenTelemetry's conventions, as of the services themselves, such as http.server.request.duration: for services that do not send them."`
	OTLPProfiles    bool           `name:"experimental-otlp-profiles" help:"With --otlp: send what uses the CPU and what waits in each window, too. OpenTelemetry's profiles are in development: a collector of another version may refuse them."`
	shipFlags
	Alerts     string `placeholder:"FILE" complete:"files" help:"Notify people when harm to requests begins and ends, by the rules in this file: Alertmanager, PagerDuty, webhooks, Slack, commands (docs/alerts.md)."`
	Status     bool   `help:"Only tell how far what is sent by --to is: of the recorder that records into --dir now, or did last."`
	JSON       bool   `name:"json" help:"Print what is found, and what goes wrong, as JSON: one object a line."`
	kubeFlags  `embed:""`
	budgetFlag `embed:""`

	pods *kube.Kube // nil where this host is no node
}

// Help is printed by --help, above the flags.
func (*recordCmd) Help() string {
	return `Records until Ctrl-C or SIGTERM, and then writes what is left: the sums of each endpoint and second, requests that were slow or failed and a sample of the others, and a window for each minute, which is judged as slowray why does.

What was recorded is read back with --at: slowray why --at 12:03, slowray requests --at -10m. docs/record.md tells more.

With --status it does not record: it tells how far what is sent elsewhere is, and ends with 1 when a target fails or is 10 seconds behind.

Exit status: 0 ended as asked, 2 could not record.`
}

// Bounds of the windows: shorter ones cost too much to put together, longer ones
// say too late what happened.
const (
	shortestWindow = 5 * time.Second
	longestWindow  = 10 * time.Minute
)

// Validate is called by the command line parser.
func (c *recordCmd) Validate() error {
	if err := c.budgetFlag.validate(); err != nil {
		return err
	}
	if _, err := byteSize(c.MaxSize); err != nil {
		return fmt.Errorf("--max-size %s: %w", c.MaxSize, err)
	}
	if err := c.shipFlags.validate(); err != nil {
		return err
	}
	switch {
	case c.OTLPProfiles && c.OTLP == "":
		return errors.New("--experimental-otlp-profiles: goes with --otlp")
	case c.OTLPConventions && c.OTLP == "":
		return errors.New("--otlp-conventions: goes with --otlp")
	case c.Listen == "":
		return errors.New("--listen: is empty (off serves nothing)")
	case c.Dir == "":
		return errors.New("--dir: is empty")
	case c.MaxAge < time.Hour:
		return fmt.Errorf("--max-age %s: must be at least 1h", c.MaxAge)
	case c.Window < shortestWindow || c.Window > longestWindow:
		return fmt.Errorf("--window %s: must be %s to %s", c.Window, shortestWindow, longestWindow)
	case c.Slow != nil && *c.Slow <= 0:
		return fmt.Errorf("--slow %s: must be more than nothing", *c.Slow)
	}
	return nil
}

// The recorder's memory: it runs for weeks on hosts that need theirs.
const (
	recordMemory = 120 << 20 // bytes of heap, from where on it is collected ever more often
	recordGC     = 50        // percent
)

// Run records until it is asked to end.
func (c *recordCmd) Run(ctx context.Context, s *streams) error {
	if c.Status {
		return c.showStatus(s)
	}
	debug.SetGCPercent(recordGC)
	debug.SetMemoryLimit(recordMemory)
	signal.Ignore(syscall.SIGPIPE) // whoever reads the lines may leave
	page, err := listenPage(c.Listen, c.ListenName)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	defer page.close()
	if c.OTLP != "" { // before there is a directory
		if err := export.CheckURL(c.OTLP); err != nil {
			return fmt.Errorf("record: %w", err)
		}
	}
	var rules *alert.Config
	if c.Alerts != "" {
		if rules, err = alert.Load(c.Alerts); err != nil {
			return fmt.Errorf("record: --alerts: %w", err)
		}
	}
	size, _ := byteSize(c.MaxSize)
	told := newRecordLog(s, c.JSON)
	sent, err := c.ship(func(text string) { told.trouble(errors.New(text)) })
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	history, err := store.Open(c.Dir, store.Options{MaxBytes: size, MaxAge: c.MaxAge, Links: sent.links})
	if err != nil {
		return fmt.Errorf("record: %w", stateHint(err))
	}
	err = c.record(ctx, told, page, history, sent, rules)
	// What was added is written, whatever else went wrong.
	if closing := history.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// record records into a store, and tells others of it.
func (c *recordCmd) record(ctx context.Context, told *recordLog, page *servedPage, history *store.Store, sent *shipping, rules *alert.Config) error {
	told.targets, page.targets = sent.status, sent.status
	var rec *record.Recorder
	name, _ := os.Hostname()
	page.exporter = export.New(export.Options{Version: version(), Conventions: c.OTLPConventions, Host: name, Node: c.NodeName, Status: func() record.Status { return rec.Status() }, Targets: sent.status})
	sinks := []record.Sink{told, page.exporter}
	if sent.shipper != nil {
		sinks = append(sinks, &sent.runs)
	}
	var alerts sync.WaitGroup
	if rules != nil {
		dir := filepath.Join(filepath.Dir(filepath.Clean(c.Dir)), "alerts")
		told.alerts(dir, rules)
		a, err := alert.New(alert.Options{Config: rules, Dir: dir, Sent: told.tell, Host: cmp.Or(c.Host, name), Page: page.publicAddress(), Window: c.Window,
			Say: func(text string) { told.trouble(errors.New(text)) }})
		if err != nil {
			return err
		}
		sinks = append(sinks, a)
		// Until the last window was judged.
		sending, stop := context.WithCancel(context.WithoutCancel(ctx))
		alerts.Go(func() { a.Run(sending) })
		defer alerts.Wait()
		defer stop()
	}
	push := func(context.Context) {}
	if c.OTLP != "" {
		var err error
		push, err = page.exporter.Push(export.PushOptions{
			URL: c.OTLP, Headers: os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), Profiles: c.OTLPProfiles,
			Say: func(message string) { told.trouble(errors.New(message)) },
		})
		if err != nil {
			return err
		}
	}
	c.pods = c.start(ctx)
	defer c.pods.Close()
	rec, err := record.New(history, record.Options{
		Window: c.Window, Slow: value(c.Slow), Labels: c.Labels, Budget: c.share(), Silent: c.Silent, Version: version(), OwnNamespace: c.OwnNamespace,
		Names:   func() *host.Names { return namesWithContainers(c.pods) },
		Kube:    c.pods,
		Sinks:   sinks,
		Alive:   func() { record.Notify("WATCHDOG=1") },
		Trouble: told.trouble,
	})
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // nothing is recorded yet
	}
	rec.LeaveOut(page.port())
	served, err := page.serve(ctx, rec, c.Dir, told.trouble)
	if err != nil {
		rec.Close()
		return err
	}
	var pushed sync.WaitGroup
	pushed.Go(func() { push(ctx) })
	sent.begin(history)
	told.begin(c.Dir, page.address(), c.Window)
	record.Notify("READY=1")
	context.AfterFunc(ctx, func() { record.Notify("STOPPING=1") })
	rec.Run(ctx)
	sent.end()
	told.end(rec.Status())
	// Whoever is slow to take what is left does not hold up the end.
	ended := make(chan struct{})
	go func() {
		served()
		pushed.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(othersPatience):
	}
	return nil
}

// othersPatience is how long the page's readers and a collector may take at the
// end.
const othersPatience = 100 * time.Millisecond

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
