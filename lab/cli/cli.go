// Package cli is the command line of slowray-lab: slowray lab without slowray. It injects
// incidents and simulates fleets; slowray, which it judges, is the program next to it.
package cli

import (
	"context"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/lab"
)

// streams is where a command writes: results and messages.
type streams struct{ out, err io.Writer }

// Main is the whole program.
func Main() {
	debug.SetGCPercent(400)
	lab.InitMain() // when this process is part of a running lab, it ends in here
	os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs a command line of slowray lab and gives its exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	parser, err := kong.New(&commandline.Lab{},
		kong.Name("slowray lab"),
		kong.Description("Incidents to try slowray on, in private network namespaces."),
		kong.Writers(stdout, stderr),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), commandline.Durations{}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic(err) // a flag is declared wrong: a bug, not an input
	}
	parsed, status := commandline.Parse(parser, args, "")
	if parsed == nil {
		return status
	}
	return commandline.Execute(stderr, os.Exit, func(begin func() context.Context) error {
		s := &streams{stdout, stderr}
		switch command := parsed.Selected().Target.Addr().Interface().(type) {
		case *commandline.LabList:
			return list(s)
		case *commandline.LabRun:
			return run(begin(), s, command)
		case *commandline.LabBench:
			return bench(begin(), s, command)
		case *commandline.LabDemo:
			return demo(begin(), s, command)
		case *commandline.LabShell:
			return shell(begin(), s, command)
		case *commandline.LabFleet:
			return shipFleet(begin(), s, command)
		case *commandline.LabClean:
			return lab.Clean()
		}
		panic("a command that cannot be run: " + parsed.Command()) // a bug, not an input
	})
}
