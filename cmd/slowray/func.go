package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/sense/function"
)

type funcCmd struct {
	Target  string   `arg:"" name:"target" help:"A pid; a program or library, by path or name; or \"kernel\"."`
	Symbols []string `arg:"" optional:"" name:"symbol" help:"Functions, with * and ?; or usdt:PROVIDER:NAME, tracepoint:GROUP:NAME, syscall:NAME, kprobe:NAME."`

	For          time.Duration `default:"5s" placeholder:"D" help:"How long to watch (${default})."`
	PID          int           `name:"pid" placeholder:"N" help:"Only calls of this process: of a library, or of the kernel."`
	List         bool          `help:"Only list what can be watched (and matches SYMBOL)."`
	Arg          []string      `placeholder:"N:TYPE" sep:"none" help:"Show an argument of the slowest calls: its number from 1 (of a tracepoint: or its name), and int, uint, i32, u32, hex, bool, str or gostr; up to four times."`
	Slow         time.Duration `placeholder:"D" help:"List only calls that take at least so long."`
	Top          int           `default:"5" placeholder:"N" help:"How many of the slowest calls to list for each function (${default})."`
	Errors       string        `placeholder:"KIND" enum:",negative,null,nonzero" default:"" help:"Count results as errors that are negative, null or nonzero (system calls: always told)."`
	Count        bool          `help:"Only count: no durations, half the price."`
	MaxRate      int           `default:"200000" placeholder:"N" help:"Detach when there are more hits a second than this (${default}); an entry and a return are two."`
	ReturnProbes bool          `help:"Time functions by return probes also in programs that could throw an exception through them, which would end the program."`
	NoStacks     bool          `help:"Do not keep the stacks of the slowest calls."`
	Requests     bool          `help:"Also record the requests of the process, and say how much of the slow ones' time was spent inside."`
	JSON         bool          `name:"json" help:"Print JSON (schema slowray.func/1)."`

	args []function.Arg
}

// Help is printed by --help, above the flags.
func (*funcCmd) Help() string {
	return `Examples:

    slowray func 4711 'handle_*' --arg 1:str      a process and its libraries
    slowray func libc.so.6 getaddrinfo --pid 4711 a library, in one process
    slowray func 4711 'usdt:*:query'              static probes: begin to end
    slowray func 4711 syscall:fsync               system calls and errors
    slowray func kernel tracepoint:sched:sched_process_exec --arg filename:str

Each entry and each return is a breakpoint that costs about a microsecond, which is measured and printed. No file is changed, and nothing is left behind, however slowray ends. docs/func.md has more.

Exit status: 0 watched, 2 could not.`
}

// Validate is called by the command line parser.
func (c *funcCmd) Validate() error {
	switch {
	case c.For <= 0 || c.For > 24*time.Hour:
		return fmt.Errorf("--for %s: must be more than 0 and at most a day", c.For)
	case c.Slow < 0:
		return fmt.Errorf("--slow %s: must not be negative", c.Slow)
	case c.PID < 0:
		return fmt.Errorf("--pid %d: must be positive", c.PID)
	case c.Top < 0 || c.Top > 1000:
		return fmt.Errorf("--top %d: must be 0 to 1000", c.Top)
	case c.MaxRate < 100 || c.MaxRate > 100_000_000:
		return fmt.Errorf("--max-rate %d: must be 100 to 100000000", c.MaxRate)
	case len(c.Arg) > function.MaxArgs:
		return fmt.Errorf("--arg: at most %d", function.MaxArgs)
	}
	for _, text := range c.Arg {
		a, err := function.ParseArg(text)
		if err != nil {
			return fmt.Errorf("--arg %w", err)
		}
		c.args = append(c.args, a)
	}
	return nil
}

// Run watches and reports.
func (c *funcCmd) Run(ctx context.Context, s *streams) error {
	opt := function.Options{
		Target: c.Target, PID: c.PID, Symbols: c.Symbols, Args: c.args, Slow: c.Slow, Top: c.Top, MaxRate: c.MaxRate,
		Errors: c.Errors, CountOnly: c.Count, ReturnProbes: c.ReturnProbes, NoStacks: c.NoStacks, Requests: c.Requests,
	}
	if c.List {
		return c.list(ctx, s.out, opt)
	}
	if len(c.Symbols) == 0 {
		return errors.New("func: which function? Give a SYMBOL, or --list to see what there is")
	}
	plan, err := function.Prepare(ctx, opt)
	if err != nil {
		return funcError(err)
	}
	defer plan.Close()
	t, err := function.Start(plan)
	if err != nil {
		return funcError(err)
	}
	defer t.Close()
	p := newProgress(s.err, c.For)
	functions, _ := plan.Size()
	p.what = figure.Counted(functions, "function")
	out, err := t.Run(ctx, c.For, func(elapsed time.Duration) {
		if c.For > 2*time.Second {
			p.show(elapsed)
		}
	})
	p.clear()
	if err != nil {
		return funcError(err)
	}
	if c.JSON {
		err = report.FunctionsJSON(s.out, out)
	} else {
		err = report.Functions(s.out, out, terminalStyle(s.out))
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// list prints what can be watched, one a line.
func (c *funcCmd) list(ctx context.Context, out io.Writer, opt function.Options) error {
	found, err := function.List(ctx, opt, c.Symbols)
	if err != nil {
		return funcError(err)
	}
	w := bufio.NewWriter(out)
	module := ""
	for i := range found {
		f := &found[i]
		if f.Module != module && f.Module != "" {
			module = f.Module
			fmt.Fprintf(w, "# %s\n", printable.Text(module))
		}
		line := printable.Text(f.Symbol)
		if f.Note != "" {
			line += "  # " + printable.Text(f.Note)
		}
		fmt.Fprintln(w, line)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write list: %w", err)
	}
	if len(found) == 0 {
		return errors.New("func: nothing that can be watched matches")
	}
	return nil
}

// funcError says what to do about an error.
func funcError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("func: %w (needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_SYS_ADMIN)", err)
	}
	return fmt.Errorf("func: %w", err)
}
