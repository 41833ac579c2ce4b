package commandline

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// TerminalColumns is the width of the terminal behind w, if it is one.
func TerminalColumns(w io.Writer) (int, bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

// Columns is how wide text for people is: as the terminal behind w, or else as $COLUMNS says,
// within reason; 0 where nobody says.
func Columns(w io.Writer) int {
	columns, _ := TerminalColumns(w)
	if columns <= 0 {
		columns, _ = strconv.Atoi(os.Getenv("COLUMNS")) // what is no number says nothing
	}
	if columns <= 0 {
		return 0
	}
	return min(max(columns, 40), 140)
}
