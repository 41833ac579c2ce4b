package phpfpm

import (
	"slices"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// End reads what the log grew by in the window and releases everything. The
// processes are those of the same window: children's times are taken from them.
func (in *Instance) End(b *budget.Budget, window observe.Window, procs []observe.Process) (observe.PHPFPM, []observe.Gap, []observe.Loss) {
	out := observe.PHPFPM{PID: in.PID, NetNS: in.proc.NetNS, Container: in.proc.Container,
		Root: in.rootText, Config: in.confFile}
	in.addProcesses(procs)
	switch {
	case in.tail != nil:
		out.Logs = []observe.LogFile{in.readLog(b.Share(1+len(in.pools)), window)}
	case in.problem != "":
		out.Logs = []observe.LogFile{{Path: in.logPath, What: whatLog, Problem: in.problem}}
	}
	for i, s := range in.pools {
		if s.slow != nil {
			out.Logs = append(out.Logs, in.slowEntries(b.Share(len(in.pools)-i), s))
		}
		if n := float64(s.pool.Rounds); n > 0 {
			s.pool.BusyMean, s.pool.RunningMean = float64(s.busy)/n, float64(s.running)/n
			s.pool.BlockedMean = float64(s.blocked) / n
		}
		s.pool.Log = s.log.Kinds()
		slices.Sort(s.pool.Children)
		out.Pools = append(out.Pools, s.pool)
	}
	return out, in.gaps, in.losses
}

const whatLog = "fpm"

// addProcesses adds up the children of each pool, those that ended included.
func (in *Instance) addProcesses(procs []observe.Process) {
	unknown := map[string]bool{}
	for i := range procs {
		p := &procs[i]
		if p.PPID != in.PID {
			continue
		}
		name := poolInTitle(p.Cmdline)
		if name == "" {
			name = in.seen[p.PID]
		}
		s := in.byName[name]
		if s == nil {
			if name != "" && in.byName != nil && !in.cut && !unknown[name] && len(unknown) < maxGaps {
				unknown[name] = true
				in.gap(in.confFile, true, "pool %q runs but is not in the configuration that was read", rootfs.Clip(logtail.Printable([]byte(name), 64)))
			}
			continue
		}
		if !p.EndedIn {
			s.pool.Children = append(s.pool.Children, p.PID)
		}
		s.pool.CPUSeconds += p.CPUSeconds()
		s.pool.RunDelaySeconds += p.RunDelaySeconds
	}
}

func (in *Instance) readLog(b *budget.Budget, window observe.Window) observe.LogFile {
	var times stamps
	var unparsed, foreign int64
	clock := logtail.NewClock(window)
	stats, err := in.tail.Read(b, in.MaxBytes, func(line []byte) {
		l, ok := parseLogLine(line)
		if !ok {
			unparsed++
			return
		}
		second, ok := times.parse(l.stamp)
		if ok {
			if second, ok = clock.In(second); !ok {
				return
			}
		}
		kind, figure := l.classify()
		if kind == "" || l.pool == nil {
			return
		}
		s := in.byName[string(l.pool)]
		if s == nil {
			foreign++
			return
		}
		s.log.Add(kind, nil, second, figure, line)
	})
	for _, s := range in.pools {
		s.log.Settle(stats.Scale)
	}
	in.loss("php-fpm log lines of pools that are not in the configuration", foreign)
	in.loss("bytes of "+in.logPath+" not read", max(0, stats.GrownBytes-stats.ReadBytes))
	if err != nil {
		stats.Notes = append(stats.Notes, logtail.Reason(err))
	}
	file := stats.LogFile(in.logPath, whatLog)
	file.Unparsed = unparsed
	return file
}
