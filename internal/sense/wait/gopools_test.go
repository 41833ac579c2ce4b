package wait

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// counter lets so many customers in at a time.
type counter struct {
	desks   chan struct{}
	release chan struct{}
}

func (c *counter) ServeHTTP(http.ResponseWriter, *http.Request) {
	c.desks <- struct{}{}
	c.attend()
	<-c.desks
}

//go:noinline
func (c *counter) attend() { <-c.release }

// kitchen hands what is ordered to its cooks.
type kitchen struct {
	orders  chan chan bool
	release chan struct{}
}

func (k *kitchen) ServeHTTP(http.ResponseWriter, *http.Request) {
	done := make(chan bool)
	k.orders <- done
	<-done
}

func (k *kitchen) cook() {
	for done := range k.orders {
		k.roast()
		done <- true
	}
}

//go:noinline
func (k *kitchen) roast() { <-k.release }

// TestGoPools finds goroutines that a semaphore lets through, and workers, while requests
// wait for one of them; and none where nobody waits.
func TestGoPools(t *testing.T) {
	release := make(chan struct{})
	c := &counter{desks: make(chan struct{}, 3), release: release}
	k := &kitchen{orders: make(chan chan bool), release: release}
	for range 4 {
		go k.cook()
	}
	var servers []*http.Server
	var clients sync.WaitGroup
	ask := func(h http.Handler, requests int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: h}
		servers = append(servers, server)
		go server.Serve(l)
		for range requests {
			clients.Go(func() { _, _ = http.Get("http://" + l.Addr().String()) })
		}
	}
	look := func(w *goWatched) {
		_, listing := lookAtOwn(t)
		w.notePools(listing)
	}
	of := func(w *goWatched, name string) *goPool {
		for function, p := range w.pools {
			if strings.HasSuffix(function, name) {
				return p
			}
		}
		return &goPool{}
	}
	quiet, busy := &goWatched{}, &goWatched{}
	look(quiet)
	for _, name := range []string{"(*counter).ServeHTTP", "(*kitchen).cook"} {
		if p := of(quiet, name); p.most != 0 {
			t.Errorf("%s: %+v, and nobody asks", name, p)
		}
	}
	ask(c, 9)
	ask(k, 9)
	time.Sleep(300 * time.Millisecond)
	for range 2 {
		look(busy)
	}
	for name, want := range map[string]int{"(*counter).ServeHTTP": 3, "(*kitchen).cook": 4} {
		if p := of(busy, name); p.most != want || p.sum != 2*want || p.looks != 2 {
			t.Errorf("%s: %+v, want %d in each look", name, p, want)
		}
	}
	close(release)
	clients.Wait()
	close(k.orders) // the cooks go home
	for _, server := range servers {
		server.Close()
	}
}
