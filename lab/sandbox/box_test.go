package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

const conntrackMax = "/proc/sys/net/netfilter/nf_conntrack_max"

func openBox(t *testing.T, lifetime time.Duration) *Box {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a sandbox needs root")
	}
	lock, err := Acquire(t.Context(), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Release() })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), lock, Options{Executable: exe, ServerAddr: "10.9.8.1/30", ClientAddr: "10.9.8.2/30", Lifetime: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.Dir); err == nil {
			t.Error("directory of the sandbox is left")
		}
		if _, err := os.Stat(b.journal.path()); err == nil {
			t.Error("journal is left")
		}
	})
	return b
}

func TestTwoNamespacesJoined(t *testing.T) {
	b := openBox(t, time.Minute)
	ctx := t.Context()
	server, err := b.Server.NetNS(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client, err := b.Client.NetNS(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if server == client || server == 0 {
		t.Errorf("network namespaces %d and %d", server, client)
	}
	if err := b.Server.Set(ctx, "net.core.somaxconn", "17"); err != nil {
		t.Error(err)
	}
	out, err := b.Client.Output(ctx, "cat", "/proc/sys/net/core/somaxconn")
	if err != nil || out == "17" {
		t.Errorf("client has somaxconn %q, %v", out, err)
	}
	out, err = b.Client.Output(ctx, "ip", "-o", "-4", "addr", "show", "eth0")
	if err != nil || !strings.Contains(out, "10.9.8.2/30") {
		t.Errorf("client: %q, %v", out, err)
	}
	if _, err := b.Server.Output(ctx, "false"); err == nil {
		t.Error("exit status 1 is no error")
	}
}

func TestSpec(t *testing.T) {
	b := openBox(t, time.Minute)
	out := filepath.Join(b.Dir, "out")
	p, err := b.Server.Start(t.Context(), Spec{
		Args: []string{"sh", "-c", `echo "$(ulimit -Sn) $(nice) $WORD $` + RoleEnv + `"; exit 3`},
		Env:  []string{"WORD=hello"}, Stdout: out, Stderr: out, NoFile: 123, Nice: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(t.Context())
	data, _ := os.ReadFile(out)
	if err != nil || exit.Code != 3 || strings.TrimSpace(string(data)) != "123 7 hello" {
		t.Errorf("exit %+v, %v, output %q", exit, err, data)
	}
}

func TestCgroupQuota(t *testing.T) {
	b := openBox(t, time.Minute)
	dir, err := b.Cgroup(t.Context(), 0.5)
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	p, err := b.Server.Start(t.Context(), Spec{Args: []string{"sleep", "60"}, Cgroup: dir})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(data) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || len(strings.Fields(string(data))) != 1 {
		t.Errorf("group of process %d holds %q, %v", p.PID, data, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("control group is left")
	}
}

// setMax lowers the host's limit by one, which hurts nobody.
func setMax(t *testing.T, b *Box) (old string) {
	t.Helper()
	old, err := files{}.get(conntrackMax)
	if err != nil {
		t.Skip("SKIPPED: no connection tracking: ", err)
	}
	n, err := strconv.Atoi(old)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetHost(t.Context(), conntrackMax, strconv.Itoa(n-1)); err != nil {
		t.Fatal(err)
	}
	if now, _ := (files{}).get(conntrackMax); now != strconv.Itoa(n-1) {
		t.Fatalf("limit is %s", now)
	}
	return old
}

func checkMax(t *testing.T, want string) {
	t.Helper()
	if now, _ := (files{}).get(conntrackMax); now != want {
		t.Errorf("limit is %s, was %s", now, want)
	}
}

func TestClosePutsBack(t *testing.T) {
	b := openBox(t, time.Minute)
	old := setMax(t, b)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	checkMax(t, old)
}

func TestLifetimePutsBack(t *testing.T) {
	b := openBox(t, time.Second)
	old := setMax(t, b)
	select {
	case <-b.Gone():
	case <-time.After(5 * time.Second):
		t.Fatal("sandbox outlived its time")
	}
	checkMax(t, old)
}

func TestKilledInit(t *testing.T) {
	b := openBox(t, time.Minute)
	old := setMax(t, b)
	syscall.Kill(b.PID(), syscall.SIGKILL)
	select {
	case <-b.Gone():
	case <-time.After(5 * time.Second):
		t.Fatal("the end of init went unnoticed")
	}
	checkMax(t, old)
	if _, err := b.Server.NetNS(t.Context()); err == nil {
		t.Error("a dead sandbox answers")
	}
}

// A value that someone else set meanwhile stays.
func TestOthersValueStays(t *testing.T) {
	b := openBox(t, time.Minute)
	old := setMax(t, b)
	defer files{}.set(conntrackMax, old)
	n, _ := strconv.Atoi(old)
	if err := (files{}).set(conntrackMax, strconv.Itoa(n-2)); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	checkMax(t, strconv.Itoa(n-2))
}

func TestLockWaits(t *testing.T) {
	openBox(t, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	said := ""
	if _, err := Acquire(ctx, func(s string) { said = s }); err == nil {
		t.Error("two runs at a time")
	}
	if !strings.Contains(said, strconv.Itoa(os.Getpid())) {
		t.Errorf("said %q, which does not name the run that is waited for", said)
	}
}
