package function

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkHit is what a call costs the one who calls: entry and return, by each
// way to see the return, and counting only. ns/hit is what a hit adds to the
// program's CPU time, ns/hit-said what slowray says it does.
func BenchmarkHit(b *testing.B) {
	for _, c := range []struct {
		name         string
		hits         int
		instructions bool
		opt          Options
	}{
		{"count", 1, false, Options{CountOnly: true}},
		{"return-probe", 2, false, Options{}},
		{"return-instruction", 2, true, Options{}},
		{"argument", 2, false, Options{Args: []Arg{{Number: 1, Type: "int"}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := startC(b)
			forceInstructions = c.instructions
			defer func() { forceInstructions = false }()
			c.opt.Target, c.opt.Symbols, c.opt.MaxRate, c.opt.Top = strconv.Itoa(p.pid()), []string{"hot"}, 100_000_000, 1
			plain := p.timed(b.N)
			var watched time.Duration
			o := watch(b, probeKernel(), c.opt, func() {
				p.timed(2000) // until it is known what is slow, everything has a record
				time.Sleep(50 * time.Millisecond)
				b.ResetTimer()
				watched = p.timed(b.N)
				b.StopTimer()
			})
			b.ReportMetric(float64(watched-plain)/float64(b.N*c.hits), "ns/hit")
			b.ReportMetric(float64(o.Price.PerHitNS), "ns/hit-said")
		})
	}
}

// timed is the CPU time that the program takes for n calls of hot().
func (p *program) timed(n int) time.Duration {
	start := p.cpu()
	p.tell("hot " + strconv.Itoa(n))
	return p.cpu() - start
}

// cpu is the program's CPU time (clock_getcpuclockid(3): CPUCLOCK_SCHED).
func (p *program) cpu() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid()<<3|2), &t); err != nil {
		p.t.Fatal(err)
	}
	return time.Duration(t.Nano())
}
