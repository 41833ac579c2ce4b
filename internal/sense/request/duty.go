package request

import (
	"math"
	"runtime"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/sense/probeprice"
)

// duty has functions of TLS watched a part of the time only, where watching them costs more
// than their part of the budget: in bursts. What begins in a burst stands for all that
// begins until the next one. At its end what is under way has some time to end.
type duty struct {
	price time.Duration // of a hit
	share uint          // a burst is one of 2^share parts of a round
	state dutyState
	since time.Time // of state
	burst time.Time // began
	hits  uint64    // when it did
	next  time.Time // the next one begins, while there is none
	fresh bool      // share was made of a time that was no burst
}

type dutyState int

const (
	dutyOn dutyState = iota
	dutyEnding
	dutyResting
)

// dutyStep is what is to be done now.
type dutyStep int

const (
	dutyStays dutyStep = iota
	dutyRests
	dutyBegins
)

const (
	// What may be taken in dutyLook may be taken at any time within it while all is watched: a
	// server that has thousands of streams a second pays for a tenth of a second, not for all of it.
	dutyLook   = time.Second
	dutyBurst  = 125 * time.Millisecond // in which requests begin
	dutyEnd    = 500 * time.Millisecond // in which they may end, as long as one is under way
	mostDuty   = 7                      // a round takes 16 s at the most
	probesPart = 0.5                    // of the budget
)

func (d *duty) resting() bool { return d.state == dutyResting }

// look goes on to the next state. cost is the share of their part of the budget that the
// probes took since an earlier number of hits, and the number by now; open is how many
// requests are under way.
func (d *duty) look(now time.Time, open int64, cost func(hits uint64, over time.Duration) (float64, uint64)) dutyStep {
	lasted := now.Sub(d.since)
	switch d.state {
	case dutyOn:
		if d.share > 0 && lasted >= dutyBurst {
			d.state, d.since = dutyEnding, now
		}
		if d.share > 0 {
			return dutyStays
		}
		spent, hits := cost(d.hits, max(lasted, dutyLook))
		if spent <= 1 && lasted < dutyLook {
			return dutyStays
		}
		if spent > 1 {
			over, _ := cost(d.hits, lasted)
			d.share, d.fresh = shareOf(over, 1), true
			d.state = dutyEnding
		}
		d.hits, d.burst, d.since = hits, now, now
	case dutyEnding:
		if open > 0 && lasted < dutyEnd {
			return dutyStays
		}
		if d.fresh { // what was watched stands for itself: the first burst comes as soon as it may
			d.next, d.fresh = now.Add(dutyLook), false
		} else {
			on := now.Sub(d.burst)
			over, _ := cost(d.hits, on)
			d.next = d.burst.Add(dutyBurst << d.share) // what began in it stands for so much, and no more
			d.share = max(shareOf(over, float64(on)/float64(dutyBurst)), max(d.share, 1)-1)
		}
		d.state, d.since = dutyResting, now
		return dutyRests
	case dutyResting:
		if !now.Before(d.next) {
			d.state = dutyOn
			return dutyBegins
		}
	}
	return dutyStays
}

// shareOf is how seldom bursts have to be that cost so much more than they may, while they
// last, and last so much longer than requests begin in them.
func shareOf(over, longer float64) uint {
	if over <= 1 {
		return 0
	}
	return min(uint(math.Ceil(math.Log2(over*longer))), mostDuty)
}

// begun says that functions are watched from now on.
func (d *duty) begun(o *bpf.ClearObjects) {
	d.since = time.Now()
	d.burst = d.since
	_ = o.Hits.Get(&d.hits)
	d.tell(o)
}

// tell tells the programs. The variables are mapped memory: setting them cannot fail.
func (d *duty) tell(o *bpf.ClearObjects) {
	_ = o.ClearShare.Set(uint8(d.share))
	_ = o.Ending.Set(flag(d.state != dutyOn))
}

// probeCost is what the probes took since a number of hits, in their part of the budget.
func (r *Recorder) probeCost(since uint64, over time.Duration) (of float64, hits uint64) {
	if r.clear.objects.Hits.Get(&hits) != nil || r.governor.budget < 0 || over <= 0 {
		return 0, hits
	}
	took := float64(hits-since) * r.clear.duty.price.Seconds()
	return took / over.Seconds() / float64(runtime.NumCPU()) / (probesPart * r.governor.budget), hits
}

// usualProbe is what a hit takes where it cannot be measured.
const usualProbe = 1500 * time.Nanosecond

// measureProbe is what a hit takes.
func (r *Recorder) measureProbe() time.Duration {
	ex, offset, err := probeprice.Place()
	if err != nil {
		return usualProbe
	}
	const calls = 1000
	c := &r.clear
	var l link.Link
	if c.multi {
		l, err = ex.UprobeMulti(nil, c.objects.ClearEnter, &link.UprobeMultiOptions{Addresses: []uint64{offset}, Cookies: []uint64{0}})
	} else {
		l, err = ex.Uprobe("", c.objects.ClearEnter, &link.UprobeOptions{Address: offset})
	}
	if err != nil {
		return usualProbe
	}
	defer l.Close()
	_ = probeprice.Calls(calls / 10) // brings the code into the caches
	return probeprice.Calls(calls) / calls
}
