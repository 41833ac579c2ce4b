package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// TestHistoryHoldsWhatAClientDid records a small server with the whole of
// slowray record, and finds in the files what its client counted: all requests,
// each that failed, and each that was slow, with how long the server slept.
func TestHistoryHoldsWhatAClientDid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: the history is NOT compared with the truth")
	}
	var problems []string
	for range 3 {
		var lost bool
		if problems, lost = recordTruth(t); len(problems) == 0 || !lost {
			break
		}
		t.Logf("records were lost on this busy machine, once more: %s", strings.Join(problems, "; "))
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// recordTruth says what is wrong, and whether the recorder lost records.
func recordTruth(t *testing.T) (problems []string, lost bool) {
	t.Helper()
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	const sleep = 150 * time.Millisecond
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			time.Sleep(sleep)
		case "/fail":
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer srv.Close()
	address, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(address.Port())
	var longest time.Duration
	get := func(path string) {
		began := time.Now()
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		longest = max(longest, time.Since(began))
	}
	dir := t.TempDir()
	rec := startRecorder(t, dir, "--window", "5s", "--budget", "0", "--slow", "100ms")
	const quick, slow, failed = 200, 5, 7
	for n := range quick {
		get("/")
		if n%40 == 0 {
			get("/slow")
		}
		if n%30 == 0 {
			get("/fail")
		}
	}
	time.Sleep(300 * time.Millisecond)
	_ = rec.cmd.Process.Signal(syscall.SIGTERM)
	for e := range rec.lines {
		if e.Event == "trouble" {
			wrong("trouble: %s", e.Text)
		}
	}
	if err := rec.cmd.Wait(); err != nil {
		wrong("ended: %v", err)
	}

	const all = quick + slow + failed
	if n := storedRequests(t, dir, port, time.Time{}, time.Time{}); n != all {
		wrong("%d requests in the seconds, the client made %d", n, all)
	}
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sums, err := r.Endpoints(store.Query{Port: port, Side: observe.Served})
	if err != nil || len(sums) != 1 {
		t.Fatalf("%d endpoints, %v", len(sums), err)
	}
	e := &sums[0].Endpoint
	lost = e.Recorded < all
	if e.Requests != all || e.Errors != failed || e.OK+e.Errors != all || e.Connections != 1 {
		wrong("%d requests, %d errors, %d connections; the client made %d, %d on 1", e.Requests, e.Errors, e.Connections, all, failed)
	}
	if q := time.Duration(e.Total.Max()); q < sleep || q > longest {
		wrong("the longest took %s, the server slept %s and the client waited %s", q, sleep, longest)
	}
	counts := map[store.Why]int{}
	err = r.Requests(store.Query{Port: port, Side: observe.Served}, func(q *store.Request) bool {
		counts[q.Why]++
		server := time.Duration(q.Ledger[observe.Server])
		switch {
		case q.Why == store.Slow && (server < sleep || server > longest):
			wrong("a slow request spent %s in the server, which slept %s", server, sleep)
		case q.Why == store.Failed && q.HTTP != http.StatusBadGateway:
			wrong("a failed request has status %d", q.HTTP)
		case q.Process.Comm == "" || q.PID != os.Getpid():
			wrong("a request was answered by %q, pid %d", q.Process.Comm, q.PID)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	// Whoever is late on a busy machine is slow as well.
	if counts[store.Slow] < slow || counts[store.Slow] > slow+quick/10 || counts[store.Failed] != failed || counts[store.Sampled] == 0 {
		wrong("%v kept by reason, want %d slow and %d failed ones and some others", counts, slow, failed)
	}
	return problems, lost
}
