package answer

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// BenchmarkLook looks at a quarter of an hour of 1,000 hosts with 20 endpoints each in two
// shards, first anew and then as a page that is open does, ten seconds later each time:
//
//	go test ./internal/fleet/answer -run '^$' -bench Look -benchtime 5x
func BenchmarkLook(b *testing.B) {
	const hosts, endpoints = 1000, 20
	cluster := clickhousetest.ForTest(b, clickhousetest.Layout{Shards: 2, Tidy: true})
	cfg, err := clickhouse.Parse(cluster.URL("slowray"))
	if err != nil {
		b.Fatal(err)
	}
	if err := clickhouse.Init(b.Context(), cfg, nil, func(string) {}); err != nil {
		b.Fatal(err)
	}
	db := clickhouse.New(cfg)
	defer db.Close()
	now := time.Now().Truncate(5 * time.Minute)
	for i := range hosts {
		h := &fleet.Host{Name: fmt.Sprintf("host-%d", i), ID: fmt.Sprintf("id-%d", i), Addresses: []string{fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)}}
		if i < 50 { // the others are known by their figures
			if err := db.Hello(b.Context(), h, now); err != nil {
				b.Fatal(err)
			}
		}
	}
	fill := func(table string, seconds, from, to int64) {
		// Half of the endpoints are served. The rows are made by the servers, each its half
		// of the hosts.
		for shard, server := range cluster.Servers {
			statement := fmt.Sprintf(`INSERT INTO slowray.%[1]s_local (day, time, service, host, history, seconds, side, addr, port, comm, cgroup, requests, ok, total_us, ledger_server_us, segments, total_histMap.bucket, total_histMap.n)
SELECT toDate(toDateTime(at)), toDateTime(at), if(called, concat('svc', toString((h * 7 + e) %% 40)), concat('svc', toString((h * 7 + e) %% 40), ':', toString(8000 + e))), concat('host-', toString(h)), concat('id-', toString(h)), %[2]d,
CAST(if(called, 'called', 'served') AS Enum8('served' = 1, 'called' = 2)), if(called, concat('10.1.', toString(intDiv((h * 13 + e) %% 1000, 250)), '.', toString((h * 13 + e) %% 250 + 1)), concat('10.1.', toString(intDiv(h, 250)), '.', toString(h %% 250 + 1))), toUInt16(8000 + e),
concat('svc', toString((h * 7 + e) %% 40)), '/system.slice/svc.service', toUInt64(n), toUInt64(n), toInt64(n * (2000 + e * 100)), toInt64(n * (2000 + e * 100)), toUInt64(2 * n), arrayMap(i -> toUInt16(380 + e + i), range(20)), arrayMap(i -> toUInt64(intDiv(n, 20)), range(20))
FROM (SELECT intDiv(number, %[3]d) * 2 %% 1000 + %[4]d AS h, number %% 20 >= 10 AS called, number %% 10 AS e, %[5]d + intDiv(number, %[3]d * 500) * %[2]d AS at, %[2]d * (20 + cityHash64(number) %% 3) AS n FROM system.numbers LIMIT %[6]d)`,
				table, seconds, endpoints, shard, from, (to-from)/seconds*hosts/2*endpoints)
			resp, err := http.Post("http://"+server[0].HTTP+"/?max_insert_block_size=200000", "text/plain", strings.NewReader(statement))
			if err != nil {
				b.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.Fatalf("%s", text)
			}
		}
	}
	const later = 10 * time.Second
	end := now.Add(5 * time.Minute)
	fill("minutes5", 300, now.Add(-7*time.Hour).Unix(), end.Unix())
	fill("seconds10", 10, now.Add(-31*time.Minute).Unix(), end.Unix())
	l := NewLooker(db)
	at := now
	look := func() {
		v, err := l.Look(b.Context(), Question{From: at.Add(-15 * time.Minute), To: at, Progress: func(string, float64) {}})
		if err != nil {
			b.Fatal(err)
		}
		if n := v.Report.Fleet.Endpoints; n != hosts*endpoints {
			b.Fatalf("%d endpoints", n)
		}
		at = at.Add(later)
	}
	began := time.Now()
	look()
	first := time.Since(began)
	for b.Loop() {
		look()
	}
	b.ReportMetric(first.Seconds(), "s-first")
}
