package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// JVMHeapOverLimit: a Java heap may grow beyond what its control group may
// have. The JVM sees no need to collect garbage before the kernel kills it.
const JVMHeapOverLimit ID = "jvm-heap-over-limit"

var jvmHeapOverLimit = Cause{
	ID:    JVMHeapOverLimit,
	Title: "The Java heap exceeds the memory limit (OOM kill)",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassKill,
	Needs: []observe.Kind{observe.KindKernelLog},
	Check: func(v *View) Result { return checkHeap(v, "jvm") },
}

// NodeHeapOverLimit: the same of V8's old space.
const NodeHeapOverLimit ID = "node-heap-over-limit"

var nodeHeapOverLimit = Cause{
	ID:    NodeHeapOverLimit,
	Title: "The node heap exceeds the memory limit (OOM kill)",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassKill,
	Needs: []observe.Kind{observe.KindKernelLog},
	Check: func(v *View) Result { return checkHeap(v, "node") },
}

// WorkersOverMemoryLimit: processes of one program that each have a modest size, and
// together more than they may have.
const WorkersOverMemoryLimit ID = "workers-over-memory-limit"

var workersOverLimit = Cause{
	ID:    WorkersOverMemoryLimit,
	Title: "The workers exceed their memory limit (OOM kill)",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassKill,
	Needs: []observe.Kind{observe.KindKernelLog, observe.KindProcess},
	Check: checkWorkersOverLimit,
}

// MemoryLeakTowardLimit: a process grows until it is killed, again and again.
const MemoryLeakTowardLimit ID = "memory-leak-toward-limit"

var leakTowardLimit = Cause{
	ID:    MemoryLeakTowardLimit,
	Title: "The service leaks memory until it is killed",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassKill,
	Needs: []observe.Kind{observe.KindKernelLog},
	Check: checkLeak,
}

// over says that a heap may outgrow a limit.
func over(h *observe.Heap, limit uint64) bool {
	return h != nil && limit > 0 && float64(h.MaxBytes)*(1+besideHeap) > float64(limit)
}

// heapOf is the heap of a process that was killed: as it was seen, as that of
// another process of its container, or as the engine tells its options.
func (v *View) heapOf(k *observe.OOMKill) *observe.Heap {
	runtime := ""
	switch k.Comm {
	case "java", "jsvc":
		runtime = "jvm"
	case "node", "nodejs":
		runtime = "node"
	}
	var other *observe.Heap
	for i := range v.Heaps {
		h := &v.Heaps[i]
		p := v.Process(h.PID)
		if h.PID == k.PID && h.Comm == k.Comm {
			return h
		}
		if p != nil && h.Runtime == runtime && (k.Container != "" && p.Container == k.Container || k.Cgroup != "/" && p.Cgroup == k.Cgroup) {
			other = h
		}
	}
	if other != nil {
		return other
	}
	if c := v.container(k.Container); c != nil && c.Heap != nil && c.Heap.Runtime == runtime {
		return c.Heap
	}
	return nil
}

func checkHeap(v *View, runtime string) Result {
	r := ruledOut(v.heapsText(runtime))
	for _, d := range v.deaths(false) {
		k := d.last()
		h, limit := v.heapOf(k), v.limitOf(k)
		if d.felt.text == "" || h == nil || h.Runtime != runtime || !over(h, limit) {
			continue
		}
		f := v.killFinding(&d)
		holder := v.holderOf(k.LimitCgroup, k.Container, k.Unit)
		f.Title = fmt.Sprintf("OOM kill: heap of %s (%s) exceeds %s (%s)", k.Comm, byteText(h.MaxBytes), holder.text, byteText(limit))
		f.Evidence = append([]Evidence{{Fact: "how far the heap may grow", Value: byteText(h.MaxBytes), Source: heapSource(h)},
			{Fact: "what may be used in all", Value: byteText(limit), Source: "memory.max of its group"}}, f.Evidence...)
		want := uint64(heapOfLimit * float64(limit))
		option := fmt.Sprintf("-Xmx%dm", want>>20)
		if runtime == "node" {
			option = fmt.Sprintf("--max-old-space-size=%d", want>>20)
		}
		f.Fix.Text = fmt.Sprintf("Run it with %s, at most three quarters of the limit (%s), or give %s more than %s.%s", option, byteText(limit), holder.text,
			byteText(uint64(float64(h.MaxBytes)*(1+besideHeap))), holder.setsWhere())
		switch {
		case holder.what == "pod":
			name := map[string]string{"jvm": "JAVA_TOOL_OPTIONS", "node": "NODE_OPTIONS"}[runtime]
			f.Fix.Persist = []shell.Command{holder.pod.setEnv(name, option)}
		case runtime == "jvm":
			f.Fix.Text += " A JVM since 10 and 8u191 goes by its limit itself: -XX:MaxRAMPercentage=75 without -Xmx, and without -XX:-UseContainerSupport."
			f.Fix.Persist = []shell.Command{shell.Line("# JAVA_TOOL_OPTIONS=%s in its environment: Environment= of the unit, or environment of the container", option)}
		default:
			f.Fix.Persist = []shell.Command{shell.Line("# NODE_OPTIONS=%s in its environment", option)}
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

func heapSource(h *observe.Heap) string {
	switch {
	case h.Published && h.From != "default":
		return "hsperfdata; " + h.From
	case h.Published:
		return "hsperfdata"
	case h.From == "":
		return "command line"
	}
	return h.From
}

// heapsText tells of the heaps that there are.
func (v *View) heapsText(runtime string) string {
	text, most := "no such runtime serves here", 0.0
	if runtime == "jvm" {
		text = "no Java virtual machine serves here"
	}
	for i := range v.Heaps {
		h := &v.Heaps[i]
		if h.Runtime != runtime {
			continue
		}
		limit := v.memoryLimitOf(h.PID)
		if limit == 0 {
			if most == 0 {
				text = fmt.Sprintf("the heap of %s (pid %d) may grow to %s, and no control group limits it", h.Comm, h.PID, byteText(h.MaxBytes))
			}
			continue
		}
		if share := float64(h.MaxBytes) / float64(limit); share > most {
			most = share
			text = fmt.Sprintf("the heap of %s (pid %d) may grow to %s where %s may be used in all, and it was not killed", h.Comm, h.PID, byteText(h.MaxBytes), byteText(limit))
		}
	}
	return text
}

// memoryLimitOf is the least memory limit of a process's control groups, 0 when
// there is none.
func (v *View) memoryLimitOf(pid int) uint64 {
	var least uint64
	for _, i := range v.groups[pid] {
		if c := &v.Cgroups[i]; c.MemoryLimitBytes > 0 && (least == 0 || c.MemoryLimitBytes < least) {
			least = c.MemoryLimitBytes
		}
	}
	return least
}

// workersOver is how many processes of the killed one's program its group
// holds, when they are too many for the limit.
func (v *View) workersOver(d *death) int {
	k := d.last()
	limit, n := v.limitOf(k), 0
	switch {
	case k.Container != "":
		n = len(v.kin()[kin{k.Comm, k.Container, true}])
	case k.Cgroup != "/":
		n = len(v.kin()[kin{k.Comm, k.Cgroup, false}])
	}
	if n < manyWorkers || limit == 0 || k.AnonBytes > limit/2 || k.AnonBytes*uint64(n) <= limit {
		return 0
	}
	return n
}

func checkWorkersOverLimit(v *View) Result {
	r := ruledOut("no worker of several was killed because memory ran out")
	for _, d := range v.deaths(false) {
		k := d.last()
		n, limit := v.workersOver(&d), v.limitOf(k)
		if d.felt.text == "" || n == 0 {
			continue
		}
		f := v.killFinding(&d)
		h := v.holderOf(k.LimitCgroup, k.Container, k.Unit)
		fits := max(int(0.75*float64(limit)/float64(k.AnonBytes)), 1)
		want := uint64(1.33 * float64(n) * float64(k.AnonBytes))
		f.Evidence = append([]Evidence{{Fact: fmt.Sprintf("%d processes of %s, of %s each", n, k.Comm, byteText(k.AnonBytes)), Value: byteText(uint64(n) * k.AnonBytes), Source: "kernel log, /proc"},
			{Fact: "what may be used in all", Value: byteText(limit), Source: "memory.max of its group"}}, f.Evidence...)
		f.Fix.Text = fmt.Sprintf("Run at most %d workers, or give %s %s.%s", fits, h.text, byteText(want), h.setsWhere())
		if c := v.container(k.Container); c == nil || !c.Down() || h.what == "pod" {
			h.raise(&f.Fix, "", "", memorySetting(want))
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

func checkLeak(v *View) Result {
	r := ruledOut("nothing was killed because memory ran out twice within a quarter of an hour")
	for _, d := range v.deaths(false) {
		k := d.last()
		limit := v.limitOf(k)
		grown := slices.DeleteFunc(slices.Clone(d.kills), func(o *observe.OOMKill) bool {
			return o.Comm != k.Comm || float64(o.AnonBytes) < leakOfLimit*float64(limit)
		})
		switch {
		case d.felt.text == "" || limit == 0 || len(grown) < 2:
			continue
		case over(v.heapOf(k), limit) || v.workersOver(&d) > 0:
			r.RuledOut = fmt.Sprintf("%s was killed %d times, and the limit of its heap, or its number of workers, explains that", k.Comm, len(grown))
			continue
		}
		f := v.killFinding(&d)
		every := (grown[len(grown)-1].At - grown[0].At) / float64(len(grown)-1)
		f.Evidence = append([]Evidence{{Fact: "from one kill to the next it took", Value: seconds(every), Source: "kernel log"}}, f.Evidence...)
		f.Fix.Text = fmt.Sprintf("Find what %s keeps (a heap dump, a profile of allocations): it reaches %s once in %s. A higher limit only makes that take longer.", k.Comm, byteText(limit), strings.TrimSpace(seconds(every)))
		f.Fix.Commands = []shell.Command{shell.Line("ps -C %s -o pid,etimes,rss,args   # how it grows", shell.Word(k.Comm))}
		r.Findings = append(r.Findings, f)
	}
	return r
}
