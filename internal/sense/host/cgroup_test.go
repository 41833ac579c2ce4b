package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slowray/slowray/internal/observe"
)

func TestParseProcCgroup(t *testing.T) {
	for in, want := range map[string]ProcGroups{
		"0::/system.slice/nginx.service\n": {V2: "/system.slice/nginx.service"},
		"9:name=systemd:/init.scope\n4:memory:/process_api/7\n3:cpuset:/x\n2:cpu,cpuacct:/docker/1\n0::/\n": {V2: "/", CPU: "/docker/1", Memory: "/process_api/7", CPUSet: "/x", Systemd: "/init.scope"},
		"0::/../../other\n":        {V2: "/../../other"},
		"0::/a:b\n":                {V2: "/a:b"},
		"0::/gone (deleted)\n":     {V2: "/gone"},
		"0::relative\n7\n:::\n0:x": {},
	} {
		if d := cmp.Diff(want, parseProcCgroup([]byte(in))); d != "" {
			t.Errorf("%q: %s", in, d)
		}
	}
}

func TestLineage(t *testing.T) {
	mounts := func(lines string) []cgroupMount {
		m, err := parseMountinfo(strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		return m.v2
	}
	line := func(root, dir string) string {
		return "41 31 0:38 " + root + " " + dir + " rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	}
	for _, c := range []struct {
		name, mounts, path string
		want               []groupDir
	}{
		{"host", line("/", "/sys/fs/cgroup"), "/a/b", []groupDir{{"/a/b", "/sys/fs/cgroup/a/b"}, {"/a", "/sys/fs/cgroup/a"}, {"/", "/sys/fs/cgroup"}}},
		{"root group", line("/", "/cg"), "/", []groupDir{{"/", "/cg"}}},
		{"container's own part is mounted", line("/docker/1", "/cg"), "/docker/1/x", []groupDir{{"/docker/1/x", "/cg/x"}, {"/docker/1", "/cg"}}},
		{"outside of the part mounted", line("/docker/1", "/cg"), "/docker/2", nil},
		{"outside of the namespace", line("/", "/cg"), "/../other", nil},
		{"outside, but the mount reaches there", line("/..", "/cg"), "/../other/x",
			[]groupDir{{"/../other/x", "/cg/other/x"}, {"/../other", "/cg/other"}, {"/..", "/cg"}}},
		{"the way down from the mount is not known", line("/..", "/cg"), "/own", nil},
		{"climbs out again", line("/", "/cg"), "/a/../../b", nil},
		{"the higher of two mounts", line("/docker/1", "/cg") + line("/", "/host"), "/docker/1", []groupDir{{"/docker/1", "/host/docker/1"}, {"/docker", "/host/docker"}, {"/", "/host"}}},
		{"escaped", line("/", `/my\040cg`), "/", []groupDir{{"/", "/my cg"}}},
		{"no mount", "", "/a", nil},
		{"no group", line("/", "/cg"), "", nil},
	} {
		if d := cmp.Diff(c.want, lineage(mounts(c.mounts), c.path), cmp.AllowUnexported(groupDir{})); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// cgroupTree is a fixture of control groups, with the mountinfo given.
func cgroupTree(t *testing.T, mountinfo string, files map[string]string) FS {
	t.Helper()
	root := t.TempDir()
	put(t, filepath.Join(root, "proc/self/mountinfo"), mountinfo)
	put(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 8388608 kB\n")
	for name, content := range files {
		put(t, filepath.Join(root, "sys/fs/cgroup", name), content)
	}
	return FS{Proc: filepath.Join(root, "proc"), Sys: filepath.Join(root, "sys")}
}

func TestCgroupsV2(t *testing.T) {
	fs := cgroupTree(t, "41 31 0:38 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n", map[string]string{
		"cpu.stat":                              "usage_usec 5\n", // the root has no limits
		"web.slice/cpu.max":                     "max 100000\n",
		"web.slice/cpu.stat":                    "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
		"web.slice/memory.max":                  "1073741824\n",
		"web.slice/memory.high":                 "max\n",
		"web.slice/memory.events":               "low 0\nhigh 5\nmax 7\noom 2\noom_kill 0\n", // of the service's group
		"web.slice/memory.events.local":         "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
		"web.slice/fpm.service/cpu.max":         "150000 100000\n",
		"web.slice/fpm.service/cpu.stat":        "usage_usec 9\nnr_periods 36\nnr_throttled 30\nthrottled_usec 3250000\nnr_bursts 0\nburst_usec 0\n",
		"web.slice/fpm.service/memory.max":      "max\n",
		"web.slice/fpm.service/memory.current":  "4096\n",
		"web.slice/fpm.service/memory.events":   "low 0\nhigh 5\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n",
		"web.slice/fpm.service/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
	})
	procs := []ProcSample{
		{PID: 30, StartTicks: 900, Groups: &ProcGroups{V2: "/web.slice/fpm.service"}},
		{PID: 20, StartTicks: 500, Groups: &ProcGroups{V2: "/web.slice/fpm.service"}},
		{PID: 40, Groups: &ProcGroups{V2: "/not.of.interest"}},
		{PID: 50}, // vanished before its groups were read
	}
	got, gaps := fs.Cgroups(procs, map[int]bool{20: true, 30: true, 50: true})
	if len(gaps) != 0 {
		t.Error(gaps)
	}
	file := filepath.Join(fs.Sys, "fs/cgroup/web.slice/fpm.service/cpu.max")
	want := []CgroupSample{
		{Path: "/", Version: 2, PIDs: []int{20, 30}},
		{Path: "/web.slice", Version: 2, PIDs: []int{20, 30}, PeriodNS: 1e8, MemoryLimitBytes: 1 << 30},
		{Path: "/web.slice/fpm.service", Version: 2, PIDs: []int{20, 30}, QuotaNS: 15e7, PeriodNS: 1e8, QuotaFile: file,
			Periods: 36, Throttled: 30, ThrottledNS: 325e7, MemoryUsedBytes: 4096, MemoryAtLimit: 7, OOMKills: 1, MemoryStallUS: 2e6},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(CgroupSample{})); d != "" {
		t.Error(d)
	}
	if got[2].oldest != 500 || got[2].taken != 900 {
		t.Error(got[2].oldest, got[2].taken)
	}
}

func TestCgroupsV1(t *testing.T) {
	fs := cgroupTree(t, "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"+
		"35 31 0:32 / /sys/fs/cgroup/memory rw shared:3 master:1 - cgroup cgroup rw,memory\n"+
		"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"+
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", map[string]string{
		"cpu,cpuacct/docker/1/cpu.cfs_quota_us":  "10000\n",
		"cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n",
		"cpu,cpuacct/docker/1/cpu.stat":          "nr_periods 114\nnr_throttled 112\nthrottled_time 10000000000\n",
		"cpu,cpuacct/docker/cpu.cfs_quota_us":    "-1\n",
		"memory/docker/1/memory.limit_in_bytes":  "67108864\n",
		"memory/docker/1/memory.usage_in_bytes":  "65536\n",
		"memory/docker/1/memory.failcnt":         "203\n",
		"memory/docker/1/memory.oom_control":     "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
		"memory/docker/memory.limit_in_bytes":    "9223372036854771712\n",
		"memory/other/memory.limit_in_bytes":     "17179869184\n", // more than the host has
	})
	procs := []ProcSample{
		{PID: 20, Groups: &ProcGroups{V2: "/", CPU: "/docker/1", Memory: "/docker/1"}},
		{PID: 21, Groups: &ProcGroups{V2: "/", CPU: "/docker", Memory: "/other"}},
		{PID: 22, Groups: &ProcGroups{V2: "/", CPU: "/../elsewhere", Memory: "/"}},
	}
	got, gaps := fs.Cgroups(procs, map[int]bool{20: true, 21: true, 22: true})
	if len(gaps) != 1 || !gaps[0].Partial || gaps[0].Subject != "1 processes" {
		t.Error(gaps)
	}
	byPath := make(map[string]CgroupSample)
	for _, g := range got {
		if g.Version == 1 {
			byPath[g.Path] = g
		}
	}
	want := map[string]CgroupSample{
		"/":       {Path: "/", Version: 1, PIDs: []int{20, 21, 22}},
		"/docker": {Path: "/docker", Version: 1, PIDs: []int{20, 21}},
		"/other":  {Path: "/other", Version: 1, PIDs: []int{21}},
		"/docker/1": {Path: "/docker/1", Version: 1, PIDs: []int{20}, QuotaNS: 1e7, PeriodNS: 1e8,
			QuotaFile: filepath.Join(fs.Sys, "fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us"),
			Periods:   114, Throttled: 112, ThrottledNS: 1e10, MemoryLimitBytes: 64 << 20, MemoryUsedBytes: 65536, MemoryAtLimit: 203, OOMKills: 1},
	}
	if d := cmp.Diff(want, byPath, cmpopts.IgnoreUnexported(CgroupSample{})); d != "" {
		t.Error(d)
	}
}

func TestCgroupsBetween(t *testing.T) {
	a := []CgroupSample{
		{Path: "/limited", Version: 2, QuotaNS: 5e7, PeriodNS: 1e8, Periods: 10, Throttled: 1, ThrottledNS: 1e9, taken: 700},
		{Path: "/remade", Version: 2, OOMKills: 9, MemoryStallUS: 5e6, taken: 700},
		{Path: "/plain", Version: 2, MemoryUsedBytes: 5, taken: 700},
	}
	b := []CgroupSample{
		{Path: "/limited", Version: 2, PIDs: []int{1}, QuotaNS: 5e7, PeriodNS: 1e8, QuotaFile: "/f", Periods: 40, Throttled: 21, ThrottledNS: 3e9},
		{Path: "/limited", Version: 1, MemoryLimitBytes: 5, MemoryAtLimit: 77, oldest: 600}, // old, seen for the first time
		{Path: "/new", Version: 2, OOMKills: 2, oldest: 701},
		{Path: "/plain", Version: 2, MemoryUsedBytes: 5},
		{Path: "/remade", Version: 2, OOMKills: 1, MemoryStallUS: 1e6},
	}
	want := []observe.Cgroup{
		{Path: "/limited", Version: 2, PIDs: []int{1}, QuotaCPUs: 0.5, QuotaFile: "/f", PeriodNS: 1e8, Periods: 30, ThrottledPeriods: 20, ThrottledSeconds: 2},
		{Path: "/limited", Version: 1, MemoryLimitBytes: 5},
		{Path: "/new", Version: 2, OOMKills: 2},
		{Path: "/remade", Version: 2, OOMKills: 1, MemoryStallSeconds: 1},
	}
	if d := cmp.Diff(want, CgroupsBetween(a, b, nil)); d != "" {
		t.Error(d)
	}
}

func TestCgroupsUnreadable(t *testing.T) {
	got, gaps := (FS{Proc: t.TempDir()}).Cgroups([]ProcSample{{PID: 1, Groups: &ProcGroups{V2: "/"}}}, map[int]bool{1: true})
	if got != nil || len(gaps) != 1 || gaps[0].Partial || gaps[0].Kind != observe.KindCgroup {
		t.Error(got, gaps)
	}
}

// TestRealCgroupThrottled puts a spinning process in a group with a tenth of a
// CPU, in whichever hierarchy has the controller.
func TestRealCgroupThrottled(t *testing.T) {
	needRoot(t)
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mounts, err := parseMountinfo(f)
	if err != nil {
		t.Fatal(err)
	}
	dir, knobs := "", map[string]string{}
	for _, m := range mounts.cpu {
		dir, knobs = m.dir, map[string]string{"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "5000"}
	}
	for _, m := range mounts.v2 {
		on, _ := os.ReadFile(filepath.Join(m.dir, "cgroup.subtree_control"))
		if slices.Contains(strings.Fields(string(on)), "cpu") {
			dir, knobs = m.dir, map[string]string{"cpu.max": "5000 50000"}
		}
	}
	if dir == "" {
		t.Skip("SKIPPED: no cgroup hierarchy with the cpu controller")
	}
	name := fmt.Sprintf("slowray-test-%d", os.Getpid())
	dir = filepath.Join(dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("SKIPPED: cannot make a control group: ", err)
	}
	t.Cleanup(func() { // after the helper has been ended
		for range 100 {
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%s is left behind", dir)
	})
	pid := startHelper(t, "spin")
	knobs["cgroup.procs"] = fmt.Sprint(pid)
	for file, value := range knobs {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			t.Skip("SKIPPED: cannot set a quota: ", err)
		}
	}
	fs := Default()
	sample := func() []CgroupSample {
		procs, _ := fs.Processes()
		s, _ := fs.Cgroups(procs, map[int]bool{pid: true})
		return s
	}
	a := sample()
	time.Sleep(600 * time.Millisecond)
	got := CgroupsBetween(a, sample(), nil)
	i := slices.IndexFunc(got, func(g observe.Cgroup) bool { return g.Path == "/"+name })
	if i < 0 {
		t.Fatalf("not among %+v", got)
	}
	g := got[i]
	if g.QuotaCPUs != 0.1 || g.PeriodNS != 50e6 || g.ThrottledPeriods < 3 || g.Periods < g.ThrottledPeriods ||
		g.ThrottledSeconds <= 0 || !slices.Equal(g.PIDs, []int{pid}) || filepath.Dir(g.QuotaFile) != dir {
		t.Errorf("%+v", g)
	}
}
