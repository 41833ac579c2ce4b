package commandline

import (
	"fmt"
	"slices"
	"strconv"
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

// unknownCommand is the error for a word that is no command, with the one that it is
// most like. Where a command is the default, kong takes such a word for an argument of it.
func unknownCommand(model *kong.Node, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	var names []string
	for _, c := range model.Children {
		if c.Type != kong.CommandNode || c.Hidden {
			continue
		}
		if c.Name == args[0] || slices.Contains(c.Aliases, args[0]) {
			if len(c.Children) == 0 {
				return nil
			}
			return unknownCommand(c, args[1:])
		}
		names = append(names, c.Name)
	}
	return fmt.Errorf("unknown command %q%s", args[0], DidYouMean(args[0], names))
}

// DidYouMean asks whether the one of names was meant that a word is most like, or those that
// begin with it; empty where there is none.
func DidYouMean(word string, names []string) string {
	var best []string
	least := max(3, len(word)/4+1) // of more mistakes nobody can tell what was meant
	for _, name := range names {
		if d := levenshtein.ComputeDistance(word, name); d < least && d < len(name) {
			best, least = []string{name}, d
		}
	}
	const most = 3
	for _, name := range names {
		if len(word) > 2 && strings.HasPrefix(name, word) && !slices.Contains(best, name) && len(best) < most {
			best = append(best, name)
		}
	}
	if len(best) == 0 {
		return ""
	}
	for i := range best {
		best[i] = strconv.Quote(best[i])
	}
	return fmt.Sprintf(", did you mean %s?", strings.Join(best, " or "))
}
