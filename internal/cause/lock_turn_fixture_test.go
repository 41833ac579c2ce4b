package cause

import "github.com/slowray/slowray/internal/observe"

// inTurns is a service in Python whose requests wait for the interpreter, of what their
// threads were seen to wait; a part of them is ready and has no CPU, while programs that
// another process starts fill the CPUs half of the time.
func inTurns(interpreter float64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		behindALock("python3.11", 0.84)(o)
		followed(o, map[observe.ServerPart]float64{observe.ServerLock: 0.84, observe.ServerCPU: 0.05, observe.ServerRunq: 0.11})
		o.Waits.Slow[0].InterpreterNS = int64(interpreter * 30e9)
		for i := range 40 {
			span := observe.CPUSpan{Seconds: 0.25 * float64(i+1), Busy: 0.5}
			if i%8 >= 4 {
				span.Busy, span.Idle = 0.2, 0.3
			}
			o.Use.Course = append(o.Use.Course, span)
		}
		o.Use.Forks = 200
		o.Profile.ShortLived = []observe.ProfileShort{{Comm: "gzip", Parent: hog, ParentComm: "backup", Processes: 90, Samples: 700}}
	}
}

var _ = fixturePair(fires{
	name: "who has the interpreter waits for a CPU, which programs that come and go have", cause: &shortLivedProcessStorm, inject: inTurns(0.6),
	subject: Subject{PID: hog, Comm: "backup"}, minShare: 0.45, fix: "backup (pid 300) start gzip", evidence: "how they cost requests time=the CPUs are full (0 % idle) for 5 s",
},
	miss{"who has the interpreter waits for a CPU", &gilContention, inTurns(0.6), "60 % of the slow requests' time threads of app (pid 500) wait for their turn to compute, with 0.10 CPUs together"},
	miss{"a lock of the program's, on CPUs that are full at times", &shortLivedProcessStorm, inTurns(0.05), "the service waits for a CPU"},
	miss{"threads that take turns at the interpreter", &lockConvoy, inTurns(0.6), "that is the interpreter's"},
	miss{"a thread next to those that take turns at the interpreter, which always has something in hand", &threadPoolExhausted, func(o *observe.Observation) {
		inTurns(0.6)(o)
		o.Waits.Looks = 100
		o.Waits.Pools = []observe.ThreadPool{{PID: appPID, Name: "python3", Root: "pack request.py", Busy: 1, Looks: 100, Switches: 4000, Does: []observe.PoolCall{{Name: "wait4", Share: 1}}}}
	}, "those wait for the lock of their interpreter"},
)

var _ = fixturePair(fires{
	name: "a thread for each connection, which has ended when the window has", cause: &gilContention,
	inject: func(o *observe.Observation) {
		behindALock("python3.11", 0.84)(o)
		process(o, appPID).UserSeconds = 9.7
		followed(o, map[observe.ServerPart]float64{observe.ServerLock: 0.84, observe.ServerCPU: 0.16})
		o.Waits.Slow[0].InterpreterNS = 20e9
	},
	subject: Subject{Kind: "process", PID: appPID}, minShare: 0.9, fix: "more processes instead of more threads", evidence: "of the slow requests' time, waiting for the interpreter's lock=0.667",
})
