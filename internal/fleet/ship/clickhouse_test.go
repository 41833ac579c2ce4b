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
	a := &agent{t: t, dir: t.TempDir(), to: url + "&linger=0s", plan: always} // batches as small as they can be
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
		here := recorded(t, a.home(i))
		there := a.arrived(one, "killed", i)
		if !slices.Equal(there.requests, here.requests) {
			t.Errorf("history %d: %d requests are there, %d here, and they are not the same", i, len(there.requests), len(here.requests))
		}
		if there.inSeconds != here.inSeconds {
			t.Errorf("history %d: %d requests in seconds there, %d here", i, there.inSeconds, here.inSeconds)
		}
		total += len(there.requests)
	}
	for i, s := range []*clickhousetest.Server{one, two} {
		if n := ask(t, s.HTTP, "SELECT count() FROM killed.requests_local"); n[0] == "0" {
			t.Errorf("shard %d has nothing: it was not tested", i+1)
		}
	}
	t.Logf("%d requests", total)
}

// content is what there is of a history: the numbers of its requests, and the sum of
// the requests of its seconds.
type content struct {
	requests  []int
	seconds   int
	inSeconds uint64
}

func (a *agent) home(i int) string { return filepath.Join(a.dir, strconv.Itoa(i)) }

// recorded is what is in a history here, in the order of its numbers.
func recorded(t *testing.T, dir string) (c content) {
	t.Helper()
	r, err := store.OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Requests(store.Query{}, func(q *store.Request) bool {
		c.requests = append(c.requests, int(q.Seq))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(c.requests)
	if err := r.Points(store.Query{}, time.Second, func(s *store.Second) bool {
		c.seconds++
		c.inSeconds += s.Endpoint.Requests
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return c
}

// arrived is what a server has of a history in a database, in the order of its positions.
func (a *agent) arrived(server *clickhousetest.Server, database string, i int) (c content) {
	a.t.Helper()
	id, err := os.ReadFile(filepath.Join(a.home(i), idName))
	if err != nil {
		a.t.Fatal(err)
	}
	where := fmt.Sprintf(" FROM %s.%%s WHERE history = '%s'", database, strings.TrimSpace(string(id)))
	for _, text := range ask(a.t, server.HTTP, "SELECT seq"+fmt.Sprintf(where, "requests")+" ORDER BY position") {
		n, err := strconv.Atoi(text)
		if err != nil {
			a.t.Fatal(err)
		}
		c.requests = append(c.requests, n)
	}
	sums := ask(a.t, server.HTTP, "SELECT count(), sum(requests)"+fmt.Sprintf(where, "seconds"))
	if len(sums) != 2 {
		a.t.Fatalf("sums are %q", sums)
	}
	c.seconds, _ = strconv.Atoi(sums[0])
	c.inSeconds, _ = strconv.ParseUint(sums[1], 10, 64)
	return c
}
