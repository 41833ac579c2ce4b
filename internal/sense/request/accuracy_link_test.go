package request_test

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/capture"
	"github.com/slowray/slowray/lab/link"
)

// emulated is a measurement across a link: the server is in a, the client in b.
// Packets from a to b carry the responses.
type emulated struct {
	*trial
	a, b       *place
	addrA      netip.Addr
	addrB      netip.Addr
	link       *link.Link
	tapA, tapB *tap
}

const device = "emu0"

// across prepares two places with a link; packets are captured at both ends and
// requests recorded from now on.
func (tr *trial) across(aToB, bToA link.Settings) *emulated {
	tr.t.Helper()
	e := &emulated{trial: tr, a: tr.place(), b: tr.place(), addrA: netip.MustParseAddr("10.92.0.1"), addrB: netip.MustParseAddr("10.92.0.2")}
	l, err := link.Open(link.Config{
		A:    link.End{NetNS: e.a.ns, Name: device, Addrs: []netip.Prefix{netip.PrefixFrom(e.addrA, 24)}},
		B:    link.End{NetNS: e.b.ns, Name: device, Addrs: []netip.Prefix{netip.PrefixFrom(e.addrB, 24)}},
		AtoB: aToB, BtoA: bToA, Seed: 1,
	})
	tr.must(err)
	tr.cleanup(func() { l.Close() })
	e.link, e.tapA, e.tapB = l, tr.tap(e.a, device), tr.tap(e.b, device)
	tr.record(request.Options{})
	return e
}

// requests has one connection from b make n requests to a; before each, the
// client calls prepare.
func (e *emulated) requests(n, in, out int, prepare func(i int)) (served, called []match) {
	e.t.Helper()
	l := e.listen(e.a, e.addrA)
	c, s := e.connect(e.b, l, l.addr)
	e.talk(
		func() error {
			for i := range n {
				if prepare != nil {
					prepare(i)
				}
				c.ask(1, in, out, 0)
			}
			return c.close()
		},
		func() error {
			s.answer(n, in, out, nil)
			s.receiveEnd()
			return s.close()
		})
	return e.sides(l.addr.Port(), n)
}

// sides ends the measurement and matches the records of a server in a, and of
// its clients in b, with the packets of their ends. Other servers are aside.
func (e *emulated) sides(port uint16, want int, aside ...netip.AddrPort) (served, called []match) {
	e.t.Helper()
	e.finish()
	only := func(list []*capture.Connection) (kept []*capture.Connection) {
		for _, c := range list {
			if c.Server.Port() == port {
				kept = append(kept, c)
			}
		}
		return kept
	}
	served = e.match(observe.Served, only(capture.Cut(e.tapA.packets, capture.Serving)), aside...)
	called = e.match(observe.Called, only(capture.Cut(e.tapB.packets, capture.Calling)), aside...)
	e.count(served, want)
	e.count(called, want)
	e.ledgers(served)
	e.ledgers(called)
	return served, called
}

// TestLeftOver: the network went away while an answer was under way and a caller waited. What
// a process had sent that has ended since, the kernel tries to deliver for minutes: nobody
// waits for it. One that runs has a request that failed; a caller waits until it gives up.
func TestLeftOver(t *testing.T) {
	const in, out, tries, waits = 100, 500, 900 * time.Millisecond, 300 * time.Millisecond
	run := func(ended bool) func(*testing.T) {
		return func(t *testing.T) {
			once(t, func(tr *trial) {
				e := tr.across(link.Settings{}, link.Settings{})
				l := e.listen(e.a, e.addrA)
				c, s := e.connect(e.b, l, l.addr)
				caller := e.dial(e.b, l.addr)
				s.option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(tries/time.Millisecond))
				c.send(in)
				s.receive(in)
				e.link.Pick(link.AtoB, &link.Pick{})
				e.link.Pick(link.BtoA, &link.Pick{})
				s.send(out)
				if ended {
					heir := exec.Command("sleep", "60") // the last that has the connection
					heir.ExtraFiles = []*os.File{os.NewFile(uintptr(s.fd), "connection")}
					tr.must(heir.Start())
					tr.must(heir.ExtraFiles[0].Close())
					s.fd = -1
					tr.must(heir.Process.Kill())
					_ = heir.Wait()
				} else {
					tr.must(s.close())
				}
				caller.send(in)
				time.Sleep(waits)
				tr.must(caller.close())
				time.Sleep(tries + 2*rto)
				tr.halt()
				left, failed := uint64(1), 0
				if !ended {
					left, failed = 0, 1
				}
				if got := len(tr.of(observe.Served)); got != failed || tr.stats.Untaken != left {
					tr.errorf("%d requests and %d answers that nobody took, want %d and %d", got, tr.stats.Untaken, failed, left)
				}
				for _, r := range tr.of(observe.Served) {
					tr.within("a failed answer", time.Duration(r.TotalNS()), tries, tries)
				}
				var gaveUp []*observe.Request
				for _, r := range tr.of(observe.Called) {
					if r.Flags&observe.FlagUnanswered != 0 && r.Flags&observe.FlagUnfinished == 0 {
						gaveUp = append(gaveUp, r)
					}
				}
				if len(gaveUp) != 1 {
					tr.errorf("%d callers gave up, meant 1", len(gaveUp))
					return
				}
				tr.within("a caller's wait", time.Duration(gaveUp[0].TotalNS()), waits, waits/3)
			})
		}
	}
	t.Run("its process has ended", run(true))
	t.Run("its process runs", run(false))
}

// rto is the least retransmission timeout (RFC 6298 has 1 s, Linux 200 ms), to
// which Linux adds the round trip and up to two jiffies.
const (
	rto          = 200 * time.Millisecond
	rtoTolerance = 10 * time.Millisecond
)

// lostResponse loses the only segment of one response: 200 ms of retransmission
// on that request, and nothing on any other.
func lostResponse(tr *trial) {
	tr.t.Helper()
	const n, in, out, unlucky = 30, 100, 500, 15
	e := tr.across(link.Settings{}, link.Settings{})
	served, called := e.requests(n, in, out, func(i int) {
		if i == unlucky {
			e.link.Pick(link.AtoB, &link.Pick{Push: true, Times: 1})
		}
	})
	if lost := e.link.Counters(link.AtoB).Picked; lost != 1 {
		tr.errorf("the link lost %d packets, meant 1", lost)
	}
	for _, m := range served {
		if m.index == unlucky {
			if len(m.wire.Resent) != 1 {
				tr.errorf("%d segments retransmitted, meant 1:\n%s", len(m.wire.Resent), m)
				continue
			}
			tr.within("retrans", time.Duration(m.Ledger[observe.Retrans]), rto, rtoTolerance)
			tr.within("retrans and packets", time.Duration(m.Ledger[observe.Retrans]), time.Duration(m.wire.Resent[0]-m.wire.FirstOut), little)
			tr.below("network", time.Duration(m.Ledger[observe.Network]), 5*time.Millisecond)
			tr.within("end − acknowledgement", time.Duration(m.StartNS+m.TotalNS()-m.wire.Acked), 0, p99Limit)
			if m.Retrans != 1 {
				tr.errorf("%d segments retransmitted, want 1:\n%s", m.Retrans, m)
			}
		} else if m.Retrans != 0 || m.Ledger[observe.Retrans] != 0 || m.TotalNS() > int64(rto/2) {
			tr.errorf("nothing of this request was lost:\n%s", m)
		}
	}
	tr.below("served: server", median(served, part(observe.Server)), little)
	// The caller sees only that the answer takes long.
	for _, m := range called {
		if m.index != unlucky && m.Retrans != 0 {
			tr.errorf("nothing of this request was lost:\n%s", m)
		}
	}
}

// TestLostRequest: the caller's end knows that its request was lost.
func TestLostRequest(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out, unlucky = 20, 100, 500, 10
		e := tr.across(link.Settings{}, link.Settings{})
		_, called := e.requests(n, in, out, func(i int) {
			if i == unlucky {
				e.link.Pick(link.BtoA, &link.Pick{Push: true, Times: 1})
			}
		})
		for _, m := range called {
			if m.index == unlucky {
				tr.within("called: retrans", time.Duration(m.Ledger[observe.Retrans]), rto, rtoTolerance)
				tr.below("called: server", time.Duration(m.Ledger[observe.Server]), 5*time.Millisecond)
			} else if m.Retrans != 0 || m.Ledger[observe.Retrans] != 0 {
				tr.errorf("nothing of this request was lost:\n%s", m)
			}
		}
	})
}

// TestLostSegmentInTheMiddle is fixed after about one round trip, by fast
// retransmission.
func TestLostSegmentInTheMiddle(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out, unlucky = 9, 100, 60_000, 6
		const delay = 10 * time.Millisecond
		e := tr.across(link.Settings{Delay: delay}, link.Settings{})
		served, _ := e.requests(n, in, out, func(i int) {
			if i == unlucky {
				e.link.Pick(link.AtoB, &link.Pick{Every: 12, Times: 1})
			}
		})
		for _, m := range served {
			if m.index != unlucky {
				// A link that stalls makes TCP send again what was not lost.
				if int(m.Retrans) != m.wire.Retrans || m.wire.Retrans == 0 && m.Ledger[observe.Retrans] != 0 {
					tr.errorf("nothing of this request was lost, %d segments were retransmitted:\n%s", m.wire.Retrans, m)
				}
				continue
			}
			if m.Retrans != 1 || m.wire.Retrans != 1 {
				tr.errorf("%d segments retransmitted, %d in the packets, meant 1:\n%s", m.Retrans, m.wire.Retrans, m)
			}
			tr.within("retrans", time.Duration(m.Ledger[observe.Retrans]), delay, delay*3/4)
			tr.within("end − acknowledgement", time.Duration(m.StartNS+m.TotalNS()-m.wire.Acked), 0, p99Limit)
		}
		tr.accounted(served)
	})
}

// TestDelay: 17 ms added to one direction are 17 ms of network, and no time of
// the server.
func TestDelay(t *testing.T) {
	measure(t, func(tr *trial) {
		const delay = 17 * time.Millisecond
		e := tr.across(link.Settings{Delay: delay}, link.Settings{})
		served, called := e.requests(30, 100, 500, nil)
		wire := median(served, func(m match) int64 { return m.wire.Acked - m.wire.LastOut })
		tr.within("packets", wire, delay, little)
		tr.within("served: network", median(served, part(observe.Network)), wire, p99Limit)
		tr.within("served: rtt", median(served, func(m match) int64 { return m.RTTNS }), wire, wire/20)
		tr.within("served: min rtt", time.Duration(served[len(served)-1].MinRTTNS), delay, delay/20)
		tr.below("served: server", median(served, part(observe.Server)), little)
		tr.within("called: network", median(called, part(observe.Network)), delay, little)
		tr.within("called: rtt", median(called, func(m match) int64 { return m.RTTNS }), wire, wire/20)
		tr.below("called: server", median(called, part(observe.Server)), little)
		tr.accounted(served)
		tr.accounted(called)
	})
}

// TestDelayOverTwoHops: a server that asks a database behind the same interface
// is slowed down by 34 ms, 17 of which are its call.
func TestDelayOverTwoHops(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out, query, rows = 20, 100, 500, 60, 400
		const delay = 17 * time.Millisecond
		e := tr.across(link.Settings{Delay: delay}, link.Settings{})
		front, database := e.listen(e.a, e.addrA), e.listen(e.b, e.addrB)
		call, db := e.connect(e.a, database, database.addr)
		c, s := e.connect(e.b, front, front.addr)
		tr.talk(
			func() error { c.ask(n, in, out, 0); return c.close() },
			func() error {
				s.answer(n, in, out, func() { call.ask(1, query, rows, 0) })
				s.receiveEnd()
				return errors.Join(s.close(), call.close())
			},
			func() error {
				db.answer(n, query, rows, nil)
				db.receiveEnd()
				return db.close()
			})
		served, _ := e.sides(front.addr.Port(), n, database.addr)
		var calls []*observe.Request
		for _, r := range tr.of(observe.Called) {
			if r.NetNS == e.a.inode {
				calls = append(calls, r)
			}
		}
		if len(calls) != n {
			tr.errorf("%d calls of the database, want %d", len(calls), n)
			return
		}
		calling := make([]match, n)
		for i, r := range calls {
			calling[i] = match{Request: r}
		}
		tr.within("front: total", median(served, func(m match) int64 { return m.TotalNS() }), 2*delay, 2*little)
		tr.within("front: network", median(served, part(observe.Network)), delay, little)
		tr.within("front: server, which is the call", median(served, part(observe.Server)), delay, little)
		tr.within("call: total", median(calling, func(m match) int64 { return m.TotalNS() }), delay, little)
		tr.within("call: network", median(calling, part(observe.Network)), delay, little)
		tr.below("call: server", median(calling, part(observe.Server)), little)
	})
}

// TestLossPerMille: the share of the segments retransmitted is the share of the
// packets that the link lost, once there were enough of them, and of those that
// arrived twice: a link that stalls makes TCP send again what was not lost.
func TestLossPerMille(t *testing.T) {
	measure(t, func(tr *trial) {
		const conns, in, out, enough, loss = 60, 100, 20_000, 1100, 0.08
		e := tr.across(link.Settings{Delay: time.Millisecond, Loss: loss, Queue: 10_000}, link.Settings{})
		l := e.listen(e.a, e.addrA)
		var (
			all      sync.WaitGroup
			requests atomic.Int64
			failed   atomic.Pointer[error]
			end      = time.Now().Add(2 * time.Minute) // of a link that loses nothing
		)
		more := func() bool { return e.link.Counters(link.AtoB).Lost < enough && time.Now().Before(end) }
		for range conns {
			c, s := e.connect(e.b, l, l.addr)
			all.Go(func() {
				for more() && c.err == nil {
					c.ask(1, in, out, 0)
					requests.Add(1)
				}
				if err := c.close(); err != nil {
					failed.Store(&err)
				}
			})
			all.Go(func() {
				for {
					s.receive(in)
					s.send(out)
					if s.err != nil { // the client has closed
						s.err = nil
						s.close()
						return
					}
				}
			})
		}
		all.Wait()
		if err := failed.Load(); err != nil {
			tr.must(*err)
		}
		served, _ := e.sides(l.addr.Port(), int(requests.Load()))
		truth := e.link.Counters(link.AtoB)
		var segments, resent, records, wire uint64
		for _, c := range tr.counters {
			if c.Side == observe.Served && c.NetNS == e.a.inode {
				segments, resent = segments+c.Segments, resent+c.Retrans
			}
		}
		for _, m := range served {
			records += uint64(m.Retrans)
			wire += uint64(m.wire.Retrans)
		}
		if truth.Lost < 1000 {
			tr.errorf("the link lost only %d packets", truth.Lost)
		}
		type segment struct {
			to  netip.AddrPort
			seq uint32
		}
		arrived, twice := map[segment]int{}, 0
		for _, p := range e.tapB.packets {
			if p.Outgoing || p.Len == 0 || p.Src != l.addr {
				continue
			}
			k := segment{p.Dst, p.Seq}
			if arrived[k] >= p.Len {
				twice++
			}
			arrived[k] = max(arrived[k], p.Len)
		}
		injected, measured := 1000*(truth.LossRate()+float64(twice)/float64(max(truth.Received, 1))), 1000*float64(resent)/float64(max(segments, 1))
		tr.t.Logf("lost: %d of %d packets, and %d arrived twice = %.1f ‰; retransmitted: %d of %d segments = %.1f ‰, in records %d, in packets %d",
			truth.Lost, truth.Received, twice, injected, resent, segments, measured, records, wire)
		if measured < 0.9*injected || measured > 1.1*injected {
			tr.errorf("loss %.1f ‰, lost or needless %.1f ‰ ± 10 %%", measured, injected)
		}
		if records != resent || float64(records) < 0.99*float64(wire) || float64(records) > 1.01*float64(wire) {
			tr.errorf("segments retransmitted: %d in the counters, %d in the records, %d in the packets", resent, records, wire)
		}
	})
}

// TestMultiplexed: both ends send whenever they like, and what they send
// crosses on its way.
func TestMultiplexed(t *testing.T) {
	once(t, func(tr *trial) {
		const frames, size = 60, 80
		e := tr.across(link.Settings{Delay: 4 * time.Millisecond}, link.Settings{Delay: 4 * time.Millisecond})
		l := e.listen(e.a, e.addrA)
		c, s := e.connect(e.b, l, l.addr)
		c.noDelay()
		s.noDelay()
		write := func(p *peer, every time.Duration) func() error {
			return func() error {
				for range frames {
					p.send(size)
					time.Sleep(every)
				}
				return p.err
			}
		}
		read := func(p *peer) func() error {
			other := &peer{fd: p.fd, local: p.local, buf: make([]byte, 4096)}
			return func() error {
				other.receive(frames * size)
				return other.err
			}
		}
		tr.talk(write(c, 700*time.Microsecond), write(s, 900*time.Microsecond), read(c), read(s))
		tr.must(c.close())
		tr.must(s.close())
		tr.finish()
		const all = frames * size
		var in, out uint64
		overlapped := 0
		records := tr.of(observe.Served)
		for _, r := range records {
			in, out = in+r.BytesIn, out+r.BytesOut
			if r.Flags&observe.FlagOverlapped != 0 {
				overlapped++
			}
		}
		tr.t.Logf("%d records, %d overlapped", len(records), overlapped)
		// What the server sent before the first request arrived answers none.
		if in != all || out > all || out < all*3/4 {
			tr.errorf("%d bytes of requests, %d of responses, want %d", in, out, all)
		}
		if overlapped == 0 {
			tr.errorf("none of %d records is flagged overlapped", len(records))
		}
	})
}
