package clickhouse

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

func mustParse(t testing.TB, url string) *Config {
	t.Helper()
	c, err := Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func initAll(t testing.TB, url string, keep *Retention) (*Config, []string) {
	t.Helper()
	c := mustParse(t, url)
	var said []string
	if err := Init(t.Context(), c, keep, func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	return c, said
}

// Tables of before lack columns: they get them, and take rows again.
func TestInitAddsColumnsThatAreMissing(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"sharded": func(t *testing.T) string {
			return clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2}).URL("two")
		},
		"modern": func(t *testing.T) string { return clickhousetest.ModernForTest(t).URL("four") },
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			c, _ := initAll(t, url, nil)
			cl := newClient(c)
			for _, replicas := range c.Shards {
				tables := []string{c.local("requests")}
				if c.sharded() {
					tables = append(tables, "requests")
				}
				for _, table := range tables {
					for _, column := range []string{"rtt_us", "label"} {
						if err := cl.exec(t.Context(), replicas[0], c.Database, "ALTER TABLE "+table+" DROP COLUMN "+column); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			db := New(c)
			defer db.Close()
			batch := requestBatch(hostNumber(1), 1, newTraffic(1).requests(3, noon))
			if err := db.Send(t.Context(), batch); err == nil || fleet.Temporary(err) || !strings.Contains(Advice(err), "fleet init adds what is new") {
				t.Errorf("without them: %v", err)
			}
			_, said := initAll(t, url, nil)
			if n := map[bool]string{true: "4", false: "2"}[c.sharded()]; !strings.Contains(strings.Join(said, "\n"), n+" columns added") {
				t.Errorf("said %q", said)
			}
			if err := db.Send(t.Context(), batch); err != nil {
				t.Error(err)
			}
			if _, said = initAll(t, url, nil); strings.Contains(strings.Join(said, "\n"), "added") {
				t.Errorf("said %q the second time", said)
			}
		})
	}
}

func TestInitMakesTablesInEveryLayout(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) string{
		"single": func(t *testing.T) string { return clickhousetest.ForTest(t, clickhousetest.Layout{}).URL("one") },
		"sharded": func(t *testing.T) string {
			return clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2}).URL("two")
		},
		"replicated": func(t *testing.T) string {
			return clickhousetest.ForTest(t, clickhousetest.Layout{Replicas: 2}).URL("three")
		},
		"modern": func(t *testing.T) string { return clickhousetest.ModernForTest(t).URL("four") },
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			c, said := initAll(t, url, &Retention{7})
			if !strings.Contains(strings.Join(said, "\n"), "tables made") {
				t.Errorf("said %q", said)
			}
			if _, said = initAll(t, url, nil); !strings.Contains(strings.Join(said, "\n"), "are there (version 2)") {
				t.Errorf("said %q the second time", said)
			}
			cl := newClient(c)
			set, err := cl.settings(t.Context(), c.Shards[0][0], Plain)
			if err != nil || set["retention_days"] != "7" || set["schema"] != "2" {
				t.Errorf("settings %v, %v", set, err)
			}
			upgrade(t, url, c)
		})
	}
}

// upgrade takes away what version 2 added, and has Init put it back.
func upgrade(t *testing.T, url string, c *Config) {
	cl := newClient(c)
	for _, replicas := range c.Shards {
		for i, server := range replicas {
			names := []string{c.local("hosts")}
			if c.sharded() {
				names = append(names, "hosts")
			}
			for _, table := range names {
				if err := cl.exec(t.Context(), server, c.Database, "ALTER TABLE "+table+" DROP COLUMN programs"); err != nil && i == 0 {
					t.Fatal(err)
				}
			}
			// Later than what was noted just now: the latest counts.
			if err := cl.exec(t.Context(), server, c.Database, fmt.Sprintf("INSERT INTO slowray_settings (name, value, time) VALUES ('schema', '1', %d)", time.Now().Unix()+2)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, said := initAll(t, url, nil); !strings.Contains(strings.Join(said, "\n"), "made version 2 of version 1") {
		t.Errorf("said %q", said)
	}
	db := New(c)
	defer db.Close()
	h := &fleet.Host{Name: "web-1", ID: "id-1", Programs: map[string]fleet.Program{"nginx": {Image: "nginx:1@2", Config: "c"}}}
	if err := db.Hello(t.Context(), h, noon); err != nil {
		t.Fatal(err)
	}
	got, err := db.Hosts(t.Context())
	if err != nil || len(got) != 1 || !cmp.Equal(got[0].Programs, h.Programs) {
		t.Errorf("%+v, %v", got, err)
	}
}
