package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// variants are what can run next to a load: what is judged, and what shows
// where the cost sits.
func variants(s *stage) []variant {
	served := request.Options{Side: observe.Served, Budget: -1}
	with := func(change func(*request.Options)) request.Options {
		o := served
		change(&o)
		return o
	}
	return []variant{
		recorderVariant("served", recorderSpec{Options: served}),
		recorderVariant("both", everything),
		recorderVariant("default", recorderSpec{}), // both sides, within the default budget
		// Every request is followed from thread to thread.
		recorderVariant("split", recorderSpec{Options: with(func(o *request.Options) { o.Split = true })}),
		recorderVariant("labels", recorderSpec{Options: request.Options{Budget: -1, Labels: true}}),
		// Where the cost sits: hooks that have nothing to do here; nothing but
		// the counters; records that nobody sums up; records that nobody reads.
		recorderVariant("elsewhere", recorderSpec{Options: with(func(o *request.Options) { o.Ports = []int{1} })}),
		recorderVariant("counters", recorderSpec{Options: with(func(o *request.Options) { o.Budget = 1e-9 })}),
		recorderVariant("discard", recorderSpec{Options: served, Discard: true}),
		recorderVariant("deaf", recorderSpec{Options: served, Deaf: true}),
		{"empty", func() (func() (alongside, error), error) {
			p, err := attachEmpty("tcp_probe")
			if err != nil {
				return nil, err
			}
			return func() (alongside, error) { return alongside{}, p.Close() }, nil
		}},
		s.tcpdump(),
	}
}

// recordHooks are the tracepoints at which slowray record has a program all the time, as
// far as requests come by them.
var recordHooks = []string{"tcp_probe", "tcp_rcv_space_adjust", "tcp_sendmsg_locked", "sched_switch", "sched_waking"}

// emptyProbe is a program that does nothing at a tracepoint: what it costs is the price
// of the way into a program and out of it.
type emptyProbe struct {
	*ebpf.Program
	link link.Link
}

func attachEmpty(tracepoint string) (*emptyProbe, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load empty program: %w", err)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("attach empty program: %w", err)
	}
	return &emptyProbe{p, l}, nil
}

func (e *emptyProbe) Close() error {
	defer e.Program.Close()
	return e.link.Close()
}

// judged says what is asked of a service.
type judged struct {
	title string
	usual []string // the variants of the usual rotation
	// kept bounds the share of the throughput that is kept, by variant.
	kept map[string]*target
	// ports are those whose every request has a record; the load's own count is
	// that of each.
	ports []int
	// opening bounds the requests with which a client opens and closes its
	// connections, and which the server does not count.
	opening uint64
	// abandoned bounds, by port, the requests that are under way when the load
	// ends: a client that closes at once after asking takes leave, in a protocol
	// that cannot be read.
	abandoned map[int]int
	// kernel bounds the kernel time per request, ns, recording the served side.
	kernel *target
}

// measure runs the rotation and reports everything it shows.
func (j *judged) measure(b *testing.B, p plan, st *stage, s service) {
	all := append(variants(st), commandVariants(b, j.ports[0])...)
	chosen := p.choose(b, j.usual, all)
	for b.Loop() {
		trials := p.rotate(b, s, chosen)
		figures := []figure{{
			name: "requests per second, bare", format: "%.0f",
			sample: column(trials[againName], func(t *trial) float64 { return t.perSecond }),
		}, {
			name: "share of the CPUs that others took, %", format: "%.1f", sample: othersShare(trials),
		}}
		for _, v := range chosen {
			f := figure{name: "throughput kept, " + v.name, format: "%.3f", sample: column(trials[v.name], kept), target: j.kept[v.name]}
			if v.name == againName {
				f.note = "the noise of this machine"
			}
			figures = append(figures, f,
				figure{name: "CPU time per request, " + v.name, format: "%.3f", sample: column(trials[v.name], cost)})
			if trials[v.name][0].alongside.recorder != nil {
				figures = append(figures, j.recorderFigures(v.name, trials[v.name])...)
			}
		}
		figures = append(figures, j.kernelFigures(b, p, s, "served", request.Options{Side: observe.Served, Budget: -1}, j.kernel)...)
		if slices.ContainsFunc(chosen, func(v variant) bool { return v.name == "split" }) {
			figures = append(figures, j.kernelFigures(b, p, s, "split", request.Options{Side: observe.Served, Budget: -1, Split: true}, nil)...)
			figures = append(figures, j.kernelFigures(b, p, s, "both ends, split", request.Options{Budget: -1, Split: true}, nil)...)
		}
		reportFigures(b, j.title, figures...)
	}
	b.ReportMetric(0, "ns/op")
}

// recorderFigures tell what became of the records. Variants that are there to
// show where the cost sits have no targets.
func (j *judged) recorderFigures(name string, trials []trial) []figure {
	var zero, perRecord *target
	if name == "served" || name == "both" {
		zero, perRecord = atMost(0), atMost(0.5)
	}
	figures := []figure{{
		name: "records lost, " + name, format: "%.0f", target: zero, exact: true,
		sample: column(trials, func(t *trial) float64 { return float64(t.alongside.recorder.Stats.Lost) }),
	}, {
		name: "user-space µs per record, " + name, format: "%.3f", target: perRecord,
		sample: column(trials, func(t *trial) float64 {
			return float64(t.alongside.recorder.CPU.Nanoseconds()) / 1e3 / float64(max(t.alongside.recorder.records(), 1))
		}),
	}}
	for _, port := range j.ports {
		for _, side := range []observe.Side{observe.Served, observe.Called} {
			if side == observe.Called && name == "served" {
				continue
			}
			figures = append(figures, figure{
				name: fmt.Sprintf("requests without a record, %s, %s, port %d", name, side, port), format: "%.0f", target: zero, exact: true,
				sample: column(trials, func(t *trial) float64 { return j.difference(t, port, side) }),
			})
		}
	}
	return figures
}

// difference is how many records are missing, or are too many.
func (j *judged) difference(t *trial, port int, side observe.Side) float64 {
	missing := float64(t.requests) - float64(t.alongside.recorder.recorded(port, side.String()))
	if missing < 0 { // those that open and close a connection may be there
		return max(0, -missing-float64(j.opening))
	}
	return max(0, missing-float64(j.abandoned[port]))
}

// kernelFigures measure the kernel's time per request by the kernel's own
// statistics of BPF programs, in runs of their own because keeping the
// statistics costs. What an empty program seems to take is the clock's share
// of each run, and no cost of the recorder.
func (j *judged) kernelFigures(b *testing.B, p plan, s service, name string, opt request.Options, limit *target) []figure {
	b.Helper()
	var gross, net, floor sample
	for range min(6, max(3, p.rounds)) {
		seen, err := p.kernelRun(s, opt)
		if err != nil {
			b.Fatalf("kernel's statistics: %v", err)
		}
		var all, runs, line = time.Duration(0), uint64(0), ""
		for _, c := range seen.programs {
			if c.Runs == 0 {
				continue
			}
			all, runs = all+c.Time, runs+c.Runs
			line += fmt.Sprintf("  %s %.0f ns × %.2f", c.Name, float64(c.Time)/float64(c.Runs), float64(c.Runs)/seen.requests)
		}
		progress(b, name+", per request:"+line)
		empty := float64(seen.empty.Time) / float64(max(seen.empty.Runs, 1))
		floor = append(floor, empty)
		gross = append(gross, float64(all)/seen.requests)
		net = append(net, math.Max(0, float64(all)-float64(runs)*empty)/seen.requests)
	}
	return []figure{
		{name: "kernel ns per request, " + name, format: "%.0f", sample: net, target: limit, note: "by the kernel's BPF statistics, less what an empty program seems to take"},
		{name: "… with that", format: "%.0f", sample: gross},
		{name: "… empty program, ns per run", format: "%.0f", sample: floor},
	}
}

// kernelSeen is what one run under the kernel's statistics showed.
type kernelSeen struct {
	requests float64
	programs []programCost
	empty    programCost
}

func (p *plan) kernelRun(s service, opt request.Options) (seen kernelSeen, err error) {
	unlock, err := p.hold()
	if err != nil {
		return seen, err
	}
	defer unlock()
	empty, err := attachEmpty("tcp_probe")
	if err != nil {
		return seen, err
	}
	defer empty.Close()
	r, err := startRecorder(recorderSpec{Options: opt})
	if err != nil {
		return seen, err
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		r.end()
		return seen, err
	}
	defer func(c io.Closer) { c.Close() }(stats)
	out, err := s.run(p.length)
	if err != nil {
		r.end()
		return seen, err
	}
	st, err := empty.Stats()
	if err != nil {
		r.end()
		return seen, err
	}
	report, err := r.stop()
	if err != nil {
		return seen, err
	}
	return kernelSeen{float64(out.requests), report.Programs, programCost{"empty", st.RunCount, st.Runtime}}, nil
}

// BenchmarkRequestsWorstCase records the cheapest requests there are, at full
// speed: nginx answers twelve bytes over kept connections on loopback.
func BenchmarkRequestsWorstCase(b *testing.B) {
	p := newPlan(b, 24)
	s := newStage(b)
	web := newWebServer(s, 50, `return 200 "hello world\n";`)
	j := judged{
		title: "nginx, 12 bytes, keep-alive, loopback, full speed",
		usual: []string{"served", "split", "both", "elsewhere", "tcpdump"},
		kept:  map[string]*target{"served": atLeast(0.97), "split": atLeast(0.95)},
		ports: []int{web.port}, kernel: atMost(200),
	}
	j.measure(b, p, s, web)
}

// BenchmarkRequestsMariaDB records point selects at both ends.
func BenchmarkRequestsMariaDB(b *testing.B) {
	p := newPlan(b, 24)
	s := newStage(b)
	db := newDatabase(s)
	j := judged{
		title: "MariaDB, point selects, loopback",
		usual: []string{"both", "split"},
		kept:  map[string]*target{"both": atLeast(0.99), "split": atLeast(0.98)},
		ports: []int{db.port}, opening: 3 * (databaseThreads + 2),
	}
	j.measure(b, p, s, db)
}

// BenchmarkRequestsPHP records pages, at nginx, at PHP-FPM and between.
func BenchmarkRequestsPHP(b *testing.B) {
	p := newPlan(b, 16)
	s := newStage(b)
	web, fpm := newPage(s)
	j := judged{
		title: "PHP page through nginx and PHP-FPM, loopback",
		usual: []string{"both", "split"},
		kept:  map[string]*target{"both": atLeast(0.99), "split": atLeast(0.98)},
		ports: []int{web.port, fpm}, abandoned: map[int]int{fpm: web.connections},
	}
	j.measure(b, p, s, web)
}
