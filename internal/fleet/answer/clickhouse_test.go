package answer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
	cluster := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := cluster.URL("slowray")
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
	events := watched(t, watcher, 600, 640)
	if len(events) == 0 {
		t.Error("no onset is reported")
	}
	keeps(t, db, cluster.Servers[1][0].HTTP, events)
	if table, err := watcher.Table(t.Context()); err != nil || len(table.Services) != 3 || len(table.Hosts) != 5 {
		t.Errorf("table %+v, %v", table, err)
	}
	withoutShard(t, cluster, db, want)
}

// withoutShard checks that, while a shard is away, there is an answer of what the other knows,
// which says what is missing; and that nobody gets part of an answer who did not ask for it.
func withoutShard(t *testing.T, cluster *clickhousetest.Cluster, db *clickhouse.DB, whole *Report) {
	t.Helper()
	gone := cluster.Servers[1][0]
	gone.Kill()
	all, err := clickhouse.Open(cluster.URL("slowray"))
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	if hosts, err := all.Hosts(t.Context()); err == nil || strings.Contains(err.Error(), "Log:") || !strings.Contains(clickhouse.Advice(err), "remote_servers") {
		t.Errorf("all of an archive that is half away: %+v, %v, advice %q", hosts, err, clickhouse.Advice(err))
	}
	q := Question{From: moment(300), To: moment(700)}
	missing := func(r *Report) bool {
		return slices.ContainsFunc(r.NotTested, func(u Unchecked) bool {
			return strings.Contains(u.What, "shard 2 ("+gone.HTTP+")") && u.Because != ""
		})
	}
	part, err := Why(t.Context(), db, q)
	if err != nil {
		t.Fatalf("%v (away: %q)", err, db.Absent())
	}
	if !missing(part) || part.Fleet.Hosts == 0 || part.Fleet.Hosts >= whole.Fleet.Hosts {
		t.Fatalf("%+v\n%s", part.Fleet, textOf(t, part))
	}
	if !part.Told().InPart || whole.Told().InPart {
		t.Error("the page does not know of which report some is missing")
	}
	looker := NewLooker(db)
	if v, err := looker.Look(t.Context(), q); err != nil || !missing(v.Report) {
		t.Errorf("the page: %v", err)
	}
	if err := gone.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	v, err := looker.Look(t.Context(), q)
	if err != nil || missing(v.Report) || v.Report.Fleet.Hosts != whole.Fleet.Hosts {
		t.Errorf("all are back: %v\n%s", err, textOf(t, v.Report))
	}
}

// keeps checks that what is reported is found in the archive's tables, once, whoever tells
// it and how often; server is one of another shard.
func keeps(t *testing.T, db fleet.EventStore, server string, events []Event) {
	t.Helper()
	var stored []fleet.Event
	told, odd := map[string]bool{}, map[string]bool{}
	for i := range events {
		e := &events[i]
		x, err := e.Stored()
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, x)
		told[fmt.Sprint(e.At.Unix(), e.ID, e.Kind)] = true
		for _, p := range e.Endpoints {
			if e.Kind != Over {
				odd[fmt.Sprint(e.At.Unix(), p.Host, p.Service, p.Side, p.Addr, p.Port, p.Signal)] = true
			}
		}
	}
	for range 2 {
		if err := db.AddEvents(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	}
	for query, want := range map[string]int{
		"SELECT count() FROM slowray.events FINAL WHERE text != '' AND document LIKE '{%'":                                     len(told),
		"SELECT count() FROM slowray.anomalies FINAL WHERE host != '' AND service != '' AND value > expected AND expected > 0": len(odd),
	} {
		resp, err := http.Post("http://"+server+"/", "text/plain", strings.NewReader(query))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := strings.TrimSpace(string(text)); err != nil || got != strconv.Itoa(want) || want == 0 {
			t.Errorf("%s: %s (%v), want %d", query, got, err, want)
		}
	}
}
