package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// MemoryPressure: the serving processes stall because memory has to be freed
// or read back first (Documentation/accounting/psi.rst).
const MemoryPressure ID = "memory-pressure"

var memoryPressure = Cause{
	ID:            MemoryPressure,
	Title:         "Memory pressure stalls the service",
	Layer:         LayerMachine,
	Class:         ClassMachine | ClassShort,
	Needs:         []observe.Kind{observe.KindMemory, observe.KindProcess},
	ConsequenceOf: []Parent{PageCacheThrash, MemoryHighThrottled, JVMHeapOverLimit, ContainerOOMKilled, HostOOMKilled},
	Folds:         true,
	Check:         checkMemoryPressure,
	Try:           inGroups((*View).moreMemory),
}

func checkMemoryPressure(v *View) Result {
	stall := ratio(v.Use.Pressure["memory"].SomeSeconds, v.Window.Seconds)
	var faults uint64
	var blocked, samples int
	var worst *observe.Process
	for i := range v.Processes {
		p := &v.Processes[i]
		if !v.Serving(p.PID) {
			continue
		}
		faults += p.MajorFaults
		if worst == nil || p.MajorFaults > worst.MajorFaults {
			worst = p
		}
		if p.States != nil {
			blocked += p.States.Disk
			samples += p.States.Samples
		}
	}
	var group *observe.Cgroup
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		if c.MemoryAtLimit == 0 || c.MemoryLimitBytes == 0 || !slices.ContainsFunc(c.PIDs, v.Serving) {
			continue
		}
		// Where a kernel counts for the groups around it, too, the inner one is at its limit.
		if group == nil || cmp.Or(cmp.Compare(c.MemoryAtLimit, group.MemoryAtLimit), cmp.Compare(len(c.Path), len(group.Path))) > 0 {
			group = c
		}
	}
	reclaim := v.Use.VM["allocstall_normal"] + v.Use.VM["allocstall_movable"] + v.Use.VM["allocstall_dma32"]
	text := fmt.Sprintf("memory stalls took %s of the window, %s major faults in the services", percent(stall), count(faults))
	hurts := float64(faults) >= 10*v.Window.Seconds || ratio(blocked, samples) >= 0.05
	if worst == nil || stall < memoryStall || !hurts || reclaim == 0 && group == nil && v.Use.VM["pswpin"] == 0 {
		return ruledOut(text)
	}
	if !v.feltBy(func(l *ledger) bool { return l.noticed(l.cost(1, threadParts...), threadFloor) }) {
		return ruledOut(text + "; no request is slow for that")
	}
	f := supported(Subject{Kind: "process", PID: worst.PID, Comm: worst.Comm, NetNS: worst.NetNS})
	f.Weight = stall
	f.Impact = Impact{Share: round(stall), Of: "slow time", OfTime: true, Text: text}
	f.Evidence = []Evidence{
		{Fact: "time with a task stalled for memory", Value: round(stall), Unit: "share of the window", Source: "/proc/pressure/memory"},
		{Fact: "major page faults of the services", Value: faults, Unit: "faults", Source: "/proc/PID/stat"},
		{Fact: "memory available", Value: v.Use.Memory.AvailableBytes, Limit: v.Use.Memory.TotalBytes, Unit: "bytes", Source: "/proc/meminfo"},
		{Fact: "direct reclaim", Value: reclaim, Unit: "stalls", Source: "/proc/vmstat allocstall"},
		{Fact: "pages swapped in", Value: v.Use.VM["pswpin"], Unit: "pages", Source: "/proc/vmstat"},
	}
	f.Fix.Text = "Free memory: see the processes with most resident memory, or give the machine more."
	if group == nil {
		v.memoryPod(&f, v.podOf(worst.Container, worst.Cgroup).pod)
	} else {
		f.Subject.Kind, f.Subject.Path = "cgroup", group.Path
		f.Evidence = append(f.Evidence, Evidence{Fact: "cgroup at its limit", Value: group.MemoryUsedBytes, Limit: group.MemoryLimitBytes, Unit: "bytes", Source: group.Path})
		h, want := v.holderOfGroup(group), 2*group.MemoryLimitBytes
		f.Fix.Text = fmt.Sprintf("Raise the memory limit of %s (%s).%s", h.text, byteText(group.MemoryLimitBytes), h.setsWhere())
		h.raise(&f.Fix, group.MemoryFile, utoa(want), memorySetting(want))
	}
	return Result{Findings: []Finding{f}}
}

// memoryPod says which pod has the process that uses most memory, and what its manifest allows
// it, where that is a good part of the machine's, unless that is the pod which suffers.
func (v *View) memoryPod(f *Finding, victim *observe.Pod) {
	big := v.largest()
	if big == nil || big.PID == v.Self || ratio(big.RSSBytes, v.Use.Memory.TotalBytes) < largeMemory {
		return
	}
	at := v.podOf(big.Container, big.Cgroup)
	if at.pod == nil || at.pod == victim {
		return
	}
	limit := "none"
	advice := fmt.Sprintf(" The largest process is of %s: limit its memory in the manifest (%s), and have it request what it uses (resources.requests.memory), so that the scheduler leaves room.", at.text(), at.field("resources.limits.memory"))
	if at.container != nil && at.container.MemoryLimit > 0 {
		limit = byteText(at.container.MemoryLimit)
		advice = fmt.Sprintf(" The largest process is of %s: have it request the memory that it uses (%s), so that the scheduler leaves room.", at.text(), at.field("resources.requests.memory"))
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "memory of the largest process, " + v.whose(big), Value: byteText(big.RSSBytes), Source: "/proc/PID/stat"},
		Evidence{Fact: "memory limit of " + at.text(), Value: limit, Source: at.field("resources.limits.memory")})
	f.Fix.Text += advice
}

// feltBy says whether requests that are answered here are slow, as slow tells, or are held up;
// and where hardly any are recorded, that they may be: what a machine shows is no harm yet.
func (v *View) feltBy(slow func(*ledger) bool) bool {
	asked := false
	for _, l := range v.ledgers {
		if l.called() {
			continue
		}
		if _, held := v.heldUp(l); held || l.Requests >= fewRequests && slow(l) {
			return true
		}
		asked = asked || l.Requests >= fewRequests
	}
	return !asked
}

// DiskSaturated: the serving processes wait for a block device that is busy
// all the time and answers late.
const DiskSaturated ID = "disk-saturated"

var diskSaturated = Cause{
	ID:            DiskSaturated,
	Title:         "A disk is saturated",
	Layer:         LayerMachine,
	Class:         ClassMachine | ClassShort,
	Needs:         []observe.Kind{observe.KindDisk, observe.KindProcess},
	ConsequenceOf: []Parent{PageCacheThrash, ScheduledJobCollision},
	Folds:         true,
	Check:         checkDiskSaturated,
}

const (
	diskTraffic = 1 << 20 // bytes/s of a process, to be called its writer
)

func checkDiskSaturated(v *View) Result {
	var blocked, samples int
	for i := range v.Processes {
		if p := &v.Processes[i]; v.Serving(p.PID) && p.States != nil {
			blocked += p.States.Disk
			samples += p.States.Samples - p.States.Accept - p.States.Poll
		}
	}
	wait := ratio(blocked, samples)
	r := ruledOut("no disk was busy")
	top := -1.0
	for i := range v.Use.Disks {
		d := &v.Use.Disks[i]
		busy := ratio(d.BusySeconds, v.Window.Seconds)
		await := 0.0
		if n := d.Reads + d.Writes; n > 0 {
			await = (d.ReadSeconds + d.WriteSeconds) / float64(n)
		}
		if busy < diskBusy || await < diskWait || wait < diskBlocked {
			if busy > top {
				top = busy
				r.RuledOut = fmt.Sprintf("%s was busy %s of the time with %s a request; the services spent %s of their busy time waiting for disks", d.Name, percent(busy), seconds(await), percent(wait))
			}
			continue
		}
		if !v.feltBy(func(l *ledger) bool { _, much := v.waitsForDisk(l); return much }) {
			top = busy
			r.RuledOut = fmt.Sprintf("%s was busy %s of the time with %s a request; no request is slow for that", d.Name, percent(busy), seconds(await))
			continue
		}
		f := supported(Subject{Kind: "disk", Path: "/dev/" + d.Name})
		f.Weight = wait
		f.Impact = Impact{Share: round(wait), Of: "slow time", OfTime: true, Text: fmt.Sprintf("the services wait for disks %s of their busy time", percent(wait))}
		f.Evidence = []Evidence{
			{Fact: "device busy", Value: round(busy), Unit: "share of the window", Source: "/proc/diskstats"},
			{Fact: "request latency, mean", Value: round(await * 1e3), Unit: "ms", Source: "/proc/diskstats"},
			{Fact: "serving threads in uninterruptible sleep", Value: round(wait), Unit: "share of their busy time", Source: "/proc/PID/stat"},
			{Fact: "most bytes", Value: v.diskUsers(d.Number), Source: "/proc/PID/io"},
		}
		f.Evidence = append(f.Evidence, v.claimEvidence(d.Number)...)
		f.Fix.Text = "Slow down or move the process with most bytes, or give the data a faster disk."
		if r := v.waitsFor(storageWaits, func(r *root) bool { return r.store() == d.Number && d.Number != "" }); r != nil {
			v.aboutVolume(r, &f)
		} else {
			v.noisyPod(d.Number, v.blockedPods(), &f)
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// blockedPods are those of which a process that answers requests waits for disks.
func (v *View) blockedPods() map[*observe.Pod]bool {
	out := map[*observe.Pod]bool{}
	for i := range v.Processes {
		if p := &v.Processes[i]; v.Serving(p.PID) && p.States != nil && p.States.Disk > 0 {
			out[v.podOf(p.Container, p.Cgroup).pod] = true
		}
	}
	return out
}

// diskUsers names the processes that moved most bytes, as far as is known on a disk.
func (v *View) diskUsers(store string) string {
	var users []*observe.Process
	known := false  // of some that they did it there
	placed := false // of some, however little, that they have files open there
	for i := range v.Processes {
		p := &v.Processes[i]
		may, shown := v.movedOn(p, store)
		placed = placed || shown
		if float64(p.MovedBytes()) >= diskTraffic*v.Window.Seconds && (may || store == "") {
			if shown && !known {
				known, users = true, nil
			}
			if shown || !known {
				users = append(users, p)
			}
		}
	}
	if len(users) == 0 && !placed && store != "" && isDisk(store) {
		// A mapped device (LVM, dm-crypt, RAID) and the disks under it have other numbers.
		return v.diskUsers("")
	}
	slices.SortFunc(users, func(a, b *observe.Process) int {
		return cmp.Or(cmp.Compare(b.MovedBytes(), a.MovedBytes()), cmp.Compare(a.PID, b.PID))
	})
	var parts []string
	for _, p := range users[:min(3, len(users))] {
		parts = append(parts, fmt.Sprintf("%s %d MB", v.whose(p), p.MovedBytes()>>20))
	}
	return strings.Join(parts, ", ")
}
