package cause

import (
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// background is a thread that has nothing to do with the requests: they are
// slow, and not while it waits.
func background(c observe.WaitChain) func(*observe.Observation) {
	return stuck(stuckWeb(20), waitShare(nginxMaster, 0, 0, c))
}

var nearMissesOnWaits = []miss{
	{"a stopped process that no request waits for", &processStopped, func(o *observe.Observation) {
		g := waitGraph()
		g.Shares = append(g.Shares, waitShare(nginxMaster, 0, 0, stoppedSelf))
		o.Waits = g
	}, "no request there took longer than 25 ms"},
	{"a process that is stopped for a moment", &processStopped, stuck(stuckWeb(20), waitShare(nginxMaster, 3000*ms, 1, stoppedSelf)), "3.0 % of the time of its 20 slow requests"},
	{"a stop that one of many requests of a pool met for a moment", &processStopped, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 300*ms, 1, stoppedSelf)
		s.OfNS, s.OfRequests = 300*ms, 1
		stuck(stuckWeb(20), s)(o)
	}, "that is the time of 1 requests"},
	{"a circle in the background", &deadlock, background(roundChain), "not while one of its 20 slow requests"},
	{"a lock that is passed on while it is looked at", &deadlock, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 90_000*ms, 19, roundChain)
		s.LongestNS = 180 * ms
		stuck(stuckWeb(20), s)(o)
	}, "no threads were seen to wait for each other"},
	{"a lock of a file that waiters seem to have from each other", &deadlock, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 90_000*ms, 19, fileRound(200*ms))
		s.LongestNS = 3000 * ms
		stuck(stuckWeb(20), s)(o)
	}, "no threads were seen to wait for each other"},
	{"threads of an event loop that wake each other", &deadlock, func(o *observe.Observation) {
		c := roundChain
		c.Hops = slices.Clone(c.Hops)
		c.Hops[0].Wants, c.Hops[1].Wants, c.Sure = observe.WantsData, observe.WantsData, false
		stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, c))(o)
	}, "no threads were seen to wait for each other"},
	{"a log writer in the background", &logCollectorStalled, background(logChain), "not while one of its 20 slow requests"},
	{"a collector that falls behind now and then", &logCollectorStalled, stuck(stuckWeb(40), waitShare(nginxMaster, 20_000*ms, 4, logChain)), "10 % of the time of its 40 slow requests"},
	{"a pipe to a program that is no log", &logCollectorStalled, func(o *observe.Observation) {
		c := ends(observe.EndRunning, "runs", hop(nginxWorker1, nginxWorker1, observe.WaitPipe, observe.WantsRoom, "write", "fd 9 → pipe:[77]"),
			hop(backupPID, backupPID, observe.WaitTCP, observe.WantsRoom, "write", "fd 4 → tcp to 10.7.7.7:873"))
		stuck(stuckWeb(40), waitShare(nginxMaster, 190_000*ms, 39, c))(o)
	}, "no thread that answers requests was held up in writing its log"},
	{"a pipe that is full now and then", &blockedOnPipe, stuck(stuckWeb(20), waitShare(nginxMaster, 3000*ms, 1, pipeChain)), "3.0 % of the time"},
	{"a full pipe of another service", &blockedOnPipe, func(o *observe.Observation) {
		stuck(stuckWeb(20), waitShare(hog, 90_000*ms, 19, pipeChain))(o)
		o.Filter.Port = webPort
	}, "no thread that answers requests was held up in a write to a pipe"},
	{"two connects that waited", &unixSocketBacklog, stuck(stuckWeb(2), waitShare(nginxMaster, 9000*ms, 2, unixChain)), "the time of 2 requests"},
	{"a lock that is held for a moment", &blockedOnFileLock, stuck(stuckWeb(20), waitShare(nginxMaster, 9000*ms, 2, fileChain)), "9.0 % of the time"},
	{"goroutines that wait for the one that reads what another service answers", &lockConvoy, func(o *observe.Observation) {
		stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, goChannelChain))(o)
		followed(o, map[observe.ServerPart]float64{observe.ServerCall: 0.9, observe.ServerCPU: 0.1})
	}, "they wait for what other services answer"},
	{"a pool of threads that wait for work", &lockConvoy, nil, "12 threads waited to be woken, the longest for at least 9 s: idle workers"},
	{"on full CPUs", &lockConvoy, func(o *observe.Observation) {
		c := ends(observe.EndRunning, "runs", lockChain.Hops[0], hop(nginxWorker1, 111, observe.WaitRunnable, "", "", ""))
		stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, c))(o)
		o.Use.CPU = observe.CPUTime{User: 19, Idle: 0.5}
		o.Use.Course = nil
	}, "the CPUs are full"},
	{"a sync now and then", &fsyncBound, stuck(stuckWeb(20), waitShare(nginxMaster, 9000*ms, 2, fsyncChain)), "9.0 % of the time"},
	{"a background writer that waits for the disk", &blockedOnDisk, background(diskChain), "not while one of its 20 slow requests"},
	{"a remote service that is called in the background", &blockedOnRemote, background(remoteChain), "not while one of its 20 slow requests"},
	{"a remote service that is slow and answers", &blockedOnRemote, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 90_000*ms, 19, remoteChain)
		s.LongestNS = 300 * ms
		stuck(stuckWeb(20), s)(o)
	}, "but it answers, after 300 ms at most"},
	{"few looks", &lockConvoy, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 90_000*ms, 19, lockChain)
		s.Samples, s.LongestNS = 2, 200*ms
		stuck(stuckWeb(20), s)(o)
	}, "seen 2 times only"},
}

// fileRound is two threads of which each seems to have the lock of a file that the other
// waits for, the second since a time.
func fileRound(since int64) observe.WaitChain {
	c := roundChain
	c.Hops, c.Sure = slices.Clone(c.Hops), false
	for i := range c.Hops {
		h := &c.Hops[i]
		h.Kind, h.Wants, h.Syscall, h.Object, h.ForNS = observe.WaitFileLock, observe.WantsRelease, "flock", "fd 7 → /var/lib/seats.lock", since
	}
	return c
}

// TestFileLockRound: it is a deadlock when all stand still, and the lock of the file
// when they do not.
func TestFileLockRound(t *testing.T) {
	for since, want := range map[int64]ID{200 * ms: BlockedOnFileLock, 3000 * ms: Deadlock} {
		s := waitShare(nginxMaster, 90_000*ms, 19, fileRound(since))
		s.LongestNS = 3000 * ms
		if got, _ := blameOf(&s); got != want {
			t.Errorf("for %d ms: %s, want %s", since/ms, got, want)
		}
	}
}

// TestStoppedInPool: a stopped worker is found by the requests that it has, however many
// others of the pool are slow for another reason.
func TestStoppedInPool(t *testing.T) {
	o := healthy()
	s := waitShare(nginxMaster, 5000*ms, 1, stoppedSelf)
	s.OfNS, s.OfRequests = 5000*ms, 1
	stuck(stuckWeb(40), s)(o)
	r := processStopped.Judge(NewView(o))
	if len(r.Findings) != 1 || r.Findings[0].Impact.Share != 1 {
		t.Fatalf("findings %+v, want one that has all of the time of its one request", r.Findings)
	}
}

// TestWaitCausesFold: what follows from a stopped process, and one that is slow
// because of it, is reported under it.
func TestWaitCausesFold(t *testing.T) {
	o := healthy()
	stuck(stuckWeb(20), waitShare(nginxMaster, 90_000*ms, 19, pipeToStopped))(o)
	v := NewView(o)
	r := blockedOnPipe.Judge(v)
	if len(r.Findings) != 1 || r.Findings[0].ConsequenceOf == nil || *r.Findings[0].ConsequenceOf != "process-stopped" {
		t.Fatalf("the pipe: %+v, want a consequence of process-stopped", r.Findings)
	}
	stopped := processStopped.Judge(v).Findings[0]
	for _, l := range v.ledgers {
		if got, want := v.at(l)(&stopped), l.pid == nginxMaster; got != want {
			t.Errorf("%s of pid %d may follow: %v, want %v", l.name(), l.pid, got, want)
		}
	}
}

// TestWaitsOfSeveralServices: one collector that several services wait for is
// one finding.
func TestWaitsOfSeveralServices(t *testing.T) {
	o := healthy()
	g := stuckWeb(20)
	g.Slow = append(g.Slow, observe.SlowTime{PID: fpmMaster, Requests: 10, NS: 40_000 * ms})
	other := logChain
	other.Hops = slices.Clone(other.Hops)
	other.Hops[0] = hop(fpmChild1, fpmChild1, observe.WaitPipe, observe.WantsRoom, "write", "fd 2 → pipe:[99]")
	stuck(g, waitShare(nginxMaster, 90_000*ms, 19, logChain), waitShare(fpmMaster, 38_000*ms, 9, other))(o)
	r := logCollectorStalled.Judge(NewView(o))
	if len(r.Findings) != 1 || !slices.Equal(r.Findings[0].Holds, []int{nginxMaster, fpmMaster}) {
		t.Fatalf("findings %+v, want one that holds up both services", r.Findings)
	}
}

// TestWaitsOfCallers: requests of a service that calls the one held up are the same once
// more. Where few of its waits were followed they say nothing against what was seen there;
// of two services that do not call each other both count.
func TestWaitsOfCallers(t *testing.T) {
	own := ends(observe.EndIdle, "an event loop without work",
		hop(fpmChild1, fpmChild1, observe.WaitPipe, observe.WantsRoom, "write", "fd 1 → /run/log.fifo"),
		peer(hop(backupPID, backupPID, observe.WaitEpoll, "", "epoll_pwait", ""), observe.HowInferred, "has the other end, and does not read"))
	judge := func(caller observe.WaitChain) Result {
		o := healthy()
		g := waitGraph(observe.SlowTime{PID: nginxMaster, Requests: 20, NS: 100_000 * ms}, observe.SlowTime{PID: fpmMaster, Requests: 20, NS: 60_000 * ms})
		stuck(g, waitShare(fpmMaster, 50_000*ms, 19, own), waitShare(nginxMaster, 6_000*ms, 2, caller))(o)
		return blockedOnPipe.Judge(NewView(o))
	}
	calls := own
	calls.Hops = append([]observe.WaitHop{hop(nginxWorker1, nginxWorker1, observe.WaitTCP, observe.WantsAnswer, "read", "fd 7 → tcp to 127.0.0.1:9000")}, own.Hops...)
	r := judge(calls)
	if len(r.Findings) != 1 || r.Findings[0].Subject.PID != fpmMaster || r.Findings[0].Impact.Share < 0.8 {
		t.Errorf("a caller of which little is known: %+v, want what holds up who is called", r)
	}
	if len(r.Findings) == 1 && !slices.Contains(r.Findings[0].Holds, nginxMaster) {
		t.Errorf("holds up %v, want the caller %d too", r.Findings[0].Holds, nginxMaster)
	}
	other := own
	other.Hops = slices.Clone(own.Hops)
	other.Hops[0] = hop(nginxWorker1, nginxWorker1, observe.WaitPipe, observe.WantsRoom, "write", "fd 2 → /run/log.fifo")
	if r := judge(other); len(r.Findings) != 0 {
		t.Errorf("two services on their own, 35 %% of their slow time: %+v, want none", r.Findings)
	}
}
