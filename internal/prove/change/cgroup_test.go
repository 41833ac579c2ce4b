package change

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/cause"
)

// newGroup makes a control group that has the file; nil when none of the
// hierarchies here has it.
func newGroup(t *testing.T, file string) string {
	t.Helper()
	needRoot(t)
	for _, m := range groupMounts() {
		dir := filepath.Join(m.dir, fmt.Sprintf("slowray-change-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			_ = os.Remove(dir)
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		return dir
	}
	t.Skipf("SKIPPED: no hierarchy of control groups here has %s", file)
	return ""
}

func TestCgroup(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"cpu.cfs_quota_us", "50000", "50000\n"},
		{"cpu.shares", "2048", "2048\n"},
		{"memory.limit_in_bytes", "100M", "104857600\n"},
		{"pids.max", "33", "33\n"},
		{"blkio.throttle.write_iops_device", "", ""},
		{"freezer.state", "FROZEN", "FROZEN\n"},
		{"cpu.max", "50000", "50000 100000\n"},
		{"cpu.weight", "300", "300\n"},
		{"memory.max", "104857601", "104857600\n"},
		{"cgroup.freeze", "1", "1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newGroup(t, c.name)
			if c.value == "" {
				c.value = disk(t) + " 77"
				c.want = c.value + "\n"
			}
			read := func() string {
				b, _ := os.ReadFile(filepath.Join(dir, c.name))
				return string(b)
			}
			change := &cause.Change{Kind: cause.ChangeCgroup, Path: dir, Name: c.name, Value: c.value}
			was := cycle(t, change, func() string { return files(dir) }, func() error {
				if read() != c.want {
					return fmt.Errorf("it is %q", read())
				}
				return nil
			})
			// The path as in /proc/PID/cgroup is the same group.
			change.Path = "/" + filepath.Base(dir)
			d, _ := For(change.Kind)
			if again, err := d.Prepare(change); err != nil || again.Was != was.Was {
				t.Errorf("by path: %q, %v", again.Was, err)
			}
			must(t, os.Remove(dir))
			isGone(t, change, was)
			must(t, os.Mkdir(dir, 0o755)) // another group of that name
			isGone(t, change, was)
		})
	}
}

// files is what all limits and weights of a group say.
func files(dir string) string {
	var out []string
	for _, name := range limitFiles {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			out = append(out, name+" "+string(b))
		}
	}
	return fmt.Sprintf("%q", out)
}

// disk is the number of one that the host has.
func disk(t *testing.T) string {
	t.Helper()
	list, _ := filepath.Glob("/sys/block/*/dev")
	for _, f := range list {
		if b, err := os.ReadFile(f); err == nil {
			return sysctlWords(string(b))
		}
	}
	t.Skip("SKIPPED: no block device here")
	return ""
}

func TestCgroupForeignAndRefused(t *testing.T) {
	dir := newGroup(t, "pids.max")
	c := &cause.Change{Kind: cause.ChangeCgroup, Path: dir, Name: "pids.max", Value: "33"}
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	must(t, os.WriteFile(filepath.Join(dir, "pids.max"), []byte("44"), 0o644))
	check(t, d, c, was, "changed by another", false, "44")
	must(t, d.Undo(c, was))

	refuse := func(path, name, words string) {
		refuses(t, &cause.Change{Kind: cause.ChangeCgroup, Path: path, Name: name, Value: "1"}, words)
	}
	refuse(dir, "cgroup.procs", "never written")
	refuse(dir, "../pids.max", "never written")
	refuse(dir+"/../..", "pids.max", "not the path")
	refuse("/etc", "pids.max", "no control group")
	refuse(dir, "io.max", "has no io.max")
}

func TestGroupFileFormats(t *testing.T) {
	for _, c := range []struct {
		file, now, value string
		want             bool
	}{
		{"cpu.max", "max 100000\n", "max", true},
		{"cpu.max", "max 100000\n", "max 100000", true},
		{"cpu.max", "max 100000\n", "max 50000", false},
		{"cpu.max", "50000 100000\n", "max 100000", false},
		{"cpuset.cpus", "0-1,3\n", "0,1,3", true},
		{"cpuset.cpus", "0-1\n", "0", false},
		{"memory.max", "max\n", "max", true},
		{"memory.max", "104857600\n", "100M", true},
		{"memory.limit_in_bytes", "9223372036854771712\n", "-1", true},
		{"io.max", "8:0 rbps=1048576 wbps=max riops=max wiops=max\n", "8:0 rbps=1048576", true},
		{"io.max", "8:0 rbps=1048576 wbps=max riops=max wiops=max\n", "8:0 rbps=max", false},
		{"io.max", "", "8:0 rbps=max", true},
		{"io.max", "", "8:0 rbps=1", false},
		{"blkio.throttle.read_bps_device", "8:0 100\n8:16 200\n", "8:16 200", true},
		{"blkio.throttle.read_bps_device", "8:0 100\n", "8:0 0", false},
		{"blkio.throttle.read_bps_device", "8:0 100\n", "8:16 0", true},
	} {
		if got := groupFileHolds(c.file, c.now, c.value); got != c.want {
			t.Errorf("%s: %q holds %q: %v, want %v", c.file, c.now, c.value, got, c.want)
		}
	}
	for _, c := range []struct {
		file, old, now string
		want           []string
	}{
		{"cpu.max", "max 100000\n", "50000 100000\n", []string{"max 100000"}},
		{"io.max", "8:0 rbps=1 wbps=max riops=max wiops=max\n", "8:0 rbps=2 wbps=max riops=max wiops=max\n8:16 rbps=7 wbps=max riops=max wiops=max\n",
			[]string{"8:16 rbps=max wbps=max riops=max wiops=max", "8:0 rbps=1 wbps=max riops=max wiops=max"}},
		{"blkio.throttle.read_bps_device", "", "8:0 100\n", []string{"8:0 0"}},
		{"io.weight", "default 100\n", "default 200\n8:0 50\n", []string{"8:0 default", "default 100"}},
	} {
		if diff := cmp.Diff(c.want, backTo(c.file, c.old, c.now)); diff != "" {
			t.Errorf("%s from %q to %q: %s", c.file, c.now, c.old, diff)
		}
	}
}

func TestCPULists(t *testing.T) {
	for list, want := range map[string]string{"0": "0", "0-3": "0-3", "0,1,3": "0-1,3", "0-8:4": "0,4,8", "3,2": "2-3"} {
		set, err := parseCPUs(list)
		if err != nil || cpuList(set) != want {
			t.Errorf("%q: %q, %v; want %q", list, cpuList(set), err, want)
		}
	}
	for _, bad := range []string{"", "a", "-1", "3-1", "0-", "0-99999", "0:0", "1 2"} {
		if _, err := parseCPUs(bad); err == nil {
			t.Errorf("%q is taken for a list of CPUs", bad)
		}
	}
}
