package heap

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// Process is a process that may have such a runtime.
type Process struct {
	PID        int
	Comm       string
	Threads    int
	LimitBytes uint64 // the least memory limit of its control groups; 0 = none
}

// runtime is which runtime a process has, or empty; options are its own.
func (p *Process) runtime(options []string) string {
	if r := Runtime(p.Comm); r != "" {
		return r
	}
	if slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "GO") }) {
		return Go
	}
	return ""
}

// Runtime is which runtime a process of this name has, or empty. jsvc is the
// daemon that Java services of init scripts run in.
func Runtime(comm string) string {
	switch comm {
	case "java", "jsvc":
		return JVM
	case "node", "nodejs":
		return Node
	}
	return ""
}

// Watch follows the heaps of some processes over a window.
type Watch struct {
	proc      string
	hostBytes uint64
	heaps     []*watched
}

type watched struct {
	Process
	heap   observe.Heap
	file   string // of the counters, inside the process's root; empty when there is none
	before perfData
	last   perfData
	seen   bool
}

const (
	maxHeaps    = 64
	maxAsked    = 256 // processes of which the options are read
	maxPerfData = 1 << 20
	maxCmdline  = 64 << 10
)

// Begin reads the heaps of those processes, of 256 at most, that have one, at most 64: those
// with most threads. Of those that the budget has no room for only the options are known.
func Begin(b *budget.Budget, proc string, hostBytes uint64, procs []Process) *Watch {
	w := &Watch{proc: proc, hostBytes: hostBytes}
	procs = slices.Clone(procs)
	slices.SortStableFunc(procs, func(a, b Process) int { return cmp.Compare(b.Threads, a.Threads) })
	procs = procs[:min(len(procs), maxAsked)]
	options := map[int][]string{}
	procs = slices.DeleteFunc(procs, func(p Process) bool {
		options[p.PID] = Options(w.words(p.PID))
		return p.runtime(options[p.PID]) == ""
	})
	procs = procs[:min(len(procs), maxHeaps)]
	for i, p := range procs {
		share := b.Share(len(procs) - i)
		h := &watched{Process: p}
		h.heap = Of(p.runtime(options[p.PID]), options[p.PID], hostBytes, p.LimitBytes)
		h.heap.PID, h.heap.Comm = p.PID, p.Comm
		w.heaps = append(w.heaps, h)
		if h.heap.Runtime == JVM {
			h.file = w.perfFile(share, p.PID)
			w.look(share, h)
			h.before = h.last
		}
	}
	return w
}

// Look reads the counters once more: of a JVM that ends before the window does,
// this is what is known.
func (w *Watch) Look(b *budget.Budget) {
	for i, h := range w.heaps {
		w.look(b.Share(len(w.heaps)-i), h)
	}
}

// End is what came of them, by pid.
func (w *Watch) End(b *budget.Budget) []observe.Heap {
	w.Look(b)
	var out []observe.Heap
	for _, h := range w.heaps {
		o := h.heap
		if h.seen {
			o.Published = true
			o.UsedBytes, o.Collections = h.last.usedBytes, h.last.collections-min(h.before.collections, h.last.collections)
			if h.last.maxBytes > 0 {
				o.MaxBytes = h.last.maxBytes
			}
			o.Collector = cmp.Or(h.last.collector, o.Collector)
			o.GCSeconds = float64(h.last.gcTicks-min(h.before.gcTicks, h.last.gcTicks)) / float64(h.last.hz)
		}
		if o.MaxBytes > 0 || o.Runtime == Go {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b observe.Heap) int { return cmp.Compare(a.PID, b.PID) })
	return out
}

func (w *Watch) look(b *budget.Budget, h *watched) {
	if h.file == "" {
		return
	}
	text, _, err := rootfs.At(fmt.Sprintf("%s/%d/root", w.proc, h.PID), b).ReadFile(h.file, maxPerfData)
	if err != nil {
		return
	}
	if d, err := parsePerfData(b, []byte(text)); err == nil {
		h.last, h.seen = d, true
	}
}

// perfFile finds the counters of a JVM: it names them by its number in its own
// process namespace.
func (w *Watch) perfFile(b *budget.Budget, pid int) string {
	own := fmt.Sprint(pid)
	if numbers := prefork.Numbers(w.proc, pid); len(numbers) > 0 {
		own = fmt.Sprint(numbers[len(numbers)-1])
	}
	root := rootfs.At(fmt.Sprintf("%s/%d/root", w.proc, pid), b)
	found, err := root.Glob("/tmp/hsperfdata_*/" + own)
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// words is the command line of a process, and what its environment has in the
// variables that runtimes take options from.
func (w *Watch) words(pid int) []string {
	words := w.strings(pid, "cmdline")
	for _, v := range w.strings(pid, "environ") {
		if FromEnvironment(v) {
			name, value, _ := strings.Cut(v, "=")
			if strings.HasPrefix(name, "GO") {
				value = v
			}
			words = append(words, value)
		}
	}
	return words
}

// FromEnvironment says whether a runtime takes options from this variable,
// given as NAME=VALUE.
func FromEnvironment(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "NODE_OPTIONS", "GOMEMLIMIT", "GOGC"}, name)
}

// strings reads a file of strings that end in NUL, at most 64 kB of it.
func (w *Watch) strings(pid int, name string) []string {
	b, err := budget.Head(filepath.Join(w.proc, fmt.Sprint(pid), name), maxCmdline)
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\x00")
}
