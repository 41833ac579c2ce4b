package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSlowDisk: twenty writes that have to reach the disk, of which it takes
// twenty a second.
func TestSlowDisk(t *testing.T) {
	b := openBox(t, time.Minute)
	dir, err := b.SlowDisk(t.Context(), 20)
	if err != nil {
		t.Skip("SKIPPED: ", err)
	}
	write := []string{"dd", "if=/dev/zero", "of=" + filepath.Join(b.Dir, "written"), "bs=4k", "count=20", "oflag=dsync"}
	took := func(group string) time.Duration {
		began := time.Now()
		p, err := b.Server.Start(t.Context(), Spec{Args: write, Cgroup: group})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.Code != 0 {
			t.Fatal(exit, err)
		}
		return time.Since(began)
	}
	free, slow := took(""), took(dir)
	if slow < 500*time.Millisecond || slow < 2*free {
		t.Errorf("twenty writes take %v, and %v on the slow disk", free, slow)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("control group is left")
	}
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
