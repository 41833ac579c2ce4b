package request

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// governor keeps this process's CPU time within a share of the host's by
// recording fewer requests. Counters are never sampled.
type governor struct {
	budget  float64 // of all CPUs; negative = no limit
	mask    uint32  // one of mask+1 requests has a record
	at      time.Time
	cpu     time.Duration // used when begun
	last    time.Duration // used at the last look
	calm    int           // looks in a row that took little
	records uint64        // at the last look
}

const (
	governEvery = time.Second
	maxMask     = 1<<12 - 1
	calmLooks   = 3 // before more is recorded again
	// perRecord is about what a record costs this process at least: reading
	// it out of another CPU's cache and adding it up. Only as far as records
	// are what takes the time does it help to have fewer.
	perRecord = 150 * time.Nanosecond
)

func (g *governor) begin(budget float64) {
	*g = governor{budget: budget, at: time.Now(), cpu: processCPU()}
	g.last = g.cpu
}

// used is the CPU time of this process since begin.
func (g *governor) used() time.Duration { return processCPU() - g.cpu }

// look changes the sampling when it is time to; it says whether it did. records
// is how many there were since begin.
func (g *governor) look(now time.Time, cpu time.Duration, records uint64, cpus int) bool {
	wall := now.Sub(g.at)
	if g.budget < 0 || wall < governEvery {
		return false
	}
	whole := float64(wall) * float64(cpus)
	share := float64(cpu-g.last) / whole
	least := float64(records-g.records) * float64(perRecord) / whole
	g.at, g.last, g.records = now, cpu, records
	before := g.mask
	switch {
	// What is printed or drawn for each record counts as its cost too; a
	// program that is busy with something else gains nothing by sampling.
	case share > g.budget && least > g.budget/20:
		g.mask = min(g.mask<<1|1, maxMask)
		g.calm = 0
	// Twice the records must fit as well.
	case g.mask > 0 && share < g.budget/2:
		if g.calm++; g.calm >= calmLooks {
			g.mask >>= 1
			g.calm = 0
		}
	default:
		g.calm = 0
	}
	return g.mask != before
}

// govern does what is due about once a second.
func (r *Recorder) govern(now time.Time) {
	wall := now.Sub(r.governed)
	if wall < governEvery {
		return
	}
	if !r.governed.IsZero() {
		r.governSplit(wall, runtime.NumCPU())
		r.meetThreads()
	}
	r.governed = now
	r.spareSending()
	if r.governor.look(now, processCPU(), r.stats.Records, runtime.NumCPU()) {
		// The variable is mapped memory: setting it cannot fail after Start.
		_ = r.objects.SampleMask.Set(r.governor.mask)
		if r.streams.attached {
			_ = r.streams.objects.SampleMask.Set(r.governor.mask)
		}
	}
}

func processCPU() time.Duration {
	var u unix.Rusage
	// getrusage(RUSAGE_SELF) with a valid pointer cannot fail.
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
