package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
)

// SlowClientACK: a client acknowledges the end of an answer late, or only with
// its next request. Measured up to that acknowledgement, as tools do that see
// packets, the request looks slow; the client had its answer all the while.
// The ledger keeps this time out of the total, so it is never a finding: what
// was seen of it is reported, because other tools show it as network time.
const SlowClientACK ID = "slow-client-ack"

var slowClientAck = Cause{
	ID:            SlowClientACK,
	Title:         "Clients acknowledge late, and nobody waits for it",
	Layer:         LayerPath,
	Needs:         []observe.Kind{observe.KindRequests},
	OnWire:        true,
	Informational: true,
	Check:         checkSlowClientAck,
}

func checkSlowClientAck(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		stats := l.Parts[observe.AckDelay.String()]
		late := min(stats.Hist.Above(lateAck), l.Requests)
		if late == 0 {
			return judged{because: fmt.Sprintf("the clients of %s acknowledge at once", l.name()), near: 0}
		}
		delay := l.SumNS(observe.AckDelay)
		return judged{near: delay, because: fmt.Sprintf(
			"clients of %s acknowledged %s of %s answers over %s late, up to %s: they had their answer, so it is no part of any request's time (%s of it; a packet capture shows it as network time)",
			l.name(), count(late), count(l.Requests), nanoseconds(lateAck), nanoseconds(float64(stats.Hist.Max())), percent(ratio(delay, delay+l.TimeNS())))}
	})
}
