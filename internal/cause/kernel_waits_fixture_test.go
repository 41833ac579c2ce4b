package cause

import (
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// insideChain is a thread of the web server that waits inside the kernel.
func insideChain(inside observe.WaitInside, call, object string) observe.WaitChain {
	h := hop(nginxWorker1, nginxWorker1, observe.WaitKernel, "", call, object)
	h.State, h.Inside = "D", inside
	end := observe.EndKernel
	switch inside {
	case observe.InsideDirty, observe.InsideWriteback, observe.InsideJournal, observe.InsideNetworkFS, observe.InsideDisk:
		end, h.Kind = observe.EndDisk, observe.WaitDisk
	}
	c := ends(end, "waits inside the kernel", h)
	c.Path = "/srv/data"
	return c
}

var (
	syslogChain = ends(observe.EndStopped, "fluentd (pid 520) is stopped by a signal",
		hop(nginxWorker1, nginxWorker1, observe.WaitUnix, observe.WantsRoom, "sendto", "fd 3 → unix to /dev/log"),
		peer(hop(collectorPID, collectorPID, observe.WaitDisk, "", "fsync", "fd 9 → /var/log/syslog"), observe.HowPeer, "has the other end, and does not read"))
	consoleChain = ends(observe.EndNoOwner, "the terminal takes no more", hop(nginxWorker1, nginxWorker1, observe.WaitTerminal, observe.WantsRoom, "write", "fd 1 → /dev/ttyS0"))
)

// mapLockChain is a thread of the web server that waits for the lock of its memory map,
// while another one maps memory.
var mapLockChain = func() observe.WaitChain {
	h := insideChain(observe.InsideMapLock, "mmap", "").Hops[0]
	h.Wants = observe.WantsRelease
	return ends(observe.EndRunning, "runs, or is ready to: it does not wait", h,
		peer(hop(nginxWorker1, 111, observe.WaitRunnable, "", "", ""), observe.HowInferred, "runs meanwhile"))
}()

// mapsTables has the CPU of the web server spent on a mapping with all its pages.
func mapsTables(o *observe.Observation) {
	stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, mapLockChain))(o)
	populate := observe.ProfileFunction{Frame: observe.Frame{Name: "__mm_populate", Kind: observe.FrameKernel}, Total: 800, Height: 4}
	o.Profile = &observe.Profile{Hz: 99, Samples: 2000, Processes: []observe.ProfileProcess{{
		PID: nginxWorker1, Comm: "nginx", Samples: 1000, Kernel: 900, Functions: []observe.ProfileFunction{populate},
		Threads: []observe.ProfileThread{{TID: 111, Comm: "loader", Samples: 900, Functions: []observe.ProfileFunction{populate}}},
	}}}
}

func init() { syslogChain.End, syslogChain.Text = observe.EndDisk, "waits for the disk" }

// insides is each such wait with a word of the fix.
var insides = []struct {
	cause  *Cause
	inside observe.WaitInside
	call   string
	fix    string
}{
	{&dirtyThrottled, observe.InsideDirty, "write", "vm.dirty_bytes"},
	{&writebackThrottled, observe.InsideWriteback, "write", "wbt_lat_usec"},
	{&journalCommitStall, observe.InsideJournal, "openat", "larger journal"},
	{&nfsStalled, observe.InsideNetworkFS, "read", "nfsstat"},
	{&swapThrash, observe.InsideSwap, "", "keep it from being swapped"},
	{&directReclaimStall, observe.InsideReclaim, "", "watermark_scale_factor"},
	{&directReclaimStall, observe.InsideGroupMemory, "mmap", "watermark_scale_factor"},
	{&compactionStall, observe.InsideCompaction, "mmap", "transparent_hugepage"},
	{&mmapLockContention, observe.InsideMapLock, "munmap", "slowray flame --pid 101 --off-cpu"},
	{&directoryLockContention, observe.InsideDirectory, "openat", "several directories"},
	{&fileWriteLock, observe.InsideFileLock, "write", "file of its own"},
	{&coreDump, observe.InsideCoreDump, "", "coredump_filter"},
	{&entropyWait, observe.InsideRandom, "getrandom", "virtio-rng"},
	{&auditBacklog, observe.InsideAudit, "openat", "auditctl"},
	{&hungTask, "", "ioctl", "/proc/101/task/101/stack"},
	{&hungTask, observe.InsideFrozen, "openat", "fsfreeze --unfreeze"},
}

func firingOnKernelWaits() []fires {
	out := []fires{{
		name: "the daemon of the log waits for its disk", cause: &syslogBlocked,
		inject:  stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, syslogChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.89, fix: "fluentd (pid 520) reads the log and is late", evidence: "/dev/log",
	}, {
		name: "a serial console", cause: &slowConsole,
		inject:  stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, consoleChain)),
		subject: Subject{PID: nginxMaster, Path: "/dev/ttyS0"}, minShare: 0.89, fix: "Ctrl-Q", evidence: "terminal=fd 1",
	}, {
		name: "the limit of its group leaves a service no room", cause: &swapThrash,
		inject: func(o *observe.Observation) {
			stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, insideChain(observe.InsideSwap, "", "")))(o)
			o.Cgroups = append(o.Cgroups, observe.Cgroup{Path: "/shop", Version: 1, PIDs: []int{nginxWorker1}, MemoryLimitBytes: 64 << 20, MemoryUsedBytes: 63 << 20,
				MemoryFile: "/sys/fs/cgroup/memory/shop/memory.limit_in_bytes"})
		},
		subject: Subject{Kind: "cgroup", PID: nginxMaster, Path: "/shop"}, minShare: 0.7, fix: "echo 134217728 > /sys/fs/cgroup/memory/shop/memory.limit_in_bytes", evidence: "memory of control group /shop=63",
	}, {
		name: "who waits for room in its group swaps too", cause: &swapThrash,
		inject: func(o *observe.Observation) {
			stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, insideChain(observe.InsideGroupMemory, "", "")))(o)
			o.Use.VM["pswpin"] = 20_000
		},
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "keep it from being swapped", evidence: "meanwhile=20,000 pages were swapped in",
	}, {
		name: "another thread maps large tables", cause: &mmapLockContention, inject: mapsTables,
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "thread 111 (loader) has the lock while mmap(MAP_POPULATE)", evidence: "who seems to hold it=thread 111 (nginx), which runs",
	}}
	for i, c := range insides {
		out = append(out, fires{
			name: insideName("requests wait so", i), cause: c.cause,
			inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, insideChain(c.inside, c.call, "fd 5 → /srv/data/x"))),
			subject: Subject{PID: nginxMaster, Path: "/srv/data"}, minShare: 0.7, fix: c.fix, evidence: "what is waited for=fd 5 → /srv/data/x",
		})
	}
	return out
}

// insideName tells rows of one cause apart by the call.
func insideName(name string, row int) string {
	for i := range insides[:row] {
		if insides[i].cause == insides[row].cause {
			return name + ", in " + insides[row].call
		}
	}
	return name
}

func nearMissesOnKernelWaits() []miss {
	out := []miss{
		{"a program in the background logs", &syslogBlocked, background(syslogChain), "not while one of its 20 slow requests"},
		{"a terminal that is stopped now and then", &slowConsole, stuck(stuckWeb(20), waitShare(nginxMaster, 3000*ms, 1, consoleChain)), "3.0 % of the time"},
		{"uninterruptible for a moment", &hungTask, func(o *observe.Observation) {
			s := waitShare(nginxMaster, 90_000*ms, 19, insideChain("", "ioctl", ""))
			s.LongestNS = 400 * ms
			stuck(stuckWeb(20), s)(o)
		}, "no thread that answers requests was seen to wait for that"},
		{"the memory limit of a control group", &hungTask, stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, insideChain(observe.InsideGroupMemory, "", ""))), "no thread that answers"},
		{"two threads in the background map in turn", &mmapLockContention, background(mapLockChain), "not while one of its 20 slow requests"},
		{"pages are swapped, nobody waits", &swapThrash, func(o *observe.Observation) { o.Use.VM["pswpin"] = 90_000 }, "90,000 pages were swapped in"},
	}
	for i, c := range insides {
		out = append(out,
			miss{insideName("a thread in the background", i), c.cause, background(insideChain(c.inside, c.call, "fd 5 → /srv/data/x")), "not while one of its 20 slow requests"},
			miss{insideName("now and then", i), c.cause, stuck(stuckWeb(20), waitShare(nginxMaster, 9000*ms, 2, insideChain(c.inside, c.call, ""))), "9.0 % of the time"})
	}
	return out
}

// What a thread syncs is fsync-bound, in the journal too.
func TestASyncIsASync(t *testing.T) {
	for _, inside := range []observe.WaitInside{observe.InsideJournal, observe.InsideDisk, observe.InsideWriteback, ""} {
		r := check(&fsyncBound, stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, insideChain(inside, "fdatasync", "fd 5 → /srv/data/x"))))
		if len(r.Findings) != 1 {
			t.Errorf("%q: %s", inside, r.RuledOut)
		}
	}
}

// A tracer that stops a process for a moment at each call does not hold it.
func TestATracerThatLetsGo(t *testing.T) {
	s := waitShare(nginxMaster, 90_000*ms, 19, tracedSelf)
	s.LongestNS = 20 * ms
	if r := check(&processStopped, stuck(stuckWeb(20), s)); len(r.Findings) != 0 {
		t.Errorf("process-stopped: %s", r.Findings[0].Impact.Text)
	}
}
