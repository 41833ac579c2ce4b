package request_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// TestTLSHandshakes: handshakes are no requests, and those that follow them are counted once,
// with all of their time. Of the first request of a connection the handshake is a part.
func TestTLSHandshakes(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, c := range []struct {
			name         string
			keep, resume bool
		}{{"one connection", true, false}, {"full", false, false}, {"resumed", false, true}} {
			t.Run(tls.VersionName(version)+", "+c.name, func(t *testing.T) {
				measure(t, func(tr *trial) { overTLS(tr, version, c.keep, c.resume) })
			})
		}
	}
}

func overTLS(tr *trial, version uint16, keep, resume bool) {
	const requests, work, pause = 6, 20 * time.Millisecond, 30 * time.Millisecond
	const asked = 40 * time.Millisecond // by the server, before it answers a ClientHello
	const exact = 5 * time.Millisecond  // of handshakes on a busy machine, most of them
	o := &onLoopback{trial: tr, place: tr.place()}
	l := tr.listenNet(o.place)
	tr.record(request.Options{})
	read := tr.sentBytesFound()
	// How long these and whole exchanges really took, of each connection and request.
	var asking, working, getting []time.Duration
	server := &http.Server{
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate(tr.t)}, MaxVersion: version,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				began := time.Now()
				time.Sleep(asked)
				asking = append(asking, time.Since(began))
				return nil, nil
			},
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			began := time.Now()
			time.Sleep(work)
			working = append(working, time.Since(began))
			w.Write(make([]byte, 3000))
		}),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1
	}
	go server.ServeTLS(l, "", "")
	tr.cleanup(func() { server.Close() })
	var sessions tls.ClientSessionCache
	if resume {
		sessions = tls.NewLRUClientSessionCache(1)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: !keep,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, ClientSessionCache: sessions},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return tr.dialNet(o.place, l.Addr()), nil
		},
	}}
	connections := requests
	if keep {
		connections = 1
	}
	for range requests {
		began := time.Now()
		r, err := client.Get("https://" + l.Addr().String())
		tr.must(err)
		_, err = io.Copy(io.Discard, r.Body)
		tr.must(err)
		r.Body.Close()
		getting = append(getting, time.Since(began))
		time.Sleep(pause)
	}
	client.CloseIdleConnections()
	tr.finish()
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		all := o.of(side)
		if len(all) != requests {
			o.errorf("%s: %d requests, want %d", side, len(all), requests)
			continue
		}
		slept, waited, most := asking, time.Duration(0), time.Duration(0)
		var over [2][]int64 // of the handshake and of the rest
		for i, r := range all {
			took, known := time.Duration(r.Ledger[observe.TLS]), time.Duration(0)
			if r.Seq == 1 && len(slept) > 0 {
				known, slept = slept[0], slept[1:]
				waited += known
				most += getting[i] - working[i]
			}
			total, server := time.Duration(r.TotalNS()), time.Duration(r.Ledger[observe.Server])
			over[0] = append(over[0], int64(took-known))
			over[1] = append(over[1], int64(total-took-working[i]))
			if took < known || server < working[i] || total > getting[i] || known == 0 && took != 0 || r.Flags&observe.FlagOverlapped != 0 {
				o.errorf("%s: want %v of tls and %v of the server within %v: %s", side, known, working[i], getting[i], describe(r, r.StartNS))
			}
		}
		for i, what := range []string{": tls", ": rest"} {
			o.below(side.String()+what, time.Duration(quantile(over[i], 0.5)), exact)
		}
		var handshakes, failed uint64
		var took time.Duration
		var is observe.TLSStats
		for _, c := range tr.counters {
			if c.Side == side {
				handshakes, failed, took = handshakes+c.TLS, failed+c.TLSFailed, took+time.Duration(c.TLSNS)
				is.Add(&c.TLSStats, 1)
			}
		}
		if handshakes != uint64(connections) || failed != 0 || took <= 0 {
			o.errorf("%s: %d handshakes and %d that failed in %v, want %d", side, handshakes, failed, took, connections)
		}
		if server := time.Duration(is.ServerNS); server < waited || server > most || is.ServerNS+is.ClientNS+is.NetworkNS != int64(took) {
			o.errorf("%s: %v of %v waited for the serving end, want %v to %v", side, server, took, waited, most)
		}
		want := observe.TLSStats{Full: handshakes, Again: handshakes - 1, ServerNS: is.ServerNS, ClientNS: is.ClientNS, NetworkNS: is.NetworkNS}
		if resume {
			want.Full, want.Again, want.Resumed = 1, 0, handshakes-1
		}
		if want.V12 = handshakes; version == tls.VersionTLS13 {
			want.V12, want.V13 = 0, handshakes
			if !read {
				want.Full, want.Again, want.Resumed = is.Full, is.Again, is.Resumed
			}
		}
		if is != want {
			o.errorf("%s: %+v, want %+v", side, is, want)
		}
	}
}

// sentBytesFound waits until the recorder can read what was sent, which traffic shows it.
func (tr *trial) sentBytesFound() bool {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	tr.must(err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	for range 200 {
		c, err := net.Dial("tcp", l.Addr().String())
		tr.must(err)
		b := bytes.Repeat([]byte("told by words"), 300)
		_, err = c.Write(b)
		tr.must(err)
		_, err = io.ReadFull(c, b)
		tr.must(err)
		c.Close()
		if tr.recorder.SentBytesFound() {
			time.Sleep(1500 * time.Millisecond) // until the recorder goes by it
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
