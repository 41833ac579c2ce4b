package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// Shares and limits of processes and control groups, and what the machine is
// set to.
// inGroups tries a change on the control group of a finding, or on the first
// group of a service that has such a limit.
func inGroups(try func(*View, *observe.Cgroup) []Change) func(*View, Target) []Change {
	return func(v *View, t Target) []Change {
		groups := v.groupsWith(t.Service)
		if t.Finding != nil {
			groups = v.cgroups[t.Finding.Subject.Path]
		}
		for _, c := range groups {
			if c.EndedIn {
				continue
			}
			if changes := try(v, c); len(changes) > 0 {
				return changes
			}
		}
		return nil
	}
}

// moreQuota raises a CPU quota to what the finding says, where there are CPUs
// for it.
func (v *View) moreQuota(c *observe.Cgroup) []Change {
	want := v.wantedCPUs(c)
	if c.QuotaFile == "" || c.QuotaCPUs <= 0 || want <= c.QuotaCPUs {
		return nil
	}
	return []Change{groupChange(c.QuotaFile, quotaText(c, c.QuotaCPUs), quotaText(c, want))}
}

// spareMemory is how much of want, bytes more than now, may be given to a group:
// half of what is available at most.
func (v *View) spareMemory(now, want uint64) uint64 {
	return min(want, now+v.Use.Memory.AvailableBytes/2)
}

func (v *View) moreMemoryHigh(c *observe.Cgroup) []Change {
	want := v.spareMemory(c.MemoryHighBytes, wantedMemoryHigh(c))
	if c.HighFile == "" || c.MemoryHighBytes == 0 || want <= c.MemoryHighBytes+c.MemoryHighBytes/8 {
		return nil
	}
	return []Change{groupChange(c.HighFile, utoa(c.MemoryHighBytes), utoa(want))}
}

func (v *View) moreMemory(c *observe.Cgroup) []Change {
	want := v.spareMemory(c.MemoryLimitBytes, 2*c.MemoryLimitBytes)
	if c.MemoryFile == "" || c.MemoryLimitBytes == 0 || want <= c.MemoryLimitBytes+c.MemoryLimitBytes/8 {
		return nil
	}
	return []Change{groupChange(c.MemoryFile, utoa(c.MemoryLimitBytes), utoa(want))}
}

func (v *View) moreIO(c *observe.Cgroup) []Change {
	uses := v.ioUses(c)
	if len(uses) == 0 {
		return nil
	}
	file, value := uses[0].command(c, wantedIO)
	if file == "" {
		return nil
	}
	_, was := uses[0].command(c, 1)
	return []Change{groupChange(file, was, value)}
}

func (v *View) moreTasks(c *observe.Cgroup) []Change {
	if c.PIDsFile == "" || c.PIDsLimit == 0 {
		return nil
	}
	return []Change{groupChange(c.PIDsFile, utoa(c.PIDsLimit), utoa(wantedTasks(c)))}
}

// usualWeight is the weight of a control group where nobody set one.
func usualWeight(c *observe.Cgroup) string {
	if c.Version == 2 {
		return "100"
	}
	return "1024"
}

// weightChange gives a group the usual weight.
func weightChange(c *observe.Cgroup) []Change {
	if c.WeightFile == "" {
		return nil
	}
	was := c.CPUWeight
	if c.Version != 2 {
		was = was * 1024 / 100
	}
	return []Change{groupChange(c.WeightFile, itoa(was), usualWeight(c))}
}

// tryUsualWeight gives a service the usual share of the CPUs, where it has less.
func tryUsualWeight(v *View, t Target) []Change {
	if t.Service == nil || t.Finding != nil {
		return nil
	}
	var changes []Change
	for _, c := range v.groupsWith(t.Service) {
		if c.CPUWeight > 0 && c.CPUWeight <= lowWeight && c.Path != "/" {
			changes = append(changes, weightChange(c)...)
		}
	}
	return append(changes, usualNice(v.processesOf(t.Service))...)
}

// groupsWith lists the control groups that hold a process of a service, in the
// order of the Observation.
func (v *View) groupsWith(s *Service) []*observe.Cgroup {
	if s == nil {
		return nil
	}
	var places []int
	for _, pid := range s.PIDs {
		places = append(places, v.groups[pid]...)
	}
	return v.groupsAt(places)
}

// usualNice has processes no longer give way to others.
func usualNice(procs []*observe.Process) []Change {
	var polite []*observe.Process
	for _, p := range procs {
		if p.Nice >= lowNice {
			polite = append(polite, p)
		}
	}
	return niceChanges(polite, 0)
}

// processesOf are the processes of a service, at most 16.
func (v *View) processesOf(s *Service) []*observe.Process {
	var out []*observe.Process
	for _, pid := range s.PIDs {
		if p := v.Process(pid); p != nil && !p.EndedIn && len(out) < 16 {
			out = append(out, p)
		}
	}
	return out
}

// tryAllCPUs lets a service run on all CPUs, where it may not.
func tryAllCPUs(v *View, t Target) []Change {
	if t.Service == nil || t.Finding != nil {
		return nil
	}
	return v.widerAffinity(v.processesOf(t.Service))
}

// widerAffinity lets processes run on all CPUs.
func (v *View) widerAffinity(procs []*observe.Process) []Change {
	var changes []Change
	for _, p := range procs {
		if p.CPUs == "" || p.EndedIn {
			continue
		}
		c := v.affinityChange(p)
		if !slices.ContainsFunc(changes, func(o Change) bool { return o.Kind == ChangeCgroup && o.Path == c.Path }) || c.Kind != ChangeCgroup {
			changes = append(changes, c)
		}
	}
	return changes
}

// family is a process and all that it started, at most 32.
func (v *View) family(root *observe.Process) []*observe.Process {
	out := []*observe.Process{root}
	for i := 0; i < len(out) && len(out) < 32; i++ {
		for _, pid := range v.children[out[i].PID] {
			if p := v.Process(pid); p != nil && !p.EndedIn {
				out = append(out, p)
			}
		}
	}
	return out
}

// named are the processes of a name, as many as a command lists.
func named(procs []*observe.Process, comm string) []*observe.Process {
	var out []*observe.Process
	for _, p := range procs {
		if p.Comm == comm && len(out) < 8 && !p.EndedIn {
			out = append(out, p)
		}
	}
	return out
}

// tryMoreFiles raises the limit of open files: of the processes that were refused
// one, or of all that serve.
func tryMoreFiles(v *View, t Target) []Change {
	s := v.service(t)
	if s == nil || t.Finding != nil && t.Finding.Fix.Commands == nil {
		return nil
	}
	refused := func(pid int) bool {
		return t.Finding == nil || pid == t.Finding.Subject.PID || slices.ContainsFunc(s.accepts, func(a *observe.Accept) bool { return a.PID == pid && a.Errors["EMFILE"] > 0 })
	}
	var changes []Change
	for _, p := range v.processesOf(s) {
		want := v.wantedFDs(p)
		if p.FDLimit > 0 && want > p.FDLimit && refused(p.PID) {
			changes = append(changes, rlimitChange(p, "nofile", itoa(p.FDLimit), itoa(want)))
		}
	}
	return changes
}

// wantedFDs is the limit of open files that is proposed for a process, which may
// not be known. One that the hard limit allows is enough where it is far more than the
// present one: raising that needs a right that is missing in most containers
// (CAP_SYS_RESOURCE).
func (v *View) wantedFDs(p *observe.Process) int {
	want := 65536
	if p != nil {
		want = max(want, 8*p.FDLimit)
		if p.FDHard >= farMoreFDs*p.FDLimit && p.FDLimit > 0 {
			want = min(want, p.FDHard)
		}
	}
	if most := v.sysctlNumber("fs.nr_open", 0); most > 0 {
		want = min(want, int(most))
	}
	return want
}

// farMoreFDs times the present limit of open files is enough.
const farMoreFDs = 4

// raisedFDs is wantedFDs, as an argument of prlimit(1).
func (v *View) raisedFDs(p *observe.Process) (want int, limit string) {
	want = v.wantedFDs(p)
	return want, nofile(p, want)
}

// nofile is a limit of open files as prlimit(1) takes it for a process, which may not
// be known: the hard limit stays where it allows as many.
func nofile(p *observe.Process, want int) string {
	if p != nil && p.FDHard >= want {
		return fmt.Sprintf("%d:", want)
	}
	return fmt.Sprintf("%d:%d", want, want)
}

// betterClock is a clocksource that there is and that is quick to read; empty
// where there is none but the present one.
func (v *View) betterClock() string {
	for _, better := range []string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen"} {
		if slices.Contains(v.State.Clocksources, better) && v.State.Clocksource != better {
			return better
		}
	}
	return ""
}

const clocksourceFile = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

func tryBetterClock(v *View) []Change {
	better := v.betterClock()
	if better == "" || !slices.Contains(slowClocks, v.State.Clocksource) {
		return nil
	}
	return []Change{fileChange(clocksourceFile, v.State.Clocksource, better)}
}

// tryNoWriteThrottle has the block layer no longer hold writes back on the
// busiest disk.
func tryNoWriteThrottle(v *View) []Change {
	if len(v.Use.Disks) == 0 {
		return nil
	}
	busiest := slices.MaxFunc(v.Use.Disks, func(a, b observe.Disk) int {
		switch {
		case a.BusySeconds < b.BusySeconds:
			return -1
		case a.BusySeconds > b.BusySeconds:
			return 1
		}
		return 0
	})
	return []Change{fileChange("/sys/block/"+busiest.Name+"/queue/wbt_lat_usec", "", "0")}
}

func tryFewerLargePages(*View) []Change {
	return []Change{fileChange("/sys/kernel/mm/transparent_hugepage/defrag", "", "madvise")}
}
