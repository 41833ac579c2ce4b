// Package cli is the command line of slowray-lab: slowray lab without slowray. It plants
// incidents and simulates fleets; slowray, which it judges, is the program next to it.
package cli

import (
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
	status := -1
	parser, err := kong.New(&commandline.Lab{},
		kong.Name("slowray lab"),
		kong.Description("Incidents to try slowray on, in private network namespaces."),
		kong.Writers(stdout, stderr),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), commandline.Durations{}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(code int) { status = code }),
	)
	if err != nil {
		panic(err) // a flag is declared wrong: a bug, not an input
	}
	parsed, err := parser.Parse(args)
	if status >= 0 {
		return status // --help
	}
	if err != nil {
		return commandline.ParseError(stderr, "slowray lab", err)
	}
	return commandline.Execute(parsed, stderr, os.Exit, func() error {
		command := parsed.Selected()
		out, err := parsed.Call(commands[command.Name], command.Target.Addr().Interface(), &streams{stdout, stderr})
		if err == nil {
			err, _ = out[0].(error)
		}
		return err
	})
}

// commands are the functions that run commands, by the name of the command. Each takes
// what it needs of the context, the streams and its flags.
var commands = map[string]any{"list": list, "run": run, "demo": demo, "shell": shell, "fleet": shipFleet, "clean": lab.Clean}
