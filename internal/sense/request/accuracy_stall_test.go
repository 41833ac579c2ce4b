package request_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// stalling is a server that pauses for 50 ms between two halves of the
// response, the first of which the client acknowledges at once.
func stalling(tr *trial) {
	tr.t.Helper()
	const in, half = 100, 500
	served, called := tr.serial(10, in, 2*half, 0, func(s *peer) {
		s.receive(in)
		s.send(half)
		time.Sleep(50 * time.Millisecond)
		s.send(half)
	})
	idle := median(served, func(m match) int64 { return m.wire.Idle })
	if idle < 50*time.Millisecond || idle > 60*time.Millisecond {
		tr.errorf("the packets pause for %s, the script for 50 ms", idle)
	}
	tr.within("served: stall", median(served, part(observe.Stall)), idle, p99Limit)
	tr.below("served: network", median(served, part(observe.Network)), little)
	tr.below("served: server", median(served, part(observe.Server)), little)
	tr.below("served: send_wait", median(served, part(observe.SendWait)), little)
	tr.within("called: stall", median(called, part(observe.Stall)), idle, little)
	tr.below("called: server", median(called, part(observe.Server)), little)
	tr.accounted(served)
}

// TestStallBehindALateAcknowledgement: the client delays the acknowledgement of
// the first half, so that it is in flight while the server pauses, for less and
// for longer than the 40 ms of the delay.
func TestStallBehindALateAcknowledgement(t *testing.T) {
	for _, pause := range []time.Duration{20 * time.Millisecond, 90 * time.Millisecond} {
		t.Run(pause.String(), func(t *testing.T) {
			measure(t, func(tr *trial) {
				const n, in, half = 10, 100, 500
				o := tr.loopback(loopback4)
				c, s := o.connect(o.place, o.l, o.to)
				s.noDelay()
				var paused []match
				var known []int64
				for range n {
					for i := range warm {
						c.send(in)
						s.receive(in)
						s.send(half)
						if i == warm-1 {
							start := time.Now()
							time.Sleep(pause)
							known = append(known, int64(time.Since(start)))
						}
						s.send(half)
						c.receive(2 * half)
					}
				}
				tr.must(c.close())
				tr.must(s.close())
				served, _ := o.sides(n * warm)
				for _, m := range served {
					if (m.index+1)%warm == 0 {
						paused = append(paused, m)
					}
				}
				if late := median(paused, func(m match) int64 { return int64(pause) - m.wire.Idle }); late < 15*time.Millisecond {
					tr.errorf("the packets show the first half acknowledged after %s: it was not delayed", late)
				}
				tr.within("served: stall", median(paused, part(observe.Stall)), time.Duration(quantile(known, 0.5)), little)
				tr.below("served: network", median(paused, part(observe.Network)), little)
				tr.accounted(served)
			})
		})
	}
}

// lasted checks a part against the packets, which may have been sent later than planted but not
// earlier.
func (tr *trial) lasted(m match, p observe.Part, planted time.Duration, packets int64) {
	tr.t.Helper()
	tr.within(fmt.Sprint(m.Side, ": ", p), time.Duration(m.Ledger[p]), max(planted, time.Duration(packets)), little)
}

// TestLongStall: a pause of several seconds in a response. Slowray cannot know
// that more is to come and may report the request before; in the end it is one
// request all the same.
func TestLongStall(t *testing.T) {
	once(t, func(tr *trial) {
		const in, half = 100, 500
		o := tr.loopback(loopback4)
		c, s := o.connect(o.place, o.l, o.to)
		for range 2 { // an ordinary one, then the slow one
			c.send(in)
			s.receive(in)
			c.quickAck()
			s.send(half)
			c.receive(half)
		}
		const pause = 4 * time.Second
		time.Sleep(pause)
		s.send(half)
		c.receive(half)
		c.send(in)
		s.receive(in)
		s.send(half)
		c.receive(half)
		tr.must(c.close())
		tr.must(s.close())
		served, called := o.sides(3)
		for _, list := range [][]match{served, called} {
			if len(list) == 3 {
				tr.lasted(list[1], observe.Stall, pause, list[1].wire.Idle)
			}
		}
	})
}

// TestRequestOfSeconds is reported while it lasts, and once when it is over.
func TestRequestOfSeconds(t *testing.T) {
	once(t, func(tr *trial) {
		const works = 2500 * time.Millisecond
		served, called := tr.serial(2, 100, 200, 0, func(s *peer) {
			s.receive(100)
			time.Sleep(works)
			s.send(200)
		})
		for _, list := range [][]match{served, called} {
			for _, m := range list {
				packets := m.wire.FirstOut - m.wire.Last
				if m.Side == observe.Served {
					packets -= m.Ledger[observe.RecvWait]
				}
				tr.lasted(m, observe.Server, works, packets)
				if !slices.ContainsFunc(tr.interim, func(r *observe.Request) bool {
					return r.Side == m.Side && r.Seq == m.Seq && abs(r.StartNS-m.StartNS) < int64(time.Second)
				}) {
					tr.errorf("nothing was reported for it before its end:\n%s", m)
				}
			}
		}
	})
}

// TestReaderThatDoesNotRead: the client's window closes for 300 ms.
func TestReaderThatDoesNotRead(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out = 3, 100, 1 << 20
		o := tr.loopback(loopback4)
		var pauses []int64
		for range n {
			c, s := o.connect(o.place, o.l, o.to)
			c.option(unix.SOL_SOCKET, unix.SO_RCVBUF, 32<<10)
			tr.talk(
				func() error {
					c.send(in)
					c.poll()
					start := time.Now()
					time.Sleep(300 * time.Millisecond)
					pauses = append(pauses, int64(time.Since(start)))
					c.receive(out)
					return c.close()
				},
				func() error {
					s.receive(in)
					s.send(out)
					s.receiveEnd()
					return s.close()
				})
		}
		served, called := o.sides(n)
		// Before it is closed the window is too small to be of use.
		if closed := median(served, func(m match) int64 { return m.wire.ZeroWindow }); closed < 200*time.Millisecond {
			tr.errorf("the packets show a closed window for %s only, the script does not read for 300 ms", closed)
		}
		tr.within("served: send_wait", median(served, part(observe.SendWait)), time.Duration(quantile(pauses, 0.5)), 5*time.Millisecond)
		tr.below("served: network", median(served, part(observe.Network)), 30*time.Millisecond)
		tr.below("served: stall", median(served, part(observe.Stall)), little)
		tr.below("served: server", median(served, part(observe.Server)), little)
		for _, m := range served {
			if m.Flags&observe.FlagZeroWindow == 0 {
				tr.errorf("not flagged zero_window:\n%s", m)
			}
		}
		// It is the caller that does not read: no time of the server.
		tr.below("called: server", median(called, part(observe.Server)), little)
	})
}

// warm is how many exchanges make a connection's client acknowledge with its
// next request rather than at once.
const warm = 20

// TestNagle: the second of two small writes waits for the acknowledgement of
// the first, which the client delays by 40 ms.
func TestNagle(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out = 10, 100, 200
		o := tr.loopback(loopback4)
		c, s := o.connect(o.place, o.l, o.to)
		for range warm {
			c.send(in)
			s.receive(in)
			s.send(out)
			c.receive(out)
		}
		for range n {
			c.send(in)
			s.receive(in)
			s.send(out / 2)
			s.send(out / 2)
			c.receive(out)
		}
		tr.must(c.close())
		tr.must(s.close())
		served, _ := o.sides(warm + n)
		if len(served) != warm+n {
			return
		}
		waited := served[warm:]
		held := median(waited, func(m match) int64 { return m.wire.LastOut - m.wire.FirstOut })
		if held < 30*time.Millisecond {
			tr.errorf("the packets show the second half %s after the first: Nagle's algorithm did not hold it", held)
		}
		tr.within("served: send_wait", median(waited, part(observe.SendWait)), held, little)
		tr.below("served: stall", median(waited, part(observe.Stall)), little)
		tr.below("served: network", median(waited, part(observe.Network)), little)
		for _, m := range waited {
			if m.Flags&observe.FlagNagle == 0 {
				tr.errorf("not flagged nagle:\n%s", m)
			}
		}
	})
}

// ackDelay is a client that thinks after its requests and acknowledges the
// response late: after 40 ms, or with its next request when that comes earlier.
// Nobody waits for that.
func ackDelay(tr *trial, think time.Duration, withData bool) {
	tr.t.Helper()
	const n, in, out = 10, 100, 200
	o := tr.loopback(loopback4)
	c, s := o.connect(o.place, o.l, o.to)
	var slow []int // which requests the client thinks after
	for range n {
		// Some exchanges without a pause: a client that missed to delay an
		// acknowledgement until its next request acknowledges at once for a while.
		for range warm {
			c.send(in)
			s.receive(in)
			s.send(out)
			c.receive(out)
		}
		slow = append(slow, warm*(len(slow)+1)-1)
		time.Sleep(think)
	}
	c.send(in)
	s.receive(in)
	s.send(out)
	c.receive(out)
	tr.must(c.close())
	tr.must(s.close())
	served, _ := o.sides(n*warm + 1)
	if len(served) != n*warm+1 {
		return
	}
	var late []match
	for _, i := range slow {
		m := served[i]
		late = append(late, m)
		if m.wire.AckedWithData != withData {
			tr.errorf("acknowledged with data: %v, meant %v:\n%s", m.wire.AckedWithData, withData, m)
		}
	}
	delay := median(late, func(m match) int64 { return m.wire.Acked - m.wire.LastOut })
	if delay < 15*time.Millisecond {
		tr.errorf("the packets show an acknowledgement after %s: it was not delayed", delay)
	}
	tr.within("ack_delay", median(late, part(observe.AckDelay)), delay, little)
	tr.below("total", median(late, func(m match) int64 { return m.TotalNS() }), little)
	tr.below("network", median(late, part(observe.Network)), little)
}
