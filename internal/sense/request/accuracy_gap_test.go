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
		size       int // of an answer
	}{
		{"answers are lost", link.Settings{Delay: time.Millisecond, Loss: 0.02}, link.Settings{Delay: time.Millisecond}, 600},
		{"parts of answers are lost", link.Settings{Delay: time.Millisecond, Loss: 0.005}, link.Settings{Delay: time.Millisecond}, 20_000},
		{"requests are lost", link.Settings{Delay: time.Millisecond}, link.Settings{Delay: time.Millisecond, Loss: 0.02}, 600},
	} {
		t.Run(test.name, func(t *testing.T) {
			measure(t, func(tr *trial) { streamsOverLoss(tr, test.aToB, test.bToA, test.size) })
		})
	}
}

func streamsOverLoss(tr *trial, aToB, bToA link.Settings, size int) {
	const callers, each = 10, 300
	e := tr.across(aToB, bToA)
	var l net.Listener
	tr.must(netns.Do(e.a.ns, func() (err error) { l, err = net.Listen("tcp", net.JoinHostPort(e.addrA.String(), "0")); return err }))
	clear := new(http.Protocols)
	clear.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: clear, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(2 * time.Millisecond)
		_, _ = w.Write(make([]byte, size))
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
		streams, slow, wrong := 0, 0, 0
		for _, r := range tr.of(side) {
			if r.StartNS < began || r.StartNS > ended || r.Flags&observe.FlagMultiplexed == 0 {
				continue
			}
			if r.Flags&observe.FlagUnfinished != 0 || r.Status == observe.StatusError {
				wrong++
				continue
			}
			streams++
			if r.TotalNS() > int64(10*time.Millisecond) {
				slow++
			}
		}
		// Where a frame's header was in a packet that passed before its place was known, what
		// is under way is lost, and counted.
		all, lost := callers*each, int(tr.stats.Streams)
		if side == observe.Served {
			lost = 0
		}
		if streams+lost < all*98/100 || streams < all*85/100 || streams > all || wrong > 0 {
			tr.errorf("%s: %d streams of %d, %d are lost, %d go on or failed", side, streams, all, lost, wrong)
		}
		if side == observe.Called && slow == 0 {
			tr.errorf("%s: no stream took 10 ms, and packets were lost that come again after 20 or more", side)
		}
	}
}
