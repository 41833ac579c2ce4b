package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

// writePrivate writes a file that only whoever called sudo may read. It appears
// whole or not at all.
func writePrivate(name string, write func(io.Writer) error) (err error) {
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("write %s: not a regular file", name)
	}
	// A link keeps pointing: what it points to is replaced.
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	err = observe.WriteWhole(name, "", func(f *os.File) error {
		out := bufio.NewWriterSize(f, 1<<16)
		if err := write(out); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && os.Getuid() == 0 {
			return f.Chown(uid, -1)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// writable says early whether writePrivate will be able to write.
func writable(name string) error {
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("write %s: not a regular file", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".slowray-*")
	if path := new(fs.PathError); errors.As(err, &path) {
		err = path.Err // its path is one that nobody knows
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f.Close()
	return os.Remove(f.Name())
}
