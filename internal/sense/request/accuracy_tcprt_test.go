package request_test

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/link"
)

// TestTCPRTKnownWrong: what TCPRT's figures are known to get wrong, each with a
// request of which the right figure is known.
func TestTCPRTKnownWrong(t *testing.T) {
	t.Run("1 one request in flight is assumed", func(t *testing.T) { once(t, pipelined) })
	t.Run("2 a stall within the response counts as network", func(t *testing.T) { measure(t, stalling) })
	t.Run("3 a late acknowledgement counts as response time", func(t *testing.T) {
		measure(t, func(tr *trial) { ackDelay(tr, 100*time.Millisecond, false) })
	})
	t.Run("3 the next request ends the one before", func(t *testing.T) {
		measure(t, func(tr *trial) { ackDelay(tr, 18*time.Millisecond, true) })
	})
	t.Run("4 the round trip is the least of the connection", func(t *testing.T) { measure(t, roundTripNow) })
	t.Run("5 a retransmission is a count without a time", func(t *testing.T) { measure(t, lostResponse) })
	t.Run("6 server time is one lump", func(t *testing.T) { measure(t, serverTimeSplit) })
	t.Run("7 a quick failure is none", func(t *testing.T) { once(t, quickFailures) })
	t.Run("8 no process, no IPv6, no quantiles", func(t *testing.T) { measure(t, whoAndQuantiles) })
}

// roundTripNow: the path gets slower while a connection is open.
func roundTripNow(tr *trial) {
	tr.t.Helper()
	const n, change = 30, 10
	const before, after = 2 * time.Millisecond, 20 * time.Millisecond
	e := tr.across(link.Settings{Delay: before}, link.Settings{})
	served, _ := e.requests(n, 100, 500, func(i int) {
		if i == change {
			e.link.Set(link.AtoB, link.Settings{Delay: after})
		}
	})
	if len(served) != n {
		return
	}
	rtt := func(m match) int64 { return m.RTTNS }
	tr.within("rtt before", median(served[:change], rtt), before, before/10)
	// The first ones after the change are smoothed with those before it when
	// they cannot be distinguished.
	tr.within("rtt after", median(served[change+1:], rtt), after, after/20)
	tr.within("min rtt", time.Duration(served[n-1].MinRTTNS), before, before/10)
	tr.within("network after", median(served[change+1:], part(observe.Network)), after, little)
}

// serverTimeSplit: accepted 30 ms late, read 20 ms late, worked on for 10 ms.
func serverTimeSplit(tr *trial) {
	tr.t.Helper()
	const n, in, out = 6, 100, 200
	o := tr.loopback(loopback4)
	var accepts, reads, worked []int64
	now := func() int64 { return time.Now().UnixNano() }
	for range n {
		c := tr.dial(o.place, o.to)
		c.send(in)
		time.Sleep(30 * time.Millisecond)
		accepts = append(accepts, now())
		s, err := o.l.accept()
		tr.must(err)
		time.Sleep(20 * time.Millisecond)
		reads = append(reads, now())
		s.receive(in)
		start := now()
		time.Sleep(10 * time.Millisecond)
		worked = append(worked, now()-start)
		s.send(out)
		c.receive(out)
		tr.must(c.close())
		tr.must(s.close())
	}
	served, _ := o.sides(n)
	if len(served) != n {
		return
	}
	var accept, read []int64
	for i, m := range served {
		accept = append(accept, accepts[i]-m.conn.Established)
		read = append(read, reads[i]-accepts[i])
	}
	for _, x := range []struct {
		part  observe.Part
		known []int64
	}{{observe.AcceptWait, accept}, {observe.RecvWait, read}, {observe.Server, worked}} {
		tr.within(x.part.String(), median(served, part(x.part)), time.Duration(quantile(x.known, 0.5)), p99Limit)
	}
	tr.accounted(served)
}

// quickFailures: connections that end with a request unanswered after 2 ms are
// failures like those that end after a second.
func quickFailures(tr *trial) {
	tr.t.Helper()
	const n, in = 10, 100
	const after = 2 * time.Millisecond
	o := tr.loopback(loopback4)
	o.each(n, func(c, s *peer) {
		c.send(in)
		s.receive(in)
		time.Sleep(after)
		c.reset()
		s.receiveEnd()
	})
	served, _ := o.sides(n)
	tr.unanswered(served, true, after)
	table := request.NewTable(time.Now().Add(-time.Second))
	for _, r := range tr.of(observe.Served) {
		table.Add(r)
	}
	endpoints := table.Endpoints(time.Now(), tr.counters)
	i := slices.IndexFunc(endpoints, func(e observe.Endpoint) bool { return e.Side == observe.Served.String() })
	if i < 0 || endpoints[i].Requests != n || endpoints[i].Unanswered != n || endpoints[i].OK+endpoints[i].Errors != 0 {
		tr.errorf("endpoints: %+v, want %d requests, all unanswered, none with an error", endpoints, n)
	}
}

// whoAndQuantiles: requests over IPv6, of which a tenth takes 20 ms.
func whoAndQuantiles(tr *trial) {
	tr.t.Helper()
	const n, in, out = 50, 100, 200
	o := tr.loopback(loopback6)
	c, s := o.connect(o.place, o.l, o.to)
	for i := range n {
		c.send(in)
		s.receive(in)
		if i%10 == 9 {
			time.Sleep(20 * time.Millisecond)
		}
		s.send(out)
		c.receive(out)
	}
	tr.must(c.close())
	tr.must(s.close())
	served, called := o.sides(n)
	table := request.NewTable(time.Now().Add(-time.Second))
	for _, m := range slices.Concat(served, called) {
		table.Add(m.Request)
		if m.PID != os.Getpid() || m.TID == 0 {
			tr.errorf("process %d, thread %d, want process %d:\n%s", m.PID, m.TID, os.Getpid(), m)
		}
	}
	for _, e := range table.Endpoints(time.Now(), tr.counters) {
		if e.Requests != n || e.PID != os.Getpid() || netip.MustParseAddr(e.Addr) != loopback6 {
			tr.errorf("endpoint of process %d at %s with %d requests, want %d at %s with %d", e.PID, e.Addr, e.Requests, os.Getpid(), loopback6, n)
		}
		tr.below(e.Side+": p50", time.Duration(e.Total.Quantile(0.5)), 10*time.Millisecond)
		tr.within(e.Side+": p99", time.Duration(e.Total.Quantile(0.99)), 22*time.Millisecond, 3*time.Millisecond)
	}
}
