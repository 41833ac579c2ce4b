package lab

import (
	"fmt"
	"math"
	"time"

	"github.com/slowray/slowray/lab/incident"
)

// Tolerances of what slowray measured against what the clients, the link and
// the phase itself say. The load and the window are not the same seconds, and
// the machine has other work.
const (
	near      = 0.20                   // of a time
	nearTime  = 1 * time.Millisecond   // or this
	lossNear  = 0.40                   // of a loss that a few dozen packets make
	lossSeen  = 0.10                   // of a loss on the way in is seen at least, see wayIn
	lossesMin = 40                     // fewer lost packets say nothing about a rate
	rareLoss  = 0.001                  // up to this, loss costs hardly any throughput
	rareCost  = 0.6                    // of the rate is left then, at least
	lossCost  = 0.97                   // of the rate is left with more loss, at most
	retryCost = 200 * time.Millisecond // a lost request costs this at least: the minimum of TCP's timer
)

func closeTo(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= max(near*float64(want), float64(nearTime))
}

// judgePhases compares the phases with each other and, if slowray looked, each
// with what is known of it. The shape has to be that of the incident: what is
// added on the way is reported as network time and nothing else moves.
func judgePhases(phases []incident.Phase, got []PhaseResult, looked bool) []string {
	j := phaseJudge{}
	// Others disturb a phase at most by making it slower: the best of those
	// with hardly any loss tells what the servers can do.
	for n, p := range phases {
		if p.RTT == 0 && p.Loss() <= rareLoss {
			j.able = max(j.able, got[n].Rate)
		}
	}
	for n, p := range phases {
		r := got[n]
		if r.Bad > 0 {
			j.say("%s: %d answers were not good", p.Name, r.Bad)
		}
		j.rates(p, r)
		if !looked {
			continue
		}
		if r.Served == nil || r.Database == nil {
			j.say("%s: the report has no endpoint of the application, or none of its database", p.Name)
			continue
		}
		j.total(p, r)
		j.server(p, r, got[0])
		j.loss(p, r)
	}
	return j.reasons
}

type phaseJudge struct {
	able    float64 // requests per second that the servers answer when nothing is added
	reasons []string
}

func (j *phaseJudge) say(format string, args ...any) {
	j.reasons = append(j.reasons, fmt.Sprintf(format, args...))
}

// rates checks the truth itself: a longer way and losses cost throughput, a
// rare loss hardly any.
func (j *phaseJudge) rates(p incident.Phase, r PhaseResult) {
	switch loss := p.Loss(); {
	case p.RTT > 0 && r.Latency < p.RTT:
		j.say("%s: the clients saw %s, less than was added", p.Name, short(r.Latency))
	case loss <= rareLoss && p.RTT == 0 && r.Rate < rareCost*j.able:
		j.say("%s: %.0f requests/s of %.0f: hardly any loss, and slow", p.Name, r.Rate, j.able)
	case loss > rareLoss && r.Rate > lossCost*j.able:
		j.say("%s: %.0f requests/s of %.0f: loss costs nothing", p.Name, r.Rate, j.able)
	}
}

// total: what slowray says a request took is what the clients saw, without what lost
// requests took of which the server never knew.
func (j *phaseJudge) total(p incident.Phase, r PhaseResult) {
	saw := r.Latency
	if lost := r.Wires[wayIn].permille(); p.FromClient > 0 && lost > r.Served.LossPermille {
		saw -= time.Duration((lost - r.Served.LossPermille) / 1000 * float64(retryCost))
	}
	if total := r.Served.Total(); !closeTo(total, saw) {
		j.say("%s: a request took %s, the clients saw %s", p.Name, short(total), short(saw))
	}
	if network := r.Served.Part("network"); p.RTT > 0 && !closeTo(network, p.RTT) {
		j.say("%s: network %s, added were %s", p.Name, short(network), short(p.RTT))
	}
}

// server: the network is not the server's time, nor the database's.
func (j *phaseJudge) server(p incident.Phase, r, clean PhaseResult) {
	if clean.Served == nil || clean.Database == nil {
		return
	}
	// What a lost query costs, in the mean of all of them.
	cost := time.Duration(p.ToDatabase * float64(retryCost))
	lost := r.Database.Part("retrans")
	if lost < cost/2 {
		j.say("%s: of a database call %s are retransmission, the loss is to cost about %s", p.Name, short(lost), short(cost))
	}
	if call, was := r.Database.Total()-lost, clean.Database.Total(); call > was && !closeTo(call, was) {
		j.say("%s: a database call took %s without retransmission, clean %s", p.Name, short(call), short(was))
	}
	server, was := r.Served.Part("server"), clean.Served.Part("server")
	if p.ToDatabase == 0 && server > was && !closeTo(server, was) {
		j.say("%s: server %s, clean %s", p.Name, short(server), short(was))
	}
}

// wayIn is the way on which loss is seen in part: a request that is lost takes an
// acknowledgement with it, and the answer that was not acknowledged is retransmitted, if
// the server's timer is the first to run out. Both timers are RTT + 200 ms, and began
// together but for the pause between requests, which is in the server's RTT.
const wayIn = "client→server"

// loss: segments retransmitted for a thousand sent, against what the link lost.
func (j *phaseJudge) loss(p incident.Phase, r PhaseResult) {
	for _, dir := range []struct {
		wire string
		e    *Endpoint
	}{{wayIn, r.Served}, {"server→client", r.Served}, {"server→backend", r.Database}} {
		w := r.Wires[dir.wire]
		if w.Lost < lossesMin {
			continue
		}
		is, was := dir.e.LossPermille, w.permille()
		least := (1 - lossNear) * was
		if dir.wire == wayIn {
			least = lossSeen * was
		}
		if is < least || is > (1+lossNear)*was {
			j.say("%s: %s: loss %.1f ‰, the link lost %.1f ‰", p.Name, dir.wire, is, was)
		}
	}
}

func (w way) permille() float64 { return 1000 * float64(w.Lost) / max(float64(w.Packets), 1) }
