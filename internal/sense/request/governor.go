package request

import (
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// governor keeps what slowray costs the host, in the kernel and outside, within a share
// of its CPUs, by what loses least: first fewer requests are followed from thread to
// thread, then fewer have a record, then fewer connections are followed. Each is one of
// 2^n.
type governor struct {
	budget  float64 // of all CPUs; negative = no limit
	less    lessOf
	at      time.Time
	cpu     time.Duration // of this process, when begun
	last    time.Duration // at the last look
	records uint64        // at the last look
	seen    uint64        // requests that were followed, at the last look
	calm    int           // looks in a row that leave room
}

// lessOf is how much less is done: one of 2^n each.
type lessOf struct {
	split  uint // requests followed from thread to thread
	record uint // requests with a record
	follow uint // connections
}

// costs are shares of all CPUs, as things are.
type costs struct {
	split   float64 // programs at the scheduler
	conns   float64 // programs at connections
	records float64 // this process, for records
	rest    float64 // this process and its programs, for anything else

	requests float64 // a second, that are followed
}

func (c costs) sum() float64 { return c.split + c.conns + c.records + c.rest }

const (
	governEvery = time.Second
	mostSplit   = 5 // what a server does with its time is to be known of some
	mostRecord  = 6
	mostFollow  = 7   // a turn has a jiffy at least, of a second with 100
	calmLooks   = 3   // before more is done again
	fewRequests = 100 // a second, whose price nobody has to know
	within      = 0.8 // of the budget is what is aimed at
	// What programs cost by being entered at all is never less, and must not cost the last
	// requests that something can be known by. To follow so many a second takes some 3 ms
	// of a CPU; a record of so many, and their split, next to nothing.
	enoughFollowed = 1000
	enoughKept     = 100
	// perRecord is about what a record costs this process at least: reading
	// it out of another CPU's cache and adding it up. Only as far as records
	// are what takes the time does it help to have fewer.
	perRecord = 150 * time.Nanosecond
	// dearRecord is what one costs at most that is written out.
	dearRecord = 8 * perRecord
	// othersMost is the part of the budget that is left to what nothing lessens: who reads
	// the state of a host once would otherwise look at none of its requests for long.
	othersMost = 0.5
)

func (g *governor) begin(budget float64) {
	*g = governor{budget: budget, at: time.Now(), cpu: processCPU()}
	g.last = g.cpu
}

// used is the CPU time of this process since begin.
func (g *governor) used() time.Duration { return processCPU() - g.cpu }

// due says that it is time for a look.
func (g *governor) due(now time.Time) bool { return g.budget >= 0 && now.Sub(g.at) >= governEvery }

// look changes what is done by what it costs; it says whether it did. kernel is what the
// programs took of one CPU, by group, records how many there were since begin.
func (g *governor) look(now time.Time, cpu time.Duration, records, seen uint64, kernel kernelCosts, cpus int) bool {
	wall := now.Sub(g.at)
	whole := wall.Seconds() * float64(cpus)
	own := (cpu - g.last).Seconds() / whole
	// What is printed or drawn for each record counts as its cost too; a program that
	// is busy with something else gains nothing by fewer.
	byRecords, n := 0.0, float64(records-g.records)
	if n*perRecord.Seconds()/whole > g.budget/20 {
		byRecords = min(own, n*dearRecord.Seconds()/whole)
	}
	followed := float64(seen-g.seen) / wall.Seconds()
	g.note(now, cpu, records, seen)
	all := float64(cpus)
	return g.decide(costs{
		split: kernel[priceSplit] / all, conns: kernel[priceConns] / all, records: byRecords,
		rest: own - byRecords + kernel[priceRest]/all, requests: followed,
	})
}

// note is what the next look begins from.
func (g *governor) note(now time.Time, cpu time.Duration, records, seen uint64) {
	g.at, g.last, g.records, g.seen = now, cpu, records, seen
}

// decide is look for what things cost.
func (g *governor) decide(c costs) bool {
	before := g.less
	c.rest = min(c.rest, othersMost*g.budget)
	switch {
	case c.sum() > g.budget && g.lessen(c):
		g.calm = 0
	case g.less != lessOf{} && g.more(c) != g.less:
		if g.calm++; g.calm >= calmLooks {
			g.less, g.calm = g.more(c), 0
		}
	default:
		g.calm = 0
	}
	return g.less != before
}

// lessen does so much less that what is left is within the budget, as far as it can, and
// says whether that is less at all.
func (g *governor) lessen(c costs) bool {
	aim, before := within*g.budget, g.less
	// steps is by how many halves a part has to be less for the sum to be within it.
	steps := func(part, others float64, most uint) uint {
		room := max(aim-others, part/float64(uint(1)<<most))
		if part <= room {
			return 0
		}
		return min(uint(math.Ceil(math.Log2(part/room))), most)
	}
	kept := halves(c.requests / enoughKept)
	most := min(mostSplit, kept)
	n := steps(c.split, c.conns+c.records+c.rest, most-min(most, g.less.split))
	g.less.split += n
	c.split /= float64(uint(1) << n)

	most = min(mostRecord, kept)
	n = steps(c.records, c.split+c.conns+c.rest, most-min(most, g.less.record))
	g.less.record += n
	c.records /= float64(uint(1) << n)

	// Few requests of many segments may be too much by themselves.
	most = max(halves(c.requests/enoughFollowed), steps(c.conns+c.records, 0, mostFollow))
	n = steps(c.split+c.conns+c.records, c.rest, min(most, mostFollow-g.less.follow))
	g.less.follow += n
	kept -= min(kept, n)
	g.less.split = min(g.less.split, max(before.split, kept))
	g.less.record = min(g.less.record, max(before.record, kept))
	return g.less != before
}

// halves is how often x can be halved and is one at least.
func halves(x float64) uint {
	if x < 2 {
		return 0
	}
	return uint(math.Log2(x))
}

// more is what may be done again: as much as is enough to know something by, or twice as
// much of what was given up last, where that stays within the budget.
func (g *governor) more(c costs) lessOf {
	aim, less := within*g.budget, g.less
	requests := max(c.requests, 1)
	less.follow -= min(less.follow, halves(enoughFollowed/requests), halves(aim/max(c.conns+c.records, aim/(1<<mostFollow))))
	kept := halves(requests/enoughKept) + 1
	less.record, less.split = min(less.record, kept), min(less.split, kept)
	switch {
	case less != g.less:
	case less.follow > 0 && 2*(c.sum()-c.rest)+c.rest <= aim:
		less.follow--
	case less.follow > 0:
	case less.record > 0 && c.sum()+c.records <= aim:
		less.record--
	case less.record > 0:
	case less.split > 0 && c.sum()+c.split <= aim:
		less.split--
	}
	return less
}

// govern does what is due about once a second, and ends what it began at the Poll before.
func (r *Recorder) govern(now time.Time) {
	if kernel, ok := r.price.end(); ok {
		r.adapt(now, kernel)
	}
	if now.Sub(r.governed) < governEvery {
		return
	}
	if !r.governed.IsZero() {
		r.meetThreads()
	}
	r.governed = now
	r.spareSending()
	if !r.governor.due(now) {
		return
	}
	if r.idle() {
		r.governor.note(now, processCPU(), r.stats.Records, r.looked)
		return
	}
	if !r.price.start(now) {
		r.adapt(now, r.guessed(now))
	}
}

// idle says that hardly any request was seen since the last look, and that all is done that
// can be: to measure what that costs would cost more.
func (r *Recorder) idle() bool {
	seen := r.seen()
	few := seen-r.looked < fewRequests
	r.looked = seen
	return few && r.governor.less == (lessOf{})
}

// seen is how many requests were followed since Start.
func (r *Recorder) seen() uint64 {
	n := r.stats.Records
	for cpu := range r.cpus {
		n += r.ring(cpu).skipped
	}
	return n
}

// adapt has the governor look, and does what it decides.
func (r *Recorder) adapt(now time.Time, kernel kernelCosts) {
	if r.governor.look(now, processCPU(), r.stats.Records, r.seen(), kernel, runtime.NumCPU()) {
		r.doLess()
	}
}

// doLess tells the programs. The variables are mapped memory: setting them cannot fail
// after Start.
func (r *Recorder) doLess() {
	less := r.governor.less
	_ = r.objects.WorkMask.Set(uint32(1)<<less.split - 1)
	_ = r.objects.SampleMask.Set(uint32(1)<<less.record - 1)
	for _, p := range r.streamReaders() {
		_ = p.sampleMask.Set(uint32(1)<<less.record - 1)
	}
	r.follow(less.follow)
}

func processCPU() time.Duration {
	var u unix.Rusage
	// getrusage(RUSAGE_SELF) with a valid pointer cannot fail.
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
