package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/slowray/slowray/internal/safefile"
)

// writePrivate writes a file that only whoever called sudo may read. It appears
// whole or not at all, and through no link of somebody else's.
func writePrivate(name string, write func(io.Writer) error) error {
	err := safefile.Write(name, func(f *os.File) error {
		out := bufio.NewWriterSize(f, 1<<16)
		if err := write(out); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if uid, err := strconv.Atoi(os.Getenv("SUDO_UID")); err == nil && os.Getuid() == 0 {
			return f.Chown(uid, -1) // this file, whatever its name leads to by then
		}
		return nil
	})
	return notWritten(name, err)
}

// notWritten says it of the file that was asked for, whatever directory on the way
// to it was in the way.
func notWritten(name string, err error) error {
	var at *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at):
		return fmt.Errorf("write %s: %w", name, at.Err)
	}
	return fmt.Errorf("write %w", err)
}

// writable says early whether writePrivate will be able to write.
func writable(name string) error {
	return notWritten(name, safefile.Writable(name))
}
