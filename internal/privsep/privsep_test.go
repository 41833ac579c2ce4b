package privsep

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// look is what a task sees of itself.
type look struct {
	Status string   `json:"status"`
	Args   []string `json:"args"`
	Files  string   `json:"files"`  // what it was handed says
	Others []string `json:"others"` // other open files
	Opened string   `json:"opened"` // the error of opening a file of root's
	Env    []string `json:"env"`
}

func init() {
	Register("look", func(request []byte, files []int) []byte {
		var l look
		b, _ := os.ReadFile("/proc/self/status")
		l.Status, l.Args, l.Env = string(b), os.Args, os.Environ()
		for _, fd := range files {
			buf := make([]byte, 100)
			n, _ := unix.Pread(fd, buf, 0)
			l.Files += string(buf[:n])
		}
		links, _ := filepath.Glob("/proc/self/fd/*")
		for _, name := range links {
			at, _ := os.Readlink(name)
			l.Others = append(l.Others, at)
		}
		_, err := os.ReadFile(string(request))
		l.Opened = fmt.Sprint(err)
		text, _ := json.Marshal(l)
		return text
	})
	Register("sleep", func([]byte, []int) []byte { time.Sleep(time.Hour); return nil })
	Register("flood", func([]byte, []int) []byte { return make([]byte, maxAnswer+1) })
	Register("panic", func([]byte, []int) []byte { panic("a bug") })
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED WITHOUT RIGHTS: this test needs root")
	}
}

func TestTaskHasTheRightsOfItsUserOnly(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	secret, handed := filepath.Join(dir, "secret"), filepath.Join(dir, "handed")
	for _, name := range []string{secret, handed} {
		if err := os.WriteFile(name, []byte("of root"), 0o000); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(handed)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A file that slowray was itself given, as by a shell: not closed on exec.
	leak, err := unix.Open(secret, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	t.Setenv("LD_PRELOAD", "/nowhere.so")
	for _, u := range []User{{UID: nobody, GID: nobody}, {UID: 0, GID: 0}, {UID: 1000, GID: 4, Groups: []uint32{7, 8}}} {
		t.Run(fmt.Sprint(u.UID), func(t *testing.T) {
			text, err := Run(u, "look", []byte(secret), f)
			if err != nil {
				t.Fatal(err)
			}
			var l look
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]string{
				"Uid":    strings.Repeat(fmt.Sprintf(" %d", u.UID), 4),
				"Gid":    strings.Repeat(fmt.Sprintf(" %d", u.GID), 4),
				"Groups": strings.TrimRight(" "+strings.Trim(fmt.Sprint(u.Groups), "[]"), " "),
				"CapPrm": " 0000000000000000", "CapEff": " 0000000000000000", "CapInh": " 0000000000000000", "CapAmb": " 0000000000000000",
				"NoNewPrivs": " 1",
			} {
				_, rest, _ := strings.Cut(l.Status, "\n"+name+":")
				line, _, _ := strings.Cut(rest, "\n")
				if got := strings.TrimRight(" "+strings.Join(strings.Fields(line), " "), " "); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if !strings.Contains(l.Opened, "permission denied") {
				t.Errorf("a file of mode 0000: %s", l.Opened)
			}
			if l.Files != "of root" {
				t.Errorf("the file handed to it says %q", l.Files)
			}
			if len(l.Env) > 0 {
				t.Errorf("its environment is %q", l.Env)
			}
			for _, at := range l.Others {
				if strings.Contains(at, "secret") {
					t.Errorf("it has a file that it was not handed: %s", at)
				}
			}
		})
	}
	if b, _ := os.ReadFile("/proc/self/status"); !strings.Contains(string(b), "NoNewPrivs:\t0") {
		t.Errorf("this process itself has given up rights:\n%s", b)
	}
}

// taskOf waits for the task "sleep" that a process has started, and that it has
// become its user.
func taskOf(t *testing.T, parent int) (pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, name := range names {
			line, _ := os.ReadFile(name)
			status, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "status"))
			if strings.Contains(string(line), "privsep\x00sleep") && strings.Contains(string(status), "Uid:\t65534") &&
				strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", parent)) {
				if _, err := fmt.Sscanf(name, "/proc/%d/", &pid); err == nil {
					return pid
				}
			}
		}
	}
	t.Fatal("the task is not to be seen")
	return 0
}

// The user that a task acts as must not get at what the process can see besides.
func TestUserCannotTraceItsTask(t *testing.T) {
	needRoot(t)
	go func() { _, _ = Run(User{UID: nobody, GID: nobody}, "sleep", nil) }()
	pid := taskOf(t, os.Getpid())
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	cmd := exec.Command("/bin/readlink", fmt.Sprintf("/proc/%d/root", pid), fmt.Sprintf("/proc/%d/exe", pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("its user sees its root directory and program (PTRACE_MODE_READ): %s", out)
	}
}

func TestTaskThatDoesNotAnswerIsAnError(t *testing.T) {
	needRoot(t)
	u := User{UID: nobody, GID: nobody}
	for task, words := range map[string]string{"flood": "ended without an answer", "panic": "a bug", "no such": "act as user 65534"} {
		_, err := Run(u, task, nil)
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", task, err)
		}
	}
	if _, err := Run(User{UID: 1<<32 - 1, GID: nobody}, "look", nil); err == nil {
		t.Error("user -1, which setresuid(2) takes for no change, is accepted")
	}
	if _, err := Run(u, "flood", nil); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
}

// A task ends with the process that asked for it: what another does next is not
// disturbed by a write that nobody waits for.
func TestTaskEndsWithWhoAsks(t *testing.T) {
	needRoot(t)
	if os.Getenv("PRIVSEP_TEST_ASK") != "" {
		_, err := Run(User{UID: nobody, GID: nobody}, "sleep", nil)
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTaskEndsWithWhoAsks$")
	cmd.Env = append(os.Environ(), "PRIVSEP_TEST_ASK=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := taskOf(t, cmd.Process.Pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(line) == 0 {
			return
		}
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the task goes on")
		}
	}
}

// Root keeps what is inheritable, whatever the bounding set says (capabilities(7)).
func TestConfineLeavesNothingInheritable(t *testing.T) {
	needRoot(t)
	var text []byte
	err := OnThread(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&header, &caps[0]); err != nil {
			return err
		}
		caps[0].Inheritable = 1<<unix.CAP_CHOWN | 1<<unix.CAP_KILL
		if err := unix.Capset(&header, &caps[0]); err != nil {
			return err
		}
		if err := Confine(1 << unix.CAP_KILL); err != nil {
			return err
		}
		var err error
		text, err = exec.Command("cat", "/proc/self/status").Output()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000020\n", "CapEff:\t0000000000000020\n", "CapBnd:\t0000000000000020\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
