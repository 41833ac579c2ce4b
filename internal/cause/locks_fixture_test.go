package cause

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// goHop is a goroutine that waits.
func goHop(id uint64, kind observe.WaitKind, wants observe.WaitWants, object string, stack ...string) observe.WaitHop {
	h := hop(nginxWorker1, nginxWorker1, kind, wants, "", object)
	h.Goroutine, h.Stack = id, stack
	return h
}

// pythonHop is a thread of Python that waits.
func pythonHop(tid int, at string, kind observe.WaitKind, wants observe.WaitWants) observe.WaitHop {
	h := hop(nginxWorker1, tid, kind, wants, "futex", "Python lock 0x2f122ae0 at "+at)
	h.Stack = []string{at, "serve booking.py:137"}
	return h
}

const seemsToHold = "seems to hold it: it is in the same function, behind the line where it is locked"

// Chains of goroutines.
var (
	goLockChain = ends(observe.EndSleep, "goroutine 15 sleeps",
		goHop(19, observe.WaitLock, observe.WantsRelease, "sync.Mutex 0xc0001234 at orders.book orders.go:41", "orders.book orders.go:41", "orders.handle orders.go:12"),
		peer(goHop(15, observe.WaitSleep, "", "a time that it chose itself at orders.book orders.go:43", "orders.book orders.go:43"), observe.HowInferred, seemsToHold))
	goSleepChain = ends(observe.EndSleep, "goroutine 19 sleeps for a time that it chose itself",
		goHop(19, observe.WaitSleep, "", "a time that it chose itself at orders.retry orders.go:90", "orders.retry orders.go:90", "orders.handle orders.go:12"))
	sleepChain     = ends(observe.EndSleep, "sleeps for a time that it chose itself", hop(nginxWorker1, nginxWorker1, observe.WaitSleep, "", "clock_nanosleep", "0.5s"))
	goUnownedChain = ends(observe.EndNoOwner, "who holds it is not known", goLockChain.Hops[0])
	goChannelChain = ends(observe.EndNoOwner, "goroutine 22 has a request in hand",
		goHop(22, observe.WaitChannel, observe.WantsRelease, "a value from a channel at orders.ask orders.go:77", "orders.ask orders.go:77"))
	pythonLockChain = ends(observe.EndSleep, "sleeps for a time that it chose itself",
		pythonHop(nginxWorker1, "book booking.py:77", observe.WaitLock, observe.WantsRelease),
		peer(pythonHop(111, "book booking.py:78", observe.WaitSleep, ""), observe.HowInferred, seemsToHold))
	pythonRoundChain = func() observe.WaitChain {
		c := ends(observe.EndCycle, "a circle",
			pythonHop(nginxWorker1, "transfer booking.py:85", observe.WaitLock, observe.WantsRelease),
			peer(pythonHop(111, "transfer booking.py:85", observe.WaitLock, observe.WantsRelease), observe.HowInferred, seemsToHold))
		c.BackTo = 0
		return c
	}()
	javaRoundChain = func() observe.WaitChain {
		c := ends(observe.EndCycle, "a circle",
			hop(nginxWorker1, nginxWorker1, observe.WaitLock, observe.WantsRelease, "futex", "Java monitor 0x55f2b67e3d10 of a Booking$Account"),
			peer(hop(nginxWorker1, 111, observe.WaitLock, observe.WantsRelease, "futex", "Java monitor 0x7f8a9c00cc90 of a Booking$Account"), observe.HowOwner, "has entered the monitor"))
		c.BackTo, c.Sure = 0, true
		return c
	}()
	goRoundChain = func() observe.WaitChain {
		c := ends(observe.EndCycle, "a circle: goroutine 51 waits for goroutine 83, which waits for goroutine 51",
			goHop(51, observe.WaitLock, observe.WantsRelease, "sync.Mutex 0xc0005678 at orders.transfer orders.go:60", "orders.transfer orders.go:60"),
			peer(goHop(83, observe.WaitLock, observe.WantsRelease, "sync.Mutex 0xc0001234 at orders.transfer orders.go:60", "orders.transfer orders.go:60"), observe.HowInferred, seemsToHold))
		c.BackTo = 0
		return c
	}()
)

var firingOnLocks = []fires{
	{
		name: "goroutines queue for a lock, and who holds it sleeps", cause: &lockConvoy,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, goLockChain)),
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.7, fix: "sleeps at orders.book orders.go:43", evidence: "who seems to hold it=goroutine 15, which sleeps",
	},
	{
		name: "goroutines queue for a lock whose owner is not known", cause: &lockConvoy,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, goUnownedChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "Go writes that down nowhere", evidence: "stack of goroutine 19=orders.book orders.go:41",
	},
	{
		name: "threads of Python queue for a lock", cause: &lockConvoy,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, pythonLockChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "sleeps at book booking.py:78", evidence: "who seems to hold it=thread 111, which sleeps",
	},
	{
		name: "threads of Python in a circle", cause: &deadlock,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, pythonRoundChain)),
		subject: Subject{PID: nginxWorker1}, minShare: 0.7, fix: "py-spy dump", evidence: "stack of thread 111=transfer booking.py:85",
	},
	{
		name: "monitors of Java in a circle", cause: &deadlock,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, javaRoundChain)),
		subject: Subject{PID: nginxWorker1}, minShare: 0.7, fix: "Thread.print -l", evidence: "Java monitor 0x55f2b67e3d10 of a Booking$Account",
	},
	{
		name: "several shells start one program without end", cause: &shortLivedProcessStorm,
		inject: func(o *observe.Observation) {
			app(o, "app", 1, 9)
			full(o)
			with(o, appServed().add(100, ms, ms, 0, computed))
			o.Use.Forks = 9000
			for i := range 4 {
				o.Profile.ShortLived = append(o.Profile.ShortLived, observe.ProfileShort{Comm: "true", Parent: 4400 + i, ParentComm: "sh", Processes: 200, Samples: 250})
			}
		},
		subject: Subject{PID: 4400, Comm: "sh"}, minShare: 0.45, fix: "start true less often", evidence: "processes named sh that start it=4",
	},
	{
		name: "requests wait for a channel", cause: &lockConvoy,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, goChannelChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "bound the wait with a time limit", evidence: "what they wait for=a value from a channel",
	},
	{
		name: "handlers of Go that sleep", cause: &applicationSleep,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, goSleepChain)),
		subject: Subject{PID: nginxMaster, Port: webPort}, minShare: 0.7, fix: "sleeps at orders.retry orders.go:90", evidence: "where it sleeps=orders.retry orders.go:90",
	},
	{
		name: "workers that sleep at a place that is not known", cause: &applicationSleep,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, sleepChain)),
		subject: Subject{PID: nginxMaster}, minShare: 0.7, fix: "Who answers sleeps, about 4.44 s", evidence: "the longest=5",
	},
	{
		name: "goroutines in a circle", cause: &deadlock,
		inject:  stuck(stuckWeb(10), waitShare(nginxMaster, 40_000*ms, 9, goRoundChain)),
		subject: Subject{PID: nginxWorker1}, minShare: 0.7, fix: "inferred", evidence: "goroutines of the circle=51, 83",
	},
}

var nearMissesOnLocks = []miss{
	{"many shells, each of which runs something else", &shortLivedProcessStorm, func(o *observe.Observation) {
		app(o, "app", 1, 9)
		full(o)
		with(o, appServed().add(100, ms, ms, 0, computed))
		o.Use.Forks = 9000
		for i, program := range []string{"grep", "ls", "awk", "true"} {
			o.Profile.ShortLived = append(o.Profile.ShortLived, observe.ProfileShort{Comm: program, Parent: 4400 + i, ParentComm: "sh", Processes: 200, Samples: 250})
		}
	}, "took 13 % of the CPUs at most (those of sh)"},
	{"goroutines that wait for a lock in the background", &lockConvoy, background(goLockChain), "not while one of its 20 slow requests"},
	{"threads that sleep in the background", &applicationSleep, background(sleepChain), "not while one of its 20 slow requests"},
	{"a short pause in each request", &applicationSleep, stuck(stuckWeb(1000), waitShare(nginxMaster, 4_000_000*ms, 80_000, sleepChain)), "that is 50 ms of a request"},
	{"a pool whose threads sleep for a moment of each request, and a queue before them", &applicationSleep, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 4_000*1000*ms, 800, sleepChain) // four threads, of a hundred requests that wait
		s.Threads, s.AtOnce, s.Samples, s.ThreadNS = 4, 4, 140, 25_000*ms
		stuck(stuckWeb(1000), s)(o)
		o.Waits.EveryNS = 250 * ms
	}, "0.7 % of the time of its 1,000 slow requests"},
	{"a lock that takes little of the requests' time", &lockConvoy, stuck(stuckWeb(20), waitShare(nginxMaster, 9000*ms, 2, goLockChain)), "9.0 % of the time"},
	{"owners that seem to go in a circle for a moment", &deadlock, func(o *observe.Observation) {
		s := waitShare(nginxMaster, 90_000*ms, 19, goRoundChain)
		s.LongestNS = 180 * ms
		stuck(stuckWeb(20), s)(o)
	}, "no threads were seen to wait for each other"},
	{"a circle of goroutines that no request waits for", &deadlock, func(o *observe.Observation) {
		c := goRoundChain
		c.Hops = slices.Clone(c.Hops)
		background(c)(o)
	}, "not while one of its 20 slow requests"},
}
