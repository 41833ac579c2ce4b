package request_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/capture"
)

// spin works for a while without giving up the CPU.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

// TestBoundaries: the moments of ordinary requests are those of their packets,
// and nearly all of their time is accounted for.
func TestBoundaries(t *testing.T) {
	const n, in, out = 1500, 300, 1200
	t.Run("loopback", func(t *testing.T) {
		measure(t, func(tr *trial) {
			o := tr.loopback(loopback4)
			c, s := o.connect(o.place, o.l, o.to)
			o.talkative(c, s, n, in, out)
			served, called := o.sides(n)
			tr.compare(served, n/2, boundaries)
			tr.accounted(served)
			tr.compare(called, n/2, calledBoundaries)
			tr.accounted(called)
		})
	})
	t.Run("veth", func(t *testing.T) {
		measure(t, func(tr *trial) {
			a, b := tr.place(), tr.place()
			addr, _ := tr.veth(a, b)
			l := tr.listen(a, addr)
			atServer, atClient := tr.tap(a, "veth0"), tr.tap(b, "veth0")
			tr.record(request.Options{})
			c, s := tr.connect(b, l, l.addr)
			tr.talkative(c, s, n, in, out)
			tr.finish()
			served := tr.match(observe.Served, capture.Cut(atServer.packets, capture.Serving))
			called := tr.match(observe.Called, capture.Cut(atClient.packets, capture.Calling))
			tr.count(served, n)
			tr.count(called, n)
			tr.ledgers(served)
			tr.ledgers(called)
			tr.compare(served, n/2, boundaries)
			tr.accounted(served)
			tr.compare(called, n/2, calledBoundaries)
			tr.accounted(called)
		})
	})
}

// talkative has a connection make requests with some work for each and some
// time between them.
func (tr *trial) talkative(c, s *peer, n, in, out int) {
	tr.t.Helper()
	tr.talk(
		func() error {
			c.ask(n, in, out, 100*time.Microsecond)
			return c.close()
		},
		func() error {
			s.answer(n, in, out, func() { spin(150 * time.Microsecond) })
			s.receiveEnd()
			return s.close()
		})
}

// little is the limit of parts in which nothing happened.
const little = time.Millisecond

// serial is a measurement of one connection on loopback whose client makes n
// requests and whose server answers each with what the script does.
func (tr *trial) serial(n, in, out int, pause time.Duration, respond func(s *peer)) (served, called []match) {
	tr.t.Helper()
	o := tr.loopback(loopback4)
	c, s := o.connect(o.place, o.l, o.to)
	tr.talk(
		func() error {
			c.ask(n, in, out, pause)
			return c.close()
		},
		func() error {
			for range n {
				respond(s)
			}
			s.receiveEnd()
			return s.close()
		})
	return o.sides(n)
}

// TestServerTime: a server that works for 30 ms before it answers.
func TestServerTime(t *testing.T) {
	measure(t, func(tr *trial) {
		const in, out = 100, 200
		var worked []int64
		served, called := tr.serial(15, in, out, 0, func(s *peer) {
			s.receive(in)
			start := time.Now()
			time.Sleep(30 * time.Millisecond)
			worked = append(worked, int64(time.Since(start)))
			s.send(out)
		})
		known := time.Duration(quantile(worked, 0.5))
		tr.within("served: server", median(served, part(observe.Server)), known, p99Limit)
		tr.within("called: server", median(called, part(observe.Server)), known, p99Limit)
		tr.below("served: recv_wait", median(served, part(observe.RecvWait)), little)
		tr.below("served: network", median(served, part(observe.Network)), little)
		tr.accounted(served)
	})
}

// TestReceiveWait: a server that reads 40 ms after the request is there.
func TestReceiveWait(t *testing.T) {
	measure(t, func(tr *trial) {
		const in, out = 100, 200
		var reads []int64
		served, called := tr.serial(10, in, out, 0, func(s *peer) {
			s.poll()
			time.Sleep(40 * time.Millisecond)
			reads = append(reads, time.Now().UnixNano())
			s.receive(in)
			s.send(out)
		})
		known := func(m match) int64 { return reads[m.index] - m.wire.Last }
		tr.within("served: recv_wait", median(served, part(observe.RecvWait)), median(served, known), p99Limit)
		tr.below("served: server", median(served, part(observe.Server)), little)
		tr.within("called: server", median(called, part(observe.Server)), median(served, known), little)
	})
}

// TestReceiveWaitOfTheCaller: a client that reads the response 40 ms late.
func TestReceiveWaitOfTheCaller(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out = 10, 100, 200
		o := tr.loopback(loopback4)
		c, s := o.connect(o.place, o.l, o.to)
		var reads []int64
		for range n {
			c.send(in)
			s.receive(in)
			s.send(out)
			time.Sleep(40 * time.Millisecond)
			reads = append(reads, time.Now().UnixNano())
			c.receive(out)
		}
		tr.must(c.close())
		tr.must(s.close())
		_, called := o.sides(n)
		tr.within("called: recv_wait", median(called, part(observe.RecvWait)),
			median(called, func(m match) int64 { return reads[m.index] - m.wire.LastOut }), p99Limit)
		tr.below("called: server", median(called, part(observe.Server)), little)
	})
}

// TestAcceptWait: a server that accepts connections 60 ms late, and one that
// accepts at once and gets the first request only later.
func TestAcceptWait(t *testing.T) {
	measure(t, func(tr *trial) {
		const n, in, out = 8, 100, 200
		o := tr.loopback(loopback4)
		accepts := map[string]int64{}
		for i := range 2 * n {
			late := i < n
			c := tr.dial(o.place, o.to)
			if late {
				c.send(in)
				time.Sleep(60 * time.Millisecond)
			}
			accepts[c.local.String()] = time.Now().UnixNano()
			s, err := o.l.accept()
			tr.must(err)
			if !late {
				time.Sleep(30 * time.Millisecond)
				c.send(in)
			}
			s.receive(in)
			s.send(out)
			c.receive(out)
			tr.must(c.close())
			tr.must(s.close())
		}
		served, _ := o.sides(2 * n)
		if len(served) != 2*n {
			return
		}
		late, prompt := served[:n], served[n:]
		known := func(m match) int64 { return accepts[m.conn.Client.String()] - m.conn.Established }
		tr.within("late: accept_wait", median(late, part(observe.AcceptWait)), median(late, known), p99Limit)
		tr.below("late: recv_wait", median(late, part(observe.RecvWait)), little)
		tr.below("late: server", median(late, part(observe.Server)), little)
		tr.within("late: start − connection complete", median(late, func(m match) int64 { return m.StartNS - m.conn.Established }), 0, p99Limit)
		tr.below("prompt: accept_wait", median(prompt, part(observe.AcceptWait)), little)
		tr.below("prompt: total", median(prompt, func(m match) int64 { return m.TotalNS() }), 2*little)
		tr.within("prompt: start − first request byte", median(prompt, func(m match) int64 {
			return m.StartNS + m.Ledger[observe.AcceptWait] - m.wire.First
		}), 0, p99Limit)
	})
}

// poll waits until there is something to read.
func (p *peer) poll() {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	for p.err == nil {
		if n, err := unix.Poll(fds, int(patience/time.Millisecond)); err != unix.EINTR {
			if n == 0 && err == nil {
				err = unix.ETIMEDOUT
			}
			p.fail("poll", err)
			return
		}
	}
}
