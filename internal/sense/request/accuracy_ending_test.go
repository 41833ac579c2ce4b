package request_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/capture"
)

// TestNeverAnswered: requests whose connection ends before the first byte of a
// response, by either end and either way.
func TestNeverAnswered(t *testing.T) {
	const n, in = 20, 100
	// Between the request and the end: well above the 5 ms and two round trips
	// within which what is said last is a farewell (AT_ONCE, headers/boundary.h).
	const wait = 20 * time.Millisecond
	tests := []struct {
		name   string
		script func(c, s *peer)
		reset  bool
	}{
		{"the client closes", func(c, s *peer) {
			c.send(in)
			s.receive(in)
			time.Sleep(wait)
			c.close()
			s.receiveEnd()
		}, false},
		{"the client resets", func(c, s *peer) {
			c.send(in)
			s.receive(in)
			time.Sleep(wait)
			c.reset()
			s.receiveEnd()
		}, true},
		{"the server closes", func(c, s *peer) {
			c.send(in)
			s.receive(in)
			time.Sleep(wait)
			s.close()
			c.receiveEnd()
		}, false},
		{"the server resets", func(c, s *peer) {
			c.send(in)
			s.receive(in)
			time.Sleep(wait)
			s.reset()
			c.receiveEnd()
		}, true},
		{"the server closes without reading", func(c, s *peer) {
			c.send(in)
			time.Sleep(wait)
			s.close()
			c.receiveEnd()
		}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			once(t, func(tr *trial) {
				o := tr.loopback(loopback4)
				o.each(n, test.script)
				served, called := o.sides(n)
				for _, list := range [][]match{served, called} {
					o.unanswered(list, test.reset, wait)
				}
			})
		})
	}
}

// unanswered checks the flags and the time of requests without a response. A
// failed request that ended quickly is one all the same.
func (tr *trial) unanswered(list []match, reset bool, least time.Duration) {
	for _, m := range list {
		// When the packets say that it ended: a sleep has no upper end.
		var ended int64
		for _, at := range []int64{m.conn.ClientClosed, m.conn.ServerClosed, m.conn.Reset} {
			if at != 0 && (ended == 0 || at < ended) {
				ended = at
			}
		}
		switch {
		case m.Flags&observe.FlagUnanswered == 0:
			tr.errorf("not flagged as unanswered:\n%s", m)
		case reset != (m.Flags&observe.FlagReset != 0):
			tr.errorf("flagged as reset: %v, want %v:\n%s", !reset, reset, m)
		case m.TotalNS() < int64(least) || abs(m.StartNS+m.TotalNS()-ended) > int64(little):
			tr.errorf("total is not the time until the end:\n%s", m)
		case m.Status == observe.StatusOK:
			tr.errorf("status ok:\n%s", m)
		default:
			continue
		}
		return
	}
}

// TestNothingAsked: who only tells, as a log shipper does, has asked for
// nothing and was not refused an answer, also when the last line was some time
// ago. A lone request that nobody answered for as long is one, and so is one
// in a protocol of requests, however it was typed in.
func TestNothingAsked(t *testing.T) {
	const pause = 30 * time.Millisecond
	tell := func(n int) func(c, s *peer) {
		return func(c, s *peer) {
			c.noDelay()
			for range n {
				c.send(20)
				time.Sleep(pause)
			}
			s.receive(n * 20)
			c.close()
			s.receiveEnd()
		}
	}
	for _, test := range []struct {
		name   string
		script func(c, s *peer)
		want   int // unanswered
	}{
		{"lines of a log", tell(8), 0},
		{"a lone request", tell(1), 1},
		{"half a request", func(c, s *peer) {
			c.noDelay()
			for _, line := range []string{"GET / HTTP/1.1\r\n", "Host: slowray.example\r\n"} {
				_, err := unix.Write(c.fd, []byte(line))
				c.fail("write", err)
				time.Sleep(pause)
			}
			c.close()
			s.receiveEnd()
		}, 1},
		{"a request of HTTP that is given up at once", func(c, s *peer) {
			_, err := unix.Write(c.fd, []byte("GET / HTTP/1.1\r\nHost: slowray.example\r\n\r\n"))
			c.fail("write", err)
			c.close()
			s.receiveEnd()
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			once(t, func(tr *trial) {
				o := tr.loopback(loopback4)
				o.each(5, test.script)
				o.finish()
				for _, side := range []observe.Side{observe.Served, observe.Called} {
					unanswered := 0
					for _, r := range o.of(side) {
						if r.Flags&observe.FlagUnanswered != 0 {
							unanswered++
						}
					}
					if unanswered != 5*test.want {
						tr.errorf("%s: %d unanswered, want %d", side, unanswered, 5*test.want)
					}
				}
			})
		})
	}
}

// TestResponseCutShort: the connection is reset in the middle of a response,
// within fewer than 100 ms.
func TestResponseCutShort(t *testing.T) {
	once(t, func(tr *trial) {
		const n, in, out = 10, 100, 64 << 20 // more than the buffers of both ends hold
		o := tr.loopback(loopback4)
		for range n {
			c, s := o.connect(o.place, o.l, o.to)
			tr.talk(
				func() error {
					c.send(in)
					c.receive(1 << 20)
					return c.reset()
				},
				func() error {
					s.receive(in)
					s.send(out)
					s.err = nil // the reset, as intended
					return s.close()
				})
		}
		served, called := o.sides(n)
		truncated := 0
		for _, m := range served {
			if m.Flags&observe.FlagReset == 0 || m.BytesOut >= out || m.Flags&observe.FlagTruncated != 0 && m.Unacked == 0 {
				tr.errorf("want reset, fewer bytes than the response has, truncated with bytes that were not acknowledged (has %d):\n%s", m.Unacked, m)
			}
			if m.Flags&observe.FlagTruncated != 0 {
				truncated++
			}
		}
		// In the moment between two writes, when all of the first one is
		// acknowledged, nobody but the application knows that more was to come.
		if truncated < n/2 {
			tr.errorf("%d of %d responses are flagged truncated", truncated, n)
		}
		for _, m := range called {
			if m.Flags&observe.FlagReset == 0 || m.BytesIn < 1<<20 {
				tr.errorf("want reset and at least 1 MB of response:\n%s", m)
			}
		}
	})
}

// pipelined requests, sent without waiting for responses, are counted, flagged
// and not split; those after them are cut as usual again.
func pipelined(tr *trial) {
	o := tr.loopback(loopback4)
	const depth, after, in, out = 5, 3, 100, 50
	c, s := o.connect(o.place, o.l, o.to)
	c.noDelay()
	s.noDelay()
	for range depth {
		c.send(in)
	}
	for range depth {
		s.receive(in)
		time.Sleep(time.Millisecond)
		s.send(out)
	}
	c.receive(depth * out)
	for range after {
		c.send(in)
		s.receive(in)
		s.send(out)
		c.receive(out)
	}
	o.must(c.close())
	o.must(s.close())
	o.finish()
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		o.overlapped(side, depth, after, in, out)
	}
}

// overlapped checks the records of a burst followed by single requests.
func (o *onLoopback) overlapped(side observe.Side, depth, after, in, out int) {
	var (
		burst, single     []*observe.Request
		requests          uint32
		bytesIn, bytesOut uint64
	)
	for _, r := range o.of(side) {
		if r.Flags&observe.FlagOverlapped != 0 {
			burst = append(burst, r)
			requests += r.Requests
		} else {
			single = append(single, r)
		}
		bytesIn += r.BytesIn
		bytesOut += r.BytesOut
		o.t.Log(describe(r, r.StartNS))
	}
	if side == observe.Called {
		bytesIn, bytesOut = bytesOut, bytesIn
	}
	if want := uint64((depth + after) * in); bytesIn != want {
		o.errorf("%s: %d bytes of requests, want %d", side, bytesIn, want)
	}
	if want := uint64((depth + after) * out); bytesOut != want {
		o.errorf("%s: %d bytes of responses, want %d", side, bytesOut, want)
	}
	if side == observe.Called && len(burst) == 0 {
		// Where the protocol is not known, requests sent in one go look like
		// one that is answered piece by piece. They must not be split.
		if len(single) != after+1 {
			o.errorf("called: %d records, want one for the burst and %d", len(single), after)
		}
		return
	}
	if len(burst) == 0 {
		o.errorf("%s: %d pipelined requests, no record is flagged overlapped", side, depth)
	}
	if requests < 1 || requests > uint32(depth) {
		o.errorf("%s: overlapped records stand for %d requests, the script pipelined %d", side, requests, depth)
	}
	if len(single) != after {
		o.errorf("%s: %d records not overlapped, the script made %d such requests", side, len(single), after)
	}
	for _, r := range burst {
		if l := &r.Ledger; l[observe.Stall] != 0 || l[observe.AckDelay] != 0 {
			o.errorf("%s: an overlapped record is split: %s", side, describe(r, r.StartNS))
		}
	}
}

// TestTLS: no plaintext is needed. The handshake is no request; the first request,
// which its last bytes may come with, is that of TestTLSHandshakes.
func TestTLS(t *testing.T) {
	once(t, func(tr *trial) {
		const requests, in, out = 20, 300, 5000
		o := &onLoopback{trial: tr, place: tr.place()}
		l := tr.listenNet(o.place)
		o.l = &listener{addr: l.Addr().(*net.TCPAddr).AddrPort()}
		o.tap = tr.tap(o.place, "lo")
		tr.record(request.Options{})
		raw := tr.dialNet(o.place, l.Addr())
		tr.talk(
			func() error {
				c, err := l.Accept()
				if err != nil {
					return err
				}
				// Without tickets the server says nothing of its own accord.
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate(t)}, SessionTicketsDisabled: true})
				for range requests {
					if _, err := io.ReadFull(s, make([]byte, in)); err != nil {
						return err
					}
					if _, err := s.Write(make([]byte, out)); err != nil {
						return err
					}
				}
				_, err = io.Copy(io.Discard, s) // until the client closes
				return err
			},
			func() error {
				c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
				for range requests {
					if _, err := c.Write(make([]byte, in)); err != nil {
						return err
					}
					if _, err := io.ReadFull(c, make([]byte, out)); err != nil {
						return err
					}
				}
				return c.Close()
			})
		tr.finish()
		port := o.l.addr.Port()
		tr.records = slices.DeleteFunc(tr.records, func(r observe.Request) bool { return r.Seq == 1 })
		for i := range tr.records {
			tr.records[i].Seq-- // the packets are cut from the second on
		}
		later := func(end capture.End) []*capture.Connection {
			conns := farewell(capture.Cut(o.tap.packets, end, port))
			for _, c := range conns {
				c.Requests = c.Requests[2:]
			}
			return conns
		}
		for _, list := range [][]match{
			tr.match(observe.Served, later(capture.Serving)),
			tr.match(observe.Called, later(capture.Calling)),
		} {
			tr.ledgers(list)
			answered := 0
			for _, m := range list {
				if m.wire.BytesOut > out {
					answered++
				}
			}
			if answered != requests-1 {
				tr.errorf("%d requests with a response of %d bytes and more, the script made %d after the first", answered, out, requests-1)
			}
		}
	})
}

// farewell leaves the last bytes of a client out that closes at once: TLS says
// goodbye with an alert (RFC 8446, 6.1), as MySQL and PostgreSQL do in their
// way. Nobody waits for an answer, so that is no failed request.
func farewell(conns []*capture.Connection) []*capture.Connection {
	for _, c := range conns {
		last := len(c.Requests) - 1
		if last >= 0 && c.Requests[last].FirstOut == 0 && c.ClientClosed-c.Requests[last].Last < int64(time.Millisecond) {
			c.Requests = c.Requests[:last]
		}
	}
	return conns
}

// certificate is a new one, signed by itself.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestNamespacesAtOnce: the same addresses and ports in three namespaces, used
// at the same time, are not mixed up.
func TestNamespacesAtOnce(t *testing.T) {
	once(t, func(tr *trial) {
		const requests, out = 50, 200
		type half struct {
			*onLoopback
			in int // tells the namespaces apart
		}
		var halves []half
		for i := range 3 {
			p := tr.place()
			o := &onLoopback{trial: tr, place: p, l: tr.listen(p, loopback4), tap: tr.tap(p, "lo")}
			o.to = o.l.addr
			halves = append(halves, half{o, 100 + i})
		}
		tr.record(request.Options{})
		var all sync.WaitGroup
		for _, h := range halves {
			all.Go(func() { h.conversations(5, requests, h.in, out) })
		}
		all.Wait()
		tr.finish()
		everything := tr.records
		for _, h := range halves {
			tr.records = nil
			for _, r := range everything {
				if r.NetNS == h.place.inode {
					tr.records = append(tr.records, r)
				}
			}
			h.sides(5 * requests)
		}
		tr.records = everything
	})
}
