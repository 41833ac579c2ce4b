package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// TestRecordToHistory: the real agent sends what its directory held before, as a history
// of its own, and record --status tells of it.
func TestRecordToHistory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to record requests: what is sent of a history by a real agent is NOT tested")
	}
	if testing.Short() {
		t.Skip("SKIP: an agent takes 5 s: NOT tested with -short")
	}
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const before = 5000
	for n := range before {
		r := store.Request{Process: observe.Identity{Comm: "old"}}
		r.Side, r.StartNS, r.Seq, r.Weight = observe.Served, time.Now().Add(-time.Hour).UnixNano()+int64(n)*1e6, uint32(n+1), 1
		st.AddRequest(&r)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seqs := map[string]map[int]int{} // of requests, by history
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zip, err := gzip.NewReader(r.Body)
		if err != nil {
			return // a question: nothing is there
		}
		mu.Lock()
		defer mu.Unlock()
		for scan := bufio.NewScanner(zip); scan.Scan(); {
			var line map[string]string
			if json.Unmarshal(scan.Bytes(), &line) != nil || line["stream"] != "requests" || line["comm"] != "old" {
				continue
			}
			if seqs[line["history"]] == nil {
				seqs[line["history"]] = map[int]int{}
			}
			n, _ := strconv.Atoi(line["seq"])
			seqs[line["history"]][n]++
		}
	}))
	defer srv.Close()
	run := startRecorder(t, dir, "--window", "5s", "--to", "victorialogs://"+strings.TrimPrefix(srv.URL, "http://"), "--to-history", "--host", "db-7")
	arrived := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, all := range seqs {
			n += len(all)
		}
		return n
	}
	for end := time.Now().Add(30 * time.Second); arrived() < before; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests of %d arrive", arrived(), before)
		}
	}
	_ = run.cmd.Process.Signal(os.Interrupt)
	_ = run.cmd.Wait()
	mu.Lock()
	defer mu.Unlock()
	id, err := os.ReadFile(dir + "/id")
	if err != nil {
		t.Fatal(err)
	}
	if len(seqs) != 1 || seqs[strings.TrimSpace(string(id))] != nil {
		t.Errorf("the requests are of %d histories, one of which is that of what is recorded now: %v", len(seqs), seqs[strings.TrimSpace(string(id))] != nil)
	}
	for _, all := range seqs {
		for n, times := range all {
			if times != 1 {
				t.Errorf("request %d came %d times", n, times)
			}
		}
	}
	out, errs, code := runSlowray(t, "record", "--status", "--dir", dir, "--json")
	var told struct {
		Running bool
		Targets []ship.Status
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || code == exitFailed || told.Running || len(told.Targets) != 2 || !told.Targets[1].History || told.Targets[1].Sent != before {
		t.Errorf("status: %d %v %s%s", code, err, out, errs)
	}
}
