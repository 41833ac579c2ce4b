package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// RequestWaves: requests begin in bursts with nothing in between. Either the
// service stands still now and then, so that all its clients wait and go on at
// once, or the clients themselves come all at once. It is the first sign of
// something that holds up a whole service, told as the consequence of that
// where it was found. Requests that come in waves and are answered quickly are
// no trouble, nor are those of clients that wait for answers which all take
// the same time.
const RequestWaves ID = "request-waves"

var requestWaves = Cause{
	ID:      RequestWaves,
	Title:   "Requests come in bursts",
	Layer:   LayerApplication,
	Needs:   []observe.Kind{observe.KindRequests},
	OnWire:  true,
	InTCPRT: true,
	ConsequenceOf: []Parent{FirewallDrop, FirewallReject, NeighbourUnresolved, NoRoute, SlowDependency, ApplicationStallMidResponse,
		ApplicationSlowToRead, AcceptQueueWait, AcceptQueueOverflow, PHPFPMChildrenExhausted, NetworkLoss, RTOTailLoss,
		SlowReceiver, NagleDelayedACK, SYNRetransmits, ConntrackFull, EphemeralPortsExhausted, FDLimit, ClassLate},
	Folds: true,
	Check: checkRequestWaves,
}

// waves is how the requests of an endpoint arrived.
type waves struct {
	bins, empty, bursts int
	index               float64
}

func wavesOf(arrivals []uint32) waves {
	// What lies before the first request and behind the last one is not known.
	for len(arrivals) > 0 && arrivals[0] == 0 {
		arrivals = arrivals[1:]
	}
	for len(arrivals) > 0 && arrivals[len(arrivals)-1] == 0 {
		arrivals = arrivals[:len(arrivals)-1]
	}
	w := waves{bins: len(arrivals)}
	var sum, squares float64
	for i, n := range arrivals {
		sum += float64(n)
		squares += float64(n) * float64(n)
		if n == 0 {
			w.empty++
		} else if i == 0 || arrivals[i-1] == 0 {
			w.bursts++
		}
	}
	if sum > 0 {
		mean := sum / float64(w.bins)
		w.index = (squares/float64(w.bins) - mean*mean) / mean
	}
	return w
}

func checkRequestWaves(v *View) Result {
	return v.judgeLedgers(waveRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := wavesOf(l.Arrivals)
		idle := ratio(w.empty, w.bins)
		because := fmt.Sprintf("%s of the tenths of a second saw no request on %s (index of dispersion %.3g)", percent(idle), l.name(), w.index)
		// A record that stands for many makes a burst of its own.
		sampled := float64(l.Requests) / float64(max(l.records(), 1))
		if l.records() < waveRequests || w.bins < waveBins || idle < waveIdle || w.index < waveIndex*sampled || w.bursts < waveCount {
			return judged{because: because, near: idle}
		}
		quick, slow := float64(l.Total.Quantile(0.1)), l.SlowTotalNS()
		switch {
		// A few very slow ones, as of somebody at work in a remote shell, make
		// the slowest hundredth slow on average and are no wave.
		case slow < waveSlow || ratio(l.Total.Above(waveSlow), l.Total.Count()) < noiseShare:
			return judged{because: because + "; they are answered in time nevertheless", near: idle}
		case slow < waveSpread*quick:
			return judged{because: because + "; the clients wait for answers that all take the same time", near: idle}
		}
		return judged{finding: v.wavesFinding(l, w, idle)}
	})
}

func (v *View) wavesFinding(l *ledger, w waves, idle float64) *Finding {
	held := v.inProgress(l)
	slow := l.Total.Above(waveSlow)
	share := ratio(slow, l.Total.Count())
	f := v.found(l, l.cost(1, observe.Parts()...), threadFloor, "in all")
	// What holds a service up may be what it calls, and what that calls.
	behind := v.behind(l)
	f.MayFollow = func(p *Finding) bool {
		return slices.ContainsFunc(behind, func(o *ledger) bool { return v.at(o)(p) })
	}
	// It says that something is wrong and not what: fixing whatever else is
	// found comes first.
	f.Weight = 0
	f.Impact = Impact{Share: round(share), Of: "the requests",
		Text: fmt.Sprintf("%s of %s requests took over %s; %s of the time no request began", count(slow), count(l.Total.Count()), nanoseconds(waveSlow), percent(idle))}
	f.Evidence = append(f.Evidence[:1],
		Evidence{Fact: "tenths of a second without a request", Value: w.empty, Limit: w.bins, Unit: "bins", Source: recorded},
		Evidence{Fact: "bursts", Value: w.bursts, Unit: "bursts", Source: recorded},
		Evidence{Fact: "index of dispersion (1 = by chance)", Value: round(w.index), Source: recorded},
		Evidence{Fact: "slowest requests", Value: l.whereTimeGoes(), Source: recorded})
	if held >= 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "of the empty time, with slow requests in progress", Value: round(held), Unit: "share", Source: recorded})
	}
	switch {
	case held >= 0.5:
		f.Title = "The service stalls now and then"
		f.Fix.Text = fmt.Sprintf("Find what all of %s waits for while no request gets through: a lock, a full pipe to a log collector, a disk.", f.Subject.Comm)
		f.Fix.Commands = []shell.Command{lookAtWaits(l.pid).Note("during a pause")}
	default:
		f.Fix.Text = "The clients come all at once: spread them (jitter in their timers), or give the service enough workers for a wave."
	}
	return f
}

// inProgress is the share of the empty tenths of a second during which one of
// the slowest requests was in progress; -1 when no example is known.
func (v *View) inProgress(l *ledger) float64 {
	const bin = 100_000_000
	if len(l.Slowest) == 0 {
		return -1
	}
	first, last := -1, -1
	for i, n := range l.Arrivals {
		if n > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	start := v.Window.Start.UnixNano()
	var empty, held int
	for i := first; i <= last && i >= 0; i++ {
		if l.Arrivals[i] > 0 {
			continue
		}
		empty++
		middle := int64(i)*bin + bin/2
		for j := range l.Slowest {
			if s := &l.Slowest[j]; s.StartNS-start <= middle && s.StartNS-start+s.TotalNS >= middle {
				held++
				break
			}
		}
	}
	return ratio(held, empty)
}
