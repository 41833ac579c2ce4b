package commandline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/alecthomas/kong"
)

// unfold makes flags of the two commands that people type for them: "help why" is
// "why --help", "version" is "--version".
func unfold(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "version":
		return []string{"--version"}
	}
	return args
}

// unknownCommand is the error for a first word that is no command, with the one that it is
// most like. Where a command is the default, kong takes such a word for an argument of it.
func unknownCommand(model *kong.Application, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	best, least := "", 3 // of more mistakes nobody can tell what was meant
	for _, c := range model.Children {
		if c.Type != kong.CommandNode || c.Hidden {
			continue
		}
		if c.Name == args[0] || slices.Contains(c.Aliases, args[0]) {
			return nil
		}
		if d := levenshtein.ComputeDistance(args[0], c.Name); d < least && d < len(c.Name) {
			best, least = c.Name, d
		}
	}
	if best == "" {
		return fmt.Errorf("unknown command %q", args[0])
	}
	return fmt.Errorf("unknown command %q, did you mean %q?", args[0], best)
}
