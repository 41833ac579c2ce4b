package request_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// TestPipelinedUnderTLS: requests of HTTP/1.1 that are pipelined under TLS are never less time than they took:
// those in one record are one request whose answer comes piece by piece, at both ends; those in records of their
// own overlap for the server, and are one for a caller that has said all before the first answer
// (docs/ledger-limits.md). What comes after them is right again.
func TestPipelinedUnderTLS(t *testing.T) {
	const work, pause = 20 * time.Millisecond, 60 * time.Millisecond
	for _, c := range []struct {
		name       string
		apart      time.Duration // between the requests that are pipelined
		overlapped bool          // served
	}{{"one record", 0, false}, {"records of their own", work / 4, true}} {
		t.Run(c.name, func(t *testing.T) {
			measure(t, func(tr *trial) {
				const pipelined = 3
				place := tr.place()
				l := tr.listenNet(place)
				server := &http.Server{
					TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate(t)}},
					Handler:      http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(work) }),
					TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1
				}
				go server.ServeTLS(l, "", "")
				tr.cleanup(func() { server.Close() })
				tr.record(request.Options{})
				conn := tls.Client(tr.dialNet(place, l.Addr()), &tls.Config{InsecureSkipVerify: true})
				in := bufio.NewReader(conn)
				const ask = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Padding: longer than what is no request, as a remark of another protocol may be\r\n\r\n"
				turn := func(requests int, apart time.Duration) time.Duration {
					time.Sleep(pause)
					start := time.Now()
					if apart == 0 {
						_, err := io.WriteString(conn, strings.Repeat(ask, requests))
						tr.must(err)
					}
					for i := range requests {
						if apart == 0 {
							break
						}
						if i > 0 {
							time.Sleep(apart)
						}
						_, err := io.WriteString(conn, ask)
						tr.must(err)
					}
					for range requests {
						r, err := http.ReadResponse(in, nil)
						tr.must(err)
						_, err = io.Copy(io.Discard, r.Body)
						tr.must(err)
					}
					return time.Since(start)
				}
				turn(1, 0)
				began := time.Now().UnixNano()
				took := turn(pipelined, c.apart)
				ended := time.Now().UnixNano()
				turn(1, 0)
				tr.must(conn.Close())
				time.Sleep(settle)
				tr.finish()
				for _, side := range []observe.Side{observe.Served, observe.Called} {
					var sum time.Duration
					overlapped, after := false, 0
					for _, r := range tr.of(side) {
						switch {
						case r.StartNS < began:
						case r.StartNS < ended:
							sum += time.Duration(r.TotalNS())
							overlapped = overlapped || r.Flags&observe.FlagOverlapped != 0
						default:
							after++
							if r.Flags&observe.FlagOverlapped != 0 || r.Ledger[observe.Server] < int64(work) {
								tr.errorf("%s: after them: %s", side, describe(r, began))
							}
						}
					}
					if overlapped != (c.overlapped && side == observe.Served) || sum < pipelined*work || sum > took || after != 1 {
						tr.errorf("%s: overlapped %v, %v in all of %v, %d after them", side, overlapped, sum, took, after)
					}
				}
			})
		})
	}
}
