package clickhouse

import (
	"strings"
	"testing"

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
			if _, said = initAll(t, url, nil); !strings.Contains(strings.Join(said, "\n"), "are there (version 1)") {
				t.Errorf("said %q the second time", said)
			}
			cl := newClient(c)
			set, err := cl.settings(t.Context(), c.Shards[0][0], Plain)
			if err != nil || set["retention_days"] != "7" || set["schema"] != "1" {
				t.Errorf("settings %v, %v", set, err)
			}
		})
	}
}
