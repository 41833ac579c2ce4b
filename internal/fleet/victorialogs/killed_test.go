package victorialogs

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// numbers are how often each numbered request is in a cluster.
func numbers(t *testing.T, front *node, host string) map[int]int {
	t.Helper()
	all := map[int]int{}
	for _, row := range ask(t, front.addr, fmt.Sprintf(`{host=%s} stream:=requests _time:1h | fields seq`, strconv.Quote(host))) {
		n, err := strconv.Atoi(row["seq"])
		if err != nil {
			t.Fatalf("%v: %v", row, err)
		}
		all[n]++
	}
	return all
}

// A storage node is killed with SIGKILL while a host ships, and comes back. What it had on
// disk is there, and all that is shipped afterwards, each once; what it and the front had
// in memory may be lost, and is counted: docs/fleet-targets.md says how much.
func TestStorageNodeIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: a cluster of VictoriaLogs takes 20 s: NOT tested with -short")
	}
	// Storage nodes write what they have to their disks every two seconds, not five.
	front, storage := cluster(t, "-inmemoryDataFlushInterval=2s")
	target, err := Open("victorialogs://" + front.addr)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var mu sync.Mutex
	var said []string
	s, links, err := ship.Prepare(dir, ship.Options{
		Targets: []ship.Destination{{Target: target, Name: "victorialogs", Title: "victorialogs"}},
		Host:    func() fleet.Host { return fleet.Host{Name: "db-7"} },
		Say: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, text)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(dir, store.Options{Links: links})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		s.Run(ctx, st)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = st.Close()
	})
	seq := 0
	record := func(n int) {
		t.Helper()
		for range n {
			seq++
			r := store.Request{Process: observe.Identity{Comm: "svc-" + strconv.Itoa(seq%20)}}
			r.Side, r.StartNS, r.Seq, r.Weight, r.Status = observe.Served, time.Now().UnixNano(), uint32(seq), 1, observe.StatusOK
			st.AddRequest(&r)
		}
		if err := st.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	// there waits until the cluster has so many of the requests from one number on.
	there := func(from, n int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			got := 0
			for seq := range numbers(t, front, "db-7") {
				if seq >= from {
					got++
				}
			}
			if got >= n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d requests of %d from number %d on; %+v", got, n, from, s.Status()[0])
			}
		}
	}
	record(3000)
	there(1, 3000)
	time.Sleep(3 * time.Second) // until it is on disk
	before := seq

	for i := range 20 {
		record(100)
		if i == 10 {
			// The front has handed on what it took, and no node has it on disk yet.
			for sent := s.Status()[0].Sent; s.Status()[0].Sent == sent; {
				record(10)
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(1300 * time.Millisecond)
			storage[1].kill()
		}
		time.Sleep(100 * time.Millisecond)
	}
	storage[1].start()
	for end := time.Now().Add(30 * time.Second); s.Status()[0].Bytes > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not all is taken: %+v", s.Status()[0])
		}
	}
	time.Sleep(3 * time.Second) // the front has handed on what it took before
	after := seq
	record(1000)
	there(after+1, 1000)

	got := numbers(t, front, "db-7")
	lost, twice := 0, 0
	for n := 1; n <= seq; n++ {
		sure := n <= before || n > after
		switch {
		case got[n] == 0 && sure:
			t.Errorf("request %d is lost: it was on disk before the kill, or sent after it", n)
		case got[n] == 0:
			lost++
		case got[n] > 1 && sure:
			t.Errorf("request %d came %d times", n, got[n])
		case got[n] > 1:
			twice += got[n] - 1
		}
		if t.Failed() {
			break
		}
	}
	// The front sends elsewhere what a dead node does not take.
	if lost >= after-before {
		t.Errorf("all %d requests about the kill are lost", lost)
	}
	status := s.Status()[0]
	if status.Sent != uint64(seq) {
		t.Errorf("%d requests were sent of %d", status.Sent, seq)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("of %d requests about the kill %d were lost in memory of VictoriaLogs and %d are there twice; %d failures; said: %q", after-before, lost, twice, status.Failures, said)
}
