package clickhouse

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// sinkServer takes inserts and throws them away.
func sinkServer(tb testing.TB) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	tb.Cleanup(srv.Close)
	return "clickhouse://" + strings.TrimPrefix(srv.URL, "http://") + "/slowray?dialect=plain&compress=lz4"
}

const benchBatch = 50_000

// BenchmarkEncode is what a request costs until it stands in LZ4 frames.
func BenchmarkEncode(b *testing.B) {
	list := newTraffic(1).requests(benchBatch, noon)
	batch := requestBatch(hostNumber(1), 1, list)
	rows := newRequestRows("requests")
	raw, packed := 0, 0
	before := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		rows.reset()
		for p, r := range batch.Requests {
			rows.add(batch, p, r)
		}
		body, _, err := rows.encode(true)
		if err != nil {
			b.Fatal(err)
		}
		packed = len(body)
	}
	if body, _, err := rows.encode(false); err == nil {
		raw = len(body)
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/benchBatch, "cpu-ns/record")
	b.ReportMetric(float64(packed)/benchBatch, "bytes/record")
	b.ReportMetric(float64(raw)/benchBatch, "raw-bytes/record")
}

// BenchmarkAppend is what of it the columns take.
func BenchmarkAppend(b *testing.B) {
	list := newTraffic(1).requests(benchBatch, noon)
	batch := requestBatch(hostNumber(1), 1, list)
	rows := newRequestRows("requests")
	before := cpuTime(b)
	for b.Loop() {
		rows.reset()
		for p, r := range batch.Requests {
			rows.add(batch, p, r)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/benchBatch, "cpu-ns/record")
}

// BenchmarkSend is all that an agent does for a request: encoding, compressing and
// sending it. The server at the other end, which throws it away, is in the figure.
func BenchmarkSend(b *testing.B) {
	db, err := Open(sinkServer(b))
	if err != nil {
		b.Fatal(err)
	}
	list := newTraffic(1).requests(benchBatch, noon)
	first := fleet.Position(1)
	before := cpuTime(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := db.Send(b.Context(), requestBatch(hostNumber(1), first, list)); err != nil {
			b.Fatal(err)
		}
		first += benchBatch
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/benchBatch, "cpu-ns/record")
}

// BenchmarkIngest sends requests into two shards of 18.16 on this machine, from hosts
// that share its cores with the servers, until the rows are there. The servers' CPU
// time has their merges in it.
func BenchmarkIngest(b *testing.B) {
	for _, size := range []int{1000, 20_000, 100_000} {
		for _, compress := range []string{"lz4", "none"} {
			b.Run(fmt.Sprintf("batch=%d/%s", size, compress), func(b *testing.B) { benchmarkIngest(b, size, compress) })
		}
	}
}

func benchmarkIngest(b *testing.B, size int, compress string) {
	c := clickhousetest.ForTest(b, clickhousetest.Layout{Shards: 2})
	url := c.URL("slowray") + "&compress=" + compress
	cfg, _ := initAll(b, url, nil)
	list := newTraffic(1).requests(size, noon)
	var dbs []*DB
	var hosts []*fleet.Host
	// Two hosts for each shard: one makes a batch while the other's is taken.
	for i := range 4 {
		db := New(cfg)
		defer db.Close()
		h := hostNumber(i)
		for k := i; db.shardOf(h) != i%2; k++ {
			h = hostNumber(k)
		}
		dbs, hosts = append(dbs, db), append(hosts, h)
	}
	atServers := func() (d time.Duration) {
		for _, replicas := range c.Servers {
			d += processTime(b, replicas[0].PID())
		}
		return d
	}
	before, beforeServers := cpuTime(b), atServers()
	sent := 0
	first := fleet.Position(1)
	for b.Loop() {
		var wg sync.WaitGroup
		for i, db := range dbs {
			wg.Go(func() {
				for k := i / 2 * 4; k < i/2*4+4; k++ {
					if err := db.Send(b.Context(), requestBatch(hosts[i], first+fleet.Position(k*size), list)); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		first += fleet.Position(8 * size)
		sent += 16 * size
	}
	took, agents := b.Elapsed(), cpuTime(b)-before
	settled(b, dbs[0])
	b.ReportMetric(float64(sent)/took.Seconds(), "records/s")
	b.ReportMetric(float64(agents.Nanoseconds())/float64(sent), "agent-cpu-ns/record")
	b.ReportMetric(float64((atServers()-beforeServers).Nanoseconds())/float64(sent), "server-cpu-ns/record")
	n, err := dbs[0].c.number(b.Context(), cfg.Shards[0][0], Plain, "SELECT count() AS n FROM requests")
	if err != nil || int(n) != sent {
		b.Errorf("%d rows of %d (%v)", n, sent, err)
	}
	disk, err := dbs[0].c.number(b.Context(), cfg.Shards[0][0], Plain, "SELECT sum(bytes) AS n FROM system.parts WHERE active AND table = 'requests_local'")
	rows, err2 := dbs[0].c.number(b.Context(), cfg.Shards[0][0], Plain, "SELECT sum(rows) AS n FROM system.parts WHERE active AND table = 'requests_local'")
	if err == nil && err2 == nil && rows > 0 {
		b.ReportMetric(float64(disk)/float64(rows), "disk-bytes/record")
	}
}

// BenchmarkQuantiles asks for the p99 of each service over an hour, of 20 endpoints on
// each host with 150 buckets in each five minutes, in two shards of 18.16.
func BenchmarkQuantiles(b *testing.B) {
	c := clickhousetest.ForTest(b, clickhousetest.Layout{Shards: 2})
	for _, hosts := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			database := fmt.Sprintf("hosts%d", hosts)
			cfg, _ := initAll(b, c.URL(database), nil)
			db := New(cfg)
			defer db.Close()
			for shard, replicas := range cfg.Shards {
				// Rows as the views make them: number = (host * 12 + slot) * 20 + endpoint.
				fill := fmt.Sprintf(`INSERT INTO minutes5_local (day, time, service, host, history, seconds, side, addr, port, requests, total_us, total_histMap.bucket, total_histMap.n)
SELECT toDate(%[1]d), toDateTime(%[1]d + intDiv(number, 20) %% 12 * 300), concat('service-', toString(number %% 20), ':80'), concat('host-', toString(intDiv(number, 240) * 2 + %[2]d)), '', 300, 'served', '10.0.0.1', 80,
6000, 6000000, arrayMap(x -> toUInt16(300 + number %% 50 + x), range(150)), arrayMap(x -> toUInt64(1 + x), range(150)) FROM system.numbers LIMIT %[3]d`, noon.Unix(), shard, hosts/2*240)
				if err := db.c.exec(b.Context(), replicas[0], database, fill); err != nil {
					b.Fatal(err)
				}
			}
			q := fleet.Question{From: noon, To: noon.Add(time.Hour)}
			servers := func() (d time.Duration) {
				for _, replicas := range c.Servers {
					d += processTime(b, replicas[0].PID())
				}
				return d
			}
			before := servers()
			for b.Loop() {
				all, err := db.Quantiles(b.Context(), q, []float64{0.5, 0.99})
				if err != nil || len(all) != 20 || all[0].Hosts != hosts {
					b.Fatalf("%d services, %+v, %v", len(all), all[0], err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/question")
			b.ReportMetric((servers()-before).Seconds()/float64(b.N), "server-cpu-s/question")
		})
	}
}

// BenchmarkPoints asks for one second of 1,000 hosts with 20 endpoints each, as
// slowray fleet watch does each second, of a minute in two shards of 18.16.
func BenchmarkPoints(b *testing.B) {
	const hosts, seconds = 1000, 60
	c := clickhousetest.ForTest(b, clickhousetest.Layout{Shards: 2})
	cfg, _ := initAll(b, c.URL("slowray"), nil)
	db := New(cfg)
	defer db.Close()
	for shard, replicas := range cfg.Shards {
		// number = (second * hosts/2 + host) * 20 + endpoint
		fill := fmt.Sprintf(`INSERT INTO seconds_local (day, time, start_us, service, host, history, position, batch, seconds, side, addr, port, requests, total_us, ledger_server_us, total_histMap.bucket, total_histMap.n)
SELECT toDate(%[1]d), toDateTime(%[1]d + intDiv(number, %[3]d)) AS moment, toInt64(toUInt32(moment)) * 1000000, concat('service-', toString(number %% 20), ':80'), concat('host-', toString(intDiv(number, 20) %% %[4]d * 2 + %[2]d)), concat('history-', toString(intDiv(number, 20) %% %[4]d * 2 + %[2]d)),
number + 1, number + 1, 1, 'served', '10.0.0.1', 80 + number %% 20, 20, 20000, 15000, arrayMap(x -> toUInt16(300 + number %% 50 + x * 3), range(15)), arrayMap(x -> toUInt64(1 + x %% 2), range(15)) FROM system.numbers LIMIT %[5]d`,
			noon.Unix(), shard, hosts/2*20, hosts/2, hosts/2*20*seconds)
		if err := db.c.exec(b.Context(), replicas[0], "slowray", fill); err != nil {
			b.Fatal(err)
		}
	}
	settled(b, db)
	servers := func() (d time.Duration) {
		for _, replicas := range c.Servers {
			d += processTime(b, replicas[0].PID())
		}
		return d
	}
	before, here, at := servers(), cpuTime(b), 0
	for b.Loop() {
		n := 0
		from := noon.Add(time.Duration(at%seconds) * time.Second)
		err := db.Points(b.Context(), fleet.Question{From: from, To: from.Add(time.Second)}, time.Second, func(*fleet.Point) bool { n++; return true })
		if err != nil || n != hosts*20 {
			b.Fatalf("%d points, %v", n, err)
		}
		at++
	}
	b.ReportMetric((cpuTime(b)-here).Seconds()/float64(b.N), "cpu-s/question")
	b.ReportMetric((servers()-before).Seconds()/float64(b.N), "server-cpu-s/question")
}
