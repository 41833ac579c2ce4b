package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"golang.org/x/sys/unix"
)

// home is a process whose namespaces, root directory, user and rights a command
// is to be run with.
type home struct {
	pid      int
	spaces   []int // descriptors of the namespaces that are not ours; the mount namespace last
	kinds    []int
	root     int // O_PATH; -1: the same as ours
	exe      *os.File
	exePath  string // as the process sees it; empty: it has no name there any more
	cwd      string
	uid, gid int
	groups   []uint32
	bounding uint64 // its capability bounding set
	caps     uint64 // its effective capabilities

	cover [2]string // a file and, where set, another that is to be seen instead of it
}

// errNoCover says that no file can be covered for a command.
var errNoCover = errors.New("no mount for the test")

func (h *home) close() {
	for _, fd := range h.spaces {
		unix.Close(fd)
	}
	if h.root >= 0 {
		unix.Close(h.root)
	}
	if h.exe != nil {
		h.exe.Close()
	}
}

var nsKinds = []struct {
	name string
	flag int
}{{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}}

func homeOf(pid int) (*home, error) {
	h := &home{pid: pid, root: -1, cwd: prefork.Cwd("/proc", pid)}
	dir := "/proc/" + strconv.Itoa(pid)
	if err := h.status(dir); err != nil {
		return nil, err
	}
	mounts := false
	for _, k := range nsKinds {
		if sameFile(dir+"/ns/"+k.name, "/proc/self/ns/"+k.name) {
			continue
		}
		fd, err := unix.Open(dir+"/ns/"+k.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			h.close()
			return nil, fmt.Errorf("%s namespace of pid %d: %w", k.name, pid, err)
		}
		h.spaces, h.kinds = append(h.spaces, fd), append(h.kinds, k.flag)
		mounts = mounts || k.name == "mnt"
	}
	var err error
	if mounts || !sameFile(dir+"/root/", "/") {
		if h.root, err = unix.Open(dir+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			h.close()
			return nil, fmt.Errorf("root directory of pid %d: %w", pid, err)
		}
	}
	if h.exe, err = os.Open(dir + "/exe"); err != nil {
		h.close()
		return nil, fmt.Errorf("executable of pid %d: %w", pid, err)
	}
	if name, err := os.Readlink(dir + "/exe"); err == nil && sameFile(filepath.Join(dir, "root", name), dir+"/exe") {
		h.exePath = name
	}
	return h, nil
}

func sameFile(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Dev == y.Dev && x.Ino == y.Ino
}

// status reads the user and the rights, from proc_pid_status(5).
func (h *home) status(dir string) error {
	b, err := os.ReadFile(dir + "/status")
	if err != nil {
		return fmt.Errorf("pid %d: %w", h.pid, err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "Uid:":
			h.uid, _ = strconv.Atoi(f[2])
		case "Gid:":
			h.gid, _ = strconv.Atoi(f[2])
		case "Groups:":
			for _, g := range f[1:] {
				n, _ := strconv.ParseUint(g, 10, 32)
				h.groups = append(h.groups, uint32(n))
			}
		case "CapEff:":
			h.caps, _ = strconv.ParseUint(f[1], 16, 64)
		case "CapBnd:":
			h.bounding, _ = strconv.ParseUint(f[1], 16, 64)
		}
	}
	if !sameFile(dir+"/ns/user", "/proc/self/ns/user") {
		h.caps, h.bounding = 0, 0 // they mean nothing outside its user namespace
	}
	return nil
}

// run runs the executable of the process with other arguments, where and as what
// that process runs, with no more rights than it has, and returns what it
// printed. The error of a command that failed wraps *exec.ExitError.
func (h *home) run(args, env []string, most time.Duration) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	null, err := os.Open("/dev/null")
	if err != nil {
		return "", err
	}
	defer null.Close()
	onOwnThread(func() {
		text, err := h.runHere(null, args, env, most)
		done <- result{text, err}
	})
	r := <-done
	return r.text, r.err
}

// onOwnThread has f run on a thread that ends with it, because of the foreign
// namespaces that it enters. The first thread of a program never ends, and is
// what /proc/self shows: it is passed by.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // never unlocked
			return
		}
		passed := make(chan struct{})
		onOwnThread(func() {
			close(passed)
			f()
		})
		<-passed
		runtime.UnlockOSThread()
	}()
}

func (h *home) runHere(null *os.File, args, env []string, most time.Duration) (string, error) {
	if err := h.enter(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	name := h.exePath
	if name == "" {
		name = "/proc/self/fd/3"
	}
	cmd := exec.CommandContext(ctx, name)
	cmd.Args, cmd.Env, cmd.Dir = args, env, h.cwd
	cmd.WaitDelay = time.Second
	cmd.ExtraFiles = []*os.File{h.exe}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, &out, &out
	if h.uid != os.Geteuid() || h.gid != os.Getegid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(h.uid), Gid: uint32(h.gid), Groups: h.groups}}
		for c := range 64 {
			if h.uid != 0 && h.caps&(1<<c) != 0 {
				cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, uintptr(c))
			}
		}
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %s", most)
	}
	return out.String(), err
}

// enter moves the calling thread to where the process lives, and gives up what
// rights that has not: what is run there may be another's code (a module that
// its configuration loads).
func (h *home) enter() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if h.root >= 0 || len(h.spaces) > 0 || h.cover[1] != "" {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
	}
	for i, fd := range h.spaces {
		if err := unix.Setns(fd, h.kinds[i]); err != nil {
			return fmt.Errorf("enter the namespaces of pid %d: %w", h.pid, err)
		}
	}
	if h.root >= 0 {
		if err := errors.Join(unix.Fchdir(h.root), unix.Chroot("."), unix.Chdir("/")); err != nil {
			return fmt.Errorf("enter the root directory of pid %d: %w", h.pid, err)
		}
	}
	if err := h.mount(); err != nil {
		return err
	}
	for c := range 64 {
		if h.bounding&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); errors.Is(err, unix.EINVAL) {
			break // past the last one
		} else if err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("capability bounding set: %w", err)
		}
	}
	return nil
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
func environ(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
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
