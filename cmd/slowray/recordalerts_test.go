package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/stalltest"
)

// alertWithin is how soon somebody hears of harm, with for: 0s.
const alertWithin = 5 * time.Second

// TestRecordAlerts: a recorder with alerts tells within seconds of the first request that
// fails, and once that it is over; a service that is well is no alert.
func TestRecordAlerts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: the alerts of a recorder are NOT tested")
	}
	if testing.Short() {
		t.Skip("SKIP: -short: the alerts of a recorder are NOT tested")
	}
	var fails atomic.Bool
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer shop.Close()
	heard := make(chan alert.Message, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m alert.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Errorf("a message: %v", err)
		}
		// What other tests do to their servers meanwhile is another incident.
		if slices.ContainsFunc(m.Services, func(s alert.Service) bool {
			return strings.HasSuffix(shop.URL, s.Name[max(0, strings.LastIndex(s.Name, ":")):])
		}) {
			heard <- m
		}
	}))
	defer hook.Close()

	dir := t.TempDir()
	rules := filepath.Join(dir, "alerts.yaml")
	text := fmt.Sprintf("for: 0s\nresolve_after: 1s\nreceivers: [{name: hook, webhook: {url: %q}}]\n", hook.URL)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				if r, err := http.Get(shop.URL); err == nil {
					r.Body.Close()
				}
			}
		}
	})
	defer clients.Wait()
	defer close(stop)
	stalls := stalltest.Start(t)
	l := startRecorder(t, filepath.Join(dir, "history"), "--window", "5s", "--alerts", rules)
	time.Sleep(6 * time.Second)
	select {
	case m := <-heard:
		t.Fatalf("all is well, and there is an alert: %+v", m)
	default:
	}
	fails.Store(true)
	onset := time.Now()
	incident := "" // once it has begun; what other tests do may name the shop among others
	next := func(want alert.Kind, within time.Duration) alert.Message {
		t.Helper()
		for deadline := time.After(within); ; {
			select {
			case m := <-heard:
				if m.Kind == alert.Update && want != alert.Update || incident != "" && m.ID != incident {
					continue // its cause
				}
				if m.Kind != want {
					t.Fatalf("%s, want %s: %+v", m.Kind, want, m)
				}
				return m
			case <-deadline:
				t.Fatalf("no %s within %s", want, within)
			}
		}
	}
	begin := next(alert.Begin, 30*time.Second)
	incident = begin.ID
	took := time.Since(onset)
	if away, fsync := stalls.Between(onset, time.Now()); took > alertWithin+away+2*fsync {
		t.Errorf("the alert came %s after the onset; a CPU was away for %s, an fsync took %s", took, away, fsync)
	}
	time.Sleep(3 * time.Second)
	fails.Store(false)
	if end := next(alert.End, 60*time.Second); end.ID != begin.ID || end.Ended == nil {
		t.Errorf("another incident ended: %+v, began as %+v", end, begin)
	}
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	_ = l.cmd.Wait()
	for {
		select {
		case m := <-heard:
			if m.Kind != alert.Update && m.ID == incident {
				t.Errorf("one more %s: %+v", m.Kind, m)
			}
			continue
		default:
		}
		return
	}
}
