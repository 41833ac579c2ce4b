package load

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Sixteen clients share two connections where the server speaks HTTP/2, and have one each
// where it does not.
func TestClientUnderTLS(t *testing.T) {
	for _, http2 := range []bool{true, false} {
		var sideBySide, most, conns, open, wrong atomic.Int64
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			open.Store(conns.Load()) // that of the last request counts: all begin with one of their own
			most.Store(max(most.Load(), sideBySide.Add(1)))
			defer sideBySide.Add(-1)
			if (r.ProtoMajor == 2) != http2 || r.TLS.Version < tls.VersionTLS12 {
				wrong.Add(1)
			}
			time.Sleep(20 * time.Millisecond)
		}))
		srv.EnableHTTP2 = http2
		srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed:
				conns.Add(-1)
			}
		}
		srv.StartTLS()
		o := clientSpec{Load: Load{Conns: 16, TLS: true, HTTP2: true}, Target: strings.TrimPrefix(srv.URL, "https://"), Duration: time.Second}.run(t.Context())
		srv.Close()
		// A request that waits for a new connection takes one that is free before: few stay idle.
		least, limit := int64(16), int64(32)
		if http2 {
			least, limit = 2, 2
		}
		if n := open.Load(); n < least || n > limit || most.Load() < 10 || wrong.Load() > 0 || o.Good() < 200 || o.Bad() > 0 {
			t.Errorf("HTTP/2 %v: %d connections, want %d to %d; %d requests at once; %d in the wrong protocol; %+v", http2, n, least, limit, most.Load(), wrong.Load(), o)
		}
	}
}

// Who gives up resets a stream, and leaves the connection to the others.
func TestClientGivesUpStream(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	o := clientSpec{Load: Load{Conns: 8, TLS: true, HTTP2: true, GiveUp: 100 * time.Millisecond}, Target: strings.TrimPrefix(srv.URL, "https://"), Duration: time.Second}.run(t.Context())
	if o.Requests != 0 || o.Timeout < 40 || o.Connect+o.Read+o.Write > 0 {
		t.Errorf("no answer, patience 100 ms: %+v", o)
	}
}
