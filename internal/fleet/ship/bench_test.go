package ship

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
	"github.com/slowray/slowray/internal/store"
)

// request is one as a busy service has them.
func request(n int, start int64) store.Request {
	r := store.Request{Process: report.Process{Comm: "nginx", Cgroup: "/system.slice/nginx.service", Unit: "nginx.service"}}
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

// BenchmarkShip is what a request record costs the agent without its target: its
// frame is read and checked, its batch is made, and it is decoded once.
func BenchmarkShip(b *testing.B) {
	const records = 100_000
	dir := b.TempDir()
	d := &destination{dir: dir, shipper: &Shipper{}}
	st, err := store.Open(filepath.Join(dir, "history"), store.Options{Segment: 24 * time.Hour, Links: []store.Link{{Dir: dir}}})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
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
	log, limit := waiting(d.dir)[0], st.Durable("requests").Bytes
	build := builder{stream: fleet.Requests}
	seen := 0
	b.ReportAllocs()
	b.ResetTimer()
	begun := processCPU()
	for seen < b.N {
		if err := build.open(dir, log.number, 1); err != nil {
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
