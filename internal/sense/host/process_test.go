package host

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

func TestProcesses(t *testing.T) {
	fs := fixture(t, "web-6.18")
	got, gaps := fs.Processes()
	if len(gaps) != 0 {
		t.Error(gaps)
	}
	scope := "docker-719fdba45b7085e5baaf8ccecc5b0ea3719fdba45b7085e5baaf8ccecc5b0ea3.scope"
	want := []ProcSample{
		{
			PID: 1, Comm: "systemd", Cmdline: "/sbin/init", State: 'S', Threads: 1, StartTicks: 5, RSSBytes: 394 * pageBytes,
			UserTicks: 11, SystemTicks: 12, RunNS: 901145, RunDelayNS: 77, Timeslices: 12, MajorFaults: 7,
			IOKnown: true, ReadBytes: 4096, WriteBytes: 8192, FDs: 2, FDLimit: 1024, FDHard: 524288,
			NetNS: 4026531833, Cgroup: "/init.scope", Unit: "init.scope", Groups: &ProcGroups{V2: "/init.scope"},
		},
		{
			PID: 2, Comm: "kthreadd", State: 'S', Kernel: true, Threads: 1, StartTicks: 5, SystemTicks: 3,
			RunNS: 5, RunDelayNS: 6, Timeslices: 7, FDs: -1, NetNS: 4026531833, Cgroup: "/", Groups: &ProcGroups{V2: "/"},
		},
		{
			PID: 4711, PPID: 1, Comm: "we) (ird", Cmdline: "php-fpm: pool www", State: 'R', Threads: 2, StartTicks: 97041,
			Nice: 5, RSSBytes: 100 * pageBytes, UserTicks: 150, SystemTicks: 50, RunNS: 6000, RunDelayNS: 800, Timeslices: 10, MajorFaults: 3,
			IOKnown: true, ReadBytes: 1, WriteBytes: 2, FDs: 4, FDLimit: 20000, FDHard: 20000, NetNS: 4026532177,
			Cgroup: "/system.slice/" + scope, Container: "719fdba45b70", Unit: scope, Groups: &ProcGroups{V2: "/system.slice/" + scope},
		},
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(ProcSample{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[uint64]int{4026531833: 1, 4026532177: 4711}, NetNamespaces(got)); d != "" {
		t.Error(d)
	}
}

// TestOldestFirst: process IDs wrap around, and a worker may have a lower one than
// its master.
func TestOldestFirst(t *testing.T) {
	procs := []ProcSample{{PID: 300, StartTicks: 900, NetNS: 7}, {PID: 4000, StartTicks: 10, NetNS: 7}, {PID: 4001, StartTicks: 10, NetNS: 7}}
	if d := cmp.Diff(map[uint64]int{7: 4000}, NetNamespaces(procs)); d != "" {
		t.Error(d)
	}
	lists := map[uint64][]int{1: {300, 4001, 9, 4000}}
	ByAge(procs, lists)
	if d := cmp.Diff(map[uint64][]int{1: {4000, 4001, 300, 9}}, lists); d != "" {
		t.Error(d)
	}
}

func TestProcessesBetween(t *testing.T) {
	base := ProcSample{PID: 10, StartTicks: 100, Comm: "srv", State: 'S', Threads: 2, UserTicks: 100, SystemTicks: 10,
		IOKnown: true, ReadBytes: 1000, FDs: 50, FDLimit: 1024,
		threads: []threadSched{{10, 1e9, 2e9, 5}, {11, 1e9, 9e9, 100}}}
	later := base
	later.UserTicks, later.SystemTicks, later.ReadBytes, later.FDs = 300, 5, 5096, 20
	// Thread 11 ended, 12 began, and 10 waited for another 0.5 s.
	later.threads = []threadSched{{10, 2e9, 25e8, 8}, {12, 1e8, 3e8, 2}}
	ended := ProcSample{PID: 20, StartTicks: 7, Comm: "old", State: 'S', UserTicks: 5, FDs: -1}
	reused := ProcSample{PID: 20, StartTicks: 900, Comm: "new", State: 'R', Threads: 1, UserTicks: 7, FDs: -1, RunDelayNS: 1e9, IOKnown: true, ReadBytes: 3}
	got := ProcessesBetween([]ProcSample{base, ended}, []ProcSample{later, reused})
	want := []observe.Process{
		{PID: 10, Comm: "srv", State: "S", Threads: 2, UserSeconds: 2, RunDelaySeconds: 0.8, Timeslices: 5, ReadBytes: 4096, FDs: 50, FDLimit: 1024,
			Busiest: []observe.Thread{{TID: 10, CPUSeconds: 1, RunDelaySeconds: 0.5}, {TID: 12, CPUSeconds: 0.1, RunDelaySeconds: 0.3}}},
		{PID: 20, Comm: "old", State: "S", EndedIn: true},
		{PID: 20, Comm: "new", State: "R", Threads: 1, StartedIn: true, UserSeconds: 0.07, RunDelaySeconds: 1, ReadBytes: 3},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
}

func TestSchedBetweenThreadCountChanges(t *testing.T) {
	one := ProcSample{PID: 10, RunNS: 100, RunDelayNS: 1000, Timeslices: 1}
	two := ProcSample{PID: 10, threads: []threadSched{{10, 200, 1500, 3}, {11, 1, 70, 1}}}
	if d, s := schedBetween(&one, &two); d != 570 || s != 3 {
		t.Errorf("one thread, then two: %d ns, %d slices", d, s)
	}
	back := ProcSample{PID: 10, RunNS: 300, RunDelayNS: 1600, Timeslices: 4}
	if d, s := schedBetween(&two, &back); d != 100 || s != 1 {
		t.Errorf("two threads, then one: %d ns, %d slices", d, s)
	}
	if d, _ := schedBetween(&ProcSample{}, &two); d != 1570 {
		t.Errorf("began in the window: %d ns", d)
	}
}

func TestProcessesWithoutRights(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("SKIPPED: root may read everything; run as an unprivileged user")
	}
	procs, gaps := Default().Processes()
	if len(procs) == 0 {
		t.Fatal("no processes")
	}
	var partial int
	for _, g := range gaps {
		if g.Kind != observe.KindProcess || !g.Partial {
			t.Errorf("gap %+v: want partial", g)
		}
		partial++
	}
	if partial == 0 || partial > 4 {
		t.Errorf("%d gaps: %+v", partial, gaps)
	}
}

// TestRealCPUTime burns CPU on one thread and compares with the thread's clock.
func TestRealCPUTime(t *testing.T) {
	fs := Default()
	self := func(ps []ProcSample) []ProcSample {
		return slices.DeleteFunc(ps, func(p ProcSample) bool { return p.PID != os.Getpid() })
	}
	pa, _ := fs.Processes()
	a, usageA := self(pa), cpuClock(t)
	burn(300 * time.Millisecond)
	pb, _ := fs.Processes()
	b, usageB := self(pb), cpuClock(t)
	got := ProcessesBetween(a, b)
	if len(got) != 1 {
		t.Fatalf("%d processes", len(got))
	}
	want := (usageB - usageA).Seconds()
	// Both figures are rounded to ticks of 10 ms, user and system apart.
	if d := got[0].CPUSeconds() - want; d < -0.04 || d > 0.04 {
		t.Errorf("CPU time %g s, the process's own clock says %g s", got[0].CPUSeconds(), want)
	}
	if got[0].StartedIn || got[0].EndedIn || got[0].Threads < 2 || got[0].FDs < 3 || got[0].FDLimit == 0 || got[0].NetNS == 0 {
		t.Errorf("%+v", got[0])
	}
}

func cpuClock(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func burn(d time.Duration) {
	x := 0
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := range 1000 {
			x += i
		}
	}
	runtime.KeepAlive(x)
}

// TestRealRunDelay has two threads share one CPU: together they wait about as
// long as the CPU is used.
func TestRealRunDelay(t *testing.T) {
	fs := Default()
	own := func() []ProcSample {
		ps, _ := fs.Processes()
		return slices.DeleteFunc(ps, func(p ProcSample) bool { return p.PID != os.Getpid() })
	}
	ready, start, done, end := make(chan error), make(chan bool), make(chan bool), make(chan bool)
	for range 2 {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its affinity
			var set unix.CPUSet
			set.Set(0)
			ready <- unix.SchedSetaffinity(0, &set)
			<-start
			burn(400 * time.Millisecond)
			done <- true
			<-end // threads that ended would take their figures with them
		}()
	}
	for range 2 {
		if err := <-ready; err != nil {
			t.Skip("SKIPPED: cannot pin threads to CPU 0: ", err)
		}
	}
	a := own()
	close(start)
	<-done
	<-done
	b := own()
	close(end)
	got := ProcessesBetween(a, b)
	if len(got) != 1 || got[0].RunDelaySeconds < 0.3 || got[0].RunDelaySeconds > 3 {
		t.Errorf("two threads on one CPU for 0.4 s: %+v", got)
	}
}

func TestSmallParsers(t *testing.T) {
	if got := parseCmdline([]byte("php-fpm: pool www\x00\x00\x00")); got != "php-fpm: pool www" {
		t.Errorf("%q", got)
	}
	if got := parseCmdline([]byte("a\x00b\nc\x00\xff\n\x00")); got != "a b c ?" {
		t.Errorf("%q", got)
	}
	if got := parseCmdline([]byte(strings.Repeat("x", 5000))); len(got) != maxCmdline {
		t.Errorf("%d bytes", len(got))
	}
	// A secret is hidden before the line is cut, and half a word is left out.
	for _, secret := range []string{"--password=" + strings.Repeat("S", 700), "--token\x00" + strings.Repeat("S", 3000), strings.Repeat("x", 2000) + " redis://u:" + strings.Repeat("S", 50) + "@h/", "redis://u:" + strings.Repeat("S", 5000) + "@h/"} {
		if got := parseCmdline([]byte("app\x00" + secret + "\x00--port\x0080\x00")); strings.Contains(got, "S") || !strings.HasPrefix(got, "app") {
			t.Errorf("%.40q… is %q", secret, got)
		}
	}
	if got := parseCmdline([]byte("redis://u:" + strings.Repeat("S", 5000) + "@h/\x00")); strings.Contains(got, "S") {
		t.Errorf("%q", got)
	}
	if s, h := parseLimits([]byte("Max open files            unlimited            unlimited            files\n")); s != 0 || h != 0 {
		t.Error(s, h)
	}
	if _, _, ok := parseIO([]byte("read_bytes: 1\n")); ok {
		t.Error("io without write_bytes")
	}
	if n, ok := parseNSLink([]byte("net:[4026531840]")); n != 4026531840 || !ok {
		t.Error(n, ok)
	}
	if _, ok := parseNSLink([]byte("/run/netns/x")); ok {
		t.Error("a path is no namespace link")
	}
	for _, s := range []string{"", "1", "1 (", "1 )(", "1 (x)", "1 (x) ", "1 (x) SS 1", "1 (x) S 1 2"} {
		var p ProcSample
		if parsePIDStat([]byte(s), &p) {
			t.Errorf("%q taken for a stat file", s)
		}
	}
}

func TestFDsOfFixtureAndSelf(t *testing.T) {
	fs := fixture(t, "web-6.18")
	if n, err := fs.FDCount(4711); n != 4 || err != nil {
		t.Error(n, err)
	}
	if n, err := fs.SocketFDCount(4711); n != 3 || err != nil {
		t.Error(n, err)
	}
	if _, err := fs.FDCount(99); err == nil {
		t.Error("no error for a process that is not there")
	}
	got, unread := fs.SocketOwners([]int{1, 4711, 99})
	if d := cmp.Diff(map[uint64][]int{1001: {1, 4711}, 2002: {4711}}, got); d != "" || unread != 0 {
		t.Error(d, unread)
	}
	if got := append(got[1001], 5); len(got) != 3 {
		t.Error(got)
	}
	again, _ := fs.SocketOwners([]int{1, 4711})
	if !cmp.Equal(again[2002], []int{4711}) {
		t.Error("appending to one list changed another", again)
	}

	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	// ReadDir's own descriptor is in the list.
	if n, err := Default().FDCount(os.Getpid()); err != nil || n < len(entries)-2 || n > len(entries)+2 {
		t.Errorf("%d open files, directory has %d: %v", n, len(entries), err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	inode, err := inodeOf(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	owners, unread := Default().SocketOwners([]int{os.Getpid()})
	if !slices.Equal(owners[inode], []int{os.Getpid()}) || unread != 0 {
		t.Errorf("socket %d: owners %v, unread %d", inode, owners[inode], unread)
	}
}

func TestVanishedProcessIsSkipped(t *testing.T) {
	fs := fixture(t, "web-6.18")
	for _, name := range []string{"io", "cgroup", "ns/net", "fd"} {
		if err := os.RemoveAll(filepath.Join(fs.Proc, "1", name)); err != nil {
			t.Fatal(err)
		}
	}
	got, gaps := fs.Processes()
	if len(gaps) != 0 || len(got) != 3 || got[0].Comm != "systemd" || got[0].FDs != -1 || got[0].NetNS != 0 || got[0].IOKnown {
		t.Errorf("%+v %v", got[0], gaps)
	}
}
