package link

import (
	"sync/atomic"
	"time"
)

// LateStep is the width of one bucket of Counters.Late.
const LateStep = 10 * time.Microsecond

// LateBuckets is how many there are; the last one has everything from there on.
const LateBuckets = 64

// Counters of one direction, in packets. Received is the sum of Sent, Lost,
// Picked, TailDropped and Refused, and of what is under way.
type Counters struct {
	Received    uint64 `json:"received"`     // from the end where the direction begins
	Sent        uint64 `json:"sent"`         // passed to the other end
	Lost        uint64 `json:"lost"`         // by chance
	Picked      uint64 `json:"picked"`       // lost because a Pick chose them
	TailDropped uint64 `json:"tail_dropped"` // the queue was full
	Refused     uint64 `json:"refused"`      // the other end's kernel did not take them
	Overrun     uint64 `json:"overrun"`      // dropped by the kernel before they were received

	ReceivedBytes uint64 `json:"received_bytes"` // with IP headers
	SentBytes     uint64 `json:"sent_bytes"`

	// Late is how long after its due time each packet was sent.
	Late    [LateBuckets]uint64 `json:"late"`
	LateMax time.Duration       `json:"late_max_ns"`
}

// LossRate is the share of the packets that did not arrive, 0 … 1.
func (c Counters) LossRate() float64 {
	all := c.Received + c.Overrun
	if all == 0 {
		return 0
	}
	return float64(c.Lost+c.Picked+c.TailDropped+c.Refused+c.Overrun) / float64(all)
}

// LateQuantile is how late the given share of the packets was at most, to the
// width of a bucket.
func (c Counters) LateQuantile(q float64) time.Duration {
	left := uint64(q * float64(c.Sent))
	for n, count := range c.Late {
		if count > left {
			return time.Duration(n+1) * LateStep
		}
		left -= count
	}
	return c.LateMax
}

// Sub is what was counted since an earlier reading. LateMax is that of all.
func (c Counters) Sub(before Counters) Counters {
	c.Received -= before.Received
	c.Sent -= before.Sent
	c.Lost -= before.Lost
	c.Picked -= before.Picked
	c.TailDropped -= before.TailDropped
	c.Refused -= before.Refused
	c.Overrun -= before.Overrun
	c.ReceivedBytes -= before.ReceivedBytes
	c.SentBytes -= before.SentBytes
	for n := range c.Late {
		c.Late[n] -= before.Late[n]
	}
	return c
}

// count is the counters as the thread of a direction writes them.
type count struct {
	received, sent, lost, picked, tailDropped, refused atomic.Uint64
	receivedBytes, sentBytes                           atomic.Uint64
	late                                               [LateBuckets]atomic.Uint64
	lateMax                                            atomic.Int64
}

// wasLate has one writer.
func (c *count) wasLate(ns int64) {
	c.late[min(max(ns, 0)/int64(LateStep), LateBuckets-1)].Add(1)
	if ns > c.lateMax.Load() {
		c.lateMax.Store(ns)
	}
}

func (c *count) read() Counters {
	r := Counters{
		Sent: c.sent.Load(), Lost: c.lost.Load(), Picked: c.picked.Load(), TailDropped: c.tailDropped.Load(), Refused: c.refused.Load(),
		SentBytes: c.sentBytes.Load(), LateMax: time.Duration(c.lateMax.Load()),
	}
	for n := range c.late {
		r.Late[n] = c.late[n].Load()
	}
	// Last: what is under way can then not be negative.
	r.Received, r.ReceivedBytes = c.received.Load(), c.receivedBytes.Load()
	return r
}
