package change

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeCgroup, kind[cgroupState]{
		read: readCgroup, apply: applyCgroup, present: presentCgroup, undo: undoCgroup, commands: cgroupCommands,
	})
}

// cgroupState is one file of a control group.
type cgroupState struct {
	Mount string `json:"mount"` // where the hierarchy is mounted
	Group string `json:"group"` // directory below it
	File  string `json:"file"`
	Inode uint64 `json:"inode"` // of the directory; kernfs gives a number once
	Old   string `json:"old"`   // as it was read
}

// limitFiles are the files that may be written: limits and weights. All others
// move or kill processes, run a program, or let go of memory.
var limitFiles = []string{
	"cpu.max", "cpu.max.burst", "cpu.weight", "cpu.uclamp.min", "cpu.uclamp.max",
	"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.shares",
	"cpuset.cpus", "memory.max", "memory.high", "memory.low", "memory.min", "memory.swap.max", "memory.swap.high",
	"memory.limit_in_bytes", "memory.soft_limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness",
	"io.max", "io.weight", "io.latency", "pids.max", "cgroup.freeze", "freezer.state",
	"blkio.weight", "blkio.bfq.weight", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
}

func readCgroup(c *cause.Change) (cgroupState, string, error) {
	var s cgroupState
	if !slices.Contains(limitFiles, c.Name) {
		return s, "", fmt.Errorf("%s is not a limit or weight of a control group: it is never written", c.Name)
	}
	if strings.TrimSpace(c.Value) == "" || strings.ContainsAny(c.Value, "\x00\n") || len(c.Value) > 4096 {
		return s, "", fmt.Errorf("%s: %q is not a value", c.Name, c.Value)
	}
	var err error
	s.File = c.Name
	if s.Mount, s.Group, err = findGroup(c.Path, c.Name); err != nil {
		return s, "", err
	}
	dir, err := s.open()
	if err != nil {
		return s, "", cgroupError(c, err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return s, "", cgroupError(c, err)
	}
	s.Inode = st.Ino
	if s.Old, err = s.read(dir); err != nil {
		return s, "", cgroupError(c, refused(err, "root"))
	}
	f, err := s.openFile(dir, unix.O_WRONLY)
	if err != nil {
		return s, "", cgroupError(c, refused(err, "root"))
	}
	f.Close()
	was := strings.TrimSpace(s.Old)
	if groupFileHolds(s.File, s.Old, c.Value) {
		return s, was, fmt.Errorf("%s of %s is %s: %w", c.Name, c.Path, was, ErrAlready)
	}
	return s, was, nil
}

func cgroupError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) {
		return err
	}
	return fmt.Errorf("%s of control group %s: %w", c.Name, c.Path, err)
}

// groupMount is where a hierarchy of control groups is mounted.
type groupMount struct {
	dir, root string
	unified   bool // version 2
}

func groupMounts() []groupMount {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	return parseGroupMounts(string(b))
}

// parseGroupMounts reads a mountinfo file of proc_pid_mountinfo(5).
func parseGroupMounts(text string) []groupMount {
	var out []groupMount
	for line := range strings.Lines(text) {
		head, tail, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(head), strings.Fields(tail)
		if len(f) >= 5 && len(kind) > 0 && (kind[0] == "cgroup" || kind[0] == "cgroup2") {
			unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
			out = append(out, groupMount{unescape.Replace(f[4]), unescape.Replace(f[3]), kind[0] == "cgroup2"})
		}
	}
	return out
}

// findGroup finds the mount that has the file in the group. The path is either
// the group's own, as in /proc/PID/cgroup, or that of its directory.
func findGroup(path, file string) (mount, group string, err error) {
	if !strings.HasPrefix(path, "/") || slices.Contains(strings.Split(path, "/"), "..") || strings.ContainsRune(path, 0) {
		return "", "", fmt.Errorf("%q is not the path of a control group", path)
	}
	path = filepath.Clean(path)
	known := false
	for _, m := range groupMounts() {
		rel, inside := below(path, m.dir)
		if !inside {
			if rel, inside = below(path, m.root); !inside {
				continue
			}
		}
		if _, err := os.Stat(filepath.Join(m.dir, rel)); err != nil {
			continue
		}
		known = true
		if _, err := os.Stat(filepath.Join(m.dir, rel, file)); err == nil {
			return m.dir, rel, nil
		}
	}
	if known {
		return "", "", fmt.Errorf("control group %s has no %s: its controller is not switched on there, or this kernel lacks it", path, file)
	}
	return "", "", fmt.Errorf("there is no control group %s here", path)
}

// below is the rest of a path that lies in a directory.
func below(path, dir string) (string, bool) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return rel, true
}

// open gives the group's directory, on a control group file system.
func (s *cgroupState) open() (int, error) {
	dir, err := openGroup(s.Mount, s.Group)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err == nil && s.Inode != 0 && st.Ino != s.Inode {
		unix.Close(dir)
		return -1, ErrGone
	}
	return dir, nil
}

func openGroup(mount, group string) (int, error) {
	f, err := safefile.OpenKernel(mount, group, unix.O_RDONLY|unix.O_DIRECTORY, unix.CGROUP2_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC)
	if errors.Is(err, unix.ENOENT) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, refused(err, "root")
	}
	defer f.Close()
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

func (s *cgroupState) openFile(dir, flags int) (*os.File, error) {
	fd, err := unix.Openat(dir, s.File, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: s.File, Err: err}
	}
	return os.NewFile(uintptr(fd), s.File), nil
}

func (s *cgroupState) read(dir int) (string, error) {
	f, err := s.openFile(dir, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	n, err := f.Read(b)
	if n == 0 && err != nil && errors.Is(err, io.EOF) {
		return "", nil // a file of lines with none
	}
	return string(b[:n]), err
}

func (s *cgroupState) write(dir int, value string) error {
	f, err := s.openFile(dir, unix.O_WRONLY)
	if err != nil {
		return refused(err, "root")
	}
	defer f.Close()
	_, err = f.WriteString(value + "\n")
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE):
		return fmt.Errorf("the kernel does not take %q: a group above or below may not allow it", value)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("more is in use than %s", value)
	case errors.Is(err, unix.ENODEV):
		return ErrGone
	}
	return refused(err, "root")
}

func applyCgroup(c *cause.Change, s *cgroupState) error {
	dir, err := s.open()
	if err != nil {
		return cgroupError(c, err)
	}
	defer unix.Close(dir)
	if err := s.write(dir, c.Value); err != nil {
		return cgroupError(c, err)
	}
	now, err := s.read(dir)
	if err == nil && !groupFileHolds(s.File, now, c.Value) {
		err = fmt.Errorf("the kernel made %q of it", strings.TrimSpace(now))
	}
	return cgroupError(c, err)
}

func presentCgroup(c *cause.Change, s *cgroupState) (changeState, string, error) {
	dir, err := s.open()
	if err != nil {
		return foreign, "", cgroupError(c, err)
	}
	defer unix.Close(dir)
	now, err := s.read(dir)
	switch {
	case err != nil:
		return foreign, "", cgroupError(c, err)
	case groupFileHolds(s.File, now, c.Value):
		return holds, "", nil
	case now == s.Old:
		return before, "", nil
	}
	return foreign, strings.TrimSpace(now), nil
}

func undoCgroup(c *cause.Change, s *cgroupState) error {
	dir, err := s.open()
	if err != nil {
		return cgroupError(c, err)
	}
	defer unix.Close(dir)
	now, err := s.read(dir)
	if err != nil || now == s.Old {
		return cgroupError(c, err)
	}
	if err := s.spares(dir); err != nil {
		return cgroupError(c, err)
	}
	for _, line := range backTo(s.File, s.Old, now) {
		if err := s.write(dir, line); err != nil {
			return cgroupError(c, err)
		}
	}
	if now, err = s.read(dir); err == nil && now != s.Old {
		err = fmt.Errorf("it is %q and not %q again", strings.TrimSpace(now), strings.TrimSpace(s.Old))
	}
	return cgroupError(c, err)
}

// spares makes sure that putting a lower memory.max back kills nobody: the
// kernel kills processes of a group that it cannot make small enough. What can
// be let go of is asked for first (memory.reclaim, Linux 5.19).
func (s *cgroupState) spares(dir int) error {
	limit, err := strconv.ParseUint(strings.TrimSpace(s.Old), 10, 64)
	if s.File != "memory.max" || err != nil {
		return nil
	}
	used := func() uint64 {
		text, _ := (&cgroupState{File: "memory.current"}).read(dir)
		n, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		return n
	}
	if n := used(); n > limit {
		_ = (&cgroupState{File: "memory.reclaim"}).write(dir, fmt.Sprint(n-limit))
	}
	if n := used(); n > limit {
		return fmt.Errorf("the group uses %d bytes, and going back to %d would kill its processes: undo again when it uses less", n, limit)
	}
	return nil
}

func cgroupCommands(c *cause.Change, s *cgroupState) (do, undo []shell.Command) {
	path := filepath.Join(s.Mount, s.Group, s.File)
	write := func(lines []string) (out []shell.Command) {
		for _, l := range lines {
			out = append(out, shell.Write(l, shell.Path(path)))
		}
		return out
	}
	after := s.Old
	if keyed(s.File) {
		after = c.Value // a key that was not there has to be taken away again
	}
	return write([]string{c.Value}), write(backTo(s.File, s.Old, after))
}
