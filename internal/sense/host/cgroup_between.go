package host

import "github.com/slowray/slowray/internal/observe"

// CgroupsBetween is what happened to the groups from a to b. Kept are those
// with a CPU quota, with a memory limit below the host's memory, or with
// throttling, limit hits or OOM kills in between. Counters that went backwards
// belong to a group that was made anew and count from zero, as do those of a
// group whose processes of interest all began after a; of any other group that
// is only in b nothing is known but its limits.
func CgroupsBetween(a, b []CgroupSample) []observe.Cgroup {
	before := make(map[groupKey]*CgroupSample, len(a))
	var taken uint64
	for i := range a {
		before[groupKey{a[i].Path, a[i].Version}] = &a[i]
		taken = a[i].taken
	}
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
	return o.QuotaCPUs > 0 || o.MemoryLimitBytes > 0 || o.ThrottledPeriods > 0 || o.MemoryAtLimit > 0 || o.OOMKills > 0
}
