package commandline

import (
	"fmt"
	"slices"
	"strings"

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
		if d := editDistance(args[0], c.Name); d < least && d < len(c.Name) {
			best, least = c.Name, d
		}
	}
	if best == "" {
		return fmt.Errorf("unknown command %q", args[0])
	}
	return fmt.Errorf("unknown command %q, did you mean %q?", args[0], best)
}

// editDistance is how many letters are to be put in, left out, changed or swapped with the
// next one to make b of a (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
