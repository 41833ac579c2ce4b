package sandbox

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestParseMounts(t *testing.T) {
	const mountinfo = `22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 22 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct
40 28 8:1 /a\040b /tmp/with\040blank\011and\134more rw - ext4 /dev/sda1 rw
short line - x
50 28 0:5 / /no/separator rw
`
	want := []mount{{"/sys", "sysfs"}, {"/sys/fs/cgroup/cpu,cpuacct", "cgroup"}, {"/tmp/with blank\tand\\more", "ext4"}}
	if got := parseMounts(mountinfo); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestMountedIsNotRemoved: the sandbox's directory goes, what somebody mounted
// there from elsewhere does not.
func TestMountedIsNotRemoved(t *testing.T) {
	b := openBox(t, time.Minute)
	outside := t.TempDir()
	precious := filepath.Join(outside, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(b.Dir, "mounted", "deep er")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mount", "-t", "tmpfs", "tmpfs", filepath.Dir(at)}, {"mkdir", at}, {"mount", "--bind", outside, at},
	} {
		if _, err := b.Server.Output(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := b.Server.Output(t.Context(), "ls", at); err != nil || out != "precious" {
		t.Fatalf("mounted: %q, %v", out, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}
