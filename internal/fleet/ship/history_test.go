package ship

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// quick are the options of tests: the waits are short.
func quick(target fleet.Target) Options {
	return Options{
		Targets: []Destination{{Target: target, Name: "fake", Title: "fake://"}},
		linger:  map[fleet.Stream]time.Duration{}, timeout: 50 * time.Millisecond,
		firstWait: time.Millisecond, lastWait: 5 * time.Millisecond, hello: 20 * time.Millisecond, bound: time.Millisecond, again: time.Minute,
		share: 1, pastShare: 1,
	}
}

// history is a store and what ships it.
type history struct {
	t       *testing.T
	dir     string
	opt     Options
	store   *store.Store
	shipper *Shipper
	end     func()

	mu   sync.Mutex
	said []string
}

func (h *history) open(segment time.Duration) {
	h.t.Helper()
	h.opt.Say = func(text string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.said = append(h.said, text)
	}
	s, links, err := Prepare(h.dir, h.opt)
	if err != nil {
		h.t.Fatal(err)
	}
	h.shipper = s
	if h.store, err = store.Open(h.dir, store.Options{Segment: segment, Links: links}); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Run(ctx, h.store)
		close(done)
	}()
	h.end = func() {
		cancel()
		<-done
	}
}

func (h *history) close() {
	h.end()
	if err := h.store.Close(); err != nil {
		h.t.Error(err)
	}
}

func (h *history) lines() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.said, "\n")
}

// arrived waits until a stream has so many records.
func (f *fake) arrived(t *testing.T, s fleet.Stream, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); f.count(s) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d %s of %d have arrived", f.count(s), s, n)
		}
	}
}

// check says whether a stream has all from one number to another, each once, in
// order.
func (f *fake) check(t *testing.T, s fleet.Stream, from, to int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.got[s]) != to-from {
		t.Errorf("%d %s have arrived of %d", len(f.got[s]), s, to-from)
	}
	for i, a := range f.got[s] {
		if a.seq != from+i {
			t.Fatalf("%s: %d is number %d, want %d", s, a.at, a.seq, from+i)
		}
		if i > 0 && a.at <= f.got[s][i-1].at {
			t.Fatalf("%s: position %d after %d", s, a.at, f.got[s][i-1].at)
		}
	}
	for _, text := range f.wrong {
		t.Error(text)
	}
}
