package clickhouse

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/memory"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// TestTotalsAndPlacesAreThoseOfMemory: over ranges that fall on whole steps and that do not.
func TestTotalsAndPlacesAreThoseOfMemory(t *testing.T) {
	engines(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		want := new(memory.Archive)
		const hosts, seconds = 2, 340
		for i := range hosts {
			h := hostNumber(i)
			tr := newTraffic(uint64(i + 1))
			var list []store.Second
			for at := noon.Unix(); at < noon.Unix()+seconds; at++ {
				by := map[uint16][]store.Request{}
				for _, r := range tr.requests(20, time.Unix(at, 0)) {
					by[r.Local.Port()] = append(by[r.Local.Port()], r)
				}
				for port, requests := range by {
					s := secondOf(at, requests)
					switch {
					case port == 8001 && at%2 == 0: // another process of the same endpoint
						s.Process.Cgroup += "/worker"
					case port == 8002:
						s.Process.Cgroup, s.Process.Container, s.Process.ContainerName = "", "", ""
					case port == 8003 && at%3 == 0: // one of which nothing is known
						s.Process.Cgroup = ""
					}
					want.AddSecond(h.Name, &s)
					list = append(list, s)
				}
			}
			for from := 0; from < len(list); from += 700 {
				if err := db.Send(ctx, secondBatch(h, fleet.Position(1+from), list[from:min(from+700, len(list))])); err != nil {
					t.Fatal(err)
				}
			}
		}
		totals := func(a fleet.Archive, q fleet.Question) map[fleet.Key]*fleet.Total {
			all := map[fleet.Key]*fleet.Total{}
			if err := a.Totals(ctx, q, func(x *fleet.Total) bool {
				if all[x.Key] != nil {
					t.Errorf("%+v comes twice", x.Key)
				}
				all[x.Key] = x
				return true
			}); err != nil {
				t.Fatal(err)
			}
			return all
		}
		for _, q := range []fleet.Question{
			{From: noon, To: noon.Add(seconds * time.Second)},
			{From: noon.Add(3 * time.Second), To: noon.Add(327 * time.Second)},
			{From: noon, To: noon.Add(time.Hour), Host: hostNumber(1).Name, Service: "docker-0:8000", Side: observe.Served},
			{},
		} {
			x, y := totals(want, q), totals(db, q)
			if len(x) != len(y) || len(x) == 0 {
				t.Fatalf("%d endpoints, want %d", len(y), len(x))
			}
			for k, w := range x {
				g := y[k]
				if g == nil || g.Requests != w.Requests || g.Errors != w.Errors || g.Segments != w.Segments || g.Retrans != w.Retrans || g.TotalUS != w.TotalUS || g.Times.Count() != w.Times.Count() {
					t.Fatalf("%+v: %+v, want %+v", k, g, w)
				}
				for _, quantile := range []float64{0.5, 0.99, 1} {
					if a, b := g.Times.Quantile(quantile)/1000, w.Times.Quantile(quantile)/1000; a < b-1 || a > b+1 {
						t.Errorf("%+v: quantile %g is %d µs, want %d", k, quantile, a, b)
					}
				}
			}
		}
		if err := db.Totals(ctx, fleet.Question{}, func(*fleet.Total) bool { return false }); err != nil {
			t.Error(err)
		}
		for _, q := range []fleet.Question{{From: noon, To: noon.Add(time.Minute)}, {}, {Host: "nobody"}} {
			x, err := want.Places(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			y, err := db.Places(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(x, y); d != "" {
				t.Errorf("(-memory +ClickHouse)\n%s", d)
			}
		}
	})
}
