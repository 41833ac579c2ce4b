package clickhouse

import (
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/store"
)

func TestOldDaysAreDropped(t *testing.T) {
	url := clickhousetest.ForTest(t, clickhousetest.Layout{}).URL("slowray")
	cfg, _ := initAll(t, url, nil)
	db := New(cfg)
	defer db.Close()
	ctx, h := t.Context(), hostNumber(1)
	day := 24 * time.Hour
	for i, back := range []time.Duration{30 * day, 8 * day, 6 * day, 0} {
		list := newTraffic(1).requests(3, noon.Add(-back))
		if err := db.Send(ctx, requestBatch(h, fleet.Position(1+3*i), list)); err != nil {
			t.Fatal(err)
		}
		secs := []store.Second{secondOf(noon.Add(-back).Unix(), list)}
		if err := db.Send(ctx, secondBatch(h, fleet.Position(1+i), secs)); err != nil {
			t.Fatal(err)
		}
	}
	initAll(t, url, nil) // nothing was said yet: all stays
	rows := func(table string) int {
		n, err := db.c.number(ctx, cfg.Shards[0][0], Plain, "SELECT count() AS n FROM "+table)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	if n := rows("requests"); n != 12 {
		t.Errorf("%d requests, want 12", n)
	}
	_, said := initAll(t, url, &Retention{7})
	for table, want := range map[string]int{"requests": 6, "seconds": 2, "seconds10": 3, "minutes5": 4} {
		if n := rows(table); n != want {
			t.Errorf("%s has %d rows, want %d (%q)", table, n, want, said)
		}
	}
	// A host that ships does the same when its hour has come.
	list := newTraffic(1).requests(3, noon.Add(-20*day))
	if err := db.Send(ctx, requestBatch(h, 100, list)); err != nil {
		t.Fatal(err)
	}
	if err := db.Hello(ctx, h, noon); err != nil {
		t.Fatal(err)
	}
	if n := rows("requests"); n != 9 {
		t.Errorf("%d requests before the hour has come, want 9", n)
	}
	if err := db.Hello(ctx, h, noon.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := rows("requests"); n != 6 {
		t.Errorf("%d requests, want 6", n)
	}
}

func TestPlainDay(t *testing.T) {
	for s, want := range map[string]bool{"2026-11-22": true, "2026-11-2": false, "2026-11-2'": false, "'; DROP --": false, "": false} {
		if plainDay(s) != want {
			t.Errorf("%q", s)
		}
	}
}
