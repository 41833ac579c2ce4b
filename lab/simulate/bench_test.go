package simulate_test

import (
	"runtime"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/lab/simulate"
)

// BenchmarkJudge is a second of 1,000 hosts with about 20 endpoints each: all points
// are added and judged, and with "slow" what is abnormal is explained too.
func BenchmarkJudge(b *testing.B) {
	for _, name := range []string{"healthy", "slow"} {
		b.Run(name, func(b *testing.B) {
			f := simulate.New(simulate.Options{Hosts: 1000, Endpoints: 20, Seed: 9})
			const begin, warm = int64(1_790_000_000), 120
			if name == "slow" {
				s, _ := simulate.Find("slow-dependency")
				f.Inject(s, begin+warm-10, begin+100_000, 3, 20)
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			m := anomaly.New(anomaly.Options{})
			at := begin
			for ; at < begin+warm; at++ {
				f.Second(at, m.Add)
				m.Judge(at)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			facts := hostsOf(f)
			points := make([]fleet.Point, 0, 32_000)
			abnormal := 0
			b.ResetTimer()
			for b.Loop() {
				b.StopTimer()
				points = points[:0]
				f.Second(at, func(p *fleet.Point) { points = append(points, *p) })
				b.StartTimer()
				for i := range points {
					m.Add(&points[i])
				}
				j := m.Judge(at)
				if abnormal = len(j.Anomalies); abnormal > 0 {
					m.Explain(&j, facts)
				}
				at++
			}
			b.ReportMetric(float64(m.Endpoints()), "endpoints")
			b.ReportMetric(float64(len(points)), "points/s")
			b.ReportMetric(float64(abnormal), "abnormal")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(m.Endpoints()), "B/endpoint")
		})
	}
}
