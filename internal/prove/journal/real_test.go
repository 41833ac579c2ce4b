package journal

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/lab/netns"
	"github.com/slowray/slowray/lab/snapshot"
)

// realHost is a network namespace of the test's own, with a process in it whose
// settings are changed for real.
func realHost(t *testing.T) (h *host, pid int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root to make a network namespace")
	}
	ns, err := netns.New()
	if err != nil {
		t.Skipf("SKIPPED: no network namespace can be made: %v", err)
	}
	t.Cleanup(func() { ns.Close() })
	service := exec.Command("sleep", "120")
	if err := netns.Do(ns, service.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Process.Kill(); service.Wait() })
	st, err := ns.Stat()
	if err != nil {
		t.Fatal(err)
	}
	inode := st.Sys().(*syscall.Stat_t).Ino
	pid = service.Process.Pid
	h = newHost(t, 0)
	h.changes = []cause.Change{
		{Kind: cause.ChangeSysctl, Text: "somaxconn", Name: "net.core.somaxconn", Value: "777", NetNS: inode, PID: pid},
		{Kind: cause.ChangeSysctl, Text: "tcp_syncookies", Name: "net.ipv4.tcp_syncookies", Value: "0", NetNS: inode, PID: pid},
		{Kind: cause.ChangeMTU, Text: "mtu", Interface: "lo", Value: "9000", NetNS: inode, PID: pid},
		{Kind: cause.ChangeRlimit, Text: "nofile", Name: "nofile", Value: "333", PID: pid},
		{Kind: cause.ChangeNice, Text: "nice", Value: "3", PID: pid},
	}
	return h, pid
}

// Real settings of the kernel are as before, each of them, after a run was killed
// with -9 at random moments, alone or together with its watchdog.
func TestKilledWithRealChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	h, pid := realHost(t)
	scope := snapshot.Scope{Namespaces: []int{pid}, PIDs: []int{pid}}
	take := func() *snapshot.Snapshot {
		t.Helper()
		s, err := snapshot.Take(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := take()
	left := 0
	for n := range 20 {
		p := h.start("blocks", "")
		time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
		if n%2 == 1 {
			syscall.Kill(p.watchdog, syscall.SIGKILL)
		}
		p.Process.Kill()
		p.Wait()
		j := h.free()
		outcomes, err := j.Undo()
		if err != nil || joined(outcomes) != nil {
			t.Fatalf("undo: %v, %v", err, joined(outcomes))
		}
		left += len(outcomes)
		for i := range h.changes {
			was, err := prepare(&h.changes[i])
			if err != nil {
				t.Fatalf("kill %d: %v", n, err)
			}
			if n == 0 {
				continue
			}
			list, err := j.History()
			if err != nil || len(list) == 0 {
				t.Fatal(err)
			}
			if want := list[0].Changes[i].Was.Was; was.Was != want {
				t.Errorf("kill %d: %s is %s, was %s", n, h.changes[i].Text, was.Was, want)
			}
		}
	}
	t.Logf("%d changes were left by ten kills of both", left)
	for _, line := range snapshot.Diff(first, take()) {
		if !strings.HasPrefix(line, "host ") && !strings.HasPrefix(line, "sysfs ") { // others work on this host
			t.Error(line)
		}
	}
}

// What is applied is seen by a snapshot, and told by the list as it is.
func TestRealChanges(t *testing.T) {
	h, pid := realHost(t)
	scope := snapshot.Scope{Namespaces: []int{pid}, PIDs: []int{pid}}
	first, err := snapshot.Take(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	l := h.begin()
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{})
	defer close(looked)
	go func() { // on a busy host the looks take longer than the watchdog waits
		for {
			select {
			case <-looked:
				return
			case <-time.After(100 * time.Millisecond):
				l.Beat(Health{})
			}
		}
	}()
	with, err := snapshot.Take(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(snapshot.Diff(first, with), "\n")
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 - nice, getpriority(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"net/core/somaxconn: was 4096, is 777", "tcp_syncookies: was 1, is 0", "link lo: was mtu 65536, qlen 1000, is mtu 9000",
		"rlimit nofile: was ", fmt.Sprintf("nice: was %d, is 3", 20-own)} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in:\n%s", want, all)
		}
	}
	text, err := json.Marshal(NewDocument(h.listed(Applied), nil))
	if err != nil || !strings.Contains(string(text), `"was":"4096","set":"777","now":"777"`) {
		t.Errorf("%s, %v", text, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	after, err := snapshot.Take(t.Context(), scope)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range snapshot.Diff(first, after) {
		if !strings.HasPrefix(line, "host ") && !strings.HasPrefix(line, "sysfs ") {
			t.Error(line)
		}
	}
}
