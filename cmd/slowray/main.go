// Command slowray says why a service on this host is slow.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/watch"
)

// Exit statuses, as of diff(1).
const (
	exitNothing  = commandline.ExitNothing
	exitFindings = commandline.ExitFindings
	exitFailed   = commandline.ExitFailed
)

// noticeDir is where every run looks for changes of a killed one.
var noticeDir = journal.DefaultDir

// exit carries an exit status out of a command that did its work.
type exit = commandline.Exit

// cli is the command line.
type cli struct {
	Why      whyCmd      `cmd:"" default:"withargs" help:"Watch this host, then name the causes of slow and failed requests."`
	Replay   replayCmd   `cmd:"" help:"Judge a saved observation again, on any machine, without root."`
	Compare  compareCmd  `cmd:"" help:"Put two saved observations side by side: what got better, what worse, what is set otherwise."`
	Requests requestsCmd `cmd:"" help:"One line for each request on a TCP connection, with where its time went."`
	Top      topCmd      `cmd:"" help:"Show live, per endpoint, how many requests there are and where their time goes."`
	Wait     waitCmd     `cmd:"" help:"Show what a process waits for now, hop by hop to the last."`
	Drops    dropsCmd    `cmd:"" help:"Show where packets die on their way in and out, layer by layer."`
	Func     funcCmd     `cmd:"" help:"Count and time the calls of any function: of a program, a library, or the kernel."`
	Record   recordCmd   `cmd:"" help:"Record all the time: history on disk, a page, metrics."`
	Page     pageCmd     `cmd:"" help:"Serve the page of a recorded history, without recording."`
	Flame    flameCmd    `cmd:"" help:"Record call stacks, on the CPU or waiting, and write flame graphs."`
	Doctor   doctorCmd   `cmd:"" help:"Try what this kernel, these rights and this host allow, and what it costs."`
	Tune     tuneCmd     `cmd:"" help:"Fix a service step by step under load: find, change one thing, measure, keep what helps."`
	Causes   causesCmd   `cmd:"" help:"List the causes that slowray knows, or tell all about one."`
	Prove    proveCmd    `cmd:"" help:"Prove a cause: change one thing, measure before, with and after it, and put it back."`
	Undo     undoCmd     `cmd:"" help:"Put back what slowray has changed and left, or list it."`
	Fleet    fleetCmd    `cmd:"" help:"Many hosts: their histories in one ClickHouse."`
	MCP      mcpCmd      `cmd:"" name:"mcp" help:"Answer assistants: a server of the Model Context Protocol that only reads."`
	Alert    alertCmd    `cmd:"" help:"Alerts of slowray record: try the receivers, show what is open."`
	Lab      labCmd      `cmd:"" help:"Incidents to try slowray on, in private network namespaces."`

	Completion completionCmd `cmd:"" help:"Print the script by which a shell completes slowray: bash, zsh or fish."`
	Man        manCmd        `cmd:"" help:"Print the manual page: slowray man | man -l -"`
	Complete   completeCmd   `cmd:"" hidden:"" help:"What the scripts of slowray completion ask."`

	Version      bool `help:"Print the version and exit."`
	EndWithInput bool `hidden:"" help:"End as after Ctrl-C when standard input ends: what kubectl slowray has in place of a signal."`
}

// largeHeap is from how many bytes on the heap is collected ever more often, however
// seldom otherwise: what others make slowray read is bounded, and garbage must not be
// several times as much. Commands that need more for their work say so.
const largeHeap = 180 << 20

func main() {
	// A short-lived program with a small heap: collecting less often is worth
	// the few megabytes, but not where something makes the heap large.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(largeHeap)
	joinHost()
	journal.WatchdogMain() // when this process keeps a lease, it ends in here
	if !openStatus() && needsFront(os.Args[1:]) {
		os.Exit(front(os.Args[1:], os.Stderr))
	}
	leave(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	c := new(cli)
	parsed, status := commandline.Parse(newParser(c, stdout, stderr), joinNegative(args), "slowray "+version())
	if parsed == nil {
		return status
	}
	if c.EndWithInput {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		}()
	}
	if notice := journal.Notice(noticeDir); notice != "" && !strings.HasPrefix(parsed.Command(), "undo") {
		fmt.Fprintf(stderr, "slowray: %s\n", notice)
	}
	return commandline.Execute(stderr, leave, func(begin func() context.Context) error {
		return execute(parsed, &streams{stdout, stderr}, begin)
	})
}

// execute runs the command that was parsed, or the one that it is a command of. Those
// that can be ended early have a context.
func execute(parsed *kong.Context, s *streams, begin func() context.Context) error {
	for n := parsed.Selected(); n != nil; n = n.Parent {
		switch command := n.Target.Addr().Interface().(type) {
		case interface {
			Run(context.Context, *streams) error
		}:
			return command.Run(begin(), s)
		case interface{ Run(*streams) error }:
			return command.Run(s)
		case interface {
			Run(*kong.Context, *streams) error
		}:
			return command.Run(parsed, s)
		}
	}
	panic("a command that cannot be run: " + parsed.Command()) // a bug, not an input
}

// newParser makes the command line of c.
func newParser(c *cli, stdout, stderr io.Writer) *kong.Kong {
	parser, err := kong.New(c,
		kong.Name("slowray"),
		kong.Description("An X-ray for slow services: says why a service on this host is slow, with the evidence.\n\nWithout a command it watches the whole host for ten seconds: slowray [--for 30s] [--port N] [--json] [--save FILE] (all flags: slowray why --help).\n\nExit status: 0 nothing found, 1 something found, 2 could not run."),
		kong.Writers(stdout, stderr),
		kong.Vars{"state": journal.DefaultDir, "history": historyDir},
		kong.TypeMapper(reflect.TypeFor[time.Duration](), commandline.Durations{}),
		kong.KindMapper(reflect.Int, commandline.Numbers{}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // the structure above is wrong: a bug, not an input
	}
	return parser
}

// streams is where a command writes: results and messages.
type streams struct{ out, err io.Writer }

// built is the version that the linker was given: packaging/package sets it.
var built string

// version is what was given when this was built, else the module's version, or the
// commit it was built from.
func version() string {
	if built != "" {
		return built
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := strings.Trim(info.Main.Version, "()")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "devel") {
			v = s.Value[:min(12, len(s.Value))]
		}
	}
	if v == "" {
		return "devel"
	}
	return v
}

// afterLook is the context of judging what was watched.
func afterLook(ctx context.Context) (context.Context, context.CancelFunc) {
	return budget.Grace(ctx, watch.JudgeGrace)
}
