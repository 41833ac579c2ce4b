package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSlowDisk: twenty writes that have to reach the disk, of which it takes
// twenty a second. The file system makes more of them: the group's own count is held
// against the time that they took, however slow the disk itself is.
func TestSlowDisk(t *testing.T) {
	b := openBox(t, time.Minute)
	dir, err := b.SlowDisk(t.Context(), 20)
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	before := writesOf(t, dir, b.Dir)
	began := time.Now()
	p, err := b.Server.Start(t.Context(), Spec{Cgroup: dir,
		Args: []string{"dd", "if=/dev/zero", "of=" + filepath.Join(b.Dir, "written"), "bs=4k", "count=20", "oflag=dsync"}})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
		t.Fatal(exit, err)
	}
	took, writes := time.Since(began), writesOf(t, dir, b.Dir)-before
	// The throttle lets the writes of 100 ms through at once, and rounds up.
	if least := time.Duration(writes-3) * time.Second / 20; writes < 20 || took < least {
		t.Errorf("%d writes took %v on the slow disk, want at least 20, and %v", writes, took, least)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("control group is left")
	}
}

// writesOf gives how many writes a control group has made on the disk of a path.
func writesOf(t *testing.T, group, path string) (n int) {
	t.Helper()
	disk, err := diskOf(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(group, "blkio.throttle.io_serviced"))
	if err != nil {
		text, err = os.ReadFile(filepath.Join(group, "io.stat")) // version 2
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(strings.ReplaceAll(line, "wios=", "Write "), disk+" ")
		if _, count, found := strings.Cut(rest, "Write "); ok && found {
			fmt.Sscan(count, &n)
		}
	}
	return n
}

// TestGroupsInGroups: what an engine makes goes with the sandbox, with the
// processes in it.
func TestGroupsInGroups(t *testing.T) {
	b := openBox(t, time.Minute)
	name, err := b.CgroupName(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for _, g := range b.journal.Cgroups {
		if !strings.HasSuffix(g, name) {
			t.Errorf("group %s is not called %s", g, name)
		}
		inner := filepath.Join(g, "docker", "container")
		if err := os.MkdirAll(inner, 0o755); err == nil { // not where the kernel wants more than a name
			groups = append(groups, g)
			if strings.HasPrefix(g, "/sys/fs/cgroup/pids/") {
				if _, err := b.Server.Start(t.Context(), Spec{Args: []string{"sleep", "60"}, Cgroup: inner}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if len(groups) == 0 {
		t.Skip("SKIPPED: no hierarchy of control groups")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		if _, err := os.Stat(g); err == nil {
			t.Errorf("%s is left", g)
		}
	}
}

func TestDiskOfNothing(t *testing.T) {
	if disk, err := diskOf("/proc/self/stat"); err == nil {
		t.Errorf("disk %s", disk)
	}
}
