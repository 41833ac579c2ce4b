package budget

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Head is the first max bytes of a file that the kernel makes up, as those of
// procfs: some of them have no end, as the environment of a process that moved
// its bounds (PR_SET_MM_MAP), or millions of lines, as a mountinfo.
func Head(name string, max int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
}

// Names is at most max names in a directory that the kernel makes up, as those of
// procfs, in no order: a process may have millions of descriptors or threads.
func Names(dir string, max int) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(max)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
