package cause

import (
	"github.com/slowray/slowray/internal/observe"
)

const (
	appPort   = 8000
	appPID    = 500
	appThread = 501
	ksoftirqd = 15
)

// app is a service of one process, "app", which executes exe; it used cpu
// seconds of the window and waited for a CPU delay seconds.
func app(o *observe.Observation, exe string, cpu, delay float64) *observe.Process {
	idle(o)
	o.Namespaces[0].Listeners = append(o.Namespaces[0].Listeners, observe.Listener{Proto: "tcp", Addr: "10.9.8.1", Port: appPort, Inode: 77,
		PID: appPID, PIDs: []int{appPID}, Comm: "app", Limit: 511, Samples: 40, Clients: 20, Opened: 20})
	o.Processes = append(o.Processes, observe.Process{PID: appPID, PPID: 1, Comm: "app", Exe: exe, State: "S", Threads: 1, NetNS: serverNS,
		UserSeconds: cpu, RunDelaySeconds: delay, States: &observe.ThreadStates{Rounds: 40, Samples: 40, Running: 20, Poll: 20}})
	return process(o, appPID)
}

// appServed is the requests of app.
func appServed() *traffic { return servedAt(appPort, "10.9.8.1", appPID, "app") }

// with puts requests in place of those of the fixture, and spreads the slowest
// of each endpoint over the window.
func with(o *observe.Observation, list ...*traffic) {
	o.Endpoints = nil
	for _, t := range list {
		for i := range t.list {
			t.list[i].PID = t.e.PID
			t.list[i].StartNS = o.Window.Start.UnixNano() + int64(i)*10_000*ms/int64(len(t.list))
		}
		o.Endpoints = append(o.Endpoints, t.endpoint())
	}
}

// course is what the busiest thread of a process did in each quarter of a
// second: shares of the time.
func course(tid int, cpu, delay float64) []observe.RunSpan {
	var spans []observe.RunSpan
	for i := range 40 {
		spans = append(spans, observe.RunSpan{Seconds: 0.25 * float64(i+1), CPU: cpu / 4, Delay: delay / 4, TopTID: tid, TopCPU: cpu / 4, TopDelay: delay / 4})
	}
	return spans
}

// sampled is a process's CPU samples with the functions that have them.
func sampled(o *observe.Observation, pid int, samples uint64, functions ...observe.ProfileFunction) {
	o.Profile.Samples += samples
	o.Profile.Processes = append(o.Profile.Processes, observe.ProfileProcess{PID: pid, Samples: samples, Functions: functions})
}

func function(kind observe.FrameKind, name, module string, self, total uint64, height float64) observe.ProfileFunction {
	return observe.ProfileFunction{Frame: observe.Frame{Name: name, Kind: kind, Module: module}, Self: self, Own: self, Total: total, Height: height}
}

// full leaves the fixture's machine without idle CPUs: used by whom, the
// processes say.
func full(o *observe.Observation) {
	o.Use.CPU = observe.CPUTime{User: 18, System: 1.8, Idle: 0.2}
	o.Use.PerCPU = []observe.CPUTime{{User: 9, System: 0.9, Idle: 0.1}, {User: 9, System: 0.9, Idle: 0.1}}
}

// Ledgers of services that compute.
var (
	queued   = parts{observe.RecvWait: 80 * ms, observe.Server: 10 * ms, observe.Network: ms / 10} // behind other requests
	computed = parts{observe.RecvWait: ms, observe.Server: 300 * ms, observe.Network: ms / 10}
	longest  = parts{observe.RecvWait: ms / 10, observe.Server: 95 * ms, observe.Network: ms / 10}
	behind   = parts{observe.RecvWait: 60 * ms, observe.Server: ms, observe.Network: ms / 10}
	brief    = parts{observe.RecvWait: ms / 10, observe.Server: 9 * ms, observe.Network: ms / 10}
	forked   = parts{observe.RecvWait: ms, observe.Server: 120 * ms, observe.Network: ms / 10}
)

// eventLoop is a service whose one thread computes all the time.
func eventLoop(exe string) func(*observe.Observation) {
	return func(o *observe.Observation) {
		p := app(o, exe, 9.6, 0.1)
		p.Course = course(appPID, 0.97, 0.01)
		with(o, appServed().add(1000, ms, ms, 0, queued))
		o.Use.CPU = observe.CPUTime{User: 11, System: 1, Idle: 8}
	}
}

// collapse is a function that takes a list's turns.
var collapse = []observe.ProfileFunction{
	function(observe.FrameNative, "start_thread", "libc.so.6", 0, 930, 3),
	function(observe.FrameNative, "handle", "app", 10, 930, 2),
	function(observe.FrameNative, "price_of_route", "app", 800, 900, 0.1),
	function(observe.FrameNative, "memcpy", "libc.so.6", 100, 100, 0),
}

// interpreted is what an interpreter does for code that computes.
var interpreted = []observe.ProfileFunction{
	function(observe.FrameNative, "_PyEval_EvalFrameDefault", "libpython3.11.so.1.0", 65, 66, 1),
	function(observe.FrameNative, "_PyObject_Free", "libpython3.11.so.1.0", 32, 32, 0),
	function(observe.FrameNative, "object_dealloc", "libpython3.11.so.1.0", 15, 15, 0),
	function(observe.FrameNative, "_PyObject_Malloc", "libpython3.11.so.1.0", 10, 10, 0),
	function(observe.FrameNative, "l_mod", "libpython3.11.so.1.0", 9, 9, 0),
	function(observe.FrameKernel, "do_syscall_64", "vmlinux", 0, 7, 0),
}

// pricedAtTimes is a service that answers most requests at once, and one of nine
// after 36 ms, of which its threads spend a share in one part.
func pricedAtTimes(share float64, part observe.ServerPart, functions ...observe.ProfileFunction) func(*observe.Observation) {
	return func(o *observe.Observation) {
		app(o, "python3.11", 2, 0.5)
		with(o, appServed().add(517, ms, ms, 0, parts{observe.Server: ms}).add(64, ms, ms, 0, parts{observe.Server: 36 * ms, observe.Network: ms / 10}))
		followed(o, map[observe.ServerPart]float64{part: share, observe.ServerRunq: 0.9 - share, observe.ServerOther: 0.1})
		sampled(o, appPID, 196, functions...)
	}
}

// followed splits the Server time of the first endpoint's requests.
func followed(o *observe.Observation, shares map[observe.ServerPart]float64) {
	e := &o.Endpoints[0]
	s := &observe.SplitStats{Requests: e.Requests, ServerNS: e.Parts["server"].SumNS, Parts: map[string]observe.PartStats{},
		SlowParts: map[string]int64{}, SlowServerNS: e.SlowParts["server"]}
	for p, share := range shares {
		s.Parts[p.String()] = observe.PartStats{SumNS: int64(share * float64(s.ServerNS))}
		s.SlowParts[p.String()] = int64(share * float64(s.SlowServerNS))
	}
	e.Split = s
}

// flood is a machine whose CPU 0 is busy with packets.
func flood(o *observe.Observation) {
	o.Use.PerCPU[0] = observe.CPUTime{System: 3, SoftIRQ: 6, Idle: 1}
	o.Processes = append(o.Processes, observe.Process{PID: ksoftirqd, PPID: 2, Comm: "ksoftirqd/0", Kernel: true, SystemSeconds: 4.5})
}

// together lets the slowest requests of the first endpoint wait at once.
func together(o *observe.Observation) {
	for i := range o.Endpoints[0].Slowest {
		o.Endpoints[0].Slowest[i].StartNS = o.Window.Start.UnixNano() + 5000*ms + int64(i)*ms
	}
}

// longAndBehind are the slowest requests of an event loop that has a long one in
// hand now and then: after each long one, by that much, another comes in.
func longAndBehind(o *observe.Observation, after int64) {
	slowest := o.Endpoints[0].Slowest
	for i := range slowest {
		nth := int64(i % (len(slowest) / 2))
		slowest[i].StartNS = o.Window.Start.UnixNano() + nth*300*ms
		if i >= len(slowest)/2 {
			slowest[i].StartNS += after
		}
	}
}
