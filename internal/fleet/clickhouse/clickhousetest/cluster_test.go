package clickhousetest

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func ask(t *testing.T, address, query string) string {
	t.Helper()
	resp, err := http.Post("http://"+address+"/?"+url.Values{"query": {query}}.Encode(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", query, resp.Status, b, err)
	}
	return strings.TrimSpace(string(b))
}

func TestShardComesBackWithItsData(t *testing.T) {
	c := ForTest(t, Layout{Shards: 2})
	for _, replicas := range c.Servers {
		ask(t, replicas[0].HTTP, "CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
		ask(t, replicas[0].HTTP, "INSERT INTO t VALUES (1), (2)")
		ask(t, replicas[0].HTTP, "CREATE TABLE all AS t ENGINE = Distributed("+ClusterName+", default, t)")
	}
	victim := c.Servers[1][0]
	victim.Kill()
	if err := victim.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, c.Servers[0][0].HTTP, "SELECT count() FROM all"); got != "4" {
		t.Errorf("both shards have %s rows together, want 4", got)
	}
}

func TestModernEngineTakesAndGives(t *testing.T) {
	m := ModernForTest(t)
	ask(t, m.HTTP, "CREATE TABLE default.t (a Int64 CODEC(Delta, LZ4)) ENGINE = MergeTree ORDER BY a")
	ask(t, m.HTTP, "INSERT INTO default.t VALUES (1), (2)")
	if got := ask(t, m.HTTP, "SELECT sum(a) FROM default.t"); got != "3" {
		t.Errorf("sum is %s, want 3", got)
	}
}

func TestReplicaThatWasDeadCatchesUp(t *testing.T) {
	c := ForTest(t, Layout{Replicas: 2})
	a, b := c.Servers[0][0], c.Servers[0][1]
	for _, s := range []*Server{a, b} {
		ask(t, s.HTTP, "CREATE TABLE t (a Int64) ENGINE = ReplicatedMergeTree('/clickhouse/{shard}/t', '{replica}') ORDER BY a")
	}
	b.Kill()
	ask(t, a.HTTP, "INSERT INTO t VALUES (1), (2)")
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask(t, b.HTTP, "SYSTEM SYNC REPLICA t")
	if got := ask(t, b.HTTP, "SELECT count() FROM t"); got != "2" {
		t.Errorf("the replica has %s rows, want 2", got)
	}
}
