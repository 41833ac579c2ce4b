package cause

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// CPUQuotaThrottled: a cgroup that has used its quota for the period does not
// run until the next one (CFS bandwidth control, Documentation/scheduler/
// sched-bwc.rst), however idle the machine is.
const CPUQuotaThrottled ID = "cpu-quota-throttled"

var cpuQuotaThrottled = Cause{
	ID:    CPUQuotaThrottled,
	Title: "The CPU quota throttles the service",
	Layer: LayerMachine,
	Class: ClassMachine | ClassShort | ClassCPU,
	Needs: []observe.Kind{observe.KindCgroup},
	Check: checkCPUQuota,
	Try:   inGroups((*View).moreQuota),
}

func checkCPUQuota(v *View) Result {
	r := ruledOut("no service runs under a CPU quota")
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		if c.QuotaCPUs <= 0 && c.ThrottledPeriods == 0 || !slices.ContainsFunc(c.PIDs, v.Serving) {
			continue
		}
		share := ratio(c.ThrottledPeriods, c.Periods)
		if v.podOfLimit(c) {
			continue
		}
		if share < throttledShare || c.ThrottledSeconds < throttledSeconds*v.Window.Seconds {
			r.RuledOut = fmt.Sprintf("%s may use %s and was throttled in %s of its periods", c.Path, cpusText(c), percent(share))
			continue
		}
		t := v.throttledTime(c)
		if t.requests > 0 && t.worst == nil {
			r.RuledOut = fmt.Sprintf("%s may use %s and was throttled in %s of its periods, for %s in all, but no request of it is slow for that: %s",
				c.Path, cpusText(c), percent(share), seconds(c.ThrottledSeconds), t.because)
			continue
		}
		r.Findings = append(r.Findings, quotaFinding(v, c, share, t))
	}
	return r
}

// lifted says that a group was throttled in the window and has no quota at its end.
func lifted(c *observe.Cgroup) bool { return c.QuotaCPUs <= 0 && c.ThrottledPeriods > 0 }

// cpusText is what a group may use now.
func cpusText(c *observe.Cgroup) string {
	if lifted(c) {
		return "all CPUs by now"
	}
	return fmt.Sprintf("%.3g CPUs", c.QuotaCPUs)
}

// podOfLimit says that a group is a pod's, whose quota is the sum of those of its containers
// (pkg/kubelet/cm/helpers_linux.go), and that one of these has one: it is what the manifest sets.
func (v *View) podOfLimit(c *observe.Cgroup) bool {
	return v.podOf("", c.Path).pod != nil && slices.ContainsFunc(v.Cgroups, func(o observe.Cgroup) bool {
		return o.QuotaCPUs > 0 && o.ThrottledPeriods > 0 && strings.HasPrefix(o.Path, c.Path+"/")
	})
}

// defaultPeriod is cpu.cfs_period_us where it is not known, in s (kernel/sched/fair.c,
// default_cfs_period).
const defaultPeriod = 0.1

// throttledTime is what a quota costs the requests of the services under it.
type throttledTime struct {
	requests uint64  // that they answered
	worst    *ledger // the endpoint that loses most, nil when none is slow
	held     float64 // share of the time its threads could run in which the quota held them back
	always   bool    // its requests in general lose it, not just the slowest
	share    float64 // of the requests' time, or of the slowest requests'
	ns       float64 // a request, or one of the slowest
	because  string  // when none is slow, the time breakdown
}

// throttledTime judges by the time threads of the group waited for a CPU while
// it was throttled: run delays hold that time too, and other waits for a CPU.
func (v *View) throttledTime(c *observe.Cgroup) throttledTime {
	var t throttledTime
	inside := map[int]bool{}
	for _, pid := range c.PIDs {
		inside[pid] = true
	}
	for _, l := range v.workedBy(c.PIDs...) {
		if l.Requests < fewRequests {
			continue
		}
		var cpu, delay float64
		for _, p := range v.workers(l) {
			if inside[p.PID] {
				cpu += p.CPUSeconds()
				delay += p.RunDelaySeconds
			}
		}
		if cpu+delay == 0 {
			continue
		}
		t.requests += l.Requests
		k := l.cost(1, threadParts...)
		t.because = l.whereTimeGoes()
		if !l.noticed(k, threadFloor) {
			continue
		}
		// A group that is throttled all the time waits for all of it, however
		// many threads there are.
		held := max(ratio(min(c.ThrottledSeconds, delay), cpu+delay), ratio(c.ThrottledSeconds, v.Window.Seconds*float64(max(v.Host.CPUs, 1))))
		server, slow := held*l.MeanNS(observe.Server), held*l.SlowNS(observe.Server)
		if sp := l.Split; sp != nil && sp.Requests >= fewRequests {
			server, slow = sp.ShareNS(observe.ServerThrottled, l.MeanNS(observe.Server)), sp.SlowShareNS(observe.ServerThrottled, l.SlowNS(observe.Server))
		}
		k.ns = server + held*(k.ns-l.MeanNS(observe.Server))
		k.slowNS = slow + held*(k.slowNS-l.SlowNS(observe.Server))
		share, ns, always := ratio(k.slowNS, l.SlowTotalNS()), k.slowNS, l.always(k, threadFloor)
		if always {
			share, ns = ratio(k.ns*float64(l.Requests), l.TimeNS()), k.ns
		}
		if share >= wasteShare && share > t.share {
			t.worst, t.held, t.always, t.share, t.ns = l, held, always, share, ns
		}
	}
	return t
}

// wantedCPUs is the quota that is proposed for a group, which is that of all pods of one
// workload: as much as it ran on while its quota let it, and no less than twice what it has,
// in the next step of 0.05, from 1 on 0.1, from 10 on 1.
func (v *View) wantedCPUs(c *observe.Cgroup) float64 {
	ran := 2 * c.QuotaCPUs
	for _, o := range v.sameLimit(c) {
		ran = max(ran, v.ranOn(o))
	}
	step := 0.05
	switch {
	case ran >= 10:
		step = 1
	case ran >= 1:
		step = 0.1
	}
	return min(float64(max(v.Host.CPUs, 1)), math.Round(100*step*math.Ceil(ran/step-1e-9))/100)
}

// ranOn is on how many CPUs the threads of a group ran while its quota let them, in the
// periods in which it was used up: with so many it would not be. throttled_time adds up the
// CPUs on which threads of it were held back at once.
func (v *View) ranOn(c *observe.Cgroup) float64 {
	cpus, period := float64(max(v.Host.CPUs, 1)), float64(c.PeriodNS)/1e9
	if period == 0 {
		period = defaultPeriod
	}
	held := c.ThrottledSeconds / (float64(c.ThrottledPeriods) * period)
	if c.ThrottledPeriods == 0 || held <= 0 {
		return c.QuotaCPUs
	}
	held /= min(max(math.Ceil(held), 1), cpus)
	return min(cpus, c.QuotaCPUs/max(1-held, c.QuotaCPUs/cpus))
}

// sameLimit lists the groups that one field of a manifest limits: those of a container in the
// pods of a workload. Of any other group it is the group itself.
func (v *View) sameLimit(c *observe.Cgroup) []*observe.Cgroup {
	w := v.holderOfGroup(c).pod.workload()
	if w.Container == "" {
		return []*observe.Cgroup{c}
	}
	var out []*observe.Cgroup
	for i := range v.Cgroups {
		o := v.holderOfGroup(&v.Cgroups[i]).pod.workload()
		if o.Pod = w.Pod; o == w && v.Cgroups[i].QuotaCPUs == c.QuotaCPUs {
			out = append(out, &v.Cgroups[i])
		}
	}
	return out
}

// ranEvidence is what a proposed quota is derived from.
func (v *View) ranEvidence(c *observe.Cgroup) Evidence {
	return Evidence{Fact: "CPUs that it ran on while the quota let it, in periods that used the quota up", Value: round(v.ranOn(c)), Limit: c.QuotaCPUs, Unit: "CPUs", Source: "cpu.stat, quota and period"}
}

// quotaText is a quota as the group's file takes it, in µs.
func quotaText(c *observe.Cgroup, cpus float64) string {
	period := c.PeriodNS / 1000
	if period == 0 {
		period = int64(defaultPeriod * 1e6)
	}
	if c.Version == 2 {
		return fmt.Sprintf("%d %d", int64(cpus*float64(period)), period)
	}
	return fmt.Sprint(int64(cpus * float64(period)))
}

func quotaFinding(v *View, c *observe.Cgroup, share float64, t throttledTime) Finding {
	f := supported(Subject{Kind: "cgroup", Path: c.Path})
	for _, pid := range c.PIDs {
		if s := v.ServiceOf(pid); s != nil {
			m := v.Master(pid)
			f.Subject.PID, f.Subject.Comm, f.Subject.NetNS, f.Subject.Port = m, v.Comm(m), s.NS.Inode, s.Port()
			break
		}
	}
	f.Weight = share
	f.Impact = Impact{Share: round(share), Of: "slow time", OfTime: true, Text: fmt.Sprintf("held back in %s of its periods, for %s in all", percent(share), seconds(c.ThrottledSeconds))}
	f.Evidence = []Evidence{
		{Fact: "periods in which it was throttled", Value: c.ThrottledPeriods, Limit: c.Periods, Unit: "periods", Source: "cpu.stat nr_throttled, nr_periods"},
		{Fact: "time throttled", Value: round(c.ThrottledSeconds), Unit: "s", Source: "cpu.stat"},
		{Fact: "quota", Value: c.QuotaCPUs, Unit: "CPUs", Source: c.QuotaFile},
		{Fact: "CPU of the machine idle", Value: round(ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, v.Use.CPU.Total())), Unit: "share", Source: "/proc/stat"},
	}
	if l := t.worst; l != nil {
		f.Subject.PID, f.Subject.Comm, f.Subject.NetNS, f.Subject.Port = l.pid, v.commOf(l), l.NetNS, l.Port
		f.Weight = t.share
		who, whole := l.one(), l.TimeNS()/float64(l.Requests)
		f.Impact.Of, f.Impact.OfTime = "the requests' time", true
		if !t.always {
			who, whole, f.Impact.Of = l.slowest(), l.SlowTotalNS(), "slow time"
		}
		f.Impact.Share = round(t.share)
		f.Impact.Text = fmt.Sprintf("%s: %s on average, about %s of it held back by the quota, in %s of its periods", who, nanoseconds(whole), nanoseconds(t.ns), percent(share))
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "time that its threads could run and the quota held them back", Value: round(t.held), Limit: 1, Unit: "share", Source: "/proc/PID/schedstat, cpu.stat"},
			Evidence{Fact: "of the requests' time, held back by the quota", Value: round(t.ns / 1e6), Limit: round(whole / 1e6), Unit: "ms", Source: recorded + ", cpu.stat"})
	}
	f.Evidence = append(f.Evidence, v.ranEvidence(c))
	want := v.wantedCPUs(c)
	if lifted(c) {
		f.Evidence[2] = Evidence{Fact: "quota at the end of the window", Value: "none: it was lifted", Source: "cpu.max, cpu.cfs_quota_us"}
		f.Fix.Text = fmt.Sprintf("The quota is gone by now. One of %.3g CPUs would be enough.", want)
		return f
	}
	f.Fix.Text = fmt.Sprintf("Raise the quota from %.3g to %.3g CPUs.", c.QuotaCPUs, want)
	h := v.holderOfGroup(c)
	h.raise(&f.Fix, c.QuotaFile, quotaText(c, want), cpuSetting(want))
	return f
}
