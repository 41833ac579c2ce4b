package change

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

func TestPackageLogs(t *testing.T) {
	for _, c := range []struct {
		parse      func(string) (time.Time, string, bool)
		line, want string
	}{
		{parseDpkg, "2026-11-22 00:30:40 upgrade nginx:amd64 1.22.1-9 1.22.1-10", "nginx 1.22.1-9 → 1.22.1-10"},
		{parseDpkg, "2026-11-22 00:30:40 install strace:amd64 <none> 6.1-0.1", "strace 6.1-0.1 installed"},
		{parseDpkg, "2026-11-22 00:30:40 remove strace:amd64 6.1-0.1 <none>", "strace 6.1-0.1 removed"},
		{parseDpkg, "2026-11-22 00:30:40 status installed man-db:amd64 2.11.2-2", ""},
		{parseDpkg, "2026-11-22 00:30:40 startup archives unpack", ""},
		{parseDnf, "2026-11-22T00:30:40+0000 SUBDEBUG Upgrade: nginx-1:1.24.0-1.fc40.x86_64", "nginx-1:1.24.0-1.fc40.x86_64 upgraded"},
		{parseDnf, "2026-11-22T00:30:40Z SUBDEBUG Installed: gcc-14.x86_64", "gcc-14.x86_64 installed"},
		{parseDnf, "2026-11-22T00:30:40+0000 INFO --- logging initialized ---", ""},
		{parseYum, "Nov 22 00:30:40 Updated: nginx-1.20.1-1.el7.x86_64", "nginx-1.20.1-1.el7.x86_64 updated"},
		{parsePacman, "[2026-11-22T00:30:40+0000] [ALPM] upgraded nginx (1.26-1 -> 1.28-1)", "upgraded nginx (1.26-1 -> 1.28-1)"},
		{parsePacman, "[2026-11-22T00:30:40+0000] [PACMAN] Running 'pacman -Syu'", ""},
		{parseApk, "2026-11-22 00:30:40 (3/9) Upgrading nginx (1.26.0-r0 -> 1.26.1-r0)", "Upgrading nginx (1.26.0-r0 -> 1.26.1-r0)"},
		{parseDpkg, "", ""}, {parseDnf, "x", ""}, {parseYum, "Foo 99 00:00:00 Updated: x", ""}, {parseApk, strings.Repeat("x", 30), ""}, {parsePacman, "[", ""},
	} {
		at, what, ok := c.parse(c.line)
		if ok != (c.want != "") || ok && (what != c.want || at.Day() != 22) {
			t.Errorf("%q: %q %v %v", c.line, what, ok, at)
		}
	}
}

func TestPackagesOfAHost(t *testing.T) {
	root := t.TempDir()
	now := time.Now()
	put(t, root, "var/log/dpkg.log", now.Add(-30*24*time.Hour).Format(time.DateTime)+" install old:amd64 <none> 1\n"+
		strings.Repeat("garbage \x1b[31m\n", 8000)+now.Add(-time.Hour).Format(time.DateTime)+" install evil\x1b]0;x:amd64 <none> 1\n")
	got := packages(enough(), root, now.Add(-lately))
	if len(got) != 1 || got[0].What != "evil?]0;x 1 installed" || got[0].Kind != observe.ChangePackage {
		t.Errorf("%+v", got)
	}
	put(t, root, "var/lib/rpm/rpmdb.sqlite", "x")
	if got := packages(enough(), root, now.Add(-lately)); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func enough() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Wall: time.Minute})
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	name = filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A service whose script and configuration were just written.
func TestServiceFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to see the files as a process does")
	}
	dir := t.TempDir()
	put(t, dir, "app/booking.py", "x")
	put(t, dir, "app/booking.yaml", "x")
	put(t, dir, "app/old.py", "x")
	old := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "app/old.py"), old, old); err != nil {
		t.Fatal(err)
	}
	fs := host.Default()
	since := time.Now().Add(-lately)
	k := &looker{b: enough(), fs: fs, since: since, left: maxStats, seen: map[fileID]bool{}, roots: map[uint64]*view{}}
	v := k.of(os.Getpid())
	s := Service{PID: os.Getpid(), Comm: "python3", Cwd: filepath.Join(dir, "app"), Exe: "/usr/bin/python3.11 (deleted)",
		Args: []string{"python3", "./booking.py", "--config", filepath.Join(dir, "app/booking.yaml"), "old.py", "booking.py", "8080", "-x", "/nowhere/\x00"}}
	k.program(v, &s)
	var got []string
	for _, c := range k.out {
		got = append(got, string(c.Kind)+" "+filepath.Base(c.Path))
	}
	if want := "program python3.11, program booking.py, config booking.yaml"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	k.left = 0
	if _, ok := k.stat(v, dir); ok {
		t.Error("more files were looked at than may be")
	}
}

func TestSettings(t *testing.T) {
	got := Settings(map[string]string{"vm.swappiness": "10", "net.ipv4.tcp_sack": "1", "net.core.somaxconn": "128", "x": "1", "vm.max_map_count": "1048576"}, "in network namespace 7")
	if len(got) != 2 || got[0].What != "net.core.somaxconn is 128, not 4096 in network namespace 7" || got[1].What != "vm.swappiness is 10, not 60 in network namespace 7" {
		t.Errorf("%+v", got)
	}
	if len(SettingNames()) != len(defaults) {
		t.Error("names")
	}
}

// Reading this host costs little and breaks nothing.
func TestRealHost(t *testing.T) {
	began := time.Now()
	list, _, err := Read(enough(), host.Default(), []Service{{PID: os.Getpid(), Comm: "change.test", Started: began}, {PID: 1 << 30}}, began)
	if took := time.Since(began); took > 500*time.Millisecond || err != nil {
		t.Errorf("took %v, %v", took, err)
	}
	started := false
	for i, c := range list {
		started = started || c.Kind == observe.ChangeStart && c.PID == os.Getpid()
		if i > 0 && c.At.After(list[i-1].At) {
			t.Errorf("%v comes after %v", c, list[i-1])
		}
	}
	if !started {
		t.Errorf("%+v", list)
	}
	t.Logf("%d changes in %v", len(list), time.Since(began))
}
