package clickhouse

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/store"
)

// hostRecords is what all hosts send together in one round of BenchmarkHosts.
const hostRecords = 100_000

// BenchmarkHosts is what a record costs by the number of hosts that send it: each
// round is as many records of all together, a batch of each host, to two shards of
// 18.16. With "gateway" one is between, and its CPU is in the agents'.
func BenchmarkHosts(b *testing.B) {
	for _, way := range []string{"direct", "gateway"} {
		for _, stream := range []fleet.Stream{fleet.Requests, fleet.Seconds} {
			for _, hosts := range []int{10, 100, 1000} {
				b.Run(fmt.Sprintf("%s/%s/hosts=%d", way, stream, hosts), func(b *testing.B) { benchmarkHosts(b, way, stream, hosts) })
			}
		}
	}
}

func benchmarkHosts(b *testing.B, way string, stream fleet.Stream, hosts int) {
	c := clickhousetest.ForTest(b, clickhousetest.Layout{Shards: 2})
	url := c.URL("slowray")
	initAll(b, url, nil)
	if way == "gateway" {
		url, _, _ = frontOf(b, url, "127.0.0.1:0", 200*time.Millisecond)
	}
	cfg := mustParse(b, url)
	records := hostRecords
	if stream == fleet.Seconds {
		records /= 10 // 20 endpoints of 1,000 hosts are 20,000 a second
	}
	each := records / hosts
	list := newTraffic(1).requests(each, noon)
	var secs []store.Second
	for i := range each {
		secs = append(secs, secondOf(noon.Unix()+int64(i/20), list[i:min(i+5, each)]))
	}
	dbs := make([]*DB, hosts)
	for i := range dbs {
		dbs[i] = New(cfg)
		defer dbs[i].Close()
		if _, err := dbs[i].speaks(b.Context(), cfg.Shards[0][0]); err != nil {
			b.Fatal(err)
		}
	}
	servers := func() (d time.Duration) {
		for _, replicas := range c.Servers {
			d += processTime(b, replicas[0].PID())
		}
		return d
	}
	// Hosts do not send all at once, and a server takes so many queries at a time.
	slots := make(chan struct{}, map[string]int{"direct": 64, "gateway": hosts}[way])
	before, atServers, sent, round := cpuTime(b), servers(), 0, 0
	for b.Loop() {
		var wg sync.WaitGroup
		for i, db := range dbs {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				batch := requestBatch(hostNumber(i), fleet.Position(1+round*each), list)
				if stream == fleet.Seconds {
					batch = secondBatch(hostNumber(i), fleet.Position(1+round*each), secs)
				}
				if err := db.Send(b.Context(), batch); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		sent += each * hosts
		round++
	}
	took, agents := b.Elapsed(), cpuTime(b)-before
	settled(b, dbs[0])
	b.ReportMetric(float64(sent)/took.Seconds(), "records/s")
	b.ReportMetric(float64(agents.Nanoseconds())/float64(sent), "agent-cpu-ns/record")
	b.ReportMetric(float64((servers()-atServers).Nanoseconds())/float64(sent), "server-cpu-ns/record")
	n, err := dbs[0].c.number(b.Context(), cfg.Shards[0][0], Plain, "SELECT count() AS n FROM "+string(stream))
	if err != nil || int(n) != sent {
		b.Errorf("%d rows of %d (%v)", n, sent, err)
	}
}

// settled waits until no server merges any more, ten seconds at most: what is put off
// is part of the price.
func settled(b *testing.B, db *DB) {
	quiet := 0
	for end := time.Now().Add(10 * time.Second); quiet < 3 && time.Now().Before(end); quiet++ {
		time.Sleep(100 * time.Millisecond)
		for _, replicas := range db.cfg.Shards {
			n, err := db.c.number(b.Context(), replicas[0], Plain, "SELECT count() AS n FROM system.merges")
			if err != nil {
				b.Fatal(err)
			}
			if n > 0 {
				quiet = -1
			}
		}
	}
}
