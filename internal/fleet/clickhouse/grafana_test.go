package clickhouse

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		if err := db.c.exec(ctx, server, "slowray", fmt.Sprintf("INSERT INTO %s (day, time, host, service, side, signal, value) VALUES (toDate(%d), toDateTime(%d), 'h', 'docker-1:8001', 'served', 'total', 1)", db.cfg.local("anomalies"), dayOf(noon), noon.Unix())); err != nil {
			t.Fatal(err)
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
