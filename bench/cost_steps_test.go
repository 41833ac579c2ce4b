package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
)

// costStep is a load that lasts for some time.
type costStep struct {
	name    string
	seconds int
	args    []string // of wrk; nil = none
	rate    int      // instead, requests a second
}

// costAt is what slowray cost the host in a short time.
type costAt struct{ second, kernel, process float64 } // shares of the host's CPUs

const (
	costEvery  = 250 * time.Millisecond
	costBudget = 0.01
	// costWithin is how long after a step it may cost more.
	costWithin = 2.0
)

// BenchmarkCostSteps has the load go up and down next to slowray record, and looks every
// quarter of a second at what that costs: its process by the scheduler's clock, its programs
// by the kernel's statistics, less what those take themselves. What no statistics tell, the
// way into each program and out of it, is not in it.
func BenchmarkCostSteps(b *testing.B) {
	slowray := built(b)
	s := newStage(b)
	web := newWebServer(s, 50, `return 200 "hello world\n";`)
	url := fmt.Sprintf("http://127.0.0.1:%d/", web.port)
	steps := []costStep{
		{name: "nothing", seconds: 5},
		{name: "full speed", seconds: 10, args: []string{"wrk", "-t1", "-c50", "-d10s", url}},
		{name: "1,000 a second", seconds: 10, rate: 1000},
		{name: "a new connection for each", seconds: 10, args: []string{"wrk", "-t1", "-c50", "-d10s", "-H", "Connection: close", url}},
		{name: "nothing", seconds: 5},
	}
	for b.Loop() {
		stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		if err != nil {
			b.Fatal(err)
		}
		empty, err := attachEmpty("tcp_probe")
		if err != nil {
			b.Fatal(err)
		}
		others := programsNow()
		stop, pid, err := costCommands[0].start(b, slowray, web.port)
		if err != nil {
			b.Fatal(err)
		}
		var seen []costAt
		var starts []float64
		began := time.Now()
		before := lookAt(pid, others, empty)
		for _, step := range steps {
			starts = append(starts, time.Since(began).Seconds())
			ended := make(chan error, 1)
			go func() {
				var err error
				switch {
				case step.args != nil:
					_, _, err = s.output(step.args...)
				case step.rate > 0:
					_, err = s.pacer("http", web.port, step.rate, 10, time.Duration(step.seconds)*time.Second)
				default:
					time.Sleep(time.Duration(step.seconds) * time.Second)
				}
				ended <- err
			}()
			ticker := time.NewTicker(costEvery)
		step:
			for {
				select {
				case err := <-ended:
					if err != nil {
						b.Fatal(err)
					}
					break step
				case <-ticker.C:
					now := lookAt(pid, others, empty)
					seen = append(seen, now.since(before, began))
					before = now
				}
			}
			ticker.Stop()
		}
		if _, err := stop(); err != nil {
			b.Fatal(err)
		}
		empty.Close()
		stats.Close()
		var figures []figure
		for i, from := range starts {
			upTo := math.Inf(1)
			if i+1 < len(starts) {
				upTo = starts[i+1]
			}
			sum, n := 0.0, 0.0
			for _, at := range seen {
				if at.second >= from+costWithin && at.second < upTo {
					sum, n = sum+at.kernel+at.process, n+1
				}
			}
			share := 100 * sum / max(n, 1)
			figures = append(figures, figure{name: "% of the host's CPUs, 2 s after: " + steps[i].name, format: "%.2f", sample: sample{share}, target: atMost(100 * costBudget), exact: true})
			progress(b, fmt.Sprintf("%s: %.2f %% of the host's CPUs from %.0f s after it began", steps[i].name, share, costWithin))
		}
		reportFigures(b, "slowray record while the load changes", figures...)
		if os.Getenv("SLOWRAY_BENCH_KEEP") == "1" {
			if err := os.WriteFile(filepath.Join("..", "docs", "cost-steps.svg"), []byte(stepsPicture(steps, starts, seen)), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// costLook is what was used up to a moment.
type costLook struct {
	at      time.Time
	runs    map[ebpf.ProgramID]ebpf.ProgramStats
	floor   float64 // ns that a run seems to take that does nothing
	process time.Duration
}

func programsNow() map[ebpf.ProgramID]bool {
	ids := map[ebpf.ProgramID]bool{}
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		ids[id] = true
	}
	return ids
}

func lookAt(pid int, others map[ebpf.ProgramID]bool, empty *emptyProbe) costLook {
	l := costLook{at: time.Now(), runs: map[ebpf.ProgramID]ebpf.ProgramStats{}, process: cpuOf(pid)}
	if st, err := empty.Stats(); err == nil {
		l.floor = float64(st.Runtime) / float64(max(st.RunCount, 1))
	}
	for id := range programsNow() {
		if others[id] {
			continue
		}
		if st, ok := bpf.ProgramStats(id); ok {
			l.runs[id] = st
		}
	}
	return l
}

func (l costLook) since(before costLook, began time.Time) costAt {
	var kernel float64 // ns
	for id, now := range l.runs {
		was := before.runs[id]
		kernel += math.Max(0, float64(now.Runtime-was.Runtime)-l.floor*float64(now.RunCount-was.RunCount))
	}
	whole := float64(l.at.Sub(before.at)) * float64(runtime.NumCPU())
	return costAt{l.at.Sub(began).Seconds(), kernel / whole, float64(l.process-before.process) / whole}
}

// stepsPicture draws the cost over time, kernel below and process on top of it, with the
// budget as a line.
func stepsPicture(steps []costStep, starts []float64, seen []costAt) string {
	const width, height, left, bottom = 960.0, 300.0, 50.0, 40.0
	last, most := seen[len(seen)-1].second, 2*costBudget
	for _, at := range seen {
		most = max(most, at.kernel+at.process)
	}
	x := func(second float64) float64 { return left + second/last*(width-left-10) }
	y := func(share float64) float64 { return height - bottom - share/most*(height-bottom-30) }
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12"><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", width, height)
	for i, from := range starts {
		fmt.Fprintf(&s, `<line x1="%.1f" y1="20" x2="%.1f" y2="%.1f" stroke="#bbb"/><text x="%.1f" y="15" fill="#444">%s</text>`+"\n", x(from), x(from), height-bottom, x(from)+4, steps[i].name)
	}
	area := func(fill string, upper func(costAt) float64) {
		var points []string
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(seen[0].second), y(0)))
		for _, at := range seen {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(at.second), y(upper(at))))
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(last), y(0)))
		fmt.Fprintf(&s, `<polygon points="%s" fill="%s"/>`+"\n", strings.Join(points, " "), fill)
	}
	area("#9ec5fe", func(at costAt) float64 { return at.kernel + at.process })
	area("#0d6efd", func(at costAt) float64 { return at.kernel })
	fmt.Fprintf(&s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#d63384" stroke-dasharray="6 4"/><text x="%.1f" y="%.1f" fill="#d63384">1 %%</text>`+"\n", left, y(costBudget), width-10, y(costBudget), width-40, y(costBudget)-4)
	for share := 0.0; share <= most; share += max(costBudget, math.Ceil(most*100/5)/100) {
		fmt.Fprintf(&s, `<text x="%.1f" y="%.1f" text-anchor="end" fill="#444">%s %%</text>`+"\n", left-6, y(share)+4, strconv.FormatFloat(100*share, 'f', -1, 64))
	}
	for second := 0.0; second <= last; second += 5 {
		fmt.Fprintf(&s, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#444">%.0f s</text>`+"\n", x(second), height-bottom+18, second)
	}
	fmt.Fprintf(&s, `<text x="%.1f" y="%.1f" fill="#444">share of the host's CPUs: dark in the kernel's hooks, light in the process</text></svg>`+"\n", left, height-6)
	return s.String()
}
