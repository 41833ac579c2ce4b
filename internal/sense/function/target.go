package function

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// ErrNoProcess says that there is no process with a number.
var ErrNoProcess = errors.New("no such process")

// file is an ELF file that may hold functions.
type file struct {
	name string // as the target's own mount namespace has it
	open string // where it is found; "" of one that is found by its mapping
	pid  int    // that has mapped it, 0 = none in particular
	at   procmem.Mapping
}

// handle opens the file, also one that was deleted, or is in another mount
// namespace.
func (f *file) handle() (*os.File, error) {
	if f.open == "" {
		return procmem.OpenFile("/proc", f.pid, &f.at)
	}
	return elffile.OpenRegular(f.open)
}

// base is the name without its directory.
func (f file) base() string { return filepath.Base(strings.TrimSuffix(f.name, " (deleted)")) }

// target is what is watched.
type target struct {
	files []file
	pid   int // only this process; 0 = all
}

const kernelTarget = "kernel"

// findTarget reads TARGET: a process's number, a path, the name of a program in
// PATH or of a library, or "kernel". With a pid a name or path is looked for in
// what that process has mapped. Without withFiles a process's files are left out.
func findTarget(b *budget.Budget, name string, pid int, withFiles bool) (*target, error) {
	if n, err := strconv.Atoi(name); err == nil {
		if pid != 0 && pid != n {
			return nil, fmt.Errorf("the target is process %d, and --pid %d is another", n, pid)
		}
		pid = n
		if pid < 1 {
			return nil, fmt.Errorf("pid %d: must be positive", pid)
		}
		if !withFiles {
			return &target{pid: pid}, exists(pid)
		}
		files, err := mappedFiles(b, pid)
		return &target{files, pid}, err
	}
	switch {
	case name == kernelTarget:
		return &target{pid: pid}, exists(pid)
	case strings.HasPrefix(name, "[v"):
		return nil, fmt.Errorf("%s is no file: no probe can be set there", name)
	}
	if pid != 0 {
		files, err := mappedFiles(b, pid)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f.name == name || f.base() == name {
				return &target{[]file{f}, pid}, nil
			}
		}
		return nil, fmt.Errorf("process %d has not mapped %s", pid, name)
	}
	path, err := findFile(name)
	if err != nil {
		return nil, err
	}
	return &target{files: []file{{open: path, name: path}}}, nil
}

// exists fails when there is no process of that number; 0 is none in
// particular.
func exists(pid int) error {
	if pid == 0 {
		return nil
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return fmt.Errorf("process %d: %w", pid, ErrNoProcess)
	}
	return nil
}

// libraryDirs is where a library is looked for by its name alone.
var libraryDirs = []string{
	"/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/lib", "/usr/lib",
}

func findFile(name string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = candidates[:0]
		dirs := append(filepath.SplitList(os.Getenv("PATH")), libraryDirs...)
		for _, dir := range append(dirs, "/usr/sbin", "/sbin") {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, c := range candidates {
		st, err := os.Stat(c)
		if err == nil && st.Mode().IsRegular() {
			return filepath.Abs(c)
		}
		if err == nil && strings.Contains(name, "/") {
			return "", fmt.Errorf("%s: not a regular file", name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && strings.Contains(name, "/") {
			return "", err
		}
	}
	if strings.Contains(name, "/") {
		return "", fmt.Errorf("%s: no such file", name)
	}
	return "", fmt.Errorf("%s: no such program or library (give a path, a pid, or \"kernel\")", name)
}

// mappings reads the executable mappings of a process, in order of address.
func mappings(b *budget.Budget, pid int) ([]procmem.Mapping, error) {
	var out []procmem.Mapping
	err := procmem.EachMapping(b, "/proc", pid, func(m *procmem.Mapping) bool {
		if m.Executable {
			out = append(out, *m)
		}
		return true
	})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return nil, fmt.Errorf("process %d: %w", pid, ErrNoProcess)
	case err != nil:
		return nil, fmt.Errorf("mappings of process %d: %w", pid, unwrapPath(err))
	}
	return out, nil
}

// mappedFiles are the files of which a process executes code, its program
// first. They are opened by what is mapped, not by name: the name may be gone,
// or be another file by now.
func mappedFiles(b *budget.Budget, pid int) ([]file, error) {
	maps, err := mappings(b, pid)
	if err != nil {
		return nil, err
	}
	type id struct {
		device string
		inode  uint64
	}
	seen := map[id]bool{}
	var out []file
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	for _, m := range maps {
		key := id{m.Device, m.Inode}
		if m.Inode == 0 || m.Path == "" || strings.HasPrefix(m.Path, "[") || seen[key] {
			continue
		}
		seen[key] = true
		if m.Path == name {
			out = append([]file{{name: m.Path, pid: pid, at: m}}, out...)
			continue
		}
		out = append(out, file{name: m.Path, pid: pid, at: m})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("process %d executes no file (a kernel thread, or it has just ended)", pid)
	}
	return out, nil
}
