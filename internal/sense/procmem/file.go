package procmem

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// RootDir is the root directory that a process sees.
type RootDir struct{ rootfs.Root }

// openLimits is what finding one file may take.
var openLimits = budget.Limits{Files: 1}

// Root is that of a process below proc ("/proc").
func Root(proc string, pid int) RootDir {
	return RootAt(filepath.Join(proc, fmt.Sprint(pid), "root"))
}

// RootAt is a directory of this host; "/" is slowray's own root directory.
func RootAt(dir string) RootDir {
	return RootDir{rootfs.At(dir, budget.New(context.Background(), openLimits))}
}

// Open opens a regular file for reading, without ever blocking.
func (r RootDir) Open(name string) (*os.File, error) {
	f, err := r.With(budget.New(context.Background(), openLimits)).Open(name)
	if err != nil {
		return nil, err
	}
	return f.File, nil
}

// OpenFile opens the file behind a mapping of a process below proc ("/proc"):
// where the process sees it, and when it was deleted or another one put in its
// place, through the mapping. It opens nothing but regular files, and never
// blocks; who owns the process may still change what is in the file.
//
// Another one in its place may have its number, in another file system. Some file systems
// (btrfs) say another device of a file than of its mapping, so a file whose device differs
// is the second choice.
func OpenFile(proc string, pid int, m *Mapping) (*os.File, error) {
	var second *os.File
	name, deleted := strings.CutSuffix(m.Path, " (deleted)")
	if strings.HasPrefix(name, "/") && !deleted {
		if f, err := Root(proc, pid).Open(name); err == nil {
			device, inode := identityOf(f)
			switch {
			case inode != m.Inode:
				f.Close()
			case m.Device == "" || device == m.Device:
				return f, nil
			default:
				second = f
			}
		}
	}
	f, err := Root(proc, pid).OpenLink(filepath.Join(proc, fmt.Sprint(pid), "map_files", fmt.Sprintf("%x-%x", m.Start, m.End)))
	switch {
	case err == nil && second != nil:
		second.Close()
	case err != nil && second != nil:
		return second, nil
	case err != nil:
		return nil, err
	}
	return f.File, nil
}

// identityOf is the device of a file, as mappings have it, and its inode.
func identityOf(f *os.File) (device string, inode uint64) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return "", 0
	}
	return fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev)), st.Ino
}
