package cause

import "github.com/slowray/slowray/internal/observe"

// working is a service whose CPU time is in a function of the kernel, of 900
// samples.
func working(server int64, function string, samples uint64, more func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) {
		p := app(o, "app", 9.6, 0)
		p.Course = course(appPID, 0.97, 0)
		with(o, appServed().add(1000, ms, ms, 0, parts{observe.RecvWait: server, observe.Server: server}))
		sampled(o, appPID, 900, kernelFunction(function, samples))
		if more != nil {
			more(o)
		}
	}
}

func kernelFunction(name string, total uint64) observe.ProfileFunction {
	return function(observe.FrameKernel, name, "vmlinux", total/4, total, 2)
}

// onArray injects requests that wait for a disk of an array.
func onArray(a observe.RAIDArray, slowNS int64, requests float64) func(*observe.Observation) {
	return func(o *observe.Observation) {
		c := diskChain
		c.Path = "/srv/data"
		stuck(stuckWeb(20), waitShare(nginxMaster, slowNS, requests, c))(o)
		o.Filesystems = []observe.Filesystem{{Dir: "/srv/data", Type: "ext4", Source: "/dev/md0p1", SizeBytes: 1}}
		o.State.Arrays = []observe.RAIDArray{a}
	}
}

// dropped injects requests that wait for a disk while something holds.
func whileReading(slowNS int64, requests float64, more func(*observe.Observation)) func(*observe.Observation) {
	return func(o *observe.Observation) {
		stuck(stuckWeb(20), waitShare(nginxMaster, slowNS, requests, diskChain))(o)
		more(o)
	}
}

func dropsCaches(o *observe.Observation) {
	o.Use.VM["drop_pagecache"] = 3
	o.KernelLog = []observe.KernelLine{{Kind: "drop-caches", Subject: "free-memory.sh (4711)", Count: 3, Example: "free-memory.sh (4711): drop_caches: 3"}}
}

func muchSlab(o *observe.Observation) {
	o.Use.Memory.SlabBytes, o.Use.Memory.SlabKeptBytes = 10<<30, 9<<30
}

var mirror = observe.RAIDArray{Name: "md0", Level: "raid1", Devices: 2, Working: 1, Action: "recovery"}

func firingOnKernelWork() []fires {
	app := Subject{Kind: "process", PID: appPID, Port: appPort}
	return []fires{
		{name: "hpet", cause: &slowClocksource, inject: working(20*ms, "read_hpet", 500, func(o *observe.Observation) {
			o.State.Clocksource, o.State.Clocksources = "hpet", []string{"tsc", "hpet", "acpi_pm"}
		}), subject: app, minShare: 0.5, fix: "echo tsc >", evidence: "clocksource=hpet"},
		{name: "a session file for each of a hundred", cause: &filesPerRequest, inject: working(20*ms, "do_sys_openat2", 600, nil),
			subject: app, minShare: 0.6, fix: "open_file_cache", evidence: "CPU time in do_sys_openat2=0.667"},
		{name: "threads that wake each other", cause: &contextSwitchThrash, inject: working(20*ms, "__schedule", 500, func(o *observe.Observation) {
			process(o, appPID).Timeslices = 600_000
		}), subject: app, minShare: 0.5, fix: "fewer threads", evidence: "switched to=60000"},
		{name: "a debug log", cause: &logFlooding, inject: working(20*ms, "ext4_file_write_iter", 700, func(o *observe.Observation) {
			process(o, appPID).Writes = []observe.WrittenFile{{Path: "/var/log/app/debug.log", Bytes: 900 << 20}}
		}), subject: app, minShare: 0.7, fix: "log level", evidence: "/var/log/app/debug.log"},
		{name: "a mirror that is rebuilt", cause: &raidDegraded, inject: onArray(mirror, 90_000*ms, 19),
			subject: Subject{PID: nginxMaster, Path: "/srv/data"}, minShare: 0.89, fix: "mdadm --detail /dev/md0", evidence: "md0 (raid1) has 1 of 2 disks, and is at work on itself (recovery)"},
		{name: "a script frees memory", cause: &cachesDropped, inject: whileReading(90_000*ms, 19, dropsCaches),
			subject: Subject{PID: nginxMaster}, minShare: 0.89, fix: "free-memory.sh (4711)", evidence: "drops of the caches in the window=3"},
		{name: "millions of inodes", cause: &slabBloat, inject: whileReading(90_000*ms, 19, muchSlab),
			subject: Subject{PID: nginxMaster}, minShare: 0.89, fix: "slabtop", evidence: "what cannot be freed"},
	}
}

func nearMissesOnKernelWork() []miss {
	return []miss{
		{"hpet, and hardly anybody asks", &slowClocksource, working(20*ms, "read_hpet", 40, func(o *observe.Observation) { o.State.Clocksource = "hpet" }), "4.4 % of its CPU time reading the clock"},
		{"a clock that is another one now", &slowClocksource, working(20*ms, "read_hpet", 500, func(o *observe.Observation) { o.State.Clocksource = "tsc" }), "clocksource: tsc"},
		{"a file server whose requests are quick", &filesPerRequest, working(ms/4, "path_openat", 700, nil), "no request is slow for it"},
		{"some files", &filesPerRequest, working(20*ms, "path_openat", 200, nil), "22 % of its CPU time opening"},
		{"switches in a quick service", &contextSwitchThrash, working(ms/4, "__schedule", 700, func(o *observe.Observation) { process(o, appPID).Timeslices = 600_000 }), "no request is slow for it"},
		{"few switches", &contextSwitchThrash, working(20*ms, "__schedule", 700, func(o *observe.Observation) { process(o, appPID).Timeslices = 20_000 }), "switched to: 2000"},
		{"a log next to what is computed", &logFlooding, working(20*ms, "ext4_file_write_iter", 200, nil), "22 % of its CPU time writing files"},
		{"a busy log in a quick service", &logFlooding, working(ms/4, "ext4_file_write_iter", 700, nil), "no request is slow for it"},
		{"a degraded array that nobody waits for", &raidDegraded, onArray(mirror, 0, 0), "no request waits for it"},
		{"requests wait for another disk", &raidDegraded, also(onArray(mirror, 90_000*ms, 19), func(o *observe.Observation) { o.Filesystems[0].Source = "/dev/vda1" }), "no request waits for it"},
		{"caches are dropped, nobody waits", &cachesDropped, whileReading(0, 0, dropsCaches), "3 times by free-memory.sh (4711), and no request waits"},
		{"much of it, nobody waits", &slabBloat, whileReading(0, 0, muchSlab), "no request waits for memory"},
		{"directory entries that can be freed", &slabBloat, whileReading(90_000*ms, 19, func(o *observe.Observation) { o.Use.Memory.SlabBytes = 10 << 30 }), "10240 MB"},
	}
}
