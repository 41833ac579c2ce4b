package answer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/store"
)

// shipped is what each host shipped, to be sent to another archive too.
type shipped struct {
	hosts    map[string]*fleet.Host
	last     map[string]time.Time
	seconds  map[string][]store.Second
	requests map[string][]store.Request
	findings map[string][]store.Finding
}

func newShipped() *shipped {
	return &shipped{map[string]*fleet.Host{}, map[string]time.Time{}, map[string][]store.Second{}, map[string][]store.Request{}, map[string][]store.Finding{}}
}

// send sends all of it, in batches.
func (x *shipped) send(ctx context.Context, to fleet.Target) error {
	for name, h := range x.hosts {
		if err := to.Hello(ctx, h, x.last[name]); err != nil {
			return err
		}
		if err := batches(ctx, to, h, fleet.Seconds, x.seconds[name], func(b *fleet.Batch, part []store.Second) {
			b.Seconds = func(yield func(fleet.Position, *store.Second) bool) { each(b.First, part, yield) }
		}); err != nil {
			return err
		}
		if err := batches(ctx, to, h, fleet.Requests, x.requests[name], func(b *fleet.Batch, part []store.Request) {
			b.Requests = func(yield func(fleet.Position, *store.Request) bool) { each(b.First, part, yield) }
		}); err != nil {
			return err
		}
		if err := batches(ctx, to, h, fleet.Findings, x.findings[name], func(b *fleet.Batch, part []store.Finding) {
			b.Findings = func(yield func(fleet.Position, *store.Finding) bool) { each(b.First, part, yield) }
		}); err != nil {
			return err
		}
	}
	return nil
}

func each[T any](first fleet.Position, list []T, yield func(fleet.Position, *T) bool) {
	for i := range list {
		if !yield(first+fleet.Position(i), &list[i]) {
			return
		}
	}
}

func batches[T any](ctx context.Context, to fleet.Target, h *fleet.Host, s fleet.Stream, list []T, set func(*fleet.Batch, []T)) error {
	position := fleet.Position(1)
	for part := range slices.Chunk(list, 5000) {
		b := &fleet.Batch{Host: h, Stream: s, First: position, Last: position + fleet.Position(len(part)) - 1, Count: len(part), Day: int(began / 86400)}
		set(b, part)
		if err := to.Send(ctx, b); err != nil {
			return err
		}
		position = b.Last + 1
	}
	return nil
}

// TestSameFromClickHouse: two shards of a real server give the report that memory gives.
func TestSameFromClickHouse(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	url := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2}).URL("slowray")
	cfg, err := clickhouse.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := clickhouse.Init(t.Context(), cfg, nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	db := clickhouse.New(cfg)
	defer db.Close()
	w := newWorld(4)
	w.shipped = newShipped()
	w.db = step(600, 45*time.Millisecond)
	w.run(700)
	w.find("db-7", "fsync-bound", "Requests wait for fsync.", onDisk, 0.93, 600)
	w.find("web-1", "time-wait", "TIME_WAIT.", cause.Subject{Kind: "namespace", NetNS: 4026531840}, 0.1, 630)
	if err := w.shipped.send(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	want := w.why(t, 300, 700)
	one(t, want)
	got, err := Why(t.Context(), db, Question{From: moment(300), To: moment(700)})
	if err != nil {
		t.Fatal(err)
	}
	// A record's times are rounded to µs when it is stored, so figures differ a little.
	x, y := one(t, want), one(t, got)
	if x.Text != y.Text || !x.Since.Equal(y.Since) || *x.Origin != *y.Origin || len(x.Affected) != len(y.Affected) || len(x.Chain) != len(y.Chain) ||
		!slices.Equal(x.RuledOut, y.RuledOut) || want.Fleet != got.Fleet || !slices.Equal(want.NotTested, got.NotTested) || len(want.Findings) != len(got.Findings) {
		t.Errorf("in memory\n%s\nin ClickHouse\n%s", textOf(t, want), textOf(t, got))
	}
	watcher := NewWatcher(db, nil)
	if err := watcher.Learn(t.Context(), moment(590).Add(Settle)); err != nil {
		t.Fatal(err)
	}
	if events := watched(t, watcher, 600, 640); len(events) == 0 {
		t.Error("no onset is told")
	}
	if table, err := watcher.Table(t.Context()); err != nil || len(table.Services) != 3 || len(table.Hosts) != 5 {
		t.Errorf("table %+v, %v", table, err)
	}
}
