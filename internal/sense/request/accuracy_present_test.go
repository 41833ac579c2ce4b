package request_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/capture"
	"github.com/slowray/slowray/lab/netns"
)

// onLoopback is a measurement whose ends are both on the lo of one place: every
// request is served and called.
type onLoopback struct {
	*trial
	place *place
	tap   *tap
	l     *listener
	to    netip.AddrPort
}

// loopback prepares a place with a server's port. Packets are captured and
// requests recorded from now on.
func (tr *trial) loopback(addr netip.Addr) *onLoopback {
	tr.t.Helper()
	p := tr.place()
	o := &onLoopback{trial: tr, place: p, l: tr.listen(p, addr), tap: tr.tap(p, "lo")}
	o.to = o.l.addr
	tr.record(request.Options{})
	return o
}

// sides ends the measurement and matches both sides with the packets; the
// script made so many requests.
func (o *onLoopback) sides(want int) (served, called []match) {
	o.t.Helper()
	o.finish()
	port := o.l.addr.Port()
	served = o.match(observe.Served, capture.Cut(o.tap.packets, capture.Serving, port))
	called = o.match(observe.Called, capture.Cut(o.tap.packets, capture.Calling, port))
	for _, side := range [][]match{served, called} {
		o.count(side, want)
		o.ledgers(side)
	}
	return served, called
}

// TestEveryRequestOnce: kinds of connections and transfers, each with a known
// number of requests. Both sides have exactly those, of the bytes that the
// packets carried.
func TestEveryRequestOnce(t *testing.T) {
	const in, out = 100, 200
	tests := []struct {
		name   string
		addr   netip.Addr
		script func(o *onLoopback) int // returns how many requests it made
		check  func(o *onLoopback, served, called []match)
	}{
		{"keep-alive", loopback4, func(o *onLoopback) int {
			o.conversations(20, 50, in, out)
			return 20 * 50
		}, agree},
		{"IPv6", loopback6, func(o *onLoopback) int {
			o.conversations(5, 20, in, out)
			return 5 * 20
		}, agree},
		{"IPv4 to a socket of IPv6", netip.IPv6Unspecified(), func(o *onLoopback) int {
			o.to = netip.AddrPortFrom(loopback4, o.l.addr.Port())
			o.conversations(5, 20, in, out)
			return 5 * 20
		}, agree},
		{"one request per connection, closed by the server", loopback4, func(o *onLoopback) int {
			o.each(200, func(c, s *peer) {
				c.send(in)
				s.receive(in)
				s.send(out)
				s.close()
				c.receive(out)
				c.receiveEnd()
			})
			return 200
		}, nil},
		{"one request per connection, closed by the client", loopback4, func(o *onLoopback) int {
			o.each(200, func(c, s *peer) {
				c.send(in)
				s.receive(in)
				s.send(out)
				c.receive(out)
				c.close()
				s.receiveEnd()
			})
			return 200
		}, nil},
		{"half-closed before the response", loopback4, func(o *onLoopback) int {
			o.each(100, func(c, s *peer) {
				c.send(in)
				c.shut()
				s.receive(in)
				s.receiveEnd()
				s.send(out)
				c.receive(out)
				s.close()
			})
			return 100
		}, func(o *onLoopback, served, _ []match) {
			for _, m := range served {
				if m.Flags&observe.FlagHalfClosed == 0 {
					o.errorf("not flagged as half-closed:\n%s", m)
					return
				}
			}
		}},
		{"upload of 10 MB", loopback4, func(o *onLoopback) int {
			return o.transfers(5, 10<<20, out, func(s *peer) { s.send(out) })
		}, wholeTime},
		{"response of 200 MB", loopback4, func(o *onLoopback) int {
			return o.transfers(5, in, 200<<20, func(s *peer) { s.send(200 << 20) })
		}, wholeTime},
		{"sendfile of 20 MB", loopback4, func(o *onLoopback) int {
			return o.transfers(5, in, 20<<20, func(s *peer) { s.sendFile(20 << 20) })
		}, wholeTime},
		{"splice of 20 MB", loopback4, func(o *onLoopback) int {
			return o.transfers(5, in, 20<<20, func(s *peer) { s.splice(20 << 20) })
		}, wholeTime},
		{"the server speaks first", loopback4, func(o *onLoopback) int {
			o.each(10, func(c, s *peer) {
				s.send(77)
				c.receive(77)
				for range 5 {
					c.send(in)
					s.receive(in)
					s.send(out)
					c.receive(out)
				}
			})
			return 10 * 5
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			once(t, func(tr *trial) {
				o := tr.loopback(test.addr)
				n := test.script(o)
				served, called := o.sides(n)
				if test.check != nil {
					test.check(o, served, called)
				}
			})
		})
	}
}

// TestGigabyteResponse: byte counts beyond 32 bits of anything small.
func TestGigabyteResponse(t *testing.T) {
	once(t, func(tr *trial) {
		o := tr.loopback(loopback4)
		const size = 1 << 30
		served, called := o.sides(o.transfers(3, 100, size, func(s *peer) { s.send(size) }))
		wholeTime(o, served, called)
	})
}

// conversations has n connections, one after the other, make so many requests.
func (o *onLoopback) conversations(n, requests, in, out int) {
	o.each(n, func(c, s *peer) {
		for range requests {
			c.send(in)
			s.receive(in)
			s.send(out)
			c.receive(out)
		}
	})
}

// each opens n connections one after the other and closes what the script
// leaves open, the client's end first.
func (o *onLoopback) each(n int, script func(client, server *peer)) {
	o.t.Helper()
	o.must(netns.Do(o.place.ns, func() error {
		for range n {
			c, err := dial(o.to)
			if err != nil {
				return err
			}
			s, err := o.l.accept()
			if err != nil {
				return err
			}
			script(c, s)
			for _, p := range []*peer{c, s} {
				if err := p.close(); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// transfer makes one request of many bytes, or with a response of many.
func (o *onLoopback) transfer(in, out int, respond func(s *peer)) {
	o.t.Helper()
	c, s := o.connect(o.place, o.l, o.to)
	o.talk(
		func() error {
			c.send(in)
			c.receive(out)
			return c.close()
		},
		func() error {
			s.receive(in)
			respond(s)
			s.receiveEnd()
			return s.close()
		})
}

// transfers makes n of them, and says how many.
func (o *onLoopback) transfers(n, in, out int, respond func(s *peer)) int {
	o.t.Helper()
	for range n {
		o.transfer(in, out, respond)
	}
	return n
}

// sendFile sends n bytes of a file without copying them through the process.
func (p *peer) sendFile(n int) {
	f, err := os.CreateTemp("", "slowray-sendfile-")
	p.fail("file", err)
	if p.err != nil {
		return
	}
	defer os.Remove(f.Name())
	defer f.Close()
	p.fail("file", f.Truncate(int64(n)))
	for n > 0 && p.err == nil {
		sent, err := unix.Sendfile(p.fd, int(f.Fd()), nil, n)
		p.fail("sendfile", err)
		n -= sent
	}
}

// splice sends n bytes from a pipe.
func (p *peer) splice(n int) {
	var pipe [2]int
	p.fail("pipe", unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	if p.err != nil {
		return
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	for n > 0 && p.err == nil {
		filled, err := unix.Write(pipe[1], p.buf[:min(n, len(p.buf))])
		p.fail("pipe", err)
		n -= filled
		for filled > 0 && p.err == nil {
			moved, err := unix.Splice(pipe[0], nil, p.fd, nil, filled, unix.SPLICE_F_MOVE)
			p.fail("splice", err)
			filled -= int(moved)
		}
	}
}

// agree checks that the two sides tell the same of the same requests.
func agree(o *onLoopback, served, called []match) {
	if len(served) != len(called) {
		return // told already
	}
	var starts, totals []int64
	for i := range served {
		s, c := served[i], called[i]
		if s.Local.Port() != c.Peer.Port() || s.Peer.Port() != c.Local.Port() || s.Seq != c.Seq || s.BytesIn != c.BytesOut || s.BytesOut != c.BytesIn {
			o.errorf("sides disagree:\n%s\n%s", s, c)
			return
		}
		if s.index > 0 {
			starts = append(starts, abs(s.StartNS-c.StartNS))
			totals = append(totals, abs(s.TotalNS()-c.TotalNS()))
		}
	}
	o.below("served and called: start, median", time.Duration(quantile(starts, 0.5)), p99Limit)
	o.below("served and called: total, median", time.Duration(quantile(totals, 0.5)), p99Limit)
}

// wholeTime checks that long requests take as long as their packets. It does so at the median:
// when a reader loses its CPU while it has the socket, what comes meanwhile is taken late.
func wholeTime(o *onLoopback, served, called []match) {
	tolerance := 2 * time.Millisecond // of a transfer that keeps both CPUs busy
	if os.Getenv("SLOWRAY_TEST_EMULATED") != "" {
		tolerance = 20 * time.Millisecond // a machine of script/kernels.sh
	}
	off := func(what string, list []match, by func(m match) int64) {
		o.below(what+", off by", median(list, func(m match) int64 { return abs(by(m)) }), tolerance)
	}
	off("served: start", served, func(m match) int64 { return m.StartNS + m.Ledger[observe.AcceptWait] - m.wire.First })
	off("served: upload", served, func(m match) int64 { return m.Ledger[observe.Upload] - (m.wire.Last - m.wire.First) })
	off("served: end", served, func(m match) int64 { return m.StartNS + m.TotalNS() - m.wire.Acked })
	off("called: start", called, func(m match) int64 { return m.StartNS - m.wire.First })
	off("called: end", called, func(m match) int64 {
		return m.StartNS + m.TotalNS() - m.Ledger[observe.RecvWait] - m.wire.LastOut
	})
	for _, list := range [][]match{served, called} {
		if over := median(list, func(m match) int64 { return m.Ledger[observe.Unaccounted] - m.TotalNS()/100 }); over >= 0 && len(list) > 0 {
			o.errorf("unaccounted: %s more than 1 %% of the time at the median of %d", over, len(list))
		}
	}
}

// TestConnectionsOlderThanStart: what was opened before is recorded from its
// next request on, also when it was idle or in the middle of one.
func TestConnectionsOlderThanStart(t *testing.T) {
	for _, addr := range []netip.Addr{loopback4, loopback6} {
		t.Run(fmt.Sprint(addr), func(t *testing.T) {
			once(t, func(tr *trial) {
				const conns, requests, in, out = 20, 10, 100, 200
				p := tr.place()
				tr.inhabit(p)
				o := &onLoopback{trial: tr, place: p, l: tr.listen(p, addr)}
				o.to = o.l.addr
				var clients, servers []*peer
				for range conns {
					c, s := tr.connect(p, o.l, o.to)
					clients, servers = append(clients, c), append(servers, s)
				}
				round := func(n int) {
					for i, c := range clients {
						for range n {
							c.send(in)
							servers[i].receive(in)
							servers[i].send(out)
							c.receive(out)
						}
					}
				}
				round(3)
				time.Sleep(settle) // the last acknowledgements are through
				o.tap = tr.tap(p, "lo")
				tr.record(request.Options{})
				round(requests)
				for i, c := range clients {
					tr.must(c.close())
					tr.must(servers[i].close())
				}
				served, _ := o.sides(conns * requests)
				for _, m := range served {
					if first := m.index == 0; first != (m.Flags&observe.FlagPreexisting != 0) {
						tr.errorf("flagged as preexisting: %v, want %v:\n%s", !first, first, m)
					}
				}
			})
		})
	}
}

// TestLastRequestOnIdleConnection is reported within a few seconds, without
// another request and without the connection being closed.
func TestLastRequestOnIdleConnection(t *testing.T) {
	once(t, func(tr *trial) {
		o := tr.loopback(loopback4)
		c, s := tr.connect(o.place, o.l, o.to)
		for range 5 {
			c.send(100)
			s.receive(100)
			s.send(200)
			c.receive(200)
		}
		tr.must(c.err)
		tr.must(s.err)
		time.Sleep(4500 * time.Millisecond)
		served, called := o.sides(5)
		for _, m := range slices.Concat(served, called) {
			tr.below("total", time.Duration(m.TotalNS()), 50*time.Millisecond)
		}
	})
}
