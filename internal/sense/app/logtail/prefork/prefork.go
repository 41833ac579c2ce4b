package prefork

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
	"golang.org/x/sys/unix"
)

// maxTitle is how much of a command line is read.
const maxTitle = 64 << 10

func read(procRoot string, pid int, name string, max int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(procRoot, strconv.Itoa(pid), name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
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
// cannot be told.
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
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxFDs)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out []File
	for _, n := range names {
		link := filepath.Join(dir, n)
		path, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(link, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			out = append(out, File{uint64(st.Dev), st.Ino, path})
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
	b, err := os.ReadFile(filepath.Join(procRoot, "stat"))
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

// Root is the root directory of a process. The text is "" when it is the same
// as ours, else "/proc/PID/root". An error says that it cannot be entered; the
// root returned is then ours, which is right for a process of no container.
func Root(procRoot string, p observe.Process) (rootfs.Root, string, error) {
	link := filepath.Join(procRoot, strconv.Itoa(p.PID), "root")
	var theirs, ours unix.Stat_t
	err := unix.Stat(link+"/", &theirs)
	if err == nil {
		err = unix.Stat("/", &ours)
	}
	if err != nil {
		return rootfs.At("/"), "", &fs.PathError{Op: "open", Path: link, Err: err}
	}
	same := theirs.Dev == ours.Dev && theirs.Ino == ours.Ino
	// A mount namespace of its own may show other files under the same root.
	if same && sameMounts(procRoot, p.PID) {
		return rootfs.At("/"), "", nil
	}
	return rootfs.At(link), link, nil
}

func sameMounts(procRoot string, pid int) bool {
	theirs, err1 := os.Readlink(filepath.Join(procRoot, strconv.Itoa(pid), "ns", "mnt"))
	ours, err2 := os.Readlink("/proc/self/ns/mnt")
	return err1 == nil && err2 == nil && theirs == ours
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
