package compare

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

func itoa(n int) string { return strconv.Itoa(n) }

// hosts are the figures of the machines.
func hosts(a, b *observe.Observation) []Figure {
	of := func(name, unit string, read func(*observe.Observation) float64) Figure {
		return Figure{Name: name, Unit: unit, A: some(read(a)), B: some(read(b)), Judgement: Unknown}
	}
	cpu := of("CPU busy", "share", func(o *observe.Observation) float64 { return per(o.Use.CPU.Busy(), o.Use.CPU.Total()) })
	cpu.Judgement = judge(busy(a), busy(b))
	mode := func(name string, read func(*observe.CPUTime) float64) Figure {
		return of(name, "share", func(o *observe.Observation) float64 { return per(read(&o.Use.CPU), o.Use.CPU.Total()) })
	}
	list := []Figure{
		cpu,
		mode("CPU in user space", func(c *observe.CPUTime) float64 { return c.User + c.Nice }),
		mode("CPU in the kernel", func(c *observe.CPUTime) float64 { return c.System }),
		mode("CPU in softirqs", func(c *observe.CPUTime) float64 { return c.SoftIRQ }),
		mode("CPU waiting for disks", func(c *observe.CPUTime) float64 { return c.IOWait }),
		mode("CPU stolen by the hypervisor", func(c *observe.CPUTime) float64 { return c.Steal }),
		of("processes and threads begun", "1/s", func(o *observe.Observation) float64 { return per(float64(o.Use.Forks), o.Window.Seconds) }),
	}
	return slices.DeleteFunc(list, func(f Figure) bool { return *f.A == 0 && *f.B == 0 })
}

// busy is the course of the CPUs: the busy share of each span.
func busy(o *observe.Observation) []float64 {
	var all []float64
	for _, s := range o.Use.Course {
		all = append(all, per(s.Busy, s.Busy+s.Idle))
	}
	return all
}

// Counters are reported that rise at least so often a second in one, and by this
// factor more than in the other; the most so many of them.
const (
	leastRate    = 1.0
	counterMuch  = 2.0
	mostCounters = 20
)

// counters are those of the kernel that changed much: in all network namespaces
// together, and of the virtual memory.
func counters(a, b *observe.Observation) []Figure {
	in, out := rates(a), rates(b)
	names := map[string]bool{}
	for n := range in {
		names[n] = true
	}
	for n := range out {
		names[n] = true
	}
	type weighed struct {
		Figure
		weight float64
	}
	var list []weighed
	for _, n := range slices.Sorted(maps.Keys(names)) {
		x, y := in[n], out[n]
		if max(x, y) < leastRate || max(x, y) < counterMuch*min(x, y) {
			continue
		}
		f := Figure{Name: n, Unit: "1/s", A: some(x), B: some(y), Judgement: Unknown}
		list = append(list, weighed{f, math.Log(max(x, y)+1) - math.Log(min(x, y)+1)})
	}
	slices.SortStableFunc(list, func(x, y weighed) int { return -cmp.Compare(x.weight, y.weight) })
	figures := []Figure{}
	for _, w := range list[:min(len(list), mostCounters)] {
		figures = append(figures, w.Figure)
	}
	return figures
}

func rates(o *observe.Observation) map[string]float64 {
	all := map[string]float64{}
	for i := range o.Namespaces {
		for n, v := range o.Namespaces[i].Counters {
			all[n] += per(float64(v), o.Window.Seconds)
		}
	}
	for n, v := range o.Use.VM {
		all["vmstat."+n] += per(float64(v), o.Window.Seconds)
	}
	return all
}

// mostFunctions that are reported.
const mostFunctions = 15

// functions are those that compute, by program: shares of its samples.
func functions(a, b *observe.Observation) []Figure {
	in, out := computing(a), computing(b)
	names := map[string]bool{}
	for n := range in {
		names[n] = true
	}
	for n := range out {
		names[n] = true
	}
	list := []Figure{}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		f := Figure{Name: n, Unit: "share", Judgement: Unknown}
		if v, ok := in[n]; ok {
			f.A = some(v)
		}
		if v, ok := out[n]; ok {
			f.B = some(v)
		}
		if math.Abs(in[n]-out[n]) >= 0.05 {
			list = append(list, f)
		}
	}
	slices.SortStableFunc(list, func(x, y Figure) int {
		return -cmp.Compare(math.Abs(in[x.Name]-out[x.Name]), math.Abs(in[y.Name]-out[y.Name]))
	})
	return list[:min(len(list), mostFunctions)]
}

func computing(o *observe.Observation) map[string]float64 {
	all := map[string]float64{}
	if o.Profile == nil {
		return all
	}
	for i := range o.Profile.Processes {
		p := &o.Profile.Processes[i]
		of := p.Looked
		if of == 0 {
			of = p.Samples
		}
		for _, f := range p.Functions {
			if f.Name != "" {
				key := p.Comm + ": " + f.Name
				all[key] = max(all[key], per(float64(f.Self), float64(of)))
			}
		}
	}
	return all
}
