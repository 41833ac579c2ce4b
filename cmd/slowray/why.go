package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/sense/packets"
	"github.com/slowray/slowray/internal/sense/tcprt"
	"github.com/slowray/slowray/internal/shell"
	"github.com/slowray/slowray/internal/watch"
)

type whyCmd struct {
	For        *time.Duration `placeholder:"D" help:"How long to watch (10s). With --at: judge so much of the history together, instead of the window of that moment."`
	Port       *int           `placeholder:"N" help:"Only the service on this TCP port, and what it calls."`
	PID        *int           `name:"pid" placeholder:"N" help:"Only the services of this process, and what they call."`
	Unit       *string        `placeholder:"X" help:"Only the services of this systemd unit, and what they call."`
	Container  *string        `placeholder:"X" help:"Only the services of this container (name or id), and what they call."`
	Silent     bool           `help:"Ask no server for its status: Redis, memcached and HAProxy are asked otherwise, where they need no password."`
	Save       string         `placeholder:"FILE" help:"Save the observation, for slowray replay."`
	Redact     bool           `help:"Leave addresses, the host's name, command lines and log lines out of what is saved; file paths stay."`
	podFlag    `embed:""`
	kubeFlags  `embed:""`
	budgetFlag `embed:""`
	atFlags    `embed:""`
	form       `embed:""`
}

// defaultWindow is how long is watched where nothing else was asked for.
const defaultWindow = 10 * time.Second

// minWindow is the shortest window in which rates mean anything.
const minWindow = time.Second

// Validate is called by the command line parser.
func (c *whyCmd) Validate() error {
	if err := c.budgetFlag.validate(); err != nil {
		return err
	}
	if err := cmp.Or(c.atFlags.validate(), c.podFlag.validate()); err != nil {
		return err
	}
	switch {
	case c.For != nil && *c.For < minWindow:
		return fmt.Errorf("--for %s: must be at least %s", *c.For, minWindow)
	case c.For != nil && *c.For > time.Hour && c.At == nil:
		return fmt.Errorf("--for %s: must be at most an hour", *c.For)
	case c.For != nil && *c.For > longestRange:
		return fmt.Errorf("--for %s: must be at most %s", *c.For, longestRange)
	case c.Port != nil && (*c.Port < 1 || *c.Port > 65535):
		return fmt.Errorf("--port %d: must be 1 to 65535", *c.Port)
	case c.Redact && c.Save == "":
		return errors.New("--redact goes with --save FILE")
	case c.PID != nil && *c.PID < 1:
		return fmt.Errorf("--pid %d: must be positive", *c.PID)
	// An empty name, as of an unset variable, must not mean the whole host.
	case c.Unit != nil && *c.Unit == "":
		return errors.New("--unit: is empty")
	case c.Container != nil && *c.Container == "":
		return errors.New("--container: is empty")
	}
	return nil
}

// Run watches and reports.
func (c *whyCmd) Run(ctx context.Context, s *streams) error {
	if c.Save != "" {
		if err := writable(c.Save); err != nil {
			return err
		}
	}
	if c.At != nil {
		return c.runAt(ctx, s)
	}
	window := defaultWindow
	if c.For != nil {
		window = *c.For
	}
	pods := c.start(ctx)
	defer pods.Close()
	bar := newProgress(s.err, window)
	o, err := watch.Run(ctx, watch.Options{
		For:      window,
		Filter:   c.filter(),
		Version:  version(),
		Silent:   c.Silent,
		Kube:     pods,
		Budget:   c.share(),
		Progress: bar.show,
	})
	bar.clear()
	if err != nil {
		return err
	}
	judging, cancel := afterLook(ctx)
	defer cancel()
	r := diagnose.Diagnose(judging, o, diagnose.Live)
	c.recorded(&r)
	status := printReport(&r, &c.form, s)
	if c.Save != "" {
		if err := c.save(o); err != nil {
			return err
		}
	}
	return status
}

func (c *whyCmd) filter() observe.Filter {
	return observe.Filter{Port: value(c.Port), PID: value(c.PID), Unit: value(c.Unit), Container: value(c.Container), Pod: c.ref()}
}

// runAt judges what the history has of a time.
func (c *whyCmd) runAt(ctx context.Context, s *streams) error {
	windows, err := c.windows(s, value(c.For))
	if err != nil {
		return err
	}
	if len(windows) > 1 && c.Save != "" {
		return errors.New("--save goes with one window: leave --for out")
	}
	report, o, err := judgeWindows(ctx, s, windows, c.filter())
	if err != nil {
		return err
	}
	if err := c.complete(ctx, report, windows, c.filter()); err != nil {
		return err
	}
	status := printReport(report, &c.form, s)
	if c.Save != "" {
		if err := c.save(o); err != nil {
			return err
		}
	}
	return status
}

// value is what a flag was set to, or the zero value.
func value[T any](flag *T) T {
	if flag == nil {
		var zero T
		return zero
	}
	return *flag
}

// save writes the observation for replay by whoever called sudo.
func (c *whyCmd) save(o *observe.Observation) error {
	if c.Redact {
		var err error
		if o, err = observe.Redact(o); err != nil {
			return err
		}
	}
	return writePrivate(c.Save, func(w io.Writer) error { return observe.Write(w, o) })
}

type replayCmd struct {
	File    string `arg:"" optional:"" complete:"files" help:"A file made with slowray why --save, or a capture of packets (pcap, pcapng) or log of TCPRT (version 6), also compressed."`
	Port    []int  `placeholder:"N" sep:"," help:"Of a capture or log: only requests answered at this TCP port; may be repeated."`
	atFlags `embed:""`
	form    `embed:""`
}

// Validate is called by the command line parser.
func (c *replayCmd) Validate() error {
	switch {
	case c.File == "" && c.At == nil:
		return errors.New("give a FILE, or a time with --at")
	case c.File != "" && c.At != nil:
		return errors.New("a FILE and --at: give one of them")
	}
	return checkPorts(c.Port)
}

// Run judges the saved observation, or what a capture of packets tells.
func (c *replayCmd) Run(ctx context.Context, s *streams) error {
	if c.At != nil {
		why := whyCmd{form: c.form, atFlags: c.atFlags}
		if len(c.Port) > 1 {
			return errors.New("replay: --at takes one --port")
		} else if len(c.Port) == 1 {
			why.Port = &c.Port[0]
		}
		return why.runAt(ctx, s)
	}
	if tcprt.Recognises(c.File) {
		o, err := tcprt.Observe(c.File, version(), tcprt.Options{Ports: c.Port})
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		return judge(ctx, o, &c.form, s)
	}
	if st, err := os.Stat(c.File); err == nil && st.IsDir() {
		return fmt.Errorf("replay: %s is a directory: of a history, %s judges a window, %s shows all", c.File,
			shell.Line("slowray why --at T --dir %s", shell.Path(c.File)), shell.Line("slowray page --dir %s", shell.Path(c.File)))
	}
	if packets.Recognises(c.File) {
		o, err := packets.Observe(c.File, version(), packets.Options{Ports: c.Port})
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		return judge(ctx, o, &c.form, s)
	}
	if len(c.Port) > 0 {
		return errors.New("replay: --port is for captures of packets and logs of TCPRT; a saved observation has the filter that it was made with")
	}
	o, err := observe.Load(c.File)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return judge(ctx, o, &c.form, s)
}

// judge prints the report of what was saved; its error is the exit status.
func judge(ctx context.Context, o *observe.Observation, as *form, s *streams) error {
	r := diagnose.Diagnose(ctx, o, diagnose.Saved)
	return printReport(&r, as, s)
}

// form is how a report is printed.
type form struct {
	All          bool `short:"v" help:"Print everything: all evidence, every endpoint, and why each cause is ruled out."`
	JSON         bool `name:"json" help:"Print the report as JSON."`
	JSONAndText  bool `name:"json-and-text" hidden:"" help:"Print the report as JSON, and then as text: kubectl slowray ranks nodes by the one and shows the other."`
	languageFlag `embed:""`
}

// printReport prints a report; its error is the exit status.
func printReport(r *diagnose.Report, as *form, s *streams) error {
	var err error
	if as.JSON || as.JSONAndText {
		err = report.JSON(s.out, r)
	}
	if err == nil && (!as.JSON || as.JSONAndText) {
		style := terminalStyle(s.out)
		style.All = as.All
		if style.Language, err = as.language(); err == nil {
			err = report.Text(s.out, r, style)
		}
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	switch {
	case len(r.Findings) > 0:
		return exit(exitFindings)
	case r.CutShort != "", report.Undecided(r):
		return exit(exitFailed) // there may be something
	}
	return nil
}

// textColumns is how wide a report is, also where nobody says.
func textColumns(w io.Writer) int { return cmp.Or(commandline.Columns(w), 100) }

// terminalStyle is colour and width for a terminal, plain text otherwise.
func terminalStyle(w io.Writer) report.Style {
	_, terminal := commandline.TerminalColumns(w)
	_, plain := os.LookupEnv("NO_COLOR") // no-color.org
	style := report.Style{Color: terminal && !plain && !commandline.Plain(), Width: commandline.Columns(w)}
	if terminal {
		style.Program = calledAs(os.Args[0])
	}
	return style
}

// calledAs is how to call this program again, empty where the shell finds it by its name.
func calledAs(arg0 string) string {
	if _, err := exec.LookPath("slowray"); err == nil || !strings.ContainsRune(arg0, filepath.Separator) {
		return ""
	}
	return shell.Line("%s", shell.Path(arg0)).String()
}

// progress shows on a terminal how far the window is, and on a pipe says once
// that slowray is watching.
type progress struct {
	w       io.Writer
	what    string // is watched
	total   time.Duration
	stage   *commandline.Stage
	started bool
}

func newProgress(w io.Writer, total time.Duration) *progress {
	return &progress{w: w, what: "this host", total: total}
}

// show is called as the window begins, and may be called again.
func (p *progress) show(time.Duration) {
	if p.started {
		return
	}
	p.started = true
	if commandline.Redraws(p.w) {
		p.stage = commandline.NewTimedStage(p.w, "watching "+p.what, "Ctrl-C: report now", p.total)
	} else {
		fmt.Fprintf(p.w, "slowray: watching %s for %s\n", p.what, p.total)
	}
}

func (p *progress) clear() {
	if p.stage != nil {
		p.stage.Clear()
	}
}
