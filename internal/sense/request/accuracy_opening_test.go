package request_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/lab/capture"
	"github.com/slowray/slowray/lab/link"
)

// TestOpenings: how long a connection took to open, and for how long nobody asked on it then, is
// what the packets at the calling end say: where the SYN-ACK takes its time, where a SYN is lost,
// and where the connection was opened ahead. Only the first request of a connection has it.
func TestOpenings(t *testing.T) {
	const in, out, ahead = 100, 500, 80 * time.Millisecond
	once(t, func(tr *trial) {
		e := tr.across(link.Settings{Delay: 30 * time.Millisecond}, link.Settings{Delay: 5 * time.Millisecond})
		l := e.listen(e.a, e.addrA)
		connecting, pausing := map[uint16]time.Duration{}, map[uint16]time.Duration{} // by the client's clock
		for i, pause := range []time.Duration{0, ahead, 0} {
			if i == 2 {
				e.link.Pick(link.BtoA, &link.Pick{SYN: true, Times: 1})
			}
			began := time.Now()
			c, s := e.connect(e.b, l, l.addr)
			connected := time.Now()
			connecting[c.local.Port()] = connected.Sub(began)
			e.talk(
				func() error {
					time.Sleep(pause)
					pausing[c.local.Port()] = time.Since(connected)
					c.ask(2, in, out, 0)
					return c.close()
				},
				func() error {
					s.answer(2, in, out, nil)
					s.receiveEnd()
					return s.close()
				})
		}
		served, called := e.sides(l.addr.Port(), 6)
		for _, m := range served {
			if m.Opening != (observe.Opening{}) {
				tr.errorf("an answer knows how its connection was opened: %+v", m.Opening)
			}
		}
		opened := map[uint16]*capture.Connection{}
		for _, c := range capture.Cut(e.tapB.packets, capture.Calling) {
			opened[c.Client.Port()] = c
		}
		lost := 0
		for _, m := range called {
			c := opened[m.Local.Port()]
			if m.Seq != 1 {
				if m.Opening != (observe.Opening{}) {
					tr.errorf("request %d of a connection: %+v", m.Seq, m.Opening)
				}
				continue
			}
			connect, idle := time.Duration(c.Established-c.Opened), time.Duration(c.Requests[0].First-c.Established)
			lost += c.SynRetrans
			// Packets pass the tap after what sends them and before what takes them in, and the clock
			// of their time is set now and then: by less than this.
			const set = time.Millisecond
			if got, most := time.Duration(m.Opening.Connect), connecting[m.Local.Port()]; got < connect-set || got > most {
				tr.errorf("connect: %v, by the packets %v, by the client's clock %v", got, connect, most)
			}
			if got, least := time.Duration(m.Opening.Idle), pausing[m.Local.Port()]; got < least-time.Microsecond || got > idle+set {
				tr.errorf("idle: %v, by the client's clock %v, by the packets %v", got, least, idle)
			}
			if m.Opening.DNS != 0 {
				tr.errorf("a lookup that nobody made: %+v", m.Opening)
			}
		}
		if lost != 1 {
			tr.errorf("%d SYNs were retransmitted, want 1", lost)
		}
	})
}

// TestOpeningUnderTLS: the handshake of TLS is a part of the ledger, so what passed before and after
// it is idle. The truth is the client's own clock.
func TestOpeningUnderTLS(t *testing.T) {
	const before, after = 30 * time.Millisecond, 50 * time.Millisecond
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			once(t, func(tr *trial) {
				p := tr.place()
				tr.inhabit(p)
				l := tr.listenNet(p)
				server := &http.Server{
					TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(tr.t)}, MinVersion: version, MaxVersion: version, NextProtos: []string{"http/1.1"}},
					Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }),
				}
				go server.ServeTLS(l, "", "")
				tr.cleanup(func() { server.Close() })
				tr.record(request.Options{})

				began := time.Now()
				raw := tr.dialNet(p, l.Addr())
				connected := time.Now()
				time.Sleep(before)
				c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
				hello := time.Now()
				tr.must(c.Handshake())
				shaken := time.Now()
				time.Sleep(after)
				var asking, asked time.Time
				for i := range 2 {
					now := time.Now()
					_, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: test\r\n\r\n"))
					tr.must(err)
					if i == 0 {
						asking, asked = now, time.Now()
					}
					var got bytes.Buffer
					for !bytes.HasSuffix(got.Bytes(), []byte("ok")) {
						_, err := io.CopyN(&got, c, 1)
						tr.must(err)
					}
				}
				tr.must(c.Close())
				tr.finish()
				calls := tr.of(observe.Called)
				if len(calls) != 2 {
					tr.errorf("%d calls, want 2", len(calls))
					return
				}
				o, handshake := calls[0].Opening, time.Duration(calls[0].Ledger[observe.TLS])
				if connect, most := time.Duration(o.Connect), connected.Sub(began); connect <= 0 || connect > most {
					tr.errorf("connect() took up to %v, reported as %v", most, connect)
				}
				least, most := hello.Sub(connected)+asking.Sub(shaken)-time.Microsecond, asked.Sub(began)-handshake
				if idle := time.Duration(o.Idle); idle < least || idle > most {
					tr.errorf("idle for %v to %v, reported as %v", least, most, idle)
				}
				if handshake == 0 || handshake > shaken.Sub(hello) {
					tr.errorf("a handshake of %v within %v", handshake, shaken.Sub(hello))
				}
				if calls[1].Opening != (observe.Opening{}) {
					tr.errorf("the second request of a connection: %+v", calls[1].Opening)
				}
			})
		})
	}
}
