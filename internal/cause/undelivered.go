package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// undelivered is the requests of which bytes are retransmitted and again in vain: when the
// window ended, or until their connection did. Where none of it arrives the ends have no
// other sign: the sockets are open, and nobody does anything wrong.
type undelivered struct {
	n       uint64
	ns      float64 // how long all of them together had taken
	again   uint64  // segments retransmitted
	longest uint32  // unacknowledged bytes of one of them, most
	least   uint32  // and fewest
	mss     uint32  // of the latter
}

// undelivered tells of an endpoint, as far as its slowest requests and those that failed
// last tell.
func (l *ledger) undelivered() undelivered {
	var u undelivered
	var seen, again float64
	u.n, u.ns = l.cutOff()
	for s := range flagged(l.Failed, observe.FlagTruncated) {
		if neverArrived(s) {
			u.holds(s)
		}
	}
	var open, ns float64
	for s := range flagged(l.Slowest, observe.FlagUnfinished) {
		seen++
		again += float64(s.Retrans)
		if greatest(s, observe.Retrans) {
			open++
			ns += float64(s.TotalNS)
			u.holds(s)
		}
	}
	all := float64(l.Unfinished)
	u.n += uint64(ratio(open, seen)*all + 0.5)
	u.ns += ns / max(seen, 1) * all
	u.again = uint64(again/max(seen, 1)*all + 0.5)
	return u
}

// cutOff is the requests whose connection ended while the rest of the answer was sent
// again and again, as far as the last of them tell, and the time that they took, in ns.
func (l *ledger) cutOff() (n uint64, ns float64) {
	var cut, lost float64
	for s := range flagged(l.Failed, observe.FlagTruncated) {
		cut++
		if neverArrived(s) {
			lost++
			ns += float64(s.TotalNS)
		}
	}
	n = uint64(ratio(lost, cut) * float64(l.affected(observe.FlagTruncated)))
	return n, ns / max(lost, 1) * float64(n)
}

// neverArrived says of a request whose connection ended that the rest of it was retransmitted in
// vain: what had no acknowledgement at all is no time of the retransmissions yet.
func neverArrived(s *observe.RequestSample) bool {
	return greatest(s, observe.Retrans) || s.Unacked > 0 && s.Retrans > 0 && hasFlag(s, observe.FlagTimeout) && greatest(s, observe.Network)
}

func (u *undelivered) holds(s *observe.RequestSample) {
	if s.Unacked == 0 {
		return
	}
	u.longest = max(u.longest, s.Unacked)
	if u.least == 0 || s.Unacked < u.least {
		u.least, u.mss = s.Unacked, s.MSS
	}
}

// hurts says that they are more than an accident.
func (u *undelivered) hurts(l *ledger) bool {
	return u.n >= fewAffected && ratio(u.n, l.Requests+l.waiting()) >= noiseShare
}

// sentAgain is the segments of an endpoint that were retransmitted, those of requests in
// progress too.
func (l *ledger) sentAgain() uint64 {
	u := l.undelivered()
	return l.Retrans + u.again
}

// stuck is the requests that came to no end.
func (l *ledger) stuck() uint64 {
	cut, _ := l.cutOff()
	return l.waiting() + l.Unanswered + cut
}

// vain makes a finding about requests that never arrive.
func (v *View) vain(l *ledger, u *undelivered) *Finding {
	f := v.found(l, l.cost(1, observe.Retrans), wireFloor, "lost to retransmission")
	lost := u.ns / 1e9
	f.lost = &lost
	f.Weight = max(f.Weight, ratio(u.n, l.Requests+l.waiting())*l.reach)
	again := l.Retrans + u.again
	what := "answers"
	if l.called() {
		what = "requests"
	}
	f.Impact = Impact{Share: round(ratio(u.n, l.Requests+l.waiting())), Of: "requests",
		Text: fmt.Sprintf("%s %s of %s never arrived, or not all of them, and were retransmitted for %s on average; %s came to their end",
			count(u.n), what, l.name(), nanoseconds(u.ns/float64(max(u.n, 1))), count(l.Requests-min(l.Requests, l.affected(observe.FlagTruncated))))}
	f.Evidence = []Evidence{
		{Fact: "requests of which bytes were retransmitted and never acknowledged", Value: u.n, Limit: l.Requests + l.waiting(), Unit: "requests", Source: recorded},
		{Fact: "segments retransmitted", Value: again, Limit: again + l.Segments, Unit: "segments", Source: "TCP sockets"},
	}
	if u.longest > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "bytes of one that were not acknowledged, fewest and most", Value: u.least, Limit: u.longest, Unit: "bytes", Source: recorded})
	}
	return f
}
