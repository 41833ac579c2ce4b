package simulate_test

import (
	"context"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/lab/simulate"
)

func TestWhatIsShippedIsWhatTheSecondsAre(t *testing.T) {
	opt := simulate.Options{Hosts: 10, Endpoints: 6, Seed: 4}
	const from, seconds = 1_790_000_000, 20
	want := map[fleet.Key]uint64{}
	f := simulate.New(opt)
	var requests uint64
	// The same numbers are drawn for requests, which come between the seconds: only the
	// first one is the same without them.
	f.Second(from, func(p *fleet.Point) { want[p.Key] += p.Requests; requests += p.Requests })
	if requests == 0 {
		t.Fatal("no requests")
	}
	archive := new(memory.Archive)
	run := simulate.Run{From: from, For: seconds * time.Second, Fast: true}
	ctx := context.Background()
	first, err := simulate.New(opt).Ship(ctx, archive, run)
	if err != nil {
		t.Fatal(err)
	}
	if first.Seconds < seconds*20 || first.Requests == 0 {
		t.Errorf("shipped %+v", first)
	}
	got := map[fleet.Key]uint64{}
	q := fleet.Question{From: time.Unix(from, 0), To: time.Unix(from+1, 0)}
	if err := archive.Points(ctx, q, time.Second, func(p *fleet.Point) bool { got[p.Key] += p.Requests; return true }); err != nil {
		t.Fatal(err)
	}
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%v: %d requests, want %d", k, got[k], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d endpoints, want %d", len(got), len(want))
	}
	// The same run again: all of it is there.
	again, err := simulate.New(opt).Ship(ctx, archive, run)
	if err != nil {
		t.Fatal(err)
	}
	if again.Seconds != 0 || again.Requests != 0 || again.Skipped != first.Seconds+first.Requests {
		t.Errorf("again: %+v, first %+v", again, first)
	}
}

func TestRequestsHaveBothEnds(t *testing.T) {
	archive := new(memory.Archive)
	ctx := context.Background()
	if _, err := simulate.New(simulate.Options{Hosts: 10, Seed: 3}).Ship(ctx, archive, simulate.Run{From: 1_790_000_000, For: 5 * time.Second, Fast: true}); err != nil {
		t.Fatal(err)
	}
	type ends struct{ called, served *store.Request }
	both := map[string]*ends{}
	err := archive.Requests(ctx, fleet.Question{}, func(_ string, r *store.Request) bool {
		c := *r
		key := r.Local.String() + r.Peer.String()
		if r.Side == observe.Served {
			key = r.Peer.String() + r.Local.String()
		}
		if both[key] == nil {
			both[key] = &ends{}
		}
		if r.Side == observe.Served {
			both[key].served = &c
		} else {
			both[key].called = &c
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	pairs := 0
	for _, e := range both {
		if e.called == nil || e.served == nil {
			continue
		}
		pairs++
		if e.called.TotalNS() < e.served.TotalNS()-e.served.Ledger[observe.Network] || e.called.StartNS > e.served.StartNS {
			t.Fatalf("called %d ns from %d, served %d ns from %d", e.called.TotalNS(), e.called.StartNS, e.served.TotalNS(), e.served.StartNS)
		}
	}
	if pairs < 20 {
		t.Errorf("%d requests have both ends", pairs)
	}
}

func TestTheSameSeedIsTheSameFleet(t *testing.T) {
	sum := func(seed uint64) (n uint64) {
		f := simulate.New(simulate.Options{Hosts: 12, Seed: seed})
		for at := int64(1_790_000_000); at < 1_790_000_030; at++ {
			f.Second(at, func(p *fleet.Point) { n = n*31 + uint64(p.TotalUS) + p.Requests })
		}
		return n
	}
	first := sum(1)
	if again := sum(1); again != first {
		t.Error("two runs differ")
	}
	if first == sum(2) {
		t.Error("two seeds do not differ")
	}
}
