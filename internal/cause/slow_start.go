package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// SlowStartOnQuota: a service that begins computes more than it ever does later, and a
// CPU quota that is enough for its requests makes its start take for ever.
const SlowStartOnQuota ID = "slow-start-on-quota"

var slowStart = Cause{
	ID:    SlowStartOnQuota,
	Title: "The CPU quota slows the service's start",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassKill,
	Needs: []observe.Kind{observe.KindCgroup, observe.KindProcess, observe.KindConnects},
	// A container that its limit holds back is ended for its probe, and starts anew.
	ConsequenceOf: []Parent{CPUQuotaThrottled},
	Folds:         true,
	Check:         checkSlowStart,
}

// starting is a control group whose processes have just begun.
type starting struct {
	group      *observe.Cgroup
	main       *observe.Process // that began first
	cpu, delay float64          // s in the window, of all of them
	since      float64          // s into the window at which it began to listen; 0 = not within it
	port       int
	refused    uint64
	text       string
}

func checkSlowStart(v *View) Result {
	r := ruledOut("no service starts under a CPU quota that holds it back")
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		if c.QuotaCPUs <= 0 || ratio(c.ThrottledPeriods, c.Periods) < startThrottled {
			continue
		}
		s := v.starting(c)
		if s == nil {
			continue
		}
		waiting := s.waiting()
		text := fmt.Sprintf("%s (pid %d) began %s ago under a quota of %.3g CPUs and waited %s of its time for it", s.main.Comm, s.main.PID, seconds(v.Window.Seconds-s.main.StartedAt), c.QuotaCPUs, percent(waiting))
		if waiting < startWaiting || s.refused == 0 {
			r.RuledOut = text
			if s.refused == 0 {
				r.RuledOut += "; nobody was refused meanwhile"
			}
			continue
		}
		r.Findings = append(r.Findings, v.startFinding(s, waiting))
	}
	return r
}

// starting looks at the processes of a group: nil when they serve already, or
// began long ago.
func (v *View) starting(c *observe.Cgroup) *starting {
	s := &starting{group: c}
	for _, pid := range c.PIDs {
		p := v.Process(pid)
		if p == nil {
			continue
		}
		if !p.StartedIn && (p.StartedAt == 0 || p.StartedAt < -startYoung) && !(c.EndedIn && p.EndedIn) {
			return nil
		}
		s.cpu += p.CPUSeconds()
		s.delay += p.RunDelaySeconds
		if s.main == nil || p.StartedAt < s.main.StartedAt {
			s.main = p
		}
	}
	if s.main == nil {
		return nil
	}
	var at []int
	for _, pid := range c.PIDs {
		at = append(at, v.listensAt[pid]...)
	}
	slices.Sort(at)
	for _, i := range at {
		l := v.listeners[i]
		if l.Since == 0 {
			return nil
		}
		if s.since == 0 || l.Since < s.since {
			s.since, s.port = l.Since, l.Port
		}
	}
	s.refused, s.text = v.refused(s)
	return s
}

// refused counts the calls that nobody took up while the service began.
func (v *View) refused(s *starting) (n uint64, text string) {
	for _, c := range v.refusedIn()[s.main.NetNS] {
		if s.port != 0 && c.Port != s.port || s.port == 0 && (c.Established > 0 || v.live()[c.Port]) {
			continue
		}
		if n += c.Refused; text == "" {
			text = fmt.Sprintf("%s calls to port %d, where it runs, were refused", c.Comm, c.Port)
		}
	}
	if n >= startRefused {
		return n, fmt.Sprintf("%s of %s", count(n), text)
	}
	if ns := v.Namespace(s.main.NetNS); ns != nil && !ns.Host && ns.Counters["Tcp.OutRsts"] >= startResets && len(ns.Listeners) <= 1 {
		return ns.Counters["Tcp.OutRsts"], fmt.Sprintf("its network namespace refused %s segments", count(ns.Counters["Tcp.OutRsts"]))
	}
	return 0, ""
}

// findRefused lists the connects that were refused, by the network namespace of
// this host that they went to.
func (v *View) findRefused() map[uint64][]*observe.Connect {
	out := map[uint64][]*observe.Connect{}
	for i := range v.Connects {
		c := &v.Connects[i]
		if c.Refused == 0 || c.Family == "unix" {
			continue
		}
		if there, _ := v.listensHere(destination{c.NetNS, c.Addr, c.Port}); there != nil {
			out[there.Inode] = append(out[there.Inode], c)
		}
	}
	return out
}

// waiting is the share of the time that its threads could run in which they had
// no CPU. Of processes that are gone the group's own figures tell it: what it
// could use of its periods, and for how long it was throttled.
func (s *starting) waiting() float64 {
	c := s.group
	if s.cpu+s.delay > 0 {
		return ratio(s.delay, s.cpu+s.delay)
	}
	used := float64(c.Periods) * c.QuotaCPUs * float64(c.PeriodNS) / 1e9
	return ratio(c.ThrottledSeconds, c.ThrottledSeconds+used)
}

func (v *View) startFinding(s *starting, waiting float64) Finding {
	c := s.group
	h := v.holderOfGroup(c)
	f := supported(Subject{Kind: "cgroup", PID: s.main.PID, Comm: s.main.Comm, NetNS: s.main.NetNS, Path: c.Path})
	f.Weight, f.uncounted = 1, true
	f.MayFollow = func(p *Finding) bool {
		at := h.pod
		if at.container == nil || at.container.Restarts == 0 {
			return false
		}
		was := v.podOfSubject(&p.Subject)
		return was.pod == at.pod && was.container != nil && was.container.Name == at.container.Name
	}
	so := fmt.Sprintf("it does not listen yet, %s after it began", seconds(v.Window.Seconds-s.main.StartedAt))
	switch {
	case s.since > 0:
		f.Weight = ratio(s.since, v.Window.Seconds)
		f.Subject.Port = s.port
		so = fmt.Sprintf("it took %s until it listened on port %d", seconds(s.since-s.main.StartedAt), s.port)
	case c.EndedIn:
		so = "it is gone, and never listened"
	}
	f.Impact = Impact{Share: round(f.Weight), Of: "the window without an answer", Text: fmt.Sprintf("%s; %s", so, s.text)}
	f.Evidence = []Evidence{
		{Fact: "time that its threads could run, and waited for a CPU", Value: round(waiting), Limit: 1, Unit: "share", Source: "/proc/PID/task/TID/schedstat, cpu.stat"},
		{Fact: "periods in which it was throttled", Value: c.ThrottledPeriods, Limit: c.Periods, Unit: "periods", Source: "cpu.stat nr_throttled, nr_periods"},
		{Fact: "time throttled", Value: round(c.ThrottledSeconds), Unit: "s", Source: "cpu.stat"},
		{Fact: "quota of " + h.text, Value: c.QuotaCPUs, Unit: "CPUs", Source: c.QuotaFile},
		{Fact: "CPU of the machine idle", Value: round(ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, v.Use.CPU.Total())), Unit: "share", Source: "/proc/stat"},
	}
	v.quotaFix(&f, c, h)
	return f
}

// quotaFix raises a quota so far that the service starts within seconds.
func (v *View) quotaFix(f *Finding, c *observe.Cgroup, h holder) {
	want := v.wantedCPUs(c)
	f.Evidence = append(f.Evidence, v.ranEvidence(c))
	f.Fix.Text = fmt.Sprintf("Raise the quota of %s from %.3g to %.3g CPUs, at least for its start.%s", h.text, c.QuotaCPUs, want, h.setsWhere())
	file := c.QuotaFile
	if c.EndedIn {
		file = ""
	}
	h.raise(&f.Fix, file, quotaText(c, want), cpuSetting(want))
}
