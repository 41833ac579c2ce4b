package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// lines is what a command prints while it runs.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A history is served without a recorder, and nothing is written to it.
func TestPageOfAHistory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	r := &store.Request{}
	r.Side, r.StartNS, r.Weight, r.Requests, r.Seq = observe.Served, at.UnixNano(), 1, 1, 1
	r.Local, r.Peer = netip.MustParseAddrPort("192.0.2.10:443"), netip.MustParseAddrPort("203.0.113.9:41000")
	s.AddRequest(r)
	o := &observe.Observation{Schema: observe.SchemaObservation, Host: observe.Host{Name: "shop-01", CPUs: 8, Kernel: "6.12.9"}, Window: observe.Window{Start: at, Seconds: 60}}
	if err := s.AddObservation(o, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := func() (all string) {
		filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
			if err == nil && !st.IsDir() {
				all += path + " " + st.ModTime().String() + "\n"
			}
			return err
		})
		return all
	}
	before := files()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out lines
	ended := make(chan error, 1)
	go func() {
		ended <- (&pageCmd{Dir: dir, Listen: "127.0.0.1:0"}).Run(ctx, &streams{&out, &out})
	}()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "\n"); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("it does not say where the page is")
		}
	}
	_, rest, _ := strings.Cut(out.String(), " is at ")
	url, _, _ := strings.Cut(rest, " ")
	answer, err := http.Get(url + "api/status")
	if err != nil {
		t.Fatalf("%s: %v", out.String(), err)
	}
	defer answer.Body.Close()
	var status struct {
		Recording bool
		Host      struct{ Name string }
		Span      *struct{ From float64 }
	}
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if status.Recording || status.Host.Name != "shop-01" || status.Span == nil {
		t.Errorf("status %+v", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after := files(); after != before {
		t.Errorf("the history was written to:\n%s\nbefore:\n%s", after, before)
	}
}

func TestPageOfNoHistory(t *testing.T) {
	empty := t.TempDir()
	for dir, want := range map[string]string{filepath.Join(empty, "none"): "there is no history in", empty: "there is nothing of a history in"} {
		err := (&pageCmd{Dir: dir, Listen: "127.0.0.1:0"}).Run(t.Context(), &streams{&lines{}, &lines{}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}
