package function

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
)

const (
	maxUnfinished = 64
	maxThreads    = 16
)

// finish ends counting, detaches, and gives what was seen.
func (t *Tracer) finish() (*observe.Functions, error) {
	if err := t.set(bpf.FunctionVarActive, uint32(0)); err != nil {
		return nil, fmt.Errorf("end: %w", err)
	}
	end := monotonic()
	t.detach()
	var tripped uint64
	if t.get(bpf.FunctionVarTripped, &tripped); tripped != 0 {
		end = int64(tripped)
		t.stopped = t.tooMany()
	}
	// What is left in the ring.
	stopped := t.stopped
	if err := t.drain(); err != nil {
		return nil, err
	}
	t.stopped = stopped

	out := &observe.Functions{
		Target: t.plan.opt.Target, StartNS: t.began + t.offset, WindowNS: max(end-t.began, 1),
		Stopped: t.stopped, Notes: t.plan.notes, Price: observe.FunctionPrice{PerHitNS: t.perHit},
	}
	if pid := t.plan.target.pid; pid != 0 {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		out.Process = &observe.WaitProcess{PID: pid, Comm: strings.TrimSuffix(string(comm), "\n")}
	}
	var perCPU []uint64
	if err := t.objects.Maps[bpf.FunctionMapHits].Lookup(uint32(0), &perCPU); err != nil {
		return nil, fmt.Errorf("read hits: %w", err)
	}
	for _, n := range perCPU {
		out.Price.Hits += n
	}
	list := make([]observe.Function, len(t.plan.probes))
	var deep, untimed uint64
	for i := range list {
		d, err := t.readFunction(i, &list[i])
		if err != nil {
			return nil, err
		}
		deep += d
		untimed += list[i].Untimed
	}
	t.readUnfinished(list, end)
	if err := t.readThreads(list); err != nil {
		return nil, err
	}
	t.readSlowest(list)
	t.requests.share(t, list, out)
	sortedByTime(list)
	out.Calls = list
	t.losses(out, deep, untimed)
	return out, nil
}

// drain takes what is in the ring, without waiting for more.
func (t *Tracer) drain() error {
	if err := t.ring.Flush(); err != nil {
		return nil
	}
	for {
		if err := t.ring.ReadInto(&t.record); err != nil {
			return nil // flushed: there is no more
		}
		if len(t.record.RawSample) < int(unsafe.Sizeof(callLayout{})) {
			continue
		}
		c := (*callLayout)(unsafe.Pointer(&t.record.RawSample[0]))
		if int(c.Probe) < len(t.plan.probes) {
			t.keep(c)
		}
	}
}

func (t *Tracer) losses(out *observe.Functions, deep, untimed uint64) {
	lose := func(what string, n uint64) {
		if n > 0 {
			out.Losses = append(out.Losses, observe.Loss{What: what, Count: int64(n)})
		}
	}
	var records, bystanders uint64
	t.get(bpf.FunctionVarLostRecords, &records)
	t.get(bpf.FunctionVarLostBystanders, &bystanders)
	lose("calls that may be missing among the slowest, because the ring was full", records)
	lose("times that calls were not counted by thread: more than 16,384 (function, thread) pairs", bystanders)
	lose("calls counted but not timed: more than 32 of them within each other", deep)
	lose("calls counted but not timed: more than 8,192 threads in calls at once", untimed)
	lose("hits that the kernel passed over, because another BPF program was running", t.missed())
	lose("places in functions that could not be watched", uint64(t.attachErrors))
}

// missed is how often the kernel did not run a program where it should have.
func (t *Tracer) missed() uint64 {
	var n uint64
	add := func(p *ebpf.Program) {
		if st, err := p.Stats(); err == nil { // before Linux 5.12 it does not tell
			n += st.RecursionMisses
		}
	}
	for _, p := range t.objects.Programs {
		add(p)
	}
	for _, c := range t.closers {
		if p, ok := c.(*ebpf.Program); ok {
			add(p)
		}
	}
	return n
}

// readFunction reads the sums of one function.
func (t *Tracer) readFunction(i int, f *observe.Function) (deep uint64, err error) {
	p := &t.plan.probes[i]
	*f = p.Function
	var perCPU []sumsLayout
	if err := t.objects.Maps[bpf.FunctionMapSums].Lookup(uint32(i), &perCPU); err != nil {
		return 0, fmt.Errorf("read sums: %w", err)
	}
	largest, cpu := uint64(0), uint64(0)
	for _, s := range perCPU {
		f.Calls += s.Calls
		f.Returned += s.Returns
		f.TotalNS += int64(s.Total)
		cpu += s.CPU
		largest = max(largest, s.Max)
		f.Failed += s.Failed
		f.Left += s.Left
		f.Early += s.Early
		f.Untimed += s.Untimed
		deep += s.Deep
	}
	f.CPUNS = int64(cpu)
	if t.noCPU(i) || !f.Timed {
		f.CPUNS = -1
	}
	if !f.Timed {
		return deep, nil
	}
	var counts [observe.Buckets]uint64
	if err := t.objects.Maps[bpf.FunctionMapHistograms].Lookup(uint32(i), &counts); err != nil {
		return 0, fmt.Errorf("read histogram: %w", err)
	}
	// Two CPUs may have written their largest at the same moment.
	if list := t.slowest[i]; len(list) > 0 {
		largest = max(largest, list[0].Duration)
	}
	f.Latency = observe.HistogramOf(counts[:], int64(largest))
	f.MaxNS = f.Latency.Max()
	return deep, nil
}

func (t *Tracer) noCPU(probe int) bool {
	for i := range t.plan.sites {
		if s := &t.plan.sites[i]; s.probe == probe && s.flags&noCPU != 0 {
			return true
		}
	}
	return false
}

// readUnfinished finds the calls that had not returned at the end.
func (t *Tracer) readUnfinished(list []observe.Function, end int64) {
	var (
		key  threadKey
		th   threadLayout
		iter = t.objects.Maps[bpf.FunctionMapThreads].Iterate()
	)
	for iter.Next(&key, &th) {
		pid, tid := int(th.PidTgid>>32), int(uint32(th.PidTgid))
		// A goroutine is where its process is; its thread may be another by now.
		path := fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid)
		if key.ID != th.PidTgid {
			path = fmt.Sprintf("/proc/%d/comm", pid)
		}
		comm, err := os.ReadFile(path)
		for i := range min(int(th.Depth), len(th.Frames)) {
			fr := &th.Frames[i]
			if int(fr.Probe) >= len(list) {
				continue
			}
			f := &list[fr.Probe]
			if err != nil {
				f.Left++ // the thread ended inside
				continue
			}
			f.Running++
			f.Unfinished = append(f.Unfinished, observe.FunctionCall{
				StartNS: int64(fr.Start) + t.offset, DurationNS: max(end-int64(fr.Start), 0), PID: pid, TID: tid, Comm: strings.TrimSuffix(string(comm), "\n"),
			})
		}
	}
	for i := range list {
		slices.SortFunc(list[i].Unfinished, func(a, b observe.FunctionCall) int {
			return cmp.Or(cmp.Compare(b.DurationNS, a.DurationNS), cmp.Compare(a.TID, b.TID))
		})
		list[i].Unfinished = list[i].Unfinished[:min(len(list[i].Unfinished), maxUnfinished)]
	}
}

// readThreads reads which threads made the calls.
func (t *Tracer) readThreads(list []observe.Function) error {
	var (
		key  bystanderKey
		b    bystanderLayout
		iter = t.objects.Maps[bpf.FunctionMapBystanders].Iterate()
	)
	for iter.Next(&key, &b) {
		if int(key.Probe) >= len(list) {
			continue
		}
		f := &list[key.Probe]
		f.Threads = append(f.Threads, observe.FunctionThread{
			PID: int(b.TGID), TID: int(key.TID), Comm: text(b.Comm[:]), Calls: b.Calls, TotalNS: int64(b.Total), MaxNS: int64(b.Max),
		})
	}
	if err := iter.Err(); err != nil {
		return fmt.Errorf("read threads: %w", err)
	}
	for i := range list {
		slices.SortFunc(list[i].Threads, func(a, b observe.FunctionThread) int {
			return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.TID, b.TID))
		})
		list[i].Threads = list[i].Threads[:min(len(list[i].Threads), maxThreads)]
	}
	return nil
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// readSlowest gives the slowest calls a meaning.
func (t *Tracer) readSlowest(list []observe.Function) {
	frames := t.nameStacks()
	for i := range list {
		p := &t.plan.probes[i]
		for j := range t.slowest[i] {
			c := &t.slowest[i][j]
			one := observe.FunctionCall{
				StartNS: int64(c.Start) + t.offset, DurationNS: int64(c.Duration), CPUNS: int64(c.CPU),
				PID: int(c.PidTgid >> 32), TID: int(uint32(c.PidTgid)), Comm: text(c.Comm[:]),
			}
			if list[i].Timed && list[i].Kind != observe.FunctionUSDT {
				result := int64(c.Result)
				one.Result = &result
			}
			if c.WithValues != 0 && int(c.Site) < len(t.plan.sites) {
				for k, a := range p.wanted {
					if k < MaxArgs && k < len(t.plan.sites[c.Site].args) {
						one.Args = append(one.Args, a.show(t.plan.sites[c.Site].args[k], &c.Values[k]))
					}
				}
			}
			one.Stack, one.Kernel = frames(i, j)
			list[i].Slowest = append(list[i].Slowest, one)
		}
	}
}
