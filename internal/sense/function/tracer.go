package function

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

const (
	rateWindow = 250 * time.Millisecond // hits are counted in pieces of this
	pollEvery  = 20 * time.Millisecond
	maxTop     = 1000
	maxRead    = 4096
	never      = 1 << 62 // ns

	interrupted = "it was interrupted"
)

// Tracer watches calls from Start to Close.
type Tracer struct {
	plan     *Plan
	kernel   kernel
	multi    bool // links of many places are used
	withArgs bool

	objects *ebpf.Collection
	singles map[string]*ebpf.Program
	links   []io.Closer // kept: an unreferenced link is detached by its finalizer
	closers []io.Closer
	ring    *ringbuf.Reader
	record  ringbuf.Record

	attachErrors int
	unattached   int
	lastRefusal  error

	perHit  int64 // ns, 0 = not measured
	offset  int64 // wall clock less monotonic clock, ns
	began   int64 // monotonic, ns
	stopped string
	slowest [][]call // by probe, slowest first
	space   *symbol.Space

	requests *requests // nil when they are not recorded
}

// Start attaches to all places of the plan. It needs root, or CAP_BPF,
// CAP_PERFMON and CAP_SYS_ADMIN. Nothing is counted before Run.
func Start(p *Plan) (*Tracer, error) { return startOn(probeKernel(), p) }

// startOn is Start for what a kernel can do.
func startOn(k kernel, p *Plan) (*Tracer, error) {
	t := &Tracer{plan: p, kernel: k, singles: map[string]*ebpf.Program{}, space: symbol.NewSpace("/proc")}
	t.slowest = make([][]call, len(p.probes)+1)
	for i := range p.probes {
		t.withArgs = t.withArgs || len(p.probes[i].wanted) > 0
	}
	if err := t.start(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Tracer) start() error {
	if err := t.load(); err != nil {
		return err
	}
	if t.plan.opt.Requests {
		var err error
		if t.requests, err = recordRequests(t.plan.target.pid, t.objects.Maps[bpf.FunctionMapIntervals]); err != nil {
			return err
		}
	}
	var err error
	if t.ring, err = ringbuf.NewReader(t.objects.Maps[bpf.FunctionMapCalls]); err != nil {
		return fmt.Errorf("read calls: %w", err)
	}
	sites := t.objects.Maps[bpf.FunctionMapSites]
	for i := range t.plan.sites {
		if err := sites.Put(uint32(i), t.plan.layout(&t.plan.sites[i])); err != nil {
			return fmt.Errorf("describe places: %w", err)
		}
	}
	own := siteLayout{Probe: uint32(len(t.plan.probes))}
	if err := sites.Put(uint32(len(t.plan.sites)), own); err != nil {
		return fmt.Errorf("describe places: %w", err)
	}
	limits := t.objects.Maps[bpf.FunctionMapLimits]
	if err := limits.Put(uint32(len(t.plan.probes)), uint64(never)); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	for i := range t.plan.probes {
		limit := uint64(0)
		if t.plan.probes[i].Timed {
			limit = uint64(t.plan.opt.Slow)
		}
		if t.plan.opt.Top == 0 {
			limit = never
		}
		if err := limits.Put(uint32(i), limit); err != nil {
			return fmt.Errorf("set limits: %w", err)
		}
	}
	t.multi = t.kernel.multi && t.kernel.cookies
	if err := t.measurePrice(); err != nil {
		t.plan.notes = append(t.plan.notes, "what a hit costs could not be measured: "+err.Error())
	}
	if err := t.attachAll(); err != nil {
		return err
	}
	if t.unattached > 0 && t.unattached == len(t.plan.probes) {
		return t.lastRefusal
	}
	return nil
}

// PerHit is what a hit takes here, by a program that does nothing; 0 where that could not
// be measured.
func (t *Tracer) PerHit() time.Duration { return time.Duration(t.perHit) }

// Close detaches from everything.
func (t *Tracer) Close() {
	t.detach()
	t.requests.close()
	if t.ring != nil {
		t.ring.Close()
		t.ring = nil
	}
	for _, c := range t.closers {
		c.Close()
	}
	t.closers = nil
	t.space.Close()
	if t.objects != nil {
		t.objects.Close()
		t.objects = nil
	}
}

func (t *Tracer) detach() {
	// Entries first: what ends then is still seen.
	for _, l := range slices.Backward(t.links) {
		l.Close()
	}
	t.links = nil
}

func (t *Tracer) set(name string, v any) error {
	return t.objects.Variables[name].Set(v)
}

func (t *Tracer) get(name string, v any) {
	_ = t.objects.Variables[name].Get(v) // zero when it cannot be read
}

// Run watches for a time, or until ctx ends, the process ends or there are too
// many hits. each is called now and then with the time that has passed.
func (t *Tracer) Run(ctx context.Context, d time.Duration, each func(elapsed time.Duration)) (*observe.Functions, error) {
	t.offset = wallOffset()
	most := uint64(t.plan.opt.MaxRate) * uint64(rateWindow) / uint64(time.Second)
	if err := t.set(bpf.FunctionVarWindowMost, max(most, 1)); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	t.began = monotonic()
	if err := t.set(bpf.FunctionVarActive, uint32(1)); err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	start := time.Now()
	checked := start
	for t.stopped == "" {
		now := time.Now()
		if ctx.Err() != nil {
			t.stopped = interrupted
			break
		}
		if now.Sub(start) >= d {
			break
		}
		if each != nil {
			each(now.Sub(start))
		}
		if pid := t.plan.target.pid; pid != 0 && now.Sub(checked) > 200*time.Millisecond {
			checked = now
			if ended(pid) {
				t.stopped = fmt.Sprintf("process %d ended", pid)
				break
			}
		}
		wait := pollEvery
		if now.Sub(start) < 100*time.Millisecond {
			wait = pollEvery / 4 // until it is known what is slow, everything has a record
		}
		t.requests.poll(false)
		if err := t.poll(now.Add(min(wait, d-now.Sub(start)))); err != nil {
			return nil, err
		}
	}
	return t.finish()
}

// ended says whether a process is gone, or only waits to be taken note of.
func ended(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	for i := len(data) - 1; i >= 0; i-- {
		if data[i] == ')' {
			return i+2 < len(data) && (data[i+2] == 'Z' || data[i+2] == 'X')
		}
	}
	return false
}

// poll takes the calls that were handed over, and waits for more until a time.
func (t *Tracer) poll(until time.Time) error {
	t.ring.SetDeadline(until)
	changed := map[uint32]bool{}
	// Not for ever where calls come faster than they are read.
	for range maxRead {
		err := t.ring.ReadInto(&t.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return fmt.Errorf("read calls: %w", err)
		}
		if len(t.record.RawSample) < int(unsafe.Sizeof(callLayout{})) {
			continue
		}
		c := (*callLayout)(unsafe.Pointer(&t.record.RawSample[0]))
		if c.Probe == ^uint32(0) {
			t.stopped = t.tooMany()
			t.detach()
			break
		}
		if int(c.Probe) < len(t.plan.probes) && t.keep(c) {
			changed[c.Probe] = true
		}
	}
	for n := range changed {
		t.raise(n)
	}
	return nil
}

func (t *Tracer) tooMany() string {
	var tripped, window, hits uint64
	t.get(bpf.FunctionVarTripped, &tripped)
	t.get(bpf.FunctionVarWindowStart, &window)
	t.get(bpf.FunctionVarWindowHits, &hits)
	return fmt.Sprintf("%d hits within %s, more than %d a second (--max-rate): detached, to spare the target",
		hits, time.Duration(tripped-window).Round(time.Millisecond/10), t.plan.opt.MaxRate)
}

// keep notes a call when it is one of the slowest; of places, the first ones.
func (t *Tracer) keep(c *callLayout) bool {
	list := &t.slowest[c.Probe]
	top := min(t.plan.opt.Top, maxTop)
	if len(*list) >= top && (!t.plan.probes[c.Probe].Timed || c.Duration <= (*list)[len(*list)-1].Duration) {
		return true // the limit is not in force yet
	}
	one := call{callLayout: *c}
	one.locate(t.space, t.plan.probes[c.Probe].Timed)
	i, _ := slices.BinarySearchFunc(*list, c.Duration, func(a call, d uint64) int {
		if a.Duration >= d { // the earlier one first
			return -1
		}
		return 1
	})
	*list = slices.Insert(*list, i, one)
	if len(*list) > top {
		*list = (*list)[:top]
	}
	return true
}

// raise lets only calls have a record that are slower than those that are kept.
func (t *Tracer) raise(n uint32) {
	list := t.slowest[n]
	if len(list) < min(t.plan.opt.Top, maxTop) {
		return
	}
	limit := uint64(1)
	if t.plan.probes[n].Timed {
		limit = max(list[len(list)-1].Duration+1, uint64(t.plan.opt.Slow))
	}
	_ = t.objects.Maps[bpf.FunctionMapLimits].Put(n, limit) // or else there are more records than needed
}

// sortedByTime puts functions in the order of the time spent in them.
func sortedByTime(list []observe.Function) {
	slices.SortStableFunc(list, func(a, b observe.Function) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
}
