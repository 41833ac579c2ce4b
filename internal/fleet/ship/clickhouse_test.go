package ship

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/store"
)

// ask gives the rows that a server answers, of one column each.
func ask(t *testing.T, server, query string) []string {
	t.Helper()
	resp, err := http.Post("http://"+server+"/?max_result_rows=0", "text/plain", strings.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", query, text, err)
	}
	return strings.Fields(string(text))
}

// Two real shards and an agent with four histories; shards, the agent, and all of them
// are killed, and all is away for a while. In the end each durable record is there
// once, in order.
func TestClickHouseIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: kills of real ClickHouse servers take 20 s: NOT tested with -short")
	}
	c := clickhousetest.ForTest(t, clickhousetest.Layout{Shards: 2})
	url := c.URL("killed")
	cfg, err := clickhouse.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := clickhouse.Init(t.Context(), cfg, nil, func(string) {}); err != nil {
		t.Fatal(err)
	}
	one, two := c.Servers[0][0], c.Servers[1][0]
	restart := func(servers ...*clickhousetest.Server) {
		t.Helper()
		var all sync.WaitGroup
		for _, s := range servers {
			all.Go(func() {
				if err := s.Restart(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	a := &agent{t: t, dir: t.TempDir(), to: url + "&linger=0s"} // batches as small as they can be
	a.start()
	wait := func(d time.Duration) { time.Sleep(d) }
	wait(time.Second)
	one.Kill()
	wait(500 * time.Millisecond)
	a.kill()
	a.start()
	restart(one)
	wait(700 * time.Millisecond)
	two.Kill()
	a.kill()
	restart(two)
	a.start()
	wait(900 * time.Millisecond)
	one.Kill()
	two.Kill()
	wait(2500 * time.Millisecond) // an outage: logs rotate and become files
	a.kill()
	a.start()
	restart(one, two)
	wait(700 * time.Millisecond)
	t.Log(a.finish())

	total := 0
	for i := range histories {
		dir := filepath.Join(a.dir, strconv.Itoa(i))
		id, err := os.ReadFile(filepath.Join(dir, idName))
		if err != nil {
			t.Fatal(err)
		}
		r, err := store.OpenReader(dir)
		if err != nil {
			t.Fatal(err)
		}
		var want []int
		if err := r.Requests(store.Query{}, func(q *store.Request) bool {
			want = append(want, int(q.Seq))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		var seconds uint64
		if err := r.Points(store.Query{}, time.Second, func(s *store.Second) bool {
			seconds += s.Endpoint.Requests
			return true
		}); err != nil {
			t.Fatal(err)
		}
		where := fmt.Sprintf(" FROM killed.requests WHERE history = '%s'", strings.TrimSpace(string(id)))
		var got []int
		for _, text := range ask(t, one.HTTP, "SELECT seq"+where+" ORDER BY position") {
			n, _ := strconv.Atoi(text)
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("history %d: %d requests are there, %d here, and they are not the same", i, len(got), len(want))
		}
		total += len(got)
		sum := ask(t, one.HTTP, strings.Replace("SELECT sum(requests)"+where, "killed.requests", "killed.seconds", 1))
		if len(sum) != 1 || sum[0] != strconv.FormatUint(seconds, 10) {
			t.Errorf("history %d: %v requests in seconds there, %d here", i, sum, seconds)
		}
	}
	for i, s := range []*clickhousetest.Server{one, two} {
		if n := ask(t, s.HTTP, "SELECT count() FROM killed.requests_local"); n[0] == "0" {
			t.Errorf("shard %d has nothing: it was not tested", i+1)
		}
	}
	t.Logf("%d requests", total)
}
