package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// JVMSerialGC: a JVM that sees one CPU, or little memory, takes the collector of
// one thread, and all stands still while that collects.
const JVMSerialGC ID = "jvm-serial-gc"

var jvmSerialGC = Cause{
	ID:    JVMSerialGC,
	Title: "The JVM uses the serial garbage collector",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit,
	Needs: []observe.Kind{observe.KindRequests, observe.KindProcess},
	Check: checkSerialGC,
}

func checkSerialGC(v *View) Result {
	r := v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		h := v.heapBehind(l)
		if h == nil {
			return judged{because: "no Java virtual machine that publishes its counters serves here", near: -1}
		}
		share := ratio(h.GCSeconds, v.Window.Seconds)
		text := fmt.Sprintf("%s (pid %d) collects with the %s collector, %s of the time", h.Comm, h.PID, h.Collector, percent(share))
		k := l.cost(1, threadParts...)
		why := v.seesOneCPU(h.PID)
		switch {
		case h.Collector != "serial" || share < gcOfWindow:
			return judged{because: text, near: share}
		case h.Chosen:
			return judged{because: text + ", which an option asks for", near: share}
		case why == "":
			return judged{because: text + ", though it may use more than one CPU", near: share}
		case !l.noticed(k, threadFloor):
			return judged{because: text + ", and no request is slow for it", near: share}
		}
		f := v.found(l, scaled(k, max(share, gcOfWindow)), threadFloor, "standing still while garbage is collected")
		f.Subject.Kind, f.Subject.PID, f.Subject.Comm = "process", h.PID, h.Comm
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "the time in which requests could be answered", OfTime: true, Text: fmt.Sprintf("%s stood still for %s of the window, in %s collections", h.Comm, percent(share), count(h.Collections))}
		f.Evidence = append([]Evidence{
			{Fact: "time in collections, by one thread", Value: round(h.GCSeconds), Limit: round(v.Window.Seconds), Unit: "s", Source: "hsperfdata"},
			{Fact: "CPUs that it sees", Value: why, Source: "cpu.max, cpu.cfs_quota_us, /proc/PID/status"},
			memoryEvidence("heap in use", h.UsedBytes, h.MaxBytes, "hsperfdata")}, f.Evidence...)
		f.Fix.Text = "Start it with -XX:ActiveProcessorCount=2 or -XX:+UseParallelGC, or let it have two CPUs or more; with a larger heap it collects less often."
		f.Fix.Persist = []shell.Command{shell.Line("# JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=2 in its environment")}
		return judged{finding: f}
	})
	return r
}

// heapBehind is the heap of a JVM that answers an endpoint and publishes its
// counters, or nil.
func (v *View) heapBehind(l *ledger) *observe.Heap {
	var places []int
	for _, p := range v.workers(l) {
		places = append(places, v.heaps[p.PID]...)
	}
	slices.Sort(places)
	for _, i := range places {
		if h := &v.Heaps[i]; h.Runtime == "jvm" && h.Published {
			return h
		}
	}
	return nil
}

// seesOneCPU says why a JVM sees one CPU where the host has more, or is empty.
func (v *View) seesOneCPU(pid int) string {
	if v.Host.CPUs < 2 {
		return ""
	}
	for _, i := range v.groups[pid] {
		if c := &v.Cgroups[i]; c.QuotaCPUs > 0 && c.QuotaCPUs <= 1 {
			return fmt.Sprintf("1, for the quota of %s is %.3g", c.Path, c.QuotaCPUs)
		}
	}
	if p := v.Process(pid); p != nil && p.CPUs != "" && len(cpuList(p.CPUs)) == 1 {
		return "1, for it may only run on CPU " + p.CPUs
	}
	return ""
}
