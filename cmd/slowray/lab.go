package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/safefile"
)

// labProgram is the program that holds the lab, in the directory of slowray.
const labProgram = "slowray-lab"

// labCmd is the lab's command line, which slowray-lab obeys.
type labCmd struct{ commandline.Lab }

// Run makes this process slowray-lab. It comes back only where that cannot be done.
func (*labCmd) Run(k *kong.Context, _ *streams) error {
	path, err := safefile.Sibling(labProgram)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if exe, errExe := os.Executable(); errExe == nil {
			path = filepath.Join(filepath.Dir(exe), labProgram)
		}
		return fmt.Errorf("lab: there is no %s (in a checkout of slowray: make build, or go build -o %[1]s ./cmd/slowray-lab)", path)
	case err != nil:
		return fmt.Errorf("lab: root runs no %s that others can change: %w", labProgram, err)
	}
	err = syscall.Exec(path, append([]string{labProgram}, k.Args[1:]...), os.Environ())
	return fmt.Errorf("lab: %w", &fs.PathError{Op: "exec", Path: path, Err: err})
}
