package prefork

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

// maxTitle is how much of a command line is read.
const maxTitle = 64 << 10

func read(procRoot string, pid int, name string, max int64) ([]byte, error) {
	return budget.Head(filepath.Join(procRoot, strconv.Itoa(pid), name), max)
}

// maxEnviron is how much of an environment is read. A process can make it appear to
// be as large as its address space (PR_SET_MM_MAP).
const maxEnviron = 1 << 20

// Environ is the environment that a process was started with, from
// /proc/PID/environ; nil where it cannot be read.
func Environ(procRoot string, pid int) map[string]string {
	b, err := read(procRoot, pid, "environ", maxEnviron)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for v := range strings.SplitSeq(string(b), "\x00") {
		if name, value, ok := strings.Cut(v, "="); ok && out[name] == "" {
			out[name] = value
		}
	}
	return out
}

// Args is the command line of a process, from /proc/PID/cmdline. A process
// that sets its title has one argument: the title.
func Args(procRoot string, pid int) []string {
	b, err := read(procRoot, pid, "cmdline", maxTitle)
	if err != nil {
		return nil
	}
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// Title is the command line of a process as ps(1) prints it.
func Title(procRoot string, pid int) string {
	return strings.TrimSpace(strings.Join(Args(procRoot, pid), " "))
}

// Children lists the children of a process, from
// /proc/PID/task/PID/children (CONFIG_PROC_CHILDREN, proc_pid_task(5)); false
// when the kernel does not have it or the process is gone.
func Children(procRoot string, pid int) ([]int, bool) {
	b, err := read(procRoot, pid, filepath.Join("task", strconv.Itoa(pid), "children"), 1<<20)
	if err != nil {
		return nil, false
	}
	var pids []int
	for f := range bytes.FieldsSeq(b) {
		if n, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, n)
		}
	}
	return pids, true
}

// Cwd is the working directory of a process inside its root; "" when it
// cannot be known.
func Cwd(procRoot string, pid int) string {
	dir := filepath.Join(procRoot, strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
	if err != nil {
		return ""
	}
	// A chroot in the same mount namespace shows in both links.
	if root, err := os.Readlink(filepath.Join(dir, "root")); err == nil && root != "/" {
		if in, ok := strings.CutPrefix(cwd, root); ok {
			cwd = "/" + strings.TrimPrefix(in, "/")
		}
	}
	return cwd
}

// File is a regular file that a process has open.
type File struct {
	Dev, Ino uint64
	Path     string // as the kernel shows it: " (deleted)" at the end when it has no name
}

// maxFDs bounds how many descriptors of a process are looked at.
const maxFDs = 10_000

// OpenFiles lists the regular files that a process has open.
func OpenFiles(procRoot string, pid int) ([]File, error) {
	dir := filepath.Join(procRoot, strconv.Itoa(pid), "fd")
	names, err := budget.Names(dir, maxFDs)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, n := range names {
		link := filepath.Join(dir, n)
		path, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/") {
			continue
		}
		// What is known of it suffices: a file system over the network may not answer.
		var st unix.Statx_t
		if unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			out = append(out, File{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, path})
		}
	}
	return out, nil
}

// ticks is USER_HZ, which is 100 on every Linux that Go runs on.
const ticks = 100

// Started is when a process was started, from field 22 of proc_pid_stat(5)
// and btime of proc_stat(5): right to about a second.
func Started(procRoot string, pid int) (time.Time, error) {
	b, err := read(procRoot, pid, "stat", 4096)
	if err != nil {
		return time.Time{}, err
	}
	i := bytes.LastIndexByte(b, ')') // the name may hold spaces and parentheses
	fields := strings.Fields(string(b[i+1:]))
	if i < 0 || len(fields) < 20 {
		return time.Time{}, errors.New("stat: too few fields")
	}
	start, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("stat: start time: %w", err)
	}
	boot, err := bootTime(procRoot)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(boot, 0).Add(time.Duration(start) * (time.Second / ticks)), nil
}

func bootTime(procRoot string) (int64, error) {
	b, err := budget.Head(filepath.Join(procRoot, "stat"), 4<<20)
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errors.New("stat: no btime")
}

// Root is the root directory of a process, to be read within b. The text is "" when it
// is the same as ours, else "/proc/PID/root". An error says that it cannot be entered;
// the root returned is then ours, which is right for a process of no container.
func Root(procRoot string, p observe.Process, b *budget.Budget) (rootfs.Root, string, error) {
	link := filepath.Join(procRoot, strconv.Itoa(p.PID), "root")
	// A mount namespace of its own may show other files under the same root. Nothing is
	// asked of the file system here, which may not answer.
	target, err := os.Readlink(link)
	if err == nil && target == "/" && sameMounts(procRoot, p.PID) {
		return rootfs.At("/", b), "", nil
	}
	if err == nil {
		var fd int
		if fd, err = unix.Open(link, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			return rootfs.At(link, b), link, nil
		}
	}
	return rootfs.At("/", b), "", &fs.PathError{Op: "open", Path: link, Err: cause(err)}
}

// cause is the kernel's answer without the path.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func sameMounts(procRoot string, pid int) bool {
	theirs, err1 := os.Readlink(filepath.Join(procRoot, strconv.Itoa(pid), "ns", "mnt"))
	ours, err2 := os.Readlink("/proc/self/ns/mnt")
	return err1 == nil && err2 == nil && theirs == ours
}

// User is the real and the effective user id of a process, as the namespace of /proc
// has them (Uid in proc_pid_status(5)).
func User(procRoot string, pid int) (uid, effective uint32, ok bool) {
	b, err := read(procRoot, pid, "status", 16<<10)
	if err != nil {
		return 0, 0, false
	}
	for line := range bytes.Lines(b) {
		if f := strings.Fields(string(line)); len(f) > 2 && f[0] == "Uid:" {
			r, err := strconv.ParseUint(f[1], 10, 32)
			e, err2 := strconv.ParseUint(f[2], 10, 32)
			return uint32(r), uint32(e), err == nil && err2 == nil
		}
	}
	return 0, 0, false
}

// Numbers is what a process is called in each pid namespace that it is in, from
// that of /proc inwards (NSpid in proc_pid_status(5), since 4.1): the last one is
// what it calls itself, and writes into its logs. Nil when that is not known.
func Numbers(procRoot string, pid int) []int {
	b, err := read(procRoot, pid, "status", 16<<10)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		var out []int
		for f := range bytes.FieldsSeq(rest) {
			if n, err := strconv.Atoi(string(f)); err == nil {
				out = append(out, n)
			}
		}
		return out
	}
	return nil
}
