package cause

import (
	"fmt"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// PHPFPMChildrenExhausted: a php-fpm child answers one request at a time. With
// all of them busy, requests wait in the pool's accept queue. More children
// help only while there is something left for them to run on: on CPUs that are
// full of their own work, and their caller's, they are as many as can be used.
const PHPFPMChildrenExhausted ID = "php-fpm-children-exhausted"

var phpFPMChildrenExhausted = Cause{
	ID:    PHPFPMChildrenExhausted,
	Title: "All php-fpm children are busy (pm.max_children)",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindPHPFPM, observe.KindProcess, observe.KindListeners},
	// Children that mostly wait for the same are not too few.
	ConsequenceOf: []Parent{ClassWait, MariaDBLockWait, PostgresLockWait, SlowDependency},
	Folds:         true,
	Check:         checkPHPFPMChildren,
	Try:           tryMoreChildren,
}

func checkPHPFPMChildren(v *View) Result {
	r := ruledOut("no php-fpm with traffic")
	for i := range v.PHPFPM {
		m := &v.PHPFPM[i]
		for j := range m.Pools {
			pool := &m.Pools[j]
			s := v.poolServes[pool]
			if s == nil {
				continue
			}
			e := exhaustionOf(v, pool, s)
			switch {
			case pool.Rounds < fewReadings:
				r.NotChecked = fmt.Sprintf("the children of pool %s were looked at only %d times", pool.Name, pool.Rounds)
				continue
			case e.because != "":
				r.RuledOut = e.because
				continue
			}
			r.Findings = append(r.Findings, childrenFinding(v, m, pool, s, e))
		}
	}
	return r
}

// exhaustion is what a pool's readings say.
type exhaustion struct {
	max     int
	busy    float64 // share of the readings without a free child
	waiting float64 // share of the busy children's time neither running nor runnable
	blocked float64 // the part of it that is no wait for bytes, which on full CPUs are late by themselves
	cpu     float64 // share of the machine's CPU that the pool uses
	queue   float64 // requests waiting, mean
	idle    float64 // share of the machine's CPU that nobody used
	because string  // why the pool is not exhausted; empty when it is
}

func exhaustionOf(v *View, pool *observe.FPMPool, s *Service) exhaustion {
	var e exhaustion
	e.max, _ = strconv.Atoi(pool.MaxChildren.Value)
	e.busy = ratio(pool.AllBusyRounds, pool.Rounds)
	if pool.BusyMean > 0 {
		e.waiting = 1 - ratio(pool.RunningMean, pool.BusyMean)
		e.blocked = ratio(pool.BlockedMean, pool.BusyMean)
		e.cpu = ratio(pool.CPUSeconds, v.Use.CPU.Total())
	}
	for _, l := range s.Listeners {
		e.queue += l.QueueMean
	}
	e.idle = ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, v.Use.CPU.Total())
	name := fmt.Sprintf("pool %s", pool.Name)
	switch {
	case pool.Rounds < fewReadings:
		e.because = "too few readings"
	case e.busy < allBusyShare:
		e.because = fmt.Sprintf("%s had a free child in %s of the readings (%.1f of %d busy on average)", name, percent(1-e.busy), pool.BusyMean, e.max)
	case e.queue < 0.5:
		e.because = fmt.Sprintf("%s was all busy, but no request waited for a child", name)
	case e.idle < idleCPUShare && !e.roomOnFullCPUs(v.usefulCPUs()):
		e.because = fmt.Sprintf("%s was all busy, but the CPUs are full (%s idle) and its children do not sleep: more children would not answer more", name, percent(e.idle))
	}
	return e
}

// roomOnFullCPUs says whether more children would answer more although the
// CPUs are full: those there are sleep, or hardly work because their caller is
// slow to hand them anything, so that others would get their share of the CPU. Where
// all that runs answers requests well there is no other share to be had.
func (e *exhaustion) roomOnFullCPUs(useful bool) bool {
	return e.blocked >= blockedShare || !useful && 1-e.waiting < workShare && e.cpu < poolCPUShare
}

// usefulCPUs says that the CPUs work for requests that are answered: hardly for others, and
// at no service for errors most of the time.
func (v *View) usefulCPUs() bool {
	answers := false
	for _, l := range v.ledgers {
		if l.called() || l.Requests < fewRequests {
			continue
		}
		if ratio(max(l.lostRequests(), l.failedRequests()), l.Requests) >= drownedShare {
			return false
		}
		answers = true
	}
	return answers && v.outside() < outsiderShare
}

// exhaustedPool returns the pool behind s when it has no child free.
func (v *View) exhaustedPool(s *Service) *observe.FPMPool {
	pool := s.pool
	if pool == nil || exhaustionOf(v, pool, s).because != "" {
		return nil
	}
	return pool
}

func childrenFinding(v *View, m *observe.PHPFPM, pool *observe.FPMPool, s *Service, e exhaustion) Finding {
	setting := fromHost(m.Root, pool.MaxChildren)
	f := supported(Subject{Kind: "pool", NetNS: s.NS.Inode, PID: m.PID, Comm: v.Comm(m.PID),
		Port: s.Port(), Path: fmt.Sprintf("%s:%d", setting.File, setting.Line)})
	waits, master := holdsUp(append([]int{m.PID}, pool.Children...)), v.Master(m.PID)
	f.MayFollow = func(p *Finding) bool {
		return waits(p) || !p.is(ClassWait) && v.takes(p, master, pool.BusyMean)
	}
	if s.Path() != "" {
		f.Subject.Addr = "unix:" + s.Path()
	}
	// By Little's law the time a request waits is to the time it is served as
	// the queue is to the busy children.
	f.Weight = ratio(e.queue, e.queue+pool.BusyMean)
	f.Impact = Impact{Share: round(f.Weight), Of: "slow time", OfTime: true,
		Text: fmt.Sprintf("%.0f requests wait for %d children; a request waits %s of its time", e.queue, e.max, percent(f.Weight))}
	f.Evidence = []Evidence{
		{Fact: "readings with every child busy", Value: pool.AllBusyRounds, Limit: pool.Rounds, Unit: "readings", Source: "system call of each child"},
		{Fact: "busy children, mean", Value: round(pool.BusyMean), Limit: e.max, Unit: "children", Source: "system call of each child; limit: " + settingSource(setting)},
		{Fact: "requests waiting in the accept queue, mean", Value: round(e.queue), Unit: "requests", Source: "sock_diag, Recv-Q of " + s.Name()},
		{Fact: "of the busy time, waiting and not computing", Value: round(e.waiting), Unit: "share", Source: "state of each child"},
		{Fact: "CPU idle", Value: round(e.idle), Unit: "share", Source: "/proc/stat"},
	}
	if n, example := logCount(pool.Log, "max-children"); n > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "log: server reached max_children", Value: n, Unit: "lines", Source: "php-fpm log"}, firstLine(example))
	}
	want, _ := proposedChildren(v, pool, e)
	f.crew = &crew{pid: v.Master(m.PID), unit: "children of php-fpm", busy: pool.BusyMean, waiting: e.queue, want: want}
	f.Fix.Text = fmt.Sprintf("Raise pm.max_children of pool %s from %d to %d", pool.Name, e.max, want)
	if rss := childRSS(v, pool); rss > 0 {
		f.Fix.Text += fmt.Sprintf(" (%d MB each), or make the page wait less.", rss>>20)
	} else {
		f.Fix.Text += ", or make the page wait less."
	}
	f.Fix.Commands = []shell.Command{
		shell.Line("# in %s, [%s]: pm.max_children = %s", setting.File, pool.Name, want),
		shell.Line("kill -USR2 %s   # php-fpm master: reload", m.PID),
	}
	return f
}

// proposedChildren is enough for the requests in sight, doubled at least, and
// no more than a quarter of the free memory holds; fits is false where it does
// not hold even one more.
func proposedChildren(v *View, pool *observe.FPMPool, e exhaustion) (want int, fits bool) {
	want = max(4*e.max, min(e.max+int(e.queue), 256))
	if rss := childRSS(v, pool); rss > 0 {
		if fit := e.max + int(v.Use.Memory.AvailableBytes/4/rss); fit < want {
			return max(fit, e.max+1), fit > e.max
		}
	}
	return want, true
}

func childRSS(v *View, pool *observe.FPMPool) uint64 {
	var most uint64
	for _, pid := range pool.Children {
		if p := v.Process(pid); p != nil {
			most = max(most, p.RSSBytes)
		}
	}
	return most
}
