package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// PHPFPMSlowScript: php-fpm writes the stack of a request that takes longer than
// request_slowlog_timeout into its slow log: the script and the line that it
// waits in are known by name.
const PHPFPMSlowScript ID = "php-fpm-slow-script"

var phpFPMSlowScript = Cause{
	ID:            PHPFPMSlowScript,
	Title:         "A PHP script is slow (php-fpm slow log)",
	Layer:         LayerApplication,
	Class:         ClassPool,
	Needs:         []observe.Kind{observe.KindPHPFPM, observe.KindRequests},
	ConsequenceOf: []Parent{SlowDependency, CPUHotFunction, ConnectionPoolExhausted, ClassMachine, ClassWait},
	Folds:         true,
	Check:         checkSlowScript,
}

func checkSlowScript(v *View) Result {
	r := ruledOut("no php-fpm with traffic has entries in a slow log")
	for i := range v.PHPFPM {
		m := &v.PHPFPM[i]
		for j := range m.Pools {
			pool := &m.Pools[j]
			s := v.poolServes[pool]
			if s == nil || len(pool.Slow) == 0 {
				continue
			}
			var all int64
			for _, e := range pool.Slow {
				all += e.Count
			}
			top := pool.Slow[0]
			told := fmt.Sprintf("%s entries in the slow log of pool %s, %s of them in %s", count(all), pool.Name, count(top.Count), top.Place)
			l := v.servedAt(s)
			if l == nil {
				r.NotChecked = told + "; no request of the pool was recorded"
				continue
			}
			k := l.cost(1, observe.Server, observe.Stall)
			if all < slowEntries || ratio(top.Count, all) < slowSame || ratio(uint64(all), l.Requests) < noiseShare || !l.noticed(k, threadFloor) {
				r.RuledOut = fmt.Sprintf("%s; %s", told, l.whereTimeGoes())
				continue
			}
			r.Findings = append(r.Findings, slowScriptFinding(v, m, pool, s, l, top, all, k))
		}
	}
	return r
}

// servedAt is the endpoint of a service with most requests, nil where none is
// recorded.
func (v *View) servedAt(s *Service) *ledger {
	var most *ledger
	for _, l := range v.ledgersAt(s.NS.Inode, s.Port()) {
		if !l.called() && l.Requests > 0 && (most == nil || l.Requests > most.Requests) {
			most = l
		}
	}
	return most
}

func slowScriptFinding(v *View, m *observe.PHPFPM, pool *observe.FPMPool, s *Service, l *ledger, top observe.SlowScript, all int64, k cost) Finding {
	f := v.found(l, k, threadFloor, "in php-fpm")
	f.Subject = Subject{Kind: "pool", NetNS: s.NS.Inode, PID: m.PID, Comm: v.Comm(m.PID), Port: s.Port(), Path: m.Root + top.Place}
	slow := fromHost(m.Root, pool.SlowTimeout)
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "entries in the slow log", Value: all, Unit: "requests over " + slow.Value, Source: "slow log of pool " + pool.Name + "; limit: " + settingSource(slow)},
		Evidence{Fact: "of them in " + top.Function + " at " + top.Place, Value: top.Count, Unit: "entries", Source: "script " + top.Script})
	if top.Caller != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "called by", Value: top.Caller, Source: "slow log of pool " + pool.Name})
	}
	f.Fix.Text = fmt.Sprintf("Look at %s: %s is where %s stands when it is slow. Make what it waits for quicker, or let it give up sooner.", top.Place, top.Function, top.Script)
	f.Fix.Commands = []shell.Command{lookAtWaits(m.PID)}
	pids := append([]int{m.PID}, pool.Children...)
	f.MayFollow = mayFollow(anyFinding, func(p *Finding) bool {
		return p.Cause != ApplicationSleep && holdsUp(pids)(p) // the log names the line that sleeps
	}, aboutAny(pids))
	return *f
}
