package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/privsep"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/host"
	"golang.org/x/sys/unix"
)

// home is a process whose namespaces, root directory, user and rights a command
// is to be run with.
type home struct {
	identity
	pid     int
	dir     int   // its directory in /proc, O_PATH: of this process, and of no other with its number
	spaces  []int // descriptors of the namespaces that are not ours; the mount namespace last
	kinds   []int
	root    int  // O_PATH
	other   bool // that is not ours
	inside  bool // its mount, process, or user namespace is not ours
	label   bool // a security module (LSM) gives it another label than us
	exe     *os.File
	exePath string // as the process sees it; empty: it has no name there any more
	cwd     string
	env     []string
	group   int // control group that is not ours; -1: none
	nice    int
	limits  [limits]unix.Rlimit

	cover [2]string // a file and, where set, another that is to be seen instead of it
}

const (
	limits    = 16 // resource limits there are (RLIM_NLIMITS)
	limitName = 26 // columns of their names in /proc/PID/limits, where they are in order
)

// errNoCover says that no file can be covered for a command.
var errNoCover = errors.New("no mount for the test")

func (h *home) close() {
	for _, fd := range append(h.spaces, h.dir, h.root, h.group) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if h.exe != nil {
		h.exe.Close()
	}
}

// nsKinds are the namespaces that a command is run in. The process namespace is not
// one: who enters it cannot make one of his own any more (copy_pid_ns,
// kernel/pid_namespace.c), and so what the command starts would outlive it.
var nsKinds = []struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}}

// homeOf looks at a process, all of it at one moment: when it has executed another
// program, or become another user, while it was looked at, that is an error.
func homeOf(p change.Process) (h *home, err error) {
	h = &home{pid: p.PID, dir: -1, root: -1, group: -1}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	if h.dir, err = unix.Open(fmt.Sprintf("/proc/%d", p.PID), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return h, err
	}
	if err := p.Check(); err != nil {
		return h, err
	}
	dir := fmt.Sprintf("/proc/self/fd/%d", h.dir)
	var before, after string
	if h.identity, before, err = identityOf(dir); err != nil {
		return h, err
	}
	if err := h.look(dir); err != nil {
		return h, err
	}
	if _, after, err = identityOf(dir); err == nil && before != after {
		err = errors.New("it executes another program in this moment")
	}
	return h, err
}

func (h *home) look(dir string) (err error) {
	for _, link := range []string{"cwd", "root", "exe"} {
		if err := host.Default().LinkAnswers(h.pid, link); err != nil {
			return err
		}
	}
	h.cwd = cmp.Or(prefork.Cwd("/proc", h.pid), "/")
	h.env = environ(dir)
	if !sameFile(dir+"/ns/user", "/proc/self/ns/user") {
		h.caps, h.bounding = 0, 0 // they mean nothing outside its user namespace
		h.inside = true
	}
	h.label = labelIn(dir) != labelIn("/proc/thread-self")
	for _, k := range nsKinds {
		if sameFile(dir+"/ns/"+k.name, "/proc/self/ns/"+k.name) {
			continue
		}
		fd, err := unix.Open(dir+"/ns/"+k.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s namespace: %w", k.name, err)
		}
		h.spaces, h.kinds = append(h.spaces, fd), append(h.kinds, k.flag)
	}
	mounts := slices.Contains(h.kinds, unix.CLONE_NEWNS)
	h.inside = h.inside || mounts || !sameFile(dir+"/ns/pid", "/proc/self/ns/pid")
	h.other = mounts || !sameFile(dir+"/root/", "/")
	if h.root, err = unix.Open(dir+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	if h.exe, err = os.Open(dir + "/exe"); err != nil {
		return fmt.Errorf("executable: %w", err)
	}
	h.exePath = exeName(dir)
	if h.group, err = change.Confinement(dir); err != nil && mounts {
		return err
	}
	return h.readLimits(dir)
}

// exeName is where below its root directory the program of a process lies; "" where
// it has no name there. Both links are followed from the reader's root directory if they lie
// below it, and else from the root of their mount namespace (fs/d_path.c, d_path).
func exeName(dir string) string {
	name, err := os.Readlink(dir + "/exe")
	if err != nil {
		return ""
	}
	root, err := os.Readlink(dir + "/root")
	if below := strings.TrimPrefix(name, root); err == nil && strings.HasPrefix(below, "/") {
		name = below
	}
	if !sameFile(dir+"/root"+name, dir+"/exe") {
		return ""
	}
	return name
}

// readLimits reads what the process may use, and how urgent it is.
func (h *home) readLimits(dir string) error {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, h.pid)
	if err != nil {
		return fmt.Errorf("nice value: %w", err)
	}
	h.nice = 20 - n // as the system call tells it, getpriority(2)
	text, err := os.ReadFile(dir + "/limits")
	if err != nil {
		return fmt.Errorf("resource limits: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	for i := range h.limits {
		var line string
		if line, rest, _ = strings.Cut(rest, "\n"); len(line) <= limitName {
			return errors.New("its resource limits cannot be read")
		}
		f := append(strings.Fields(line[limitName:]), "", "")
		var bad [2]error
		h.limits[i].Cur, bad[0] = parseLimit(f[0])
		h.limits[i].Max, bad[1] = parseLimit(f[1])
		if err := errors.Join(bad[:]...); err != nil {
			return fmt.Errorf("resource limits: %w", err)
		}
	}
	return nil
}

func parseLimit(s string) (uint64, error) {
	if s == "unlimited" {
		return unix.RLIM_INFINITY, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// labelIn is what a security module (SELinux, AppArmor, Smack) calls a process; ""
// where there is none.
func labelIn(dir string) string {
	b, _ := os.ReadFile(dir + "/attr/current")
	return strings.TrimRight(string(b), "\x00\n")
}

func sameFile(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// errNotTested begins the error about a test that is not run.
var errNotTested = errors.New("nothing was changed, for the own test")

var (
	// errHeldBack says that the kernel keeps a process from more than it would keep a
	// command that is run as it from.
	errHeldBack = errors.New("would run with more rights than it has")
	// errNoName says that a program cannot be executed where it lives.
	errNoName = errors.New("its program has no name any more, or one that others can change")
)

// safe says why a command must not be run as this process: as root only a program
// is run, with files, that root alone can have written; none with the environment
// of somebody who had fewer rights than the process; and none where the process is
// held back by what a command of slowray's would not be. In slowray's own mounts a
// seccomp filter counts for nothing: there a program and files that root alone can
// have written are run with no more capabilities than the process has.
func (h *home) safe(files []string) error {
	switch {
	case h.label:
		return fmt.Errorf("%w, without its security label (AppArmor, SELinux)", errHeldBack)
	case h.filtered && h.inside:
		return fmt.Errorf("%w, without its seccomp filter", errHeldBack)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(h.exe.Fd()), &st); err != nil {
		return fmt.Errorf("executable: %w", err)
	}
	if h.lent && (h.uid == 0 || st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0) {
		return errors.New("would run with more rights than who started it has")
	}
	if h.lent {
		h.caps = 0
	}
	if h.uid != 0 {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(h.root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	tree := safefile.TreeAt(fd, "/")
	defer tree.Close()
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return fmt.Errorf("would run as root what user %d can write to (mode %04o)", st.Uid, st.Mode&0o7777)
	}
	if h.exePath != "" && tree.Trusted(h.exePath, 0) != nil {
		h.exePath = "" // the very program that runs, and not what has its name
	}
	for _, name := range files {
		if err := tree.Trusted(name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("would run as root: %w", err)
		}
	}
	if tree.Trusted(h.cwd, 0) != nil {
		h.cwd = "/"
	}
	return nil
}

// run runs the executable of the process with other arguments, where and as what
// that process runs, with no more rights than it has, and returns what it
// printed. The error of a command that failed wraps *exec.ExitError.
func (h *home) run(args []string, most time.Duration) (text string, err error) {
	null, err := os.Open("/dev/null")
	if err != nil {
		return "", err
	}
	defer null.Close()
	err = privsep.OnThread(func() error {
		text, err = h.runHere(null, args, most)
		return err
	})
	return text, err
}

// ambient is the capabilities that the command of another user than root keeps, if
// the process has them: a server's test opens its ports.
const ambient = 1 << unix.CAP_NET_BIND_SERVICE

func (h *home) runHere(null *os.File, args []string, most time.Duration) (string, error) {
	admin := change.Capable(unix.CAP_SYS_ADMIN) // the process's own procfs does not show us
	if err := h.enter(); err != nil {
		return "", err
	}
	if own, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && h.nice > 20-own {
		if err := unix.Setpriority(unix.PRIO_PROCESS, 0, h.nice); err != nil { // of this thread
			return "", fmt.Errorf("nice value: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	name := h.exePath
	if name == "" {
		name = "/proc/self/fd/3"
		if _, err := os.Stat("/proc/self/fd"); err != nil { // its procfs does not show us
			return "", errNoName
		}
	}
	cmd := exec.CommandContext(ctx, name)
	cmd.Args, cmd.Env, cmd.Dir = args, h.env, h.cwd
	cmd.WaitDelay = time.Second
	cmd.ExtraFiles = []*os.File{h.exe}
	out := budget.Prefix{Most: maxShown}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, &out, &out
	// A session of its own has no terminal that it could type into, and a process
	// namespace of its own leaves nothing behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, UseCgroupFD: h.group >= 0, CgroupFD: h.group}
	if admin {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
	}
	if h.uid != os.Geteuid() || h.gid != os.Getegid() || os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(h.uid), Gid: uint32(h.gid), Groups: h.groups}
		if h.uid != 0 && h.caps&ambient != 0 {
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_BIND_SERVICE}
		}
	}
	err := privsep.RunWithin(ctx, cmd, h.limit)
	if errors.Is(err, privsep.ErrLeft) {
		return "", err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %s", most)
	}
	return string(out.Text), err
}

// limit gives a process that has just been started the limits of this one, which for
// that of another user takes a right (CAP_SYS_RESOURCE), as does a higher one than
// slowray's own: without it the process keeps those.
func (h *home) limit(p *os.Process) error {
	for i := range h.limits {
		if err := unix.Prlimit(p.Pid, i, &h.limits[i], nil); err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("resource limits: %w", err)
		}
	}
	return nil
}

// maxShown is how much is kept of what a command prints, in bytes.
const maxShown = 64 << 10

// enter moves the calling thread to where the process lives, and gives up what
// rights that has not: what is run there may be another's code (a module that
// its configuration loads).
func (h *home) enter() error {
	if err := privsep.SealFiles(); err != nil {
		return err
	}
	if h.other || len(h.spaces) > 0 || h.cover[1] != "" {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
	}
	for i, fd := range h.spaces {
		if err := unix.Setns(fd, h.kinds[i]); err != nil {
			return fmt.Errorf("enter the namespaces of pid %d: %w", h.pid, err)
		}
	}
	if h.other {
		if err := errors.Join(unix.Fchdir(h.root), unix.Chroot("."), unix.Chdir("/")); err != nil {
			return fmt.Errorf("enter the root directory of pid %d: %w", h.pid, err)
		}
	}
	if err := h.mount(); err != nil {
		return err
	}
	return privsep.Confine(h.bounding)
}

// mount covers a file in a mount namespace of the thread's own, which nobody else
// sees and which ends with it.
func (h *home) mount() error {
	if h.cover[1] == "" {
		return nil
	}
	// Nothing is to reach other namespaces from here. In a chroot, "/" is no mount
	// and this fails.
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("%w: %w", errNoCover, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w: %w", errNoCover, err)
	}
	if err := unix.Mount(h.cover[1], h.cover[0], "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%w: %w", errNoCover, err)
	}
	return nil
}

// environ is the environment the process was started with, without what is said
// there between a server and its own successors.
func environ(dir string) []string {
	const maxEnviron = 1 << 20 // a process can make it appear to be as large as its address space
	b, err := budget.Head(dir+"/environ", maxEnviron)
	if err != nil {
		return nil
	}
	private := []string{"NGINX", "ANGIE", "FPM_SOCKETS", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
		"HAPROXY_MWORKER", "HAPROXY_MWORKER_REEXEC", "HAPROXY_MWORKER_WAIT_ONLY", "HAPROXY_PROCESSES", "HAPROXY_CFGFILES"}
	var out []string
	for v := range strings.SplitSeq(string(b), "\x00") {
		name, _, ok := strings.Cut(v, "=")
		if ok && isName(name) && !slices.Contains(private, name) {
			out = append(out, v)
		}
	}
	return out
}

// isName tells a variable from the rest of a title, which lies where the
// environment was.
func isName(s string) bool {
	for i, c := range s {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
