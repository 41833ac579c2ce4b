package host

import (
	"context"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

// isGoLimits is what may be read to tell whether a program is one of Go: the
// headers of its file.
var isGoLimits = budget.Limits{Bytes: 16 << 20, Wall: 50 * time.Millisecond}

// IsGo says whether a process executes a Go program, which Go's linker marks
// with a section of its own (go version -m, Go 1.18). It is false where the
// file may not be read.
func (fs FS) IsGo(pid int) bool {
	f, err := fs.OpenExe(pid)
	if err != nil {
		return false
	}
	defer f.Close()
	b := budget.New(context.Background(), isGoLimits)
	e, err := elffile.Open(b, f)
	if err != nil {
		elffile.Refuse(b, f, err)
		return false
	}
	return e.IsGo()
}
