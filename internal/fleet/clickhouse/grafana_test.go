package clickhouse

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// statements are those of the dashboard, by the title of the panel or the name of the
// variable they are for, as Grafana sends them.
func statements(t *testing.T, table string) map[string]string {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "grafana", "slowray-fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ RawSQL string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			all[v.Name] = v.Query
		}
	}
	for _, p := range board.Panels {
		if len(p.Targets) != 1 || p.Targets[0].RawSQL == "" || all[p.Title] != "" {
			t.Fatalf("panel %q: %+v", p.Title, p.Targets)
		}
		all[p.Title] = p.Targets[0].RawSQL
	}
	macros := strings.NewReplacer("$__fromTime", fmt.Sprintf("toDateTime(%d)", noon.Unix()), "$__toTime", fmt.Sprintf("toDateTime(%d)", noon.Unix()+3600),
		"$__interval_s", "30", "$table", table, "${service:singlequote}", "'docker-0.service','docker-1:8001','it\\'s'", "${side}", "served")
	for title, sql := range all {
		if all[title] = macros.Replace(sql); strings.Contains(all[title], "$") {
			t.Errorf("%s: a macro that this test does not know: %s", title, all[title])
		}
	}
	return all
}

// documented are the statements of docs/fleet-clickhouse.md.
func documented(t *testing.T) []string {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "fleet-clickhouse.md"))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for i, part := range strings.Split(string(text), "```sql\n") {
		if i > 0 {
			sql, _, _ := strings.Cut(part, "```")
			list = append(list, strings.TrimSuffix(strings.TrimSpace(sql), ";"))
		}
	}
	if len(list) == 0 {
		t.Error("docs/fleet-clickhouse.md has no SQL")
	}
	return list
}

func TestDashboardsStatementsRun(t *testing.T) {
	engines(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		h := hostNumber(1)
		var secs []store.Second
		tr := newTraffic(1)
		longest := int64(0)
		for k := range 60 {
			for _, r := range tr.requests(30, noon.Add(time.Duration(k)*time.Second)) {
				if r.Local.Port() == 8001 {
					secs = append(secs, secondOf(noon.Unix()+int64(k), []store.Request{r}))
					longest = max(longest, r.TotalNS()/1000)
				}
			}
		}
		if err := db.Send(ctx, secondBatch(h, 1, secs)); err != nil {
			t.Fatal(err)
		}
		f := findingAt(noon, "a cause")
		b := batchOf(h, "findings", 1, 1, noon)
		b.Findings = numbered(1, []store.Finding{f})
		if err := db.Send(ctx, b); err != nil {
			t.Fatal(err)
		}
		if err := db.Hello(ctx, h, noon); err != nil {
			t.Fatal(err)
		}
		server := db.cfg.Shards[0][0]
		event := fleet.Event{ID: "i1", At: noon, Kind: "onset", Text: "slow", Document: []byte(`{"endpoints":[{"host":"h'\u0000","service":"docker-1:8001","side":"served","addr":"::1","port":80,"signal":"total","value":2.5,"expected":1,"p":1e-9}]}`)}
		for range 2 { // by two who watch
			if err := db.AddEvents(ctx, []fleet.Event{event, {ID: "i2", At: noon, Kind: "end", Text: hostile[3], Document: []byte("no JSON")}}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := db.c.number(ctx, server, Plain, "SELECT count() AS n FROM anomalies FINAL WHERE host = 'h\\'\\0' AND value = 2.5 AND p < 1e-8 AND port = 80"); err != nil || n != 1 {
			t.Errorf("%d anomalies, want 1 (%v)", n, err)
		}
		if n, err := db.c.number(ctx, server, Plain, "SELECT count() AS n FROM events FINAL WHERE text = "+quote(hostile[3])+" OR id = 'i1'"); err != nil || n != 2 {
			t.Errorf("%d events, want 2 (%v)", n, err)
		}
		for i, sql := range documented(t) {
			if _, err := db.c.number(ctx, server, Plain, "SELECT count() AS n FROM ("+sql+")"); err != nil {
				t.Errorf("statement %d of docs/fleet-clickhouse.md: %v", i+1, err)
			}
		}
		for _, table := range []string{"seconds10", "minutes5"} {
			for title, sql := range statements(t, table) {
				n, err := db.c.number(ctx, server, Plain, "SELECT count() AS n FROM ("+sql+")")
				if err != nil || n == 0 && title != "service" {
					t.Errorf("%s: %d rows, %v", title, n, err)
				}
			}
		}
		// The quantiles of the panel are those of the buckets.
		sql := strings.Replace(statements(t, "minutes5")["99th percentile by service"], "(0.99)", "(1)", 1)
		n, err := db.c.number(ctx, server, Plain, "SELECT toUInt64(assumeNotNull(max(us))) AS n FROM ("+sql+")")
		if err != nil || float64(n) < 0.98*float64(longest) || float64(n) > 1.02*float64(longest) {
			t.Errorf("the slowest is %d µs, want %d within 2 %% (%v)", n, longest, err)
		}
	})
}
