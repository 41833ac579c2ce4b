package load

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serveSlowly(t *testing.T, d time.Duration, status int) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(d)
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

func TestClientFixedRate(t *testing.T) {
	target := serveSlowly(t, 0, 200)
	o := clientSpec{Load: Load{Conns: 4, Rate: 100}, Target: target, Duration: time.Second}.run(t.Context())
	if o.Good() < 80 || o.Good() > 105 || o.Bad() != 0 {
		t.Errorf("100 requests/s for a second: %+v", o)
	}
}

func TestClientGivesUp(t *testing.T) {
	target := serveSlowly(t, 300*time.Millisecond, 200)
	o := clientSpec{Load: Load{Conns: 2, GiveUp: 100 * time.Millisecond}, Target: target, Duration: time.Second}.run(t.Context())
	if o.Requests != 0 || o.Timeout < 10 {
		t.Errorf("answers after 300 ms, patience 100 ms: %+v", o)
	}
}

func TestClientCountsStatus(t *testing.T) {
	target := serveSlowly(t, 0, 502)
	o := clientSpec{Load: Load{Conns: 1, First: true, Rate: 50}, Target: target, Duration: 500 * time.Millisecond}.run(t.Context())
	if o.Good() != 0 || o.Non2xx < 10 {
		t.Errorf("only 502: %+v", o)
	}
}

func TestClientRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	o := clientSpec{Load: Load{Conns: 1}, Target: l.Addr().String(), Duration: 200 * time.Millisecond}.run(t.Context())
	if o.Connect == 0 || o.Requests != 0 {
		t.Errorf("nothing listens: %+v", o)
	}
}

func TestClientPaces(t *testing.T) {
	target := serveSlowly(t, 0, 200)
	for _, tt := range []struct {
		name      string
		load      Load
		low, high int64
	}{
		{"thinks", Load{Conns: 2, Think: 100 * time.Millisecond}, 10, 20},
		{"bursts", Load{Conns: 5, Burst: 250 * time.Millisecond}, 10, 20},
		{"as fast as it can", Load{Conns: 1, Own: true}, 100, 1e6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.load.UsesWrk() {
				t.Error("made by wrk")
			}
			o := clientSpec{Load: tt.load, Target: target, Duration: time.Second}.run(t.Context())
			if o.Good() < tt.low || o.Good() > tt.high || o.Bad() != 0 || o.Mean <= 0 || o.Mean > o.Max {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestClientReadsSlowly(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 40_000)) }))
	t.Cleanup(srv.Close)
	l := Load{Conns: 1, ReadBytes: 4000, ReadPause: 10 * time.Millisecond, ReadBuf: 8000}
	o := clientSpec{Load: l, Target: strings.TrimPrefix(srv.URL, "http://"), Duration: 500 * time.Millisecond}.run(t.Context())
	if o.Good() < 1 || o.P50 < 90*time.Millisecond {
		t.Errorf("40,000 bytes, 4,000 each 10 ms: %+v", o)
	}
}

// A load that is ended early tells what it saw until then, and does not wait for answers.
func TestClientEndsEarly(t *testing.T) {
	for _, answers := range []bool{true, false} {
		const conns = 3
		asked := make(chan bool, 1<<16)
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked <- true
			if !answers {
				<-r.Context().Done()
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan Outcome)
		spec := clientSpec{Load: Load{Conns: conns, Own: true, Think: time.Millisecond, GiveUp: time.Hour}, Target: strings.TrimPrefix(srv.URL, "http://"), Duration: time.Hour}
		go func() { ended <- spec.run(ctx) }()
		least := conns
		if answers {
			least = 2 * conns // so some were answered
		}
		for range least {
			<-asked
		}
		cancel()
		select {
		case o := <-ended:
			if (o.Good() > 0) != answers || o.Bad() > 0 || o.Duration > time.Hour/2 {
				t.Errorf("answers %v: %+v", answers, o)
			}
		case <-time.After(time.Minute):
			t.Fatalf("answers %v: it waits for an answer", answers)
		}
		srv.Close()
	}
}
