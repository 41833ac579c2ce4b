package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/printable"
)

// Exit statuses, as of diff(1).
const (
	ExitNothing  = 0 // nothing found
	ExitFindings = 1 // something found
	ExitFailed   = 2 // could not run
)

// Exit carries an exit status out of a command that did its work.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Parse is what the command line says, or nil and the exit status where there is nothing
// to run: help or the version was asked for and printed, or the line is wrong, which is
// printed too.
//
// It does without kong's own Parse and Run. They look for methods by name, and then the
// linker has to keep every exported method of every type, which is a sixth of slowray.
func Parse(parser *kong.Kong, args []string, version string) (parsed *kong.Context, status int) {
	args = unfold(args)
	parsed, err := kong.Trace(parser, args)
	if err == nil {
		err = parsed.Error
	}
	if err != nil {
		if unknown := unknownCommand(parser.Model.Node, args); unknown != nil {
			help := "slowray help"
			if at := parsed.Selected(); at != nil && len(at.Children) > 0 {
				help = parser.Model.Name + " " + at.Path() + " --help"
			}
			fmt.Fprintf(parser.Stderr, "slowray: %s (see %s)\n", printable.Text(unknown.Error()), help)
			return nil, ExitFailed
		}
		return nil, refuse(parsed, err)
	}
	switch asked(parsed) {
	case "help":
		err = parsed.PrintUsage(false)
	case "version":
		_, err = fmt.Fprintln(parser.Stdout, version)
	default:
		if err = apply(parsed); err == nil {
			return parsed, ExitNothing
		}
	}
	if err != nil {
		return nil, refuse(parsed, err)
	}
	return nil, ExitNothing
}

// apply sets the flags of a command to what the line says, and checks them.
func apply(parsed *kong.Context) error {
	if err := parsed.Reset(); err != nil {
		return err
	}
	if err := parsed.Resolve(); err != nil {
		return err
	}
	if _, err := parsed.Apply(); err != nil {
		return err
	}
	return parsed.Validate()
}

// asked is the name of the flag by which something is asked for in place of a command.
func asked(parsed *kong.Context) string {
	for _, p := range parsed.Path {
		if p.Flag != nil && (p.Flag.Name == "help" || p.Flag.Name == "version") {
			return p.Flag.Name
		}
	}
	return ""
}

// refuse prints what is wrong with a command line, on one line with the help of the
// command that it was, and gives the exit status.
func refuse(parsed *kong.Context, err error) int {
	help := parsed.Model.Name
	line := printable.Text(err.Error())
	if command := parsed.Selected(); command != nil {
		help += " " + command.Path()
		if strings.HasPrefix(line, `expected "<`) {
			line += ": " + help
			for _, p := range command.Positional {
				line += " " + p.Summary()
			}
		}
	}
	if flag, _, missing := strings.Cut(line, `: expected `); missing && strings.Contains(line, `but got "EOL"`) {
		line = flag + " needs a value"
	}
	help += " --help"
	if strings.HasSuffix(line, ")") { // no second bracket after one
		line = strings.TrimSuffix(line, ")") + "; see " + help + ")"
	} else {
		line += " (see " + help + ")"
	}
	fmt.Fprintf(parsed.Stderr, "slowray: %s\n", line)
	return ExitFailed
}

// Execute runs a command and gives its exit status. Only commands that can be ended early
// ask for a context; when they have been asked to end and do not end in time, leave ends
// the process. An error is one line, whatever names of files and processes are in it.
func Execute(stderr io.Writer, leave func(status int), run func(begin func() context.Context) error) int {
	ended := func() {}
	defer func() { ended() }()
	err := run(func() context.Context {
		ctx := UntilSignal(sameSignal)
		ended = endAfter(ctx, lastWord, stderr, leave)
		return ctx
	})
	var status Exit
	switch {
	case err == nil:
		return ExitNothing
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintf(stderr, "slowray: %s\n", printable.Text(err.Error()))
	return ExitFailed
}
