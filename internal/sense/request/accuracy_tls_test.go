package request_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// TestTLSHandshakes: handshakes are no requests, and those that follow them are counted once,
// with all of their time.
func TestTLSHandshakes(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, keep %v", tls.VersionName(version), keep), func(t *testing.T) {
				measure(t, func(tr *trial) { overTLS(tr, version, keep) })
			})
		}
	}
}

func overTLS(tr *trial, version uint16, keep bool) {
	const requests, work, pause = 6, 20 * time.Millisecond, 30 * time.Millisecond
	const exact = 5 * time.Millisecond // of handshakes and timers on a busy machine
	o := &onLoopback{trial: tr, place: tr.place()}
	l := tr.listenNet(o.place)
	tr.record(request.Options{})
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate(tr.t)}, MaxVersion: version},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(work)
			w.Write(make([]byte, 3000))
		}),
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1
	}
	go server.ServeTLS(l, "", "")
	tr.cleanup(func() { server.Close() })
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: !keep,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return tr.dialNet(o.place, l.Addr()), nil
		},
	}}
	connections := requests
	if keep {
		connections = 1
	}
	for range requests {
		r, err := client.Get("https://" + l.Addr().String())
		tr.must(err)
		_, err = io.Copy(io.Discard, r.Body)
		tr.must(err)
		r.Body.Close()
		time.Sleep(pause)
	}
	client.CloseIdleConnections()
	tr.finish()
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		all := o.of(side)
		for _, r := range all {
			if total, server := time.Duration(r.TotalNS()), time.Duration(r.Ledger[observe.Server]); server < work || total > work+exact || r.Flags&observe.FlagOverlapped != 0 {
				o.errorf("%s: want %v of the server: %s", side, work, describe(r, r.StartNS))
			}
		}
		if len(all) != requests {
			o.errorf("%s: %d requests, want %d", side, len(all), requests)
		}
		var handshakes, failed uint64
		var took time.Duration
		for _, c := range tr.counters {
			if c.Side == side {
				handshakes, failed, took = handshakes+c.TLS, failed+c.TLSFailed, took+time.Duration(c.TLSNS)
			}
		}
		if handshakes != uint64(connections) || failed != 0 || took <= 0 {
			o.errorf("%s: %d handshakes and %d that failed in %v, want %d", side, handshakes, failed, took, connections)
		}
	}
}
