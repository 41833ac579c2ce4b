package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

// namesFixture is a /proc to which processes are added, and a clock that is
// moved by hand. The machine booted at second 1,000 of the clock.
type namesFixture struct {
	*Names
	t     *testing.T
	clock time.Time
}

func newNamesFixture(t *testing.T) *namesFixture {
	f := &namesFixture{t: t, clock: time.Unix(2000, 0)}
	f.Names = FS{Proc: t.TempDir()}.Names()
	f.now = func() time.Time { return f.clock }
	f.bootWall = func(time.Time) int64 { return time.Unix(1000, 0).UnixNano() }
	return f
}

// begin makes a process that began so long after the boot.
func (f *namesFixture) begin(pid, ppid int, comm, cgroup string, after time.Duration) {
	dir := filepath.Join(f.fs.Proc, fmt.Sprint(pid))
	stat := fmt.Sprintf("%d (%s) S %d 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, comm, ppid, after/(10*time.Millisecond))
	put(f.t, filepath.Join(dir, "stat"), stat)
	put(f.t, filepath.Join(dir, "cgroup"), "0::"+cgroup+"\n")
}

func (f *namesFixture) end(pid int) {
	if err := os.RemoveAll(filepath.Join(f.fs.Proc, fmt.Sprint(pid))); err != nil {
		f.t.Fatal(err)
	}
}

// comm is the name of a process that was there the given time before now.
func (f *namesFixture) comm(pid int, ago time.Duration) string {
	id, ok := f.Of(pid, f.clock.Add(-ago).UnixNano())
	if !ok {
		return "?"
	}
	return id.Comm
}

func TestNames(t *testing.T) {
	f := newNamesFixture(t)
	container := "/system.slice/docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope"
	f.begin(10, 1, "php-fpm) R 1", container, 5*time.Second)
	got, ok := f.Of(10, f.clock.UnixNano())
	want := Identity{PID: 10, PPID: 1, Identity: observe.Identity{Comm: "php-fpm) R 1", Cgroup: container, Container: "0123456789ab",
		Unit: "docker-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope"}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Error(diff)
	}
	if f.comm(11, 0) != "?" || f.comm(0, 0) != "?" || f.comm(-1, 0) != "?" {
		t.Error("a name for a process that is not there")
	}
	if n := testing.AllocsPerRun(100, func() { f.Of(10, f.clock.UnixNano()); f.Of(11, f.clock.UnixNano()) }); n != 0 {
		t.Errorf("%v allocations for what is remembered", n)
	}
}

// TestNamesOverTime: exec changes a name, an ended process keeps it, and
// another process that got the number does not inherit it.
func TestNamesOverTime(t *testing.T) {
	f := newNamesFixture(t)
	f.begin(10, 1, "sh", "/", 5*time.Second)
	if got := f.comm(10, 0); got != "sh" {
		t.Fatal(got)
	}
	f.begin(10, 1, "nginx", "/", 5*time.Second) // exec: the same process
	f.clock = f.clock.Add(2 * recheck)
	if got := f.comm(10, 0); got != "nginx" {
		t.Errorf("after exec: %s", got)
	}
	f.end(10)
	f.clock = f.clock.Add(2 * recheck)
	if got := f.comm(10, 3*recheck); got != "nginx" {
		t.Errorf("after its end: %s", got)
	}
	f.begin(10, 1, "cron", "/", f.clock.Sub(time.Unix(1000, 0)))
	f.clock = f.clock.Add(2 * recheck)
	if got := f.comm(10, 3*recheck); got != "nginx" {
		t.Errorf("for a request of before the number was given away: %s", got)
	}
	if got := f.comm(10, 0); got != "cron" {
		t.Errorf("the number's new process: %s", got)
	}
	if got := f.comm(10, 4*recheck); got != "?" {
		t.Errorf("a younger process answered an older request: %s", got)
	}
	if got := f.comm(10, 2*recheck+tickSlack/2); got != "cron" {
		t.Errorf("within what a start time is wrong by: %s", got)
	}
}

func TestFamily(t *testing.T) {
	f := newNamesFixture(t)
	f.begin(1, 0, "nginx", "/", 0) // process 1 of a container is nobody's worker, nor the host's master
	f.begin(20, 1, "nginx", "/", time.Second)
	f.begin(21, 20, "nginx", "/", time.Second)
	f.begin(22, 21, "nginx", "/", time.Second)
	f.begin(30, 20, "sh", "/", time.Second)
	for pid, want := range map[int]int{20: 20, 21: 20, 22: 20, 30: 30, 99: 99} {
		for range 2 { // the second answer is a remembered one
			if got := f.Family(pid, f.clock.UnixNano()); got != want {
				t.Errorf("family of %d: %d, want %d", pid, got, want)
			}
		}
	}
}

func TestNamesAreBounded(t *testing.T) {
	f := newNamesFixture(t)
	f.begin(1, 0, "init", "/", 0)
	f.begin(2, 1, "often", "/", 0)
	for pid := range 3 * maxNames {
		f.comm(100+pid, 0)
		f.comm(2, 0)
	}
	if n := len(f.recent) + len(f.older); n > 2*maxNames {
		t.Errorf("%d processes are remembered, at most %d should be", n, 2*maxNames)
	}
	f.end(2)
	if got := f.comm(2, 0); got != "often" {
		t.Errorf("what is asked for all the time was forgotten: %s", got)
	}
}

func TestNamesOfTheSystem(t *testing.T) {
	n := Default().Names()
	self, ok := n.Of(os.Getpid(), time.Now().UnixNano())
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	if !ok || self.Comm+"\n" != string(comm) || self.PPID != os.Getppid() {
		t.Errorf("%+v, %v", self, ok)
	}
	if id, ok := n.Of(os.Getpid(), time.Now().Add(-24*time.Hour).UnixNano()); ok {
		t.Errorf("a day ago this number was not ours: %+v", id)
	}
}

// TestNamesOfThoseThatCameAndWent: processes that end before they are asked for
// are known by what the kernel noted, and those that a parent starts again and
// again are one family; what stays is a family of its own.
func TestNamesOfThoseThatCameAndWent(t *testing.T) {
	f := newNamesFixture(t)
	f.Gone = func(pid int) (string, int, bool) { return "curl", 20, 100 <= pid && pid < 200 }
	f.begin(20, 1, "sh", "/system.slice/cron.service", time.Second)
	if id, ok := f.Of(100, f.clock.UnixNano()); !ok || id.Comm != "curl" || id.PPID != 20 || id.Unit != "cron.service" {
		t.Errorf("%+v %v", id, ok)
	}
	if f.comm(200, 0) != "?" {
		t.Error("a name for a process that nobody knows")
	}
	if n := testing.AllocsPerRun(100, func() { f.Of(100, f.clock.UnixNano()) }); n != 0 {
		t.Errorf("%v allocations for what is remembered", n)
	}
	family := func(pid, want int) {
		t.Helper()
		if got, comm := f.Master(pid); got != want || comm != "curl" {
			t.Errorf("process %d belongs to %d (%s), want %d", pid, got, comm, want)
		}
	}
	family(100, 100)
	family(101, 100)
	f.begin(150, 20, "curl", "/", 1000*time.Second) // as young as can be, and there
	family(150, 100)
	f.begin(151, 20, "curl", "/", 900*time.Second) // and one that stays
	family(151, 151)
	f.begin(152, 1, "curl", "/", 1000*time.Second) // another's child
	family(152, 152)
	// Two that are there at once are two; when the elder has ended it stands for
	// those that come.
	f.Gone = nil
	f.begin(300, 30, "curl", "/", 1000*time.Second)
	f.begin(301, 30, "curl", "/", 1000*time.Second)
	family(300, 300)
	family(301, 301)
	f.end(301)
	f.begin(302, 30, "curl", "/", 1000*time.Second)
	family(302, 301)
}
