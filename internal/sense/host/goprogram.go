package host

import (
	"debug/elf"
	"fmt"
	"path/filepath"
)

// IsGo says whether a process executes a Go program, which Go's linker marks
// with a section of its own (go version -m, Go 1.18). It is false where the
// file may not be read.
func (fs FS) IsGo(pid int) bool {
	f, err := elf.Open(filepath.Join(fs.Proc, fmt.Sprint(pid), "exe"))
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Section(".go.buildinfo") != nil
}
