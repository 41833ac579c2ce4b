package cause

import "github.com/slowray/slowray/internal/observe"

// lostForCPU is the time, in ns, that the requests which people wait for can have lost
// at the most because threads that work for them were ready and had no CPU, and all of
// their time. What no record of theirs shows, and no delay of those threads, full CPUs
// do not explain.
func (v *View) lostForCPU() (most, of float64) {
	for _, front := range v.fronts {
		of += front.TimeNS()
		var lost float64
		for _, l := range v.behind(front) {
			if v.Step(); !l.called() {
				lost += v.heldForCPU(l)
			}
		}
		most += min(lost, front.TimeNS())
	}
	return most, of
}

// heldForCPU is the time, in ns, that the requests of an endpoint can have lost at the
// most while threads of who answers them were ready and had no CPU. Of requests that were
// followed it is known. Of others, one thread that waits holds up its part of what is in
// hand: all of it where there is one thread, as in an event loop.
func (v *View) heldForCPU(l *ledger) float64 {
	w := v.atWork(l)
	if l.followed() && l.Split.ShareNS(observe.ServerHandoff, 1) < splitLeast {
		k := v.waitingForCPU(l, &w, ratio(w.delay, w.delay+w.cpu))
		return k.ns*float64(l.Requests) + v.lateToCall(l)
	}
	if w.delay == 0 && w.cpu == 0 {
		return l.TimeNS() // nothing was measured of those that answer
	}
	return min(w.delay*1e9*max(1, v.inHandAtMost(l)/w.delayed()), l.TimeNS())
}

// inHandAtMost is how many requests of an endpoint are in hand at once as a request meets
// it, on average: in bursts far more than over all of the window.
func (v *View) inHandAtMost(l *ledger) float64 {
	n := v.inFlight(l)
	var sum, squares float64
	for _, t := range l.underWay() {
		sum, squares = sum+t, squares+t*t
	}
	switch {
	case sum == 0:
		return n
	case len(l.LongestUS) != len(l.Arrivals): // requests that came, in place of their time
		return n * max(1, squares*float64(len(l.Arrivals))/(sum*sum))
	}
	return max(n, squares/sum/arrivalSlot)
}

// delayed is how many threads the delay is shared by, at the least 1: as many as had the
// same sum and the same sum of squares, if all waited alike.
func (w *atWork) delayed() float64 {
	var sum, squares float64
	for _, p := range w.procs {
		if len(p.Busiest) == 0 {
			sum, squares = sum+p.RunDelaySeconds, squares+p.RunDelaySeconds*p.RunDelaySeconds
			continue
		}
		for _, t := range p.Busiest {
			sum, squares = sum+t.RunDelaySeconds, squares+t.RunDelaySeconds*t.RunDelaySeconds
		}
	}
	if squares == 0 {
		return 1
	}
	return max(1, sum*sum/squares)
}
