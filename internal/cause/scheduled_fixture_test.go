package cause

import "github.com/slowray/slowray/internal/observe"

const (
	cronPID, cronShell, cronJob = 600, 601, 602
)

// nightly injects a backup on full CPUs, started by a program of that name.
func nightly(by string, waits float64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		for i := range firing {
			if firing[i].cause == &cpuSaturated {
				firing[i].inject(o)
				break
			}
		}
		process(o, hog).UserSeconds = 0.1
		for _, pid := range []int{nginxWorker1, nginxWorker2, fpmChild1, fpmChild2} {
			process(o, pid).RunDelaySeconds *= waits
		}
		o.Processes = append(o.Processes,
			observe.Process{PID: cronPID, PPID: 1, Comm: by, State: "S", Threads: 1},
			observe.Process{PID: cronShell, PPID: cronPID, Comm: "sh", State: "S", Threads: 1},
			observe.Process{PID: cronJob, PPID: cronShell, Comm: "report-batch", State: "R", Threads: 1, UserSeconds: 14})
	}
}

// slowly injects CPUs at a part of their clock rate.
func slowly(mhz uint64, server int64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		working(server, "do_syscall_64", 10, nil)(o)
		o.Use.CPU = observe.CPUTime{User: 12, System: 4, Idle: 4}
		o.State.CPUFreqKHz, o.State.CPUFreqMaxKHz, o.State.CPUFreqLimitKHz, o.State.Throttled = mhz*1000, 3_000_000, 1_200_000, 7
	}
}

func stuckCPU(o *observe.Observation) {
	o.KernelLog = []observe.KernelLine{{Kind: "soft-lockup", Count: 2, Subject: "kworker/1:1:77", Example: "watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [kworker/1:1:77]"}}
}

func firingOnMachine() []fires {
	return []fires{
		{name: "a backup that cron started", cause: &scheduledJobCollision, inject: nightly("cron", 1),
			subject: Subject{Kind: "process", PID: cronShell}, minShare: 0.3, fix: "another time", evidence: "who started it=cron (pid 600)"},
		{name: "a third of the clock rate", cause: &cpuFrequencyCapped, inject: slowly(1000, 20*ms),
			subject: Subject{PID: appPID}, minShare: 0.5, fix: "too hot", evidence: "frequency of the CPUs, mean=1000"},
		{name: "a CPU stuck for 23 s", cause: &softLockup, inject: also(quiet(nginxServed().add(100, ms, ms, 0, quick).add(20, ms, ms, 0, parts{observe.Server: 5000 * ms})), stuckCPU),
			subject: Subject{NetNS: serverNS}, minShare: 0.8, fix: "virtual machine", evidence: "CPU#1 stuck for 23s"},
	}
}

func nearMissesOnMachine() []miss {
	return []miss{
		{"the same program, started by hand", &scheduledJobCollision, nightly("bash", 1), "no process that cron or a timer started"},
		{"a job next to a service that hardly waits", &scheduledJobCollision, nightly("cron", 0.01), "no request is slow for that"},
		{"slow for lack of work", &cpuFrequencyCapped, func(o *observe.Observation) {
			slowly(1000, 20*ms)(o)
			o.Use.CPU = observe.CPUTime{User: 1, Idle: 19}
		}, "5.0 % of them in use"},
		{"slow CPUs, quick requests", &cpuFrequencyCapped, slowly(1000, ms/4), "no request waits for what is computed"},
		{"nearly the full rate", &cpuFrequencyCapped, slowly(2400, 20*ms), "2400 of 3000 MHz"},
		{"a stuck CPU, and nobody waits", &softLockup, also(quiet(nginxServed().add(100, ms, ms, 0, quick)), stuckCPU), "no request stood still"},
	}
}
