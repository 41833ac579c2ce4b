package cause

import (
	"github.com/slowray/slowray/internal/observe"
)

// Processes that chains of waits lead to.
const (
	shimPID, enginePID, collectorPID = 500, 510, 520
	backupPID                        = 530
)

// healthyWaits is what the threads of the healthy host wait for: now and then a
// worker for a lock, while its owner wants a CPU.
func healthyWaits() *observe.WaitGraph {
	g := waitGraph(
		observe.SlowTime{PID: nginxMaster, Requests: 500, NS: 50e9, LongestNS: 270 * ms},
		observe.SlowTime{PID: fpmMaster, Requests: 300, NS: 20e9, LongestNS: 120 * ms},
	)
	g.Parked, g.ParkedNS = 12, 9000*ms
	g.Shares = append(g.Shares, waitShare(fpmMaster, 2*ms*1000, 30, ends(observe.EndRunning, "runs",
		hop(fpmChild1, fpmChild1, observe.WaitLock, observe.WantsRelease, "futex", "mutex at 0x7f00"),
		hop(fpmChild2, fpmChild2, observe.WaitRunnable, "", "", ""))))
	return g
}

// waitGraph begins what was seen of waits in ten seconds.
func waitGraph(slow ...observe.SlowTime) *observe.WaitGraph {
	return &observe.WaitGraph{Looks: 90, Processes: 6, EveryNS: 110 * ms, SlowerNS: 25 * ms, Followed: 20, Slow: slow}
}

// stuckWeb is a web server on which so many requests take five seconds.
func stuckWeb(n int) *observe.WaitGraph {
	return waitGraph(observe.SlowTime{PID: nginxMaster, Requests: n, Unfinished: n / 2, NS: int64(n) * 5000 * ms, LongestNS: 6000 * ms})
}

// waitShare is a shape of chain that took so much of the slow requests' time.
func waitShare(pid int, slowNS int64, requests float64, c observe.WaitChain) observe.WaitShare {
	return observe.WaitShare{PID: pid, Chain: c, Samples: 200, Threads: 8, AtOnce: 8, ThreadNS: max(slowNS, 1000*ms), LongestNS: 5000 * ms,
		LastNS: 9900 * ms, AtEnd: 8, SlowNS: slowNS, SlowRequests: requests, Reader: true}
}

// hop is a thread that waits.
func hop(pid, tid int, kind observe.WaitKind, wants observe.WaitWants, call, object string) observe.WaitHop {
	comm := map[int]string{nginxMaster: "nginx", nginxWorker1: "nginx", fpmMaster: "php-fpm8.2", fpmChild1: "php-fpm8.2", fpmChild2: "php-fpm8.2",
		shimPID: "containerd-shim", enginePID: "dockerd", collectorPID: "fluentd", backupPID: "backup"}[pid]
	return observe.WaitHop{Process: observe.WaitProcess{PID: pid, Comm: comm, NetNS: serverNS}, TID: tid, Comm: comm, State: "S", Syscall: call,
		Kind: kind, Wants: wants, Object: object, ForNS: 5000 * ms}
}

// peer says how a hop came into the chain.
func peer(h observe.WaitHop, how observe.WaitHow, why string) observe.WaitHop {
	h.How, h.Why = how, why
	return h
}

func ends(end observe.WaitEnd, text string, hops ...observe.WaitHop) observe.WaitChain {
	return observe.WaitChain{Threads: []int{hops[0].TID}, Count: 8, Hops: hops, End: end, Text: text, BackTo: -1}
}

// stuck injects waits on a machine with CPU to spare.
func stuck(g *observe.WaitGraph, shares ...observe.WaitShare) func(*observe.Observation) {
	return func(o *observe.Observation) {
		quiet(nginxServed().add(100, ms, ms, 0, quick).add(20, ms, ms, 0, parts{observe.Server: 5000 * ms}))(o)
		g.Shares = shares
		o.Waits = g
	}
}

// Chains of incident F and of its like.
var (
	writesLog   = hop(nginxWorker1, nginxWorker1, observe.WaitPipe, observe.WantsRoom, "write", "fd 1 → pipe:[1234]")
	shimWrites  = peer(hop(shimPID, shimPID+3, observe.WaitPipe, observe.WantsRoom, "write", "fd 7 → /run/docker/containerd/c1-stdout"), observe.HowInferred, "has the other end, and does not read")
	engineSends = func() observe.WaitHop {
		h := peer(hop(enginePID, enginePID+9, observe.WaitTCP, observe.WantsRoom, "epoll_pwait", "fd 21 → tcp to 127.0.0.1:24224"), observe.HowInferred, "has the other end, and does not read")
		h.Detail, h.QuietNS = "3924674 bytes not taken by the other end", 23_000*ms
		return h
	}()
	collector      = peer(hop(collectorPID, collectorPID, observe.WaitSleep, "", "clock_nanosleep", ""), observe.HowInferred, "has the other end, and does not read")
	stoppedHop     = peer(hop(collectorPID, collectorPID, observe.WaitStopped, "", "", ""), observe.HowPeer, "has the other end, and does not read")
	logChain       = ends(observe.EndSleep, "sleeps for a time that it chose itself", writesLog, shimWrites, engineSends, collector)
	remoteLogChain = func() observe.WaitChain {
		h := engineSends
		h.Object, h.Remote = "fd 21 → tcp to 10.7.7.9:24224", "10.7.7.9:24224"
		return ends(observe.EndRemote, "the chain leaves this host", writesLog, shimWrites, h)
	}()
	pipeChain = ends(observe.EndRunning, "runs, or is ready to: it does not wait",
		hop(nginxWorker1, nginxWorker1, observe.WaitPipe, observe.WantsRoom, "write", "fd 9 → pipe:[77]"),
		peer(hop(backupPID, backupPID, observe.WaitRunnable, "", "", ""), observe.HowPeer, "has the other end, and does not read"))
	lockChain = ends(observe.EndSleep, "sleeps for a time that it chose itself",
		hop(nginxWorker1, nginxWorker1, observe.WaitLock, observe.WantsRelease, "futex", "mutex at 0x55c8"),
		peer(hop(nginxWorker1, 111, observe.WaitSleep, "", "clock_nanosleep", "40ms"), observe.HowOwner, "holds the mutex"))
	fileChain = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitFileLock, observe.WantsRelease, "flock", "fd 7 → /var/lock/app")
		h.Detail = "FLOCK lock, WRITE"
		return ends(observe.EndSleep, "sleeps for a time that it chose itself", h,
			peer(hop(backupPID, backupPID, observe.WaitSleep, "", "clock_nanosleep", "1m0s"), observe.HowTable, "holds the lock on that file"))
	}()
	remoteChain = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitTCP, observe.WantsAccept, "connect", "fd 17 → tcp to 10.7.7.8:25")
		h.Remote, h.Detail = "10.7.7.8:25", "no answer to the SYN, sent 5 times"
		return ends(observe.EndRemote, "the chain leaves this host", h)
	}()
	fsyncChain = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitDisk, "", "fdatasync", "fd 5 → /var/lib/app/wal (ext4 on /dev/vda1)")
		h.State = "D"
		c := ends(observe.EndDisk, "waits for the disk (folio_wait_bit_common)", h)
		c.Path = "/var/lib/app"
		return c
	}()
	fuseChain = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitFuse, "", "read", "fd 5 → /mnt/photos/1.jpg (fuse.sshfs on host:)")
		c := ends(observe.EndFuse, "waits for a file system's server in user space (FUSE)", h)
		c.Path = "/mnt/photos"
		return c
	}()
	servedChain = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitFuse, observe.WantsAnswer, "openat", "/mnt/photos/1.jpg (fuse.photos on photos)")
		h.Inside = observe.InsideFuse
		return ends(observe.EndSleep, "sleeps for a time that it chose itself", h,
			peer(hop(backupPID, backupPID+1, observe.WaitSleep, "", "clock_nanosleep", "120ms"), observe.HowInferred, "serves the file system on /mnt/photos"))
	}()
	servedFarChain = func() observe.WaitChain {
		c := servedChain
		h := peer(hop(backupPID, backupPID+1, observe.WaitTCP, observe.WantsAnswer, "recvfrom", "fd 7 → tcp to 10.7.7.8:443"), observe.HowInferred, "serves the file system on /mnt/photos")
		h.Remote = "10.7.7.8:443"
		c.Hops = []observe.WaitHop{servedChain.Hops[0], h}
		c.End, c.Text = observe.EndRemote, "the chain leaves this host"
		return c
	}()
	diskChain = ends(observe.EndDisk, "waits for the disk (io_schedule)", hop(nginxWorker1, nginxWorker1, observe.WaitDisk, "", "pread64", "fd 5 → /srv/data (ext4 on /dev/vda1)"))
	unixChain = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitUnix, observe.WantsAccept, "connect", "fd 5 → unix to /run/app.sock")
		h.Detail = "6 connections wait to be accepted, of 5 that may"
		return ends(observe.EndSleep, "sleeps for a time that it chose itself", h,
			peer(hop(fpmChild1, fpmChild1, observe.WaitSleep, "", "clock_nanosleep", "5s"), observe.HowInferred, "listens there, and has not accepted the connection"))
	}()
	roundChain = func() observe.WaitChain {
		a := hop(nginxWorker1, 111, observe.WaitLock, observe.WantsRelease, "futex", "mutex at 0x10")
		b := peer(hop(nginxWorker1, 112, observe.WaitLock, observe.WantsRelease, "futex", "mutex at 0x20"), observe.HowOwner, "holds the mutex")
		c := ends(observe.EndCycle, "deadlock: thread 111 waits for thread 112, which waits for thread 111", a, b)
		c.BackTo, c.Sure = 0, true
		return c
	}()
	stoppedSelf = func() observe.WaitChain {
		h := hop(nginxWorker1, nginxWorker1, observe.WaitStopped, "", "", "")
		h.State = "T"
		return ends(observe.EndStopped, "nginx (pid 101) is stopped by a signal", h)
	}()
	frozenSelf = func() observe.WaitChain {
		c := ends(observe.EndFrozen, "the control group of nginx is frozen", hop(nginxWorker1, nginxWorker1, observe.WaitStopped, "", "", ""))
		c.Path = "/sys/fs/cgroup/docker/abc/cgroup.freeze"
		return c
	}()
	tracedSelf = func() observe.WaitChain {
		c := ends(observe.EndTraced, "nginx is stopped by its tracer", hop(nginxWorker1, nginxWorker1, observe.WaitStopped, "", "", ""))
		c.Actor = hog
		return c
	}()
	pipeToStopped = ends(observe.EndStopped, "fluentd (pid 520) is stopped by a signal", hop(nginxWorker1, nginxWorker1, observe.WaitPipe, observe.WantsRoom, "write", "fd 9 → pipe:[77]"), stoppedHop)
)

// firingOnWaits are the causes that are judged by wait chains, see firing.
var firingOnWaits = []fires{
	{
		name: "SIGSTOP", cause: &processStopped,
		inject:  stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, stoppedSelf)),
		subject: Subject{Kind: "process", PID: nginxWorker1, Comm: "nginx", NetNS: serverNS}, minShare: 0.89,
		fix: "kill -CONT 101", evidence: "state of nginx (pid 101)=T",
	},
	{
		name: "a frozen control group", cause: &processStopped,
		inject:  stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, frozenSelf)),
		subject: Subject{PID: nginxWorker1, Path: "/sys/fs/cgroup/docker/abc/cgroup.freeze"}, minShare: 0.89, fix: "echo 0 > /sys/fs/cgroup/docker/abc/cgroup.freeze",
	},
	{
		name: "a debugger", cause: &processStopped,
		inject:  stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, tracedSelf)),
		subject: Subject{PID: nginxWorker1}, minShare: 0.89, fix: "Its tracer is backup (pid 300)",
	},
	{
		name: "a pipe whose reader is stopped", cause: &processStopped,
		inject:  stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, pipeToStopped)),
		subject: Subject{PID: collectorPID, Comm: "fluentd"}, minShare: 0.89, fix: "kill -CONT 520",
	},
	{
		name: "two threads", cause: &deadlock,
		inject:  stuck(stuckWeb(8), waitShare(nginxMaster, 30_000*ms, 6, roundChain)),
		subject: Subject{PID: nginxWorker1, Port: webPort}, minShare: 0.7, fix: "same order", evidence: "threads of the circle=111, 112",
	},
	{
		name: "incident F", cause: &logCollectorStalled,
		inject:  stuck(stuckWeb(40), waitShare(nginxMaster, 190_000*ms, 39, logChain)),
		subject: Subject{Kind: "destination", Addr: "127.0.0.1", Port: 24224, PID: enginePID, NetNS: serverNS}, minShare: 0.9,
		fix: "mode=non-blocking", evidence: "nothing has passed there=23",
	},
	{
		name: "a collector elsewhere", cause: &logCollectorStalled,
		inject:  stuck(stuckWeb(40), waitShare(nginxMaster, 190_000*ms, 39, remoteLogChain)),
		subject: Subject{Addr: "10.7.7.9", Port: 24224}, minShare: 0.9, fix: "which is not on this host",
	},
	{
		name: "the reader is busy with something else", cause: &blockedOnPipe,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, pipeChain)),
		subject: Subject{Kind: "process", PID: nginxMaster, Port: webPort}, minShare: 0.7, fix: "backup (pid 530) has the other end", evidence: "full=fd 9 → pipe:[77]",
	},
	{
		name: "connect() waits", cause: &unixSocketBacklog,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, unixChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "Give it more workers", evidence: "queue=unix to /run/app.sock",
	},
	{
		name: "flock", cause: &blockedOnFileLock,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, fileChain)),
		subject: Subject{PID: nginxMaster, Path: "/var/lock/app"}, minShare: 0.7, fix: "slowray wait 530", evidence: "who holds it=backup (pid 530), which sleeps",
	},
	{
		name: "the owner sleeps", cause: &lockConvoy,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, lockChain)),
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.7, fix: "outside of the lock", evidence: "its owner=thread 111 (nginx) of nginx (pid 101), which sleeps",
	},
	{
		name: "a log that is synced", cause: &fsyncBound,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, fsyncChain)),
		subject: Subject{PID: nginxMaster, Path: "/var/lib/app"}, minShare: 0.7, fix: "group commit", evidence: "wal (ext4 on /dev/vda1)",
	},
	{
		name: "reads from a slow disk", cause: &blockedOnDisk,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, diskChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "iostat", evidence: "busiest disk, vda",
	},
	{
		name: "a file system in user space", cause: &blockedOnDisk,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, fuseChain)),
		subject: Subject{PID: nginxMaster, Path: "/mnt/photos"}, minShare: 0.7, fix: "the process that serves /mnt/photos",
	},
	{
		name: "who serves a file system sleeps", cause: &blockedOnDisk,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, servedChain)),
		subject: Subject{Kind: "process", PID: backupPID, Comm: "backup", Path: "/mnt/photos/1.jpg (fuse.photos on photos)"}, minShare: 0.7,
		fix: "a limit or a pause in its options", evidence: "who serves it=backup (pid 530), which sleeps",
	},
	{
		name: "who serves a file system asks another machine", cause: &blockedOnDisk,
		inject: func(o *observe.Observation) {
			s := waitShare(nginxMaster, 40_000*ms, 9, servedFarChain)
			s.LongestNS = 200 * ms
			stuck(stuckWeb(10), s)(o)
		},
		subject: Subject{PID: backupPID}, minShare: 0.7, fix: "as quick as 10.7.7.8:443 answers",
	},
	{
		name: "a mail host that is gone", cause: &blockedOnRemote,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, remoteChain)),
		subject: Subject{Kind: "destination", Addr: "10.7.7.8", Port: 25, NetNS: serverNS}, minShare: 0.7, fix: "does not answer the SYN", evidence: "connection=fd 17",
	},
}
