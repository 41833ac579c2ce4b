package config

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork/proctest"
	"golang.org/x/sys/unix"
)

// unified is where control groups of version 2 are mounted.
func unified(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.Contains(line, " - cgroup2 ") && f[3] == "/" {
			return f[4]
		}
	}
	t.Skip("SKIPPED WITHOUT A MOUNT: no control groups of version 2")
	return ""
}

// group makes a control group, and puts a process into it.
func group(t *testing.T, pid int) (path string) {
	t.Helper()
	mount := unified(t)
	path = "/slowray-test-" + strconv.Itoa(pid)
	dir := filepath.Join(mount, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(mount, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	return path
}

// sandbox runs a shell that waits, in namespaces of its own; how is what is put
// before its command line.
func sandbox(t *testing.T, namespaces uintptr, how ...string) change.Process {
	t.Helper()
	needRoot(t)
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append(append([]string{"sandbox"}, how...), shell, "-c", "echo; read wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	wait, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	runs, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		wait.Close()
		_ = cmd.Wait()
	})
	if _, err := runs.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := change.ProcessOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sandboxMain is how a sandbox begins; "filtered" puts it behind a seccomp filter
// that lets everything through, "procfs" mounts one of its process namespace.
func sandboxMain(args []string) {
	runtime.LockOSThread()
	if args[0] == "procfs" {
		args = args[1:]
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
			panic(err)
		}
	}
	if args[0] == "filtered" {
		args = args[1:]
		rule := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
		prog := unix.SockFprog{Len: 1, Filter: &rule}
		_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
			panic(e)
		}
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = unix.Exec(path, args, os.Environ())
	}
	panic(err)
}

// in runs a script as and where a process runs, as slowray runs a server's test.
func in(t *testing.T, p change.Process, script string) (string, error) {
	t.Helper()
	h, err := homeOf(p)
	if err != nil {
		return "", err
	}
	defer h.close()
	if err := h.safe(nil); err != nil {
		return "", err
	}
	text, err := h.run([]string{"sh", "-c", script}, testTime)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return text, nil
}

// TestTestIsConfined: what is run as a server is in its control group, which says
// what it may use and which devices it may open.
func TestTestIsConfined(t *testing.T) {
	for name, namespaces := range map[string]uintptr{"with mounts of its own": unix.CLONE_NEWNS, "with ours": 0} {
		t.Run(name, func(t *testing.T) {
			p := sandbox(t, namespaces)
			path := group(t, p.PID)
			text, err := in(t, p, "cat /proc/self/cgroup")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text, "0::"+path+"\n") {
				t.Errorf("its test is in %s, and the server in %s", text, path)
			}
		})
	}
}

// TestTestHasNoMoreRights: a root without capabilities gets none by what slowray runs
// as it, and who is behind a filter that this would not be behind is not run.
func TestTestHasNoMoreRights(t *testing.T) {
	setpriv := proctest.Need(t, "setpriv")
	bare := []string{setpriv, "--securebits", "+noroot", "--inh-caps", "-all"} // the bounding set stays
	some := []string{setpriv, "--bounding-set", "-all,+chown"}
	nobody := []string{setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups"}
	filtered := func(how []string) []string { return append([]string{"filtered"}, how...) }
	const none, chown, refusal = "0000000000000000", "0000000000000001", "seccomp filter"
	for name, x := range map[string]struct {
		namespaces   uintptr
		how          []string
		caps, refuse string
	}{
		"a root without capabilities":           {0, bare, none, ""},
		"the same, in mounts of its own":        {unix.CLONE_NEWNS, bare, none, ""},
		"a root with one":                       {unix.CLONE_NEWNS, some, chown, ""},
		"a unit with a filter":                  {0, filtered(some), chown, ""},
		"a filter, in mounts of its own":        {unix.CLONE_NEWNS, filtered(some), "", refusal},
		"a filter, in a process namespace":      {unix.CLONE_NEWPID, filtered(bare), "", refusal},
		"a user's, in mounts of its own":        {unix.CLONE_NEWNS, nobody, none, ""},
		"a user's filter, in mounts of its own": {unix.CLONE_NEWNS, filtered(nobody), "", refusal},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := in(t, sandbox(t, x.namespaces, x.how...), "cat /proc/self/status")
			if x.refuse != "" {
				refused(t, err, "more rights than it has", x.refuse)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
				if !strings.Contains(text, set+":\t"+x.caps+"\n") {
					t.Errorf("%s is not %s in %s", set, x.caps, text)
				}
			}
		})
	}
}

// TestLabelIsKept: as in a container with an AppArmor profile. What the kernel says of
// a process is covered by a file that says it.
func TestLabelIsKept(t *testing.T) {
	r := startRogue(t, "nginx", "")
	ready(t, "nginx", r.pid)
	name := filepath.Join(t.TempDir(), "current")
	write(t, name, "docker-default (enforce)\n")
	at := fmt.Sprintf("/proc/%d/attr/current", r.pid)
	if err := unix.Mount(name, at, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("SKIPPED WITHOUT RIGHTS: %v", err)
	}
	_, err := files{}.Prepare(r.change())
	if e := unix.Unmount(at, 0); e != nil {
		t.Error(e)
	}
	refused(t, err, "nothing was changed, for the own test of nginx", "without its security label", "docker exec")
	if _, err := (files{}).Prepare(r.change()); err != nil {
		t.Error(err)
	}
}

// TestTestIsNoMoreUrgent: it has the nice value and the limits of the server, and
// where that has a process namespace of its own leaves nothing behind either.
func TestTestIsNoMoreUrgent(t *testing.T) {
	p := sandbox(t, unix.CLONE_NEWPID|unix.CLONE_NEWNS, "procfs")
	if err := unix.Setpriority(unix.PRIO_PROCESS, p.PID, 7); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_CORE} {
		if err := unix.Prlimit(p.PID, resource, &unix.Rlimit{Cur: 123, Max: 234}, nil); err != nil {
			t.Fatal(err)
		}
	}
	// The limits come as soon as it has been started.
	text, err := in(t, p, `n=0; while [ "$(ulimit -Sn) $(ulimit -Hn)" != "123 234" ] && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.01; done
ulimit -n; nice; setsid sleep 4712 > /dev/null 2>&1 & sleep 0.1`)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(text); len(got) != 2 || got[0] != "123" || got[1] != "7" {
		t.Errorf("open files and nice value: %q", got)
	}
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := ""
		names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, n := range names {
			if b, _ := os.ReadFile(n); string(b) == "sleep\x004712\x00" {
				left = n
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", left)
		}
	}
}

// TestNameBelowItsRoot: of a program in a root directory that is not the reader's, as of
// everything in the mounts of a container whose reader has a root of its own.
func TestNameBelowItsRoot(t *testing.T) {
	needRoot(t)
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	jail := t.TempDir()
	if err := unix.Mount("/", jail, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("SKIPPED WITHOUT RIGHTS: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(jail, 0); err != nil {
			t.Error(err)
		}
	})
	cmd := exec.Command(shell, "-c", "read wait")
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: jail}
	wait, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		wait.Close()
		_ = cmd.Wait()
	})
	if got := exeName(fmt.Sprintf("/proc/%d", cmd.Process.Pid)); got != shell {
		t.Errorf("%q, and not %s", got, shell)
	}
	if got, want := exeName("/proc/self"), "config.test"; filepath.Base(got) != want {
		t.Errorf("%q, and not %s", got, want)
	}
}
