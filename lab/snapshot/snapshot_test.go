package snapshot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/lab/netns"
)

// own leaves out what others on this machine may change meanwhile.
func own(lines []string, marks ...string) []string {
	var list []string
	for _, line := range lines {
		for _, mark := range marks {
			if strings.HasPrefix(line, mark) {
				list = append(list, line)
				break
			}
		}
	}
	return list
}

// Every kind of change is seen, is reported as what it is, and nothing else is; when
// it is taken back, nothing is reported.
func TestDiff(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: needs root to make a network namespace")
	}
	for _, name := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIPPED: %v", err)
		}
	}
	ns, err := netns.New()
	if err != nil {
		t.Skipf("SKIPPED: no network namespace can be made: %v", err)
	}
	defer ns.Close()
	var child *exec.Cmd
	in := func(command string) {
		t.Helper()
		if err := netns.Do(ns, func() error {
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if err != nil {
				t.Logf("%s: %s", command, out)
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	if err := netns.Do(ns, func() error {
		child = exec.Command("sleep", "60")
		return child.Start()
	}); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	in("ip link add dummy0 type veth peer name dummy1")
	pid := strconv.Itoa(child.Process.Pid)
	file := filepath.Join(t.TempDir(), "some.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("workers 4\n")
	scope := Scope{Namespaces: []int{child.Process.Pid}, PIDs: []int{child.Process.Pid}, Paths: []string{filepath.Dir(file)}}
	take := func() *Snapshot {
		t.Helper()
		s, err := Take(context.Background(), scope)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	marks := []string{"netns of " + pid, "process " + pid, "file "}
	first := take()
	if n := strings.Count(first.Text(), "host sysctl "); n < 500 || first.Len() < n {
		t.Errorf("%d sysctls of the host, of %d settings", n, first.Len())
	}
	if lines := own(Diff(first, take()), marks...); len(lines) > 0 {
		t.Errorf("nothing was changed, told: %q", lines)
	}
	limit := func(soft uint64) {
		t.Helper()
		var l unix.Rlimit
		if err := unix.Prlimit(child.Process.Pid, unix.RLIMIT_NOFILE, nil, &l); err != nil {
			t.Fatal(err)
		}
		l.Cur = soft
		if err := unix.Prlimit(child.Process.Pid, unix.RLIMIT_NOFILE, &l, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		do, undo func()
		want     string
	}{
		{"sysctl", func() { in("sysctl -qw net.ipv4.tcp_syncookies=0") }, func() { in("sysctl -qw net.ipv4.tcp_syncookies=1") },
			"netns of " + pid + " sysctl net/ipv4/tcp_syncookies: was 1, is 0"},
		{"mtu", func() { in("ip link set dummy0 mtu 1400") }, func() { in("ip link set dummy0 mtu 1500") },
			"netns of " + pid + " link dummy0: was mtu 1500"},
		{"qdisc", func() { in("tc qdisc add dev dummy0 root pfifo limit 7") }, func() { in("tc qdisc del dev dummy0 root") },
			"netns of " + pid + " qdisc dummy0: was , is qdisc pfifo "},
		{"file", func() { write("workers 8\n") }, nil, "file " + file + ": was -rw-------, owner 0:0, 10 bytes, sha256 "},
		{"file next to it", func() { os.WriteFile(file+".new", nil, 0o600) }, nil, "file " + file + ".new: is new: "},
		{"rlimit", func() { limit(77) }, nil, "process " + pid + " rlimit nofile: was "},
		{"rule", func() { in("nft add table ip mine && nft add chain ip mine c && nft add rule ip mine c counter drop") }, func() { in("nft delete table ip mine") },
			"netns of " + pid + " nft: was , is table ip mine"},
	} {
		before := take()
		c.do()
		lines := own(Diff(before, take()), marks...)
		found := false
		for _, line := range lines {
			found = found || strings.HasPrefix(line, c.want)
		}
		if !found || len(lines) > 2 { // the directory's time, or an IPv6 setting that follows the MTU
			t.Errorf("%s: told %q, want %q", c.name, lines, c.want)
		}
		if c.undo != nil {
			c.undo()
			if lines := own(Diff(before, take()), marks...); len(lines) > 0 {
				t.Errorf("%s: taken back, told %q", c.name, lines)
			}
		}
	}
}

// What moves by itself is left out, what comes or goes later is not.
func TestSettle(t *testing.T) {
	snap := func(values ...string) *Snapshot {
		s := &Snapshot{values: map[string]string{}}
		for _, v := range values {
			key, value, _ := strings.Cut(v, "=")
			s.values[key] = value
		}
		return s
	}
	s := snap("log=1", "limit=5", "temp=1", "gone=1")
	s.Settle(snap("log=2", "limit=5", "new=1", "gone=1"))
	got := strings.Join(Diff(s, snap("log=3", "limit=6", "new=2", "temp=7", "other=1")), "\n")
	if want := "gone: was 1, is gone\nlimit: was 5, is 6\nother: is new: 1"; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// What is not there is an error only where nothing could be looked at.
func TestNotThere(t *testing.T) {
	_, err := Take(t.Context(), Scope{Namespaces: []int{1 << 30}})
	if err == nil || !strings.Contains(err.Error(), "/proc/1073741824/ns/net") {
		t.Errorf("namespace of nobody: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED in part: needs root")
	}
	s, err := Take(t.Context(), Scope{PIDs: []int{1 << 30}, Paths: []string{filepath.Join(t.TempDir(), "nothing")}})
	if err != nil || strings.Contains(s.Text(), "rlimit") || strings.Contains(s.Text(), "nothing") {
		t.Errorf("%v", err)
	}
}

// What listens on the host comes and goes; its backlog is compared all the same.
func TestDiffPassing(t *testing.T) {
	take := func(backlogs map[string]string) *Snapshot {
		s := &Snapshot{values: map[string]string{}, passing: map[string]bool{}}
		for addr, backlog := range backlogs {
			s.setPassing(true, backlog, "host", "backlog", addr)
		}
		return s
	}
	before := take(map[string]string{"127.0.0.1:80": "511", "127.0.0.1:81": "128"})
	after := take(map[string]string{"127.0.0.1:80": "4096", "127.0.0.1:82": "128"})
	want := []string{"host backlog 127.0.0.1:80: was 511, is 4096"}
	if got := Diff(before, after); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
