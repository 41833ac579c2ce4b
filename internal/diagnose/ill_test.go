package diagnose

import (
	"fmt"
	"testing"

	"github.com/slowray/slowray/internal/observe/observetest"
)

func BenchmarkIll(b *testing.B) {
	for _, n := range []int{256, 512, 1024, 2048} {
		b.Run(fmt.Sprintf("all=%d", n), func(b *testing.B) {
			h := observetest.Host{Called: n, Services: n / 2, Processes: n / 2, Namespaces: n / 16, Sockets: n, Waits: n / 4, Drops: n / 8, Pools: n / 64, Ill: 1}
			r := judge(h.Observation())
			by := map[string]int{}
			for _, f := range r.Findings {
				by[string(f.Cause)]++
			}
			b.Log(len(r.Findings), by)
			benchmark(b, h)
		})
	}
}
