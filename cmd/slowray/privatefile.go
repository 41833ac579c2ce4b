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
	f, err := os.CreateTemp(filepath.Dir(name), ".slowray-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", name, err)
		}
	}()
	out := bufio.NewWriterSize(f, 1<<16)
	if err := write(out); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && os.Getuid() == 0 {
		if err := f.Chown(uid, -1); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
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
