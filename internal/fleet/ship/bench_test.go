package ship

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// request is one as a busy service has them.
func request(n int, start int64) store.Request {
	r := store.Request{Process: observe.Identity{Comm: "nginx", Cgroup: "/system.slice/nginx.service", Unit: "nginx.service"}}
	r.Side, r.StartNS, r.Seq, r.Requests, r.Weight, r.PID, r.TID = observe.Served, start, uint32(n%50), 1, 100, 1000+n%4, 1000+n%4
	r.NetNS, r.Status, r.HTTP, r.MSS = 4026531840, observe.StatusOK, 200, 1448
	r.Local = netip.MustParseAddrPort("10.0.0.1:8080")
	r.Peer = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n / 250), byte(n)}), uint16(32768+n%28000))
	r.BytesIn, r.BytesOut, r.RTTNS, r.MinRTTNS = 240, 4100, 151_000, 92_000
	r.Ledger[observe.RecvWait], r.Ledger[observe.Server], r.Ledger[observe.Network] = 15_000, 2_410_000, 160_000
	r.Followed = true
	r.Split[observe.ServerCPU], r.Split[observe.ServerRunq], r.Split[observe.ServerCall] = 400_000, 10_000, 2_000_000
	r.FirstByte = 2_425_000
	return r
}

// benchLog is a log of 100,000 requests.
func benchLog(b *testing.B) (dir folder, log uint64, limit int64) {
	b.Helper()
	const records = 100_000
	history := b.TempDir()
	dir = folder(filepath.Join(history, "linked"))
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		b.Fatal(err)
	}
	st, err := store.Open(history, store.Options{Segment: 24 * time.Hour, Links: []store.Link{{Dir: "linked"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { st.Close() })
	now := time.Now().UnixNano()
	for n := range records {
		r := request(n, now)
		st.AddRequest(&r)
		if n%20_000 == 19_999 {
			if err := st.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
	return dir, waiting(dir)[0].number, st.Durable("requests").Bytes
}

// BenchmarkShip is what a request record costs the agent without its target: its
// frame is read and checked, its batch is made, and it is decoded once.
func BenchmarkShip(b *testing.B) {
	dir, log, limit := benchLog(b)
	build := builder{stream: fleet.Requests}
	seen := 0
	b.ReportAllocs()
	b.ResetTimer()
	begun := processCPU()
	for seen < b.N {
		if err := build.open(dir, log, 1); err != nil {
			b.Fatal(err)
		}
		for seen < b.N {
			end, err := build.extend(limit, 0)
			if err != nil {
				b.Fatal(err)
			}
			var total int64
			for _, r := range build.fixed(nil).Requests {
				total += r.TotalNS()
				seen++
			}
			if total == 0 && !end {
				b.Fatal("nothing was read")
			}
			build.drop()
			if end {
				break
			}
		}
	}
	build.close()
	b.ReportMetric(float64(processCPU()-begun)/float64(b.N), "cpu-ns/op")
}

// BenchmarkShipToClickHouse is what a request record costs the agent all in all, until
// a real server has taken it: it reports the CPU time of this process alone.
func BenchmarkShipToClickHouse(b *testing.B) {
	c := clickhousetest.ForTest(b, clickhousetest.Layout{})
	cfg, err := clickhouse.Parse(c.URL("bench") + "&compress=lz4") // as over a network
	if err != nil {
		b.Fatal(err)
	}
	if err := clickhouse.Init(b.Context(), cfg, nil, func(string) {}); err != nil {
		b.Fatal(err)
	}
	db := clickhouse.New(cfg)
	defer db.Close()
	dir, log, limit := benchLog(b)
	build := builder{stream: fleet.Requests}
	host := &fleet.Host{Name: "bench"}
	b.ReportAllocs()
	b.ResetTimer()
	begun, seen := processCPU(), 0
	for round := 0; seen < b.N; round++ {
		host.ID = fmt.Sprintf("%08x-0000-4000-8000-%012x", b.N, round) // a history that is not there
		if err := build.open(dir, log, 1); err != nil {
			b.Fatal(err)
		}
		for end := false; !end && seen < b.N; {
			if end, err = build.extend(limit, 0); err != nil {
				b.Fatal(err)
			}
			if build.batch.Count == 0 {
				break
			}
			if err := db.Send(b.Context(), build.fixed(host)); err != nil {
				b.Fatal(err)
			}
			seen += build.batch.Count
			build.drop()
		}
	}
	build.close()
	b.ReportMetric(float64(processCPU()-begun)/float64(seen), "cpu-ns/op")
}
