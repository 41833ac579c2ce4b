package request_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// answer is one request of in bytes and its response, a millisecond later.
func answer(c, s *peer, in, out int) {
	c.send(in)
	s.receive(in)
	time.Sleep(time.Millisecond)
	s.send(out)
	c.receive(out)
}

// say writes what a client says.
func (p *peer) say(words string) {
	_, err := unix.Write(p.fd, []byte(words))
	p.fail("write", err)
}

// TestRemarks: what a client says and nobody answers, as the acknowledgements of
// HTTP/2, is no request; the next request does not begin with it, and closing
// after it breaks none off. What may be part of a request stays one, and so does
// a request that nobody answers.
func TestRemarks(t *testing.T) {
	const pause = 300 * time.Millisecond
	const remark = 35 // a WINDOW_UPDATE under TLS 1.3
	remarked := func(c, s *peer) {
		answer(c, s, 200, 3000)
		c.send(remark)
		s.receive(remark)
		time.Sleep(pause)
	}
	closed := func(c, s *peer) {
		c.close()
		s.receiveEnd()
	}
	const onlyServed = -1 // the calling end cannot tell what has been read
	hello := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	for _, test := range []struct {
		name       string
		script     func(c, s *peer)
		requests   int
		unanswered int
		slow       int // last longer than half the pause
	}{
		{"a remark, and then a request", func(c, s *peer) {
			remarked(c, s)
			answer(c, s, 40, 3000)
			closed(c, s)
		}, 2, 0, 0},
		{"a remark, and then the end", func(c, s *peer) {
			remarked(c, s)
			closed(c, s)
		}, 1, 0, 0},
		{"a request in two parts, with a pause between them", func(c, s *peer) {
			answer(c, s, 200, 3000)
			c.send(150)
			s.receive(150)
			time.Sleep(pause)
			answer(c, s, 40, 3000)
			closed(c, s)
		}, 2, 0, 1},
		{"a part of a request that nobody has read yet", func(c, s *peer) {
			answer(c, s, 200, 3000)
			c.send(remark)
			time.Sleep(pause)
			c.send(40)
			s.receive(remark + 40)
			s.send(100)
			c.receive(100)
			closed(c, s)
		}, 2, 0, onlyServed},
		{"a short request that takes long", func(c, s *peer) {
			remarked(c, s)
			s.send(100)
			c.receive(100)
			closed(c, s)
		}, 2, 0, 1},
		{"a short request of a known protocol that nobody answers", func(c, s *peer) {
			for range 2 {
				c.say(hello)
				s.receive(len(hello))
				s.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				c.receive(38)
			}
			c.say(hello)
			s.receive(len(hello))
			time.Sleep(pause)
			closed(c, s)
		}, 3, 1, 1},
		{"a statement that is closed late", func(c, s *peer) {
			for range 2 {
				c.say("\x09\x00\x00\x00\x03SELECT 1")
				s.receive(13)
				s.say("\x01\x00\x00\x01\x01")
				c.receive(5)
			}
			time.Sleep(20 * time.Millisecond)
			c.say("\x05\x00\x00\x00\x19\x01\x00\x00\x00")
			s.receive(9)
			time.Sleep(pause)
			c.say("\x09\x00\x00\x00\x03SELECT 1")
			s.receive(13)
			s.say("\x01\x00\x00\x01\x01")
			c.receive(5)
			closed(c, s)
		}, 3, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			measure(t, func(tr *trial) { // "at once" is a matter of time
				const connections = 4
				o := tr.loopback(loopback4)
				if test.unanswered > 0 && tr.recorder.Stats().Missing != nil {
					t.Skip("SKIP: this kernel does not tell protocols")
				}
				o.each(connections, test.script)
				o.finish()
				for _, side := range []observe.Side{observe.Served, observe.Called} {
					slow := test.slow
					if slow == onlyServed {
						slow = int(observe.Called - side)
					}
					o.expect(side, connections, test.requests, test.unanswered, slow, pause/2)
				}
			})
		})
	}
}

// expect counts the requests of connections that all went the same way.
func (o *onLoopback) expect(side observe.Side, connections, requests, unanswered, slow int, long time.Duration) {
	var all, without, late int
	for _, r := range o.of(side) {
		all++
		if r.Flags&observe.FlagUnanswered != 0 {
			without++
		}
		if r.TotalNS() > int64(long) {
			late++
		}
	}
	if all != connections*requests || without != connections*unanswered || late != connections*slow {
		o.errorf("%s: %d requests, %d of them unanswered, %d long, want %d, %d and %d", side, all, without, late,
			connections*requests, connections*unanswered, connections*slow)
		for _, r := range o.of(side) {
			o.errorf("  %s", describe(r, r.StartNS))
		}
	}
}

// TestHTTP2: a client of HTTP/2 over TLS acknowledges what it gets, which is no
// request of its own, and makes none slow.
func TestHTTP2(t *testing.T) {
	measure(t, func(tr *trial) {
		const requests, work, pause = 6, 20 * time.Millisecond, 300 * time.Millisecond
		o := &onLoopback{trial: tr, place: tr.place()}
		l := tr.listenNet(o.place)
		tr.record(request.Options{})
		server := &http.Server{
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(work)
				w.Write(make([]byte, 3000))
			}),
		}
		go server.ServeTLS(l, "", "")
		tr.cleanup(func() { server.Close() })
		client := &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return tr.dialNet(o.place, l.Addr()), nil
			},
		}}
		for range requests {
			r, err := client.Get("https://" + l.Addr().String())
			tr.must(err)
			if r.ProtoMajor != 2 {
				t.Fatalf("the client speaks %s", r.Proto)
			}
			_, err = io.Copy(io.Discard, r.Body)
			tr.must(err)
			r.Body.Close()
			time.Sleep(pause)
		}
		client.CloseIdleConnections()
		tr.finish()
		for _, side := range []observe.Side{observe.Served, observe.Called} {
			answered := 0
			for _, r := range o.of(side) {
				switch {
				case r.Flags&observe.FlagUnanswered != 0 || r.TotalNS() > int64(pause/2):
					o.errorf("%s: %s", side, describe(r, r.StartNS))
				case r.TotalNS() >= int64(work):
					answered++
				}
			}
			if answered != requests {
				o.errorf("%s: %d requests of %v, want %d", side, answered, work, requests)
			}
		}
	})
}

// TestWaitingBefore: requests that came before the recorder began, and that the
// application has not read.
func TestWaitingBefore(t *testing.T) {
	measure(t, func(tr *trial) {
		const before, after = 400 * time.Millisecond, 1500 * time.Millisecond
		o := &onLoopback{trial: tr, place: tr.place()}
		tr.inhabit(o.place)
		l := tr.listenNet(o.place)
		var clients, servers []net.Conn
		asked := time.Now()
		for range 4 {
			c := tr.dialNet(o.place, l.Addr())
			_, err := c.Write(make([]byte, 300))
			tr.must(err)
			s, err := l.Accept()
			tr.must(err)
			clients, servers = append(clients, c), append(servers, s)
		}
		quiet := tr.dialNet(o.place, l.Addr()) // has asked nothing
		defer quiet.Close()
		time.Sleep(before)
		tr.record(request.Options{})
		time.Sleep(after)
		for i, s := range servers[:3] {
			_, err := s.Read(make([]byte, 300))
			tr.must(err)
			_, err = s.Write(make([]byte, 100))
			tr.must(err)
			_, err = clients[i].Read(make([]byte, 100))
			tr.must(err)
		}
		waited := time.Since(asked)
		time.Sleep(settle)
		for i := range clients { // the last one has had enough
			clients[i].Close()
			servers[i].Close()
		}
		tr.finish()
		var ended []*observe.Request
		told := 0 // while it lasted
		for _, r := range o.of(observe.Served) {
			if r.Flags&observe.FlagUnfinished != 0 {
				told++
			} else {
				ended = append(ended, r)
			}
		}
		if told != 4 || len(ended) != 4 {
			o.errorf("%d requests told while they waited, and %d at their end, want 4 each", told, len(ended))
		}
		for _, r := range ended {
			const exact = 20 * time.Millisecond // jiffies, and this loop
			wait := time.Duration(r.Ledger[observe.RecvWait])
			if r.Flags&observe.FlagPreexisting == 0 || r.Flags&observe.FlagEstimated == 0 || r.BytesIn != 300 ||
				wait < waited-exact || r.Flags&observe.FlagUnanswered == 0 && wait > waited+exact {
				o.errorf("want %v, waiting to be read: %s", waited, describe(r, r.StartNS))
			}
		}
	})
}

// TestQueuedBefore: connections with a request that were in the accept queue
// before the recorder began, and that the application takes up later.
func TestQueuedBefore(t *testing.T) {
	measure(t, func(tr *trial) {
		const before, after = 400 * time.Millisecond, 700 * time.Millisecond
		const exact = 20 * time.Millisecond // jiffies, and this loop
		o := &onLoopback{trial: tr, place: tr.place()}
		tr.inhabit(o.place)
		l := tr.listenNet(o.place)
		var clients []net.Conn
		asked := time.Now()
		for range 4 {
			c := tr.dialNet(o.place, l.Addr())
			_, err := c.Write(make([]byte, 300))
			tr.must(err)
			clients = append(clients, c)
		}
		time.Sleep(before)
		tr.record(request.Options{})
		time.Sleep(after)
		for _, c := range clients {
			s, err := l.Accept()
			tr.must(err)
			_, err = s.Read(make([]byte, 300))
			tr.must(err)
			_, err = s.Write(make([]byte, 100))
			tr.must(err)
			_, err = c.Read(make([]byte, 100))
			tr.must(err)
			tr.must(c.Close())
			tr.must(s.Close())
		}
		waited := time.Since(asked)
		time.Sleep(settle)
		tr.finish()
		ended := 0
		for _, r := range o.of(observe.Served) {
			if r.Flags&observe.FlagUnfinished != 0 {
				continue
			}
			ended++
			queued := time.Duration(r.Ledger[observe.AcceptWait])
			if r.Flags&observe.FlagPreexisting == 0 || queued < waited-exact || queued > waited+exact ||
				time.Duration(r.Ledger[observe.RecvWait]) > exact {
				o.errorf("want %v in the accept queue: %s", waited, describe(r, r.StartNS))
			}
		}
		if ended != len(clients) {
			o.errorf("%d requests ended, want %d", ended, len(clients))
		}
	})
}

// TestRemarksOfServer: what a server says of its own accord, long after its
// answer, makes that no slower: TLS that is closed for being idle, PING, events.
// The rest of an answer does, however late.
func TestRemarksOfServer(t *testing.T) {
	const pause = 1200 * time.Millisecond
	for _, test := range []struct {
		name     string
		script   func(c, s *peer)
		requests int
		slow     int
	}{
		{"a close_notify, and then the end", func(c, s *peer) {
			answer(c, s, 200, 3000)
			time.Sleep(pause)
			s.send(24)
			c.receive(24)
			s.shut()
			c.receiveEnd()
			c.close()
		}, 1, 0},
		{"a PING that is acknowledged, and then a request", func(c, s *peer) {
			answer(c, s, 200, 3000)
			time.Sleep(pause)
			s.send(39)
			c.receive(39)
			c.send(39)
			s.receive(39)
			time.Sleep(pause)
			answer(c, s, 200, 3000)
		}, 2, 0},
		{"a WINDOW_UPDATE at once, and then a short answer", func(c, s *peer) {
			c.send(200)
			s.receive(200)
			s.send(35)
			c.receive(35)
			time.Sleep(pause)
			s.send(80)
			c.receive(80)
		}, 1, 1},
		{"the rest of an answer", func(c, s *peer) {
			answer(c, s, 200, 3000)
			time.Sleep(pause)
			s.send(3000)
			c.receive(3000)
		}, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			measure(t, func(tr *trial) {
				o := tr.loopback(loopback4)
				o.each(2, test.script)
				o.finish()
				for _, side := range []observe.Side{observe.Served, observe.Called} {
					o.expect(side, 2, test.requests, 0, test.slow, pause/2)
				}
			})
		})
	}
}
