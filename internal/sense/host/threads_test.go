package host

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// helperEnv makes the test binary do one thing on its main thread, for tests
// that look at it from outside.
const helperEnv = "SLOWRAY_HOST_TEST_HELPER"

func init() {
	if what := os.Getenv(helperEnv); what != "" {
		runtime.LockOSThread()
		helper(what)
		os.Exit(0)
	}
}

func helper(what string) {
	// However the test ends, so does the helper.
	time.AfterFunc(20*time.Second, func() { os.Exit(1) })
	switch what {
	case "accept", "accept-unix":
		var addr unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		family := unix.AF_INET
		if what == "accept-unix" {
			family, addr = unix.AF_UNIX, &unix.SockaddrUnix{}
		}
		s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil && unix.Bind(s, addr) == nil && unix.Listen(s, 5) == nil {
			_, _, _ = unix.Accept(s)
		}
	case "epoll":
		e, _ := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		for {
			_, _ = unix.EpollWait(e, make([]unix.EpollEvent, 1), -1)
		}
	case "poll":
		for {
			_, _ = unix.Poll(nil, -1)
		}
	case "read":
		var p [2]int
		_ = unix.Pipe2(p[:], unix.O_CLOEXEC)
		for {
			_, _ = unix.Read(p[0], make([]byte, 1))
		}
	case "spin":
		burn(20 * time.Second)
	}
}

// startHelper runs a helper process until the test ends.
func startHelper(t *testing.T, what string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), helperEnv+"="+what)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func TestRealActivity(t *testing.T) {
	fs := Default()
	for what, want := range map[string]Activity{
		"accept": Idle, "accept-unix": Idle, "epoll": Polling, "poll": Polling, "read": Reading, "spin": Running,
	} {
		t.Run(what, func(t *testing.T) {
			pid := startHelper(t, what)
			var got Activity
			for range 200 {
				if got = fs.Activity(pid); got == want {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if got != want {
				t.Fatalf("%s is %v, want %v", what, got, want)
			}
			var s observe.ThreadStates
			for range 5 {
				if err := fs.SampleThreads(pid, &s); err != nil {
					t.Fatal(err)
				}
			}
			seen := map[Activity]int{Idle: s.Accept, Polling: s.Poll, Waiting: s.Waiting, Reading: s.Waiting, Running: s.Running}[want]
			if s.Rounds != 5 || seen < 5 || s.Samples != s.Accept+s.Poll+s.Busy() {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestRealActivityStoppedAndGone(t *testing.T) {
	pid := startHelper(t, "accept")
	wait := func(want Activity) {
		t.Helper()
		for range 200 {
			if Default().Activity(pid) == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("is %v, want %v", Default().Activity(pid), want)
	}
	wait(Idle)
	// A stopped process still shows accept() as its system call.
	_ = unix.Kill(pid, unix.SIGSTOP)
	wait(Stopped)
	_ = unix.Kill(pid, unix.SIGCONT)
	wait(Idle)
	_ = unix.Kill(pid, unix.SIGKILL)
	wait(Gone)
}

func TestThreadsOfFixture(t *testing.T) {
	fsys := fixture(t, "web-6.18")
	if runtime.GOARCH == "amd64" {
		if got := fsys.Activity(4711); got != Idle {
			t.Error(got)
		}
	}
	if got := fsys.Activity(99); got != Gone {
		t.Error(got)
	}
	// Without the syscall file, the function it sleeps in tells.
	task := filepath.Join(fsys.Proc, "4711/task/4711")
	if err := os.Remove(filepath.Join(task, "syscall")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(task, "wchan"), "inet_csk_accept")
	var s observe.ThreadStates
	if err := fsys.SampleThreads(4711, &s); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(observe.ThreadStates{Rounds: 1, Samples: 2, Accept: 1, Disk: 1}, s); d != "" {
		t.Error(d)
	}
	// With neither, nothing is counted: asleep is not the same as busy.
	if err := os.WriteFile(filepath.Join(task, "wchan"), []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := s
	if err := fsys.SampleThreads(4711, &s); !errors.Is(err, fs.ErrPermission) || s != before {
		t.Error(err, s)
	}
	if err := fsys.SampleThreads(99, &s); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestManyThreadsInTurns(t *testing.T) {
	root := t.TempDir()
	for tid := 1000; tid < 1600; tid++ {
		state := "R"
		if tid%2 == 0 {
			state = "D"
		}
		put(t, filepath.Join(root, "1000/task", string(appendInt(nil, tid)), "stat"), "1 (x) "+state+" 0")
	}
	var s observe.ThreadStates
	for range 75 { // 75 × 256 = 32 × 600: each thread 32 times
		if err := (FS{Proc: root}).SampleThreads(1000, &s); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(observe.ThreadStates{Rounds: 75, Samples: 19200, Running: 9600, Disk: 9600}, s); d != "" {
		t.Error(d)
	}
}

func TestParseSyscall(t *testing.T) {
	for _, c := range []struct {
		arch, in string
		want     Activity
	}{
		{"amd64", "43 0x3 0x0\n", Idle}, {"amd64", "288 0x3", Idle}, {"amd64", "232 0x4", Polling}, {"amd64", "281 0x4", Polling},
		{"amd64", "441 0x4", Polling}, {"amd64", "7 0x7f", Polling}, {"amd64", "271 0x7f", Polling}, {"amd64", "23 0x5", Polling},
		{"amd64", "270 0x5", Polling}, {"amd64", "0 0x4", Reading}, {"amd64", "45 0x4", Reading}, {"amd64", "202 0x7f", Waiting},
		{"arm64", "202 0x3", Idle}, {"arm64", "242 0x3", Idle}, {"arm64", "22 0x3", Polling}, {"arm64", "441 0x3", Polling},
		{"arm64", "73 0x3", Polling}, {"arm64", "72 0x3", Polling}, {"arm64", "43 0x3", Waiting}, {"arm64", "98 0x0", Waiting}, {"arm64", "63 0x0", Reading},
		{"amd64", "running\n", Running}, {"amd64", "-1 0x7ffd 0x7f63\n", Waiting}, {"amd64", "", Waiting},
	} {
		if got := parseSyscall([]byte(c.in), waitCallsOf(c.arch)); got != c.want {
			t.Errorf("%s %q: %v, want %v", c.arch, c.in, got, c.want)
		}
	}
}

func TestParseWchan(t *testing.T) {
	for in, want := range map[string]Activity{
		"inet_csk_accept": Idle, "unix_accept": Idle, "__skb_wait_for_more_packets": Idle, "skb_wait_for_more_packets": Idle,
		"ep_poll": Polling, "do_epoll_wait\n": Polling, "poll_schedule_timeout.constprop.0": Polling, "do_select": Polling,
		"futex_wait_queue": Waiting, "anon_pipe_read": Waiting, "0": Unknown, "": Unknown,
	} {
		if got := parseWchan([]byte(in)); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func TestActivityNames(t *testing.T) {
	if Unknown.String() != "unknown" || Gone.String() != "gone" || Activity(99).String() != "invalid" {
		t.Error("names out of step with constants")
	}
}
