package clickhouse

import (
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// Two hosts with one history hear of each other; one that was given another name does not.
func TestTwoHostsOfOneHistoryAreTold(t *testing.T) {
	url := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2}).URL("slowray")
	initAll(t, url, nil)
	hello := func(db *DB, name string, minute int) error {
		h := *hostNumber(1)
		h.Name = name
		return db.Hello(t.Context(), &h, noon.Add(time.Duration(minute)*time.Minute))
	}
	process := func() *DB {
		db, err := Open(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	first, minute := process(), 0
	for ; minute < 3; minute++ {
		if err := hello(first, "it's <one>\n", minute); err != nil {
			t.Fatal(err)
		}
	}
	renamed := process()
	for range 12 {
		if err := hello(renamed, "two", minute); err != nil {
			t.Fatalf("a host that was given another name: %v", err)
		}
		minute++
	}
	// The first one again, as from a copy, next to the second.
	first = process()
	var told [2]error
	for range 12 {
		for i, db := range []*DB{first, renamed} {
			if err := hello(db, []string{"it's <one>\n", "two"}[i], minute); err != nil {
				told[i] = err
			}
		}
		minute++
	}
	for i, want := range []string{`"two"`, `"it's <one>\n"`} {
		if err := told[i]; err == nil || fleet.Temporary(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), hostNumber(1).ID) {
			t.Errorf("host %d is reported %v", i+1, err)
		}
	}
	// When it is gone nothing is reported any more.
	for i := range 30 {
		if err := hello(renamed, "two", minute); err != nil && i > 5 {
			t.Fatalf("after the other was gone: %v", err)
		}
		minute++
	}
}
