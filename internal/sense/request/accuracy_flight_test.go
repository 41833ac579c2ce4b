package request_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/netns"
)

// tlsRecord is a record of TLS (RFC 8446, 5.1) of a type and length whose first byte says
// which message of the handshake it is.
func tlsRecord(kind byte, length int, message byte) string {
	b := make([]byte, 5+length)
	b[0], b[1], b[2], b[3], b[4], b[5] = kind, 3, 3, byte(length>>8), byte(length), message
	return string(b)
}

// Records of handshakes, none of which is decrypted by anybody.
var (
	clientHello  = tlsRecord(22, 510, 1)
	serverHello  = tlsRecord(22, 118, 2)
	changeCipher = tlsRecord(20, 1, 1)
	sealed       = func(length int) string { return tlsRecord(23, length, 0x5a) }
	finished     = sealed(53)
	ticket       = sealed(234)
)

// TestTLSFlights: handshakes of TLS 1.3 as other libraries and servers have them are no
// requests, and all requests after them are seen.
func TestTLSFlights(t *testing.T) {
	const work, requests = 20 * time.Millisecond, 3
	for _, test := range []struct {
		name   string
		before string // what the client says, and is answered, before its ClientHello
		flight string // what it says to the ServerHello
		says   string // the server, to that
		defers bool   // TCP_DEFER_ACCEPT
		told   int    // requests
		first  int    // status of the first one, 0 = none is known
	}{
		{name: "in records of their own", flight: changeCipher + sealed(1500) + sealed(281) + finished, says: ticket + ticket, told: requests},
		{name: "without tickets", flight: changeCipher + finished, told: requests},
		{name: "without tickets, in records of their own", flight: changeCipher + sealed(1500) + sealed(281) + finished, told: requests},
		{name: "a certificate and Finished in one record", flight: changeCipher + sealed(1893), says: ticket + ticket, told: requests},
		{name: "a server that defers accept", flight: changeCipher + finished, says: ticket, defers: true, told: requests},
		{name: "one that defers it and asks for a certificate", flight: changeCipher + sealed(1500) + sealed(281) + finished, defers: true, told: requests},
		{name: "through a proxy", before: "CONNECT db.example:443 HTTP/1.1\r\nHost: db.example:443\r\n\r\n", flight: changeCipher + finished, says: ticket, told: 1 + requests, first: 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			measure(t, func(tr *trial) {
				o := tr.loopback(loopback4)
				tr.sentBytesFound()
				if test.defers {
					tr.must(unix.SetsockoptInt(o.l.fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 3))
				}
				tr.must(netns.Do(o.place.ns, func() error {
					c, err := dial(o.to)
					if err != nil {
						return err
					}
					first := clientHello
					if test.before != "" {
						first = test.before
					}
					c.noDelay()
					c.say(first)
					s, err := o.l.accept()
					if err != nil {
						return err
					}
					s.receive(len(first))
					if test.before != "" {
						time.Sleep(work)
						s.say("HTTP/1.1 200 Connection established\r\n\r\n")
						c.option(unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0) // the ClientHello acknowledges it
						c.receive(39)
						c.say(clientHello)
						s.receive(len(clientHello))
					}
					time.Sleep(work)
					s.say(serverHello + changeCipher + sealed(1200) + finished)
					c.receive(len(serverHello + changeCipher + sealed(1200) + finished))
					c.say(test.flight)
					s.receive(len(test.flight))
					if test.says != "" {
						s.say(test.says)
						c.receive(len(test.says))
					}
					for range requests {
						time.Sleep(work)
						c.say(sealed(700))
						s.receive(705)
						time.Sleep(work)
						s.say(strings.Repeat(sealed(1000), 4))
						c.receive(4 * 1005)
					}
					if err := c.close(); err != nil {
						return err
					}
					s.receiveEnd()
					return s.close()
				}))
				tr.finish()
				for _, side := range []observe.Side{observe.Served, observe.Called} {
					checkFlights(o, side, test.told, test.first, work)
				}
			})
		})
	}
}

func checkFlights(o *onLoopback, side observe.Side, told, first int, work time.Duration) {
	const exact = 5 * time.Millisecond // of timers on a busy machine
	all := o.of(side)
	tls := 0
	for i, r := range all {
		if took := time.Duration(r.Ledger[observe.TLS]); took > 0 {
			tls++
			if took < work-exact || took > work+3*exact {
				o.errorf("%s: want %v of tls: %s", side, work, describe(r, r.StartNS))
			}
		}
		if server := time.Duration(r.Ledger[observe.Server]); server < work || time.Duration(r.TotalNS()-r.Ledger[observe.TLS]) > work+exact || r.Flags&observe.FlagOverlapped != 0 {
			o.errorf("%s: want %v of the server: %s", side, work, describe(r, r.StartNS))
		}
		if i == 0 && first != 0 && r.HTTP != first {
			o.errorf("%s: want the status %d: %s", side, first, describe(r, r.StartNS))
		}
	}
	if len(all) != told || tls != 1 {
		o.errorf("%s: %d requests, %d with a handshake; want %d, 1", side, len(all), tls, told)
	}
	var is observe.TLSStats
	var handshakes, failed uint64
	for _, c := range o.counters {
		if c.Side == side {
			handshakes, failed = handshakes+c.TLS, failed+c.TLSFailed
			is.Add(&c.TLSStats, 1)
		}
	}
	if handshakes != 1 || failed != 0 || is.V13 != 1 {
		o.errorf("%s: %d handshakes, %d that failed, %+v; want one of TLS 1.3", side, handshakes, failed, is)
	}
}
