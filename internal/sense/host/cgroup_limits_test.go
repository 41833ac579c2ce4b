package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/observe"
)

// Limits of Linux 6.18, version 1 and 2, and what they cost from one reading to
// the next.
func TestCgroupLimits(t *testing.T) {
	fs := cgroupTree(t, "32 31 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"+
		"33 31 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"+
		"34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"+
		"36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"+
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", map[string]string{
		"pids/a/pids.max":                          "20\n",
		"pids/a/pids.current":                      "19\n",
		"pids/a/pids.events":                       "max 3\n",
		"blkio/a/blkio.throttle.write_iops_device": "254:0 100\n",
		"blkio/a/blkio.throttle.read_bps_device":   "254:0 1048576\n254:x 5\n",
		"blkio/a/blkio.throttle.io_serviced":       "254:0 Read 10\n254:0 Write 500\nTotal 510\n",
		"blkio/a/blkio.throttle.io_service_bytes":  "254:0 Read 40960\n254:0 Write 2048000\nTotal 2088960\n",
		"cpu/a/cpu.shares":                         "20\n",
		"cpuset/a/cpuset.cpus":                     "0\n",
		"cpuset/cpuset.cpus":                       "0-1\n",
		"unified/b/pids.max":                       "max\n",
		"unified/b/memory.high":                    "104857600\n",
		"unified/b/memory.events":                  "low 0\nhigh 9\nmax 0\n",
		"unified/b/memory.stat":                    "anon 5\nfile 8192\nworkingset_refault_anon 1\nworkingset_refault_file 77\n",
		"unified/b/cpu.weight":                     "50\n",
		"unified/b/io.max":                         "8:0 rbps=max wbps=1048576 riops=max wiops=max\n",
		"unified/b/io.stat":                        "8:0 rbytes=1 wbytes=2097152 rios=1 wios=5 dbytes=0 dios=0\n",
	})
	procs := []ProcSample{{PID: 20, Groups: &ProcGroups{V2: "/b", PIDs: "/a", BlkIO: "/a", CPU: "/a", CPUSet: "/a"}}}
	a, _ := fs.Cgroups(procs, map[int]bool{20: true})
	at := func(path string) string { return filepath.Join(fs.Sys, "fs/cgroup", path) }
	put(t, at("pids/a/pids.events"), "max 8\n")
	put(t, at("blkio/a/blkio.throttle.io_serviced"), "254:0 Read 20\n254:0 Write 1500\n")
	put(t, at("unified/b/io.stat"), "8:0 rbytes=1 wbytes=4194304 rios=1 wios=9\n")
	put(t, at("unified/b/memory.stat"), "file 8192\nworkingset_refault_file 177\n")
	last := fs.CgroupsAgain(a)
	if err := os.RemoveAll(at("pids/a")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(at("blkio/a")); err != nil {
		t.Fatal(err)
	}
	if again := fs.CgroupsAgain(last); len(again) != 1 || again[0].Path != "/b" {
		t.Errorf("of the group that is gone: %+v", again)
	}
	b, _ := fs.Cgroups([]ProcSample{{PID: 20, Groups: &ProcGroups{V2: "/b"}}}, map[int]bool{20: true})
	want := []observe.Cgroup{
		{Path: "/a", Version: 1, PIDs: []int{20}, Tasks: 19, PIDsLimit: 20, PIDsRefused: 5, PIDsFile: at("pids/a/pids.max"), CPUWeight: 1, WeightFile: at("cpu/a/cpu.shares"), EndedIn: true,
			IO: []observe.IOLimit{{Disk: "254:0", Number: "254:0", File: at("blkio/a/blkio.throttle.read_bps_device"), ReadBPS: 1 << 20, WriteIOPS: 100, Reads: 10, Writes: 1000}}},
		{Path: "/b", Version: 2, PIDs: []int{20}, MemoryHighBytes: 100 << 20, HighFile: at("unified/b/memory.high"), MemoryFileBytes: 8192, Refaults: 100,
			CPUWeight: 50, WeightFile: at("unified/b/cpu.weight"),
			IO: []observe.IOLimit{{Disk: "8:0", Number: "8:0", File: at("unified/b/io.max"), WriteBPS: 1 << 20, WriteBytes: 2097152, Writes: 4}}},
	}
	if d := cmp.Diff(want, CgroupsBetween(a, b, last), cmpopts.IgnoreUnexported(observe.Cgroup{})); d != "" {
		t.Error(d)
	}
	if f := fs.CPUSetOf(procs[0].Groups, 2); f != at("cpuset/a/cpuset.cpus") {
		t.Errorf("cpuset %q", f)
	}
	if f := fs.CPUSetOf(&ProcGroups{V2: "/b", CPUSet: "/"}, 2); f != "" {
		t.Errorf("cpuset %q of a process that may use all CPUs", f)
	}
}
