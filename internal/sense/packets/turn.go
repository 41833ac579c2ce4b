package packets

import (
	"github.com/slowray/slowray/internal/observe"
)

// turn is a request while its packets are read: the moments by which its time is
// split. They are ns of the capture's clock; 0 = not seen.
type turn struct {
	first, last       int64 // bytes of the request
	firstOut, lastOut int64 // bytes of the answer
	acked             int64 // the client has all of the answer
	bytesIn, bytesOut uint64
	segments, retrans uint32 // of the answer; retrans also those of the request that were lost on their way from here

	resentIn  int64 // when the last bytes of the request were retransmitted, having been lost behind this place
	lostIn    int64 // time that bytes of the request were missed which had been lost before it, ns
	due       int64 // since when what was retransmitted should have been acknowledged; 0 = nothing was
	recover   int64 // up to which byte
	retransNS int64
	stall     int64
	sendWait  int64
	shut      int64 // for how long the client's window was closed since the answer last went on
	ackDelay  int64
	progress  int64 // last moment at which the answer went on

	flags    observe.RequestFlags
	overlaps uint32
	http     int
	label    string
}

// answered says that some of the answer passed here.
func (t *turn) answered() bool { return t.firstOut != 0 }

// take takes up to want from what is left.
func take(left *int64, want int64) int64 {
	got := max(0, min(*left, want))
	*left -= got
	return got
}

// ledger splits the turn's time, up to end where the answer was not
// acknowledged. near is the round trip from here to the server, which the
// server had no part in; the parts add up whatever was or was not seen.
func (t *turn) ledger(near, end int64) observe.Ledger {
	var l observe.Ledger
	upto := t.acked
	if upto == 0 {
		upto = end
	}
	left := max(0, upto-t.first)
	if t.flags&observe.FlagOverlapped != 0 {
		l[observe.Unaccounted] = left
		return l
	}
	upload := take(&left, t.last-t.first)
	l[observe.Retrans] = take(&upload, t.lostIn)
	l[observe.Upload] = upload
	wait := left
	if t.answered() {
		wait = take(&left, t.firstOut-t.last)
	} else {
		left = 0
	}
	if t.resentIn > t.last {
		l[observe.Retrans] += take(&wait, t.resentIn-t.last)
	}
	l[observe.Network] = take(&wait, near)
	l[observe.Server] = wait
	l[observe.AckDelay] = take(&left, t.ackDelay)
	l[observe.Stall] = take(&left, t.stall)
	l[observe.Retrans] += take(&left, t.retransNS)
	l[observe.SendWait] = take(&left, t.sendWait)
	l[observe.Network] += left
	return l
}

// status is how the turn ended, as far as HTTP/1 tells.
func (t *turn) status() observe.Status {
	switch {
	case t.http == 0:
		return observe.StatusUnknown
	case t.http >= 400:
		return observe.StatusError
	}
	return observe.StatusOK
}
