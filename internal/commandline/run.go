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

// ParseError prints what is wrong with a command line of the program of that name, on
// one line with the help of the command that it was, and gives the exit status.
func ParseError(stderr io.Writer, program string, err error) int {
	line, help := printable.Text(err.Error()), program+" --help"
	var wrong *kong.ParseError
	if errors.As(err, &wrong) && wrong.Context != nil {
		if command := wrong.Context.Selected(); command != nil {
			help = program + " " + command.Path() + " --help"
		}
	}
	if strings.HasSuffix(line, ")") { // no second bracket after one
		line = strings.TrimSuffix(line, ")") + "; see " + help + ")"
	} else {
		line += " (see " + help + ")"
	}
	fmt.Fprintf(stderr, "slowray: %s\n", line)
	return ExitFailed
}

// Execute runs what was parsed and gives its exit status. Only commands that can be ended
// early ask for a context; when they have been told to end and do not end in time, leave
// ends the process. An error is one line, whatever names of files and processes are in it.
func Execute(parsed *kong.Context, stderr io.Writer, leave func(status int), run func() error) int {
	ended := func() {}
	defer func() { ended() }()
	if err := parsed.BindToProvider(func() (context.Context, error) {
		ctx := UntilSignal(sameSignal)
		ended = endAfter(ctx, lastWord, stderr, leave)
		return ctx, nil
	}); err != nil {
		panic(err) // the provider's type is wrong: a bug, not an input
	}
	err := run()
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
