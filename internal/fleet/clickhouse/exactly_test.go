package clickhouse

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/store"
)

// agent ships records as slowray record does: in order, each batch again until it is
// there, and after an error from where the target says. Batches are cut by chance, so
// that what is retransmitted is no batch that was sent before.
type agent struct {
	db   *DB
	rng  *rand.Rand
	sent int // batches
	lost int // Sends that ended in an error
	had  int // of these, how many were there all the same
}

func (a *agent) mark(ctx context.Context, h *fleet.Host, s fleet.Stream) (fleet.Position, error) {
	for {
		p, err := a.db.Mark(ctx, h, s)
		if err == nil || ctx.Err() != nil || !fleet.Temporary(err) {
			return p, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (a *agent) ship(ctx context.Context, h *fleet.Host, s fleet.Stream, total, most int, batch func(first, n int) *fleet.Batch) error {
	at, err := a.mark(ctx, h, s)
	if err != nil {
		return err
	}
	for int(at) < total {
		n := min(1+a.rng.IntN(most), total-int(at))
		b := batch(int(at)+1, n)
		a.sent++
		if err = a.db.Send(ctx, b); err == nil {
			at = b.Last
			continue
		}
		if !fleet.Temporary(err) {
			return err
		}
		a.lost++
		before := at
		if at, err = a.mark(ctx, h, s); err != nil {
			return err
		}
		if at > before {
			a.had++
		}
		if at != before && at != b.Last {
			return fmt.Errorf("%s %s: mark %d after a batch of %d to %d: a part of it", h.Name, s, at, b.First, b.Last)
		}
	}
	return nil
}

// hosts ships requests and seconds of some hosts at once, and says how often a Send
// was unclear.
func shipHosts(t *testing.T, url string, hosts, requests, seconds int) (lost, had int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range hosts {
		h := hostNumber(i)
		db, err := Open(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		list := newTraffic(uint64(i)).requests(requests, noon)
		var secs []store.Second
		for k := range seconds {
			secs = append(secs, secondOf(noon.Unix()+int64(k), list[k:k+3]))
		}
		for _, s := range []fleet.Stream{fleet.Requests, fleet.Seconds} {
			wg.Go(func() {
				a := &agent{db: db, rng: rand.New(rand.NewPCG(uint64(i), uint64(len(s))))}
				var err error
				if s == fleet.Requests {
					err = a.ship(ctx, h, s, requests, 300, func(first, n int) *fleet.Batch {
						return requestBatch(h, fleet.Position(first), list[first-1:first-1+n])
					})
				} else {
					err = a.ship(ctx, h, s, seconds, 30, func(first, n int) *fleet.Batch {
						return secondBatch(h, fleet.Position(first), secs[first-1:first-1+n])
					})
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				lost, had = lost+a.lost, had+a.had
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	return lost, had
}

// counted asks for what must be there: each record once, and its part in all sums.
func counted(t *testing.T, url string, hosts, requests, seconds int) {
	t.Helper()
	db, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range hosts {
		for what, want := range map[string]int{
			"count() AS n FROM requests": requests, "uniqExact(position) AS n FROM requests": requests, "max(position) AS n FROM requests": requests,
			"count() AS n FROM seconds": seconds, "uniqExact(position) AS n FROM seconds": seconds, "sum(requests) AS n FROM seconds": 3 * seconds,
			"sum(records) AS n FROM seconds10": seconds, "sum(requests) AS n FROM seconds10": 3 * seconds,
			"sum(records) AS n FROM minutes5": seconds, "sum(arraySum(`total_histMap.n`)) AS n FROM minutes5": 3 * seconds,
		} {
			err := db.anyServer(t.Context(), func(server string, d Dialect) error {
				n, err := db.c.number(t.Context(), server, d, "SELECT "+what+" WHERE host = "+quote(hostNumber(i).Name))
				if err == nil && int(n) != want {
					t.Errorf("host %d: %s is %d, want %d", i, what, n, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNothingIsLostOrTwiceWhenAShardIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: servers are killed: not with -short")
	}
	const hosts, requests, seconds = 2, 3000, 120
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := c.URL("slowray")
	initAll(t, url, nil)
	done := make(chan struct{})
	var lost, had int
	go func() {
		defer close(done)
		lost, had = shipHosts(t, url, hosts, requests, seconds)
	}()
	kills := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(150 * time.Millisecond):
			if kills < 4 {
				victim := c.Servers[kills%2][0]
				victim.Kill()
				kills++
				if err := victim.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	counted(t, url, hosts, requests, seconds)
	t.Logf("%d kills, %d sends unclear, of which %d had arrived", kills, lost, had)
}

// A server that was killed between the rows of a batch and their sums has the rows
// only: the next Mark makes the sums.
func TestSumsThatAKilledServerDidNotMakeAreMade(t *testing.T) {
	c := clickhousetest.ForTest(t, clickhousetest.Layout{})
	url := c.URL("slowray")
	cfg, _ := initAll(t, url, nil)
	cl := newClient(cfg)
	server := cfg.Shards[0][0]
	h := hostNumber(0)
	db := New(cfg)
	list := newTraffic(1).requests(100, noon)
	var secs []store.Second
	for k := range 100 {
		secs = append(secs, secondOf(noon.Unix()+int64(k), list[:3]))
	}
	ctx := t.Context()
	if err := db.Send(ctx, secondBatch(h, 1, secs[:55])); err != nil {
		t.Fatal(err)
	}
	for _, r := range rollups {
		if err := cl.exec(ctx, server, "slowray", "DETACH TABLE "+r.table+"_view"); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Send(ctx, secondBatch(h, 56, secs[55:])); err != nil {
		t.Fatal(err)
	}
	for _, r := range rollups {
		view := "ATTACH MATERIALIZED VIEW " + r.table + "_view TO " + r.table + " AS " + r.sums("slowray.seconds", "")
		if err := cl.exec(ctx, server, "slowray", view); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second one must find nothing to do
		if p, err := db.Mark(ctx, h, fleet.Seconds); err != nil || p != 100 {
			t.Fatalf("mark %d, %v", p, err)
		}
	}
	for what, want := range map[string]int{"sum(records) AS n FROM seconds10": 100, "sum(records) AS n FROM minutes5": 100, "sum(requests) AS n FROM minutes5": 300} {
		n, err := cl.number(ctx, server, Plain, "SELECT "+what)
		if err != nil || int(n) != want {
			t.Errorf("%s is %d, want %d (%v)", what, n, want, err)
		}
	}
}

func TestNothingIsLostOrTwiceWhenAReplicaIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: servers are killed: not with -short")
	}
	const hosts, requests, seconds = 2, 1500, 60
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Replicas: 2})
	url := c.URL("slowray")
	cfg, _ := initAll(t, url, nil)
	done := make(chan struct{})
	var lost, had int
	go func() {
		defer close(done)
		lost, had = shipHosts(t, url, hosts, requests, seconds)
	}()
	victim := c.Servers[0][0]
	time.Sleep(300 * time.Millisecond)
	victim.Kill()
	time.Sleep(time.Second)
	if err := victim.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	cl := newClient(cfg)
	for _, server := range cfg.Shards[0] {
		for _, table := range []string{"requests", "seconds", "seconds10", "minutes5"} {
			if err := cl.exec(t.Context(), server, "slowray", "SYSTEM SYNC REPLICA "+table); err != nil {
				t.Fatal(err)
			}
		}
	}
	counted(t, url, hosts, requests, seconds)
	// The other replica has the same.
	cfg.Shards[0][0], cfg.Shards[0][1] = cfg.Shards[0][1], cfg.Shards[0][0]
	n, err := cl.number(t.Context(), cfg.Shards[0][0], Plain, "SELECT count() AS n FROM requests")
	if err != nil || n != hosts*requests {
		t.Errorf("the other replica has %d requests, want %d (%v)", n, hosts*requests, err)
	}
	t.Logf("%d sends unclear, of which %d had arrived", lost, had)
}
