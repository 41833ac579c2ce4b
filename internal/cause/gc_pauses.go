package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// GCPauses: the service's runtime is in garbage collection while requests wait: its
// threads stand still meanwhile, or share the CPUs with the collector.
const GCPauses ID = "gc-pauses"

var gcPauses = Cause{
	ID:            GCPauses,
	Title:         "GC pauses stall the service",
	Layer:         LayerApplication,
	Class:         ClassCompute,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindProcess},
	ConsequenceOf: []Parent{MemoryPressure, CPUQuotaThrottled, CPUSaturated, JVMSerialGC, LowCPUWeight},
	Folds:         true,
	Check:         checkGC,
}

// gcThreads are the names of GC threads, which do nothing but GC
// (HotSpot; cut to 15 bytes by the kernel).
var gcThreads = []string{"GC Thread#", "G1 Main Marker", "G1 Conc#", "G1 Refine#", "G1 Service", "ParGC Thread#", "Concurrent Mark", "ZWorker#", "ZDirector", "ZDriver", "Shenandoah"}

// gcFunctions are parts of names of functions in which garbage is collected, of
// Go, V8, CPython, PHP, Ruby and HotSpot.
var gcFunctions = []string{
	"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "Heap::CollectGarbage", "Heap::PerformGarbageCollection", "gc_collect_main", "gc_collect_region",
	"zend_gc_collect_cycles", "gc_start_internal", "garbage_collect", "G1CollectedHeap::do_", "VM_G1Collect", "ParallelScavengeHeap::", "PSParallelCompact::", "GenCollectedHeap::do_collection",
}

func collectsGarbage(t *busyThread) bool {
	return slices.ContainsFunc(gcThreads, func(prefix string) bool { return strings.HasPrefix(t.comm, prefix) })
}

func checkGC(v *View) Result {
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := v.atWork(l)
		byThreads := collecting(w.procs)
		e := v.executedBy(w.procs, 0)
		where, byFunctions := garbageFunction(&e)
		share := max(byThreads, byFunctions)
		during := 0.0
		for i := range w.threads {
			if collectsGarbage(&w.threads[i]) {
				during += w.threads[i].busy() // never two of them at the same time
			}
		}
		because := fmt.Sprintf("%s spends %s of its CPU time in garbage collection, as far as its threads and functions tell", v.commOf(l), percent(share))
		k := l.cost(1, threadParts...)
		scarce, why := v.computingIsScarce(l, &w, l.ownCPU(&w))
		switch {
		case share < gcShare:
			return judged{because: because, near: share}
		case !l.noticed(k, threadFloor):
			return judged{because: because + ", and no request is slow for it", near: share}
		case during >= gcShare:
			scarce, why = min(during, 1), fmt.Sprintf("threads that collect are on a CPU, or want one, %s of the time that the slowest requests take", percent(min(during, 1)))
		case scarce == 0:
			return judged{because: because + ", and requests wait for something else", near: share}
		default:
			scarce *= share
		}
		return judged{finding: v.gcFinding(l, &w, scaled(k, scarce), share, where, why)}
	})
	for _, l := range v.ledgers {
		if f := v.stuckCollecting(l); f != nil {
			r.Findings = append(r.Findings, *f)
		}
	}
	return r
}

// collecting is the share of the CPU time of processes that their threads have
// which do nothing but GC.
func collecting(procs []*observe.Process) float64 {
	var gc, all float64
	for _, p := range procs {
		all += p.CPUSeconds()
		for _, t := range p.Busiest {
			if collectsGarbage(&busyThread{comm: t.Comm}) {
				gc += t.CPUSeconds
			}
		}
	}
	return ratio(gc, all)
}

// collects says of a process that its threads wait while it is in garbage collection:
// who holds a lock of the machine's own then waits to be woken, too.
func (v *View) collects(pid int) bool {
	p := v.Process(pid)
	return p != nil && collecting([]*observe.Process{p}) >= gcShare
}

// garbageFunction is the function that is in garbage collection, with its share of the
// samples.
func garbageFunction(e *executed) (name string, share float64) {
	if !e.enough() {
		return "", 0
	}
	var gc float64 // Go collects in workers of its own, and in those who allocate
	for _, part := range gcFunctions {
		most := 0.0
		for i := range e.functions {
			f := &e.functions[i]
			if s := e.share(f); s > most && strings.Contains(f.Name, part) {
				most = s
				if s > share {
					name, share = f.Name, s
				}
			}
		}
		if strings.HasPrefix(part, "runtime.") {
			gc += most
		}
	}
	return name, min(max(share, gc), 1)
}

// goCollector are the functions in which Go's collector computes (runtime/mgcmark.go).
var goCollector = []string{"runtime.scan", "runtime.gcDrain", "runtime.gcAssist", "runtime.gcBgMarkWorker", "runtime.greyobject", "runtime.findObject", "runtime.mark", "runtime.(*gcWork)",
	"runtime.(*mspan).", "runtime.(*sweepLocked).", "runtime.heapBits", "runtime.typePointers", "runtime.tryDeferToSpanScan", "runtime.bgsweep"}

// collectsIn says that a function is a part of a garbage collector.
func collectsIn(name string) bool {
	return slices.ContainsFunc(goCollector, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) ||
		slices.ContainsFunc(gcFunctions, func(part string) bool { return strings.Contains(name, part) })
}

// heapOfService is the heap of a process that answers an endpoint, as far as its
// options, its environment or its counters tell; nil where they do not.
func (v *View) heapOfService(procs []*observe.Process) *observe.Heap {
	for _, p := range procs {
		for _, i := range v.heaps[p.PID] {
			if h := &v.Heaps[i]; h.Runtime != "go" || p.Go {
				return h
			}
		}
	}
	return nil
}

// roomier gives a heap twice the room, and says by which setting.
func (v *View) roomier(h *observe.Heap, f *Finding) {
	if h == nil || h.MaxBytes == 0 {
		return
	}
	want := min(2*h.MaxBytes, h.MaxBytes+v.Use.Memory.AvailableBytes/2)
	f.Evidence = append(f.Evidence, Evidence{Fact: "how far its heap may grow", Value: byteText(h.MaxBytes), Source: heapSource(h)})
	if h.Published {
		f.Evidence = append(f.Evidence,
			memoryEvidence("heap in use", h.UsedBytes, h.MaxBytes, "hsperfdata"),
			Evidence{Fact: "in collections", Value: round(h.GCSeconds), Limit: round(v.Window.Seconds), Unit: fmt.Sprintf("s, %s of them", count(h.Collections)), Source: "hsperfdata"})
	}
	option := fmt.Sprintf("-Xmx%dm", want>>20)
	switch h.Runtime {
	case "go":
		option = fmt.Sprintf("GOMEMLIMIT=%dMiB", want>>20)
	case "node":
		option = fmt.Sprintf("--max-old-space-size=%d", want>>20)
	}
	f.Fix.Text = fmt.Sprintf("Give it room: %s, where it has %s (%s). ", option, byteText(h.MaxBytes), heapSource(h)) + f.Fix.Text
	f.Fix.Persist = []shell.Command{shell.Line("# %s on its command line or in its environment, and restart it", option)}
}

// stuckCollecting is for a service that is in garbage collection all the time and answers
// nobody.
func (v *View) stuckCollecting(l *ledger) *Finding {
	if l.called() || l.Requests >= fewRequests || l.waiting() < fewAffected {
		return nil
	}
	procs := v.workers(l)
	var busiest *observe.Thread
	var gc float64
	for _, p := range procs {
		for i := range p.Busiest {
			if t := &p.Busiest[i]; collectsGarbage(&busyThread{comm: t.Comm}) || t.Comm == "VM Thread" {
				gc += t.CPUSeconds + t.RunDelaySeconds
				if busiest == nil || t.CPUSeconds > busiest.CPUSeconds {
					busiest = t
				}
			}
		}
	}
	if busiest == nil || gc < gcStuck*v.Window.Seconds {
		return nil
	}
	f := supported(Subject{Kind: "process", NetNS: l.NetNS, PID: l.pid, Comm: v.commOf(l), Port: l.Port})
	f.Title = fmt.Sprintf("%s is in garbage collection without end", f.Subject.Comm)
	f.Weight = ratio(l.waiting(), l.Requests+l.waiting())
	lost := v.Window.Seconds * float64(l.waiting())
	f.lost = &lost
	f.Parents, f.Holds = []Parent{}, []int{l.pid}
	f.Impact = Impact{Share: round(f.Weight), Of: "requests", OfTime: true, Text: fmt.Sprintf("%s requests on %s have no answer while its heap is collected", count(l.waiting()), l.name())}
	f.Evidence = []Evidence{
		{Fact: "threads that collect ran, or were ready to", Value: round(gc), Limit: round(v.Window.Seconds), Unit: "s of the window, most of it " + busiest.Comm, Source: "/proc/PID/task/TID/schedstat"},
		{Fact: "requests without an answer", Value: l.waiting(), Unit: fmt.Sprintf("requests; answered in this window: %d", l.Requests), Source: recorded},
	}
	f.Fix.Text = "If what it keeps grows without end, look for that in a heap dump: more room only makes it take longer."
	v.roomier(v.heapOfService(procs), &f)
	f.Fix.Commands = []shell.Command{shell.Line("jcmd %s GC.class_histogram | head -30   # what fills the heap, as the user that it runs as", l.pid)}
	return &f
}

func (v *View) gcFinding(l *ledger, w *atWork, k cost, share float64, where, why string) *Finding {
	f := v.found(l, k, threadFloor, "while garbage is collected")
	f.Subject.Kind = "process"
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "CPU time in which garbage is collected", Value: round(share), Limit: 1, Unit: "share of the service's", Source: "/proc/PID/task/TID/schedstat, CPU samples"},
		Evidence{Fact: "why its requests wait for it", Value: why, Source: "/proc/PID/schedstat, request records"})
	if where != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "by " + where, Value: round(share), Unit: "share of the samples", Source: "CPU samples"})
	}
	var rss uint64
	for _, p := range w.procs {
		rss += p.RSSBytes
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "memory that the service holds", Value: rss, Unit: "bytes", Source: "/proc/PID/stat"})
	f.Fix.Text = "Give it a larger heap, if memory is to be had (-Xmx, GOGC and GOMEMLIMIT, --max-old-space-size), or have a request make less garbage; for short pauses choose a concurrent collector (ZGC, Shenandoah)."
	v.roomier(v.heapOfService(w.procs), f)
	f.Fix.Commands = []shell.Command{shell.Line("slowray flame --pid %s -o flame.html   # who allocates", v.busiestOf(w))}
	return f
}
