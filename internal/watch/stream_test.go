package watch

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// TestWindowsOfOneRecording watches two windows, one after the other, with one
// recording of requests: each has its own requests, all of them, and one that
// lasts from the first into the second is in progress in both.
func TestWindowsOfOneRecording(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: windows of a running recording are NOT tested")
	}
	stream, err := request.StartStream(request.Options{Split: true, Budget: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			<-release
		}
	}))
	defer srv.Close()
	defer close(release)
	address, _ := url.Parse(srv.URL)
	port, _ := strconv.Atoi(address.Port())
	get := func(path string) {
		if resp, err := http.Get(srv.URL + path); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	go get("/long")
	time.Sleep(1500 * time.Millisecond) // a request in progress is reported after a second

	for window, n := range []uint64{30, 50} {
		ctx, cancel := context.WithCancel(t.Context())
		began := false
		o, err := Run(ctx, Options{For: 10 * time.Second, Filter: observe.Filter{Port: port}, Requests: stream, Progress: func(elapsed time.Duration) {
			if elapsed > 0 && !began { // the subscription stands
				began = true
				go func() {
					for range n {
						get("/")
					}
					time.Sleep(100 * time.Millisecond)
					cancel()
				}()
			}
		}})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		var requests, unfinished uint64
		for i := range o.Endpoints {
			if e := &o.Endpoints[i]; e.Port == port && e.Side == "served" {
				requests += e.Requests
				unfinished += e.Unfinished
			}
		}
		if requests != n || unfinished != 1 {
			t.Errorf("window %d: %d requests and %d in progress, want %d and 1", window+1, requests, unfinished, n)
		}
	}
}
