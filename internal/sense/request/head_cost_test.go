package request

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// BenchmarkLabels measures what labels and traces cost a request, both of whose ends are
// recorded here, in the kernel and in user space: blocks of the same requests with the
// recorder as it is without labels and with them, in turn.
func BenchmarkLabels(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("SKIP: needs root")
	}
	client, server := pingPong(b, []byte("GET /cart/7 HTTP/1.1\r\nHost: shop.example:8080\r\nUser-Agent: Go-http-client/1.1\r\nAccept: application/json\r\nTraceparent: "+
		parentOf(someTrace)+"\r\nAccept-Encoding: gzip\r\n\r\n"))
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	floor := statsOverhead()
	const blocks, requests = 4, 5000
	var kernel, user [2]time.Duration
	traced := 0
	for b.Loop() {
		for block := range 2 * blocks {
			labels := (block + block/2) % 2 // 0 1 1 0 …
			r, err := Start(Options{Labels: labels == 1, Budget: -1})
			if err != nil {
				b.Fatal(err)
			}
			run := func() (own time.Duration) {
				for i := range requests {
					client()
					server()
					client()
					if i%100 == 0 {
						began := time.Now()
						r.Poll(func(q *observe.Request) {
							if q.Trace.Known() {
								traced++
							}
						})
						own += time.Since(began)
					}
				}
				return own
			}
			run()
			before := programTimes(b)
			user[labels] += run()
			for name, after := range programTimes(b) {
				kernel[labels] += after.Runtime - before[name].Runtime - time.Duration(after.RunCount-before[name].RunCount)*floor
			}
			r.Close()
		}
	}
	if traced == 0 {
		b.Fatal("no request had its trace")
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(b.N*blocks*requests) }
	b.ReportMetric(each(kernel[0]), "bpf-ns/request")
	b.ReportMetric(each(kernel[1]-kernel[0]), "labels-bpf-ns/request")
	b.ReportMetric(each(user[1]-user[0]), "labels-user-ns/request")
}
