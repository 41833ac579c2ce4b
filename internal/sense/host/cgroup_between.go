package host

import "github.com/slowray/slowray/internal/observe"

// CgroupsBetween is what happened to the groups from a to b. Kept are those
// with a limit, or with throttling, limit hits or OOM kills in between. Counters that went backwards
// belong to a group that was made anew and count from zero, as do those of a
// group whose processes of interest all began after a; of any other group that
// is only in b nothing is known but its limits. Of a group that was gone before
// b, last has what the last look saw.
func CgroupsBetween(a, b, last []CgroupSample) []observe.Cgroup {
	before := make(map[groupKey]*CgroupSample, len(a))
	var taken uint64
	for i := range a {
		before[groupKey{a[i].Path, a[i].Version}] = &a[i]
		taken = a[i].taken
	}
	b = withVanished(b, last)
	var out []observe.Cgroup
	for i := range b {
		g := &b[i]
		old := before[groupKey{g.Path, g.Version}]
		if old == nil {
			old = g
			if len(a) > 0 && g.oldest > taken {
				old = &CgroupSample{}
			}
		}
		if o := cgroupBetween(old, g); telling(&o) {
			out = append(out, o)
		}
	}
	return out
}

func cgroupBetween(old, g *CgroupSample) observe.Cgroup {
	o := observe.Cgroup{
		Path: g.Path, Version: g.Version, PIDs: g.PIDs, QuotaFile: g.QuotaFile, PeriodNS: g.PeriodNS,
		Periods:            restarted(old.Periods, g.Periods),
		ThrottledPeriods:   restarted(old.Throttled, g.Throttled),
		ThrottledSeconds:   float64(restarted(old.ThrottledNS, g.ThrottledNS)) / 1e9,
		MemoryLimitBytes:   g.MemoryLimitBytes,
		MemoryUsedBytes:    g.MemoryUsedBytes,
		MemoryAtLimit:      restarted(old.MemoryAtLimit, g.MemoryAtLimit),
		OOMKills:           restarted(old.OOMKills, g.OOMKills),
		MemoryStallSeconds: float64(restarted(old.MemoryStallUS, g.MemoryStallUS)) / 1e6,
		MemoryGrownBytes:   int64(g.MemoryUsedBytes) - int64(old.MemoryUsedBytes),
		MemoryFileBytes:    g.MemoryFileBytes,
		MemoryHighBytes:    g.MemoryHighBytes,
		MemoryAtHigh:       restarted(old.MemoryAtHigh, g.MemoryAtHigh),
		Refaults:           restarted(old.Refaults, g.Refaults),
		CPUWeight:          g.CPUWeight,
		Tasks:              g.Tasks,
		PIDsLimit:          g.PIDsLimit,
		PIDsRefused:        restarted(old.PIDsRefused, g.PIDsRefused),
		IO:                 ioBetween(old.IO, g.IO),
		EndedIn:            g.gone,
	}
	for _, f := range []struct {
		there bool
		from  string
		to    *string
	}{
		{o.MemoryLimitBytes > 0, g.memoryFile, &o.MemoryFile}, {o.MemoryHighBytes > 0, g.highFile, &o.HighFile},
		{o.PIDsLimit > 0, g.pidsFile, &o.PIDsFile}, {o.CPUWeight > 0 && o.CPUWeight != defaultWeight, g.weightFile, &o.WeightFile},
	} {
		if f.there {
			*f.to = f.from
		}
	}
	if g.QuotaNS > 0 && g.PeriodNS > 0 {
		o.QuotaCPUs = float64(g.QuotaNS) / float64(g.PeriodNS)
	}
	return o
}

// restarted is b - a, or b when the counter began anew.
func restarted(a, b uint64) uint64 {
	if b < a {
		return b
	}
	return b - a
}

func telling(o *observe.Cgroup) bool {
	return o.QuotaCPUs > 0 || o.MemoryLimitBytes > 0 || o.ThrottledPeriods > 0 || o.MemoryAtLimit > 0 || o.OOMKills > 0 ||
		o.MemoryHighBytes > 0 || o.PIDsLimit > 0 || len(o.IO) > 0 || o.CPUWeight > 0 && o.CPUWeight != defaultWeight
}
