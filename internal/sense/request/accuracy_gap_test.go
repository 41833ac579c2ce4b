package request_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/link"
	"github.com/slowray/slowray/lab/netns"
)

// TestStreamsOverLoss: packets that are lost or overtaken come late, and end streams all the
// same: each has a record, with the time that the packet took to come again, and none goes on
// for ever.
func TestStreamsOverLoss(t *testing.T) {
	for _, test := range []struct {
		name       string
		aToB, bToA link.Settings
	}{
		{"answers are lost", link.Settings{Delay: time.Millisecond, Loss: 0.02}, link.Settings{Delay: time.Millisecond}},
		{"requests are lost", link.Settings{Delay: time.Millisecond}, link.Settings{Delay: time.Millisecond, Loss: 0.02}},
	} {
		t.Run(test.name, func(t *testing.T) {
			measure(t, func(tr *trial) { streamsOverLoss(tr, test.aToB, test.bToA) })
		})
	}
}

func streamsOverLoss(tr *trial, aToB, bToA link.Settings) {
	const callers, each = 10, 300
	e := tr.across(aToB, bToA)
	var l net.Listener
	tr.must(netns.Do(e.a.ns, func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(e.addrA.String(), "0")); return err }))
	clear := new(http.Protocols)
	clear.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: clear, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(2 * time.Millisecond)
		_, _ = w.Write(make([]byte, 600))
	})}
	go func() { _ = server.Serve(l) }()
	tr.cleanup(func() { server.Close() })
	client := &http.Client{Transport: &http.Transport{Protocols: clear, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return tr.dialNet(e.b, l.Addr()), nil
	}}}
	ask := func() error {
		r, err := client.Get("http://" + l.Addr().String() + "/")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.Copy(io.Discard, r.Body)
		return err
	}
	parallel := func(n int) {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range n {
					if err := ask(); err != nil {
						tr.t.Error(err)
					}
				}
			})
		}
		all.Wait()
	}
	for deadline := time.Now().Add(15 * time.Second); tr.streams.Load() == 0; parallel(5) {
		if time.Now().After(deadline) {
			tr.t.Fatal("HTTP/2 is spoken, and no stream was distinguished")
		}
	}
	time.Sleep(settle)
	began := time.Now().UnixNano()
	parallel(each)
	time.Sleep(settle)
	ended := time.Now().UnixNano()
	tr.finish()
	for _, side := range []observe.Side{observe.Served, observe.Called} {
		streams, slow, open := 0, 0, 0
		for _, r := range tr.of(side) {
			if r.StartNS < began || r.StartNS > ended || r.Flags&observe.FlagMultiplexed == 0 {
				continue
			}
			if r.Flags&observe.FlagUnfinished != 0 || r.HTTP != 200 {
				open++
				continue
			}
			streams++
			if r.TotalNS() > int64(10*time.Millisecond) {
				slow++
			}
		}
		if streams < callers*each*98/100 || streams > callers*each || open > 0 {
			tr.errorf("%s: %d streams of %d, %d open or without their status", side, streams, callers*each, open)
		}
		if side == observe.Called && slow == 0 {
			tr.errorf("%s: no stream took 10 ms, and packets were lost that come again after 20 or more", side)
		}
	}
}
