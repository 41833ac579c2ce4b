package web

import (
	"context"
	"fmt"
	"math"

	num "github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
)

const (
	comparedWindows = 6    // of each side
	leastCPU        = 0.02 // of the host's CPUs: a change that is reported
)

// computed is CPU time by what computed.
type computed struct {
	process   map[string]float64 // share of the host's CPUs, by comm
	functions map[[2]string]float64
	windows   int
	samples   uint64
}

func (c *computed) add(f *windowFacts) {
	p := f.profile
	cpus := float64(max(f.cpus, 1))
	if p == nil || p.Hz <= 0 || f.seconds <= 0 {
		return
	}
	c.windows++
	c.samples += p.Samples
	each := 1 / (float64(p.Hz) * f.seconds * cpus)
	for i := range p.Processes {
		x := &p.Processes[i]
		share := float64(x.Samples) * each
		c.process[x.Comm] += share
		looked := x.Looked
		if looked == 0 {
			looked = x.Samples
		}
		for j := range x.Functions {
			if fn := &x.Functions[j]; fn.Own > 0 && looked > 0 && fn.Kind != observe.FrameUnknown {
				c.functions[[2]string{x.Comm, fn.Name}] += share * float64(fn.Own) / float64(looked)
			}
		}
	}
	for i := range p.ShortLived {
		c.process[p.ShortLived[i].Comm] += float64(p.ShortLived[i].Samples) * each
	}
}

// compareStacks compares what processes computed, and in which functions.
func (s *server) compareStacks(ctx context.Context, q *query, outside []timeRange, lost *losses) ([]*differenceRow, error) {
	var sides [2]computed
	taken := map[string]bool{}
	for side, ranges := range [2][]timeRange{{q.timeRange}, outside} {
		c := &sides[side]
		c.process, c.functions = map[string]float64{}, map[[2]string]float64{}
		for _, r := range ranges {
			facts, err := s.within(ctx, r, comparedWindows/len(ranges), unjudged, lost)
			if err != nil {
				return nil, err
			}
			for _, f := range facts {
				// A window on the edge is the range's.
				if !taken[f.Path] {
					taken[f.Path] = true
					c.add(f)
				}
			}
		}
	}
	in, out := &sides[0], &sides[1]
	if in.windows == 0 || out.windows == 0 {
		return nil, nil
	}
	var rows []*differenceRow
	tell := func(dimension, name string, a, b float64) {
		a, b = a/float64(in.windows), b/float64(out.windows)
		if d := math.Abs(a - b); d < leastCPU || a < noticedRatio*b && b < noticedRatio*a {
			return
		}
		rows = append(rows, &differenceRow{Dimension: dimension, Name: name, Unit: unitShare, Inside: figure(a), Outside: figure(b), Ratio: quotient(a, b), Explains: figure(nothing),
			Text:  fmt.Sprintf("%s: %s of the host's CPU time, %s outside.", name, num.Percent(a), num.Percent(b)),
			score: 0.4 * math.Abs(a-b)})
	}
	each := func(a, b map[string]float64, f func(name string)) {
		for name := range a {
			f(name)
		}
		for name := range b {
			if _, ok := a[name]; !ok {
				f(name)
			}
		}
	}
	each(in.process, out.process, func(comm string) { tell(byProcess, comm, in.process[comm], out.process[comm]) })
	for k, a := range in.functions {
		tell(byStack, k[1]+" in "+k[0], a, out.functions[k])
	}
	for k, b := range out.functions {
		if _, ok := in.functions[k]; !ok {
			tell(byStack, k[1]+" in "+k[0], 0, b)
		}
	}
	sortRows(rows)
	return rows, nil
}
