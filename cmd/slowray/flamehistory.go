package main

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
)

// fromHistory is the stacks of windows of the history: whole ones where they were
// recorded, which is for a moment in which services computed while their requests
// were slow, else the functions that were found computing; or what threads were seen
// waiting for.
func (c *flameCmd) fromHistory(s *streams) (*observe.Stacks, error) {
	windows, err := c.windows(s, value(c.For))
	if err != nil {
		return nil, err
	}
	var list []*observe.Stacks
	whole := 0
	ours := family{}
	for _, w := range windows {
		o, err := observe.Load(w.Path)
		if err != nil {
			if len(windows) == 1 {
				return nil, err
			}
			tellUnreadable(s, err)
			continue
		}
		if c.PID != nil {
			ours[*c.PID] = true
			ours.add(o, *c.PID)
		}
		if c.OffCPU {
			if stacks := flame.FromWaits(o.Waits, o.Window); stacks != nil {
				list = append(list, stacks)
			}
			continue
		}
		if o.Stacks != nil {
			list = append(list, o.Stacks)
			whole++
			continue
		}
		if stacks := flame.FromProfile(o.Profile, o.Window); stacks != nil {
			list = append(list, stacks)
		}
	}
	if len(list) == 0 && c.OffCPU {
		return nil, fmt.Errorf("no thread of a service was seen waiting then, or waits were not watched (see slowray doctor)")
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("nothing is known of what computed then: CPU samples could not be taken (see slowray doctor)")
	}
	if whole < len(list) && !c.OffCPU {
		fmt.Fprintf(s.err, "slowray: whole stacks are recorded only while services compute and their requests are slow: of %d of %d windows these are only the functions, without their callers\n", len(list)-whole, len(list))
	}
	out := flame.Merge(list)
	if c.PID != nil {
		out.Samples = slices.DeleteFunc(out.Samples, func(x observe.StackSample) bool { return !ours[x.PID] })
		if len(out.Samples) == 0 {
			return nil, fmt.Errorf("neither process %d nor its master or workers were %s then", *c.PID, map[bool]string{true: "seen waiting", false: "found computing"}[c.OffCPU])
		}
	}
	if note := unnamedNote(out); note != "" && whole < len(list) && !c.OffCPU {
		out.Notes = append(out.Notes, note)
	}
	return out, nil
}

// unnamedNote says of how much CPU time no function is known; nothing where that is
// little.
func unnamedNote(s *observe.Stacks) string {
	column := slices.IndexFunc(s.Types, func(t observe.StackValue) bool { return t.Type == "cpu" })
	if column < 0 {
		return ""
	}
	var all, unnamed int64
	for i := range s.Samples {
		x := &s.Samples[i]
		if column >= len(x.Values) {
			continue
		}
		all += x.Values[column]
		if len(x.Frames) == 0 || len(x.Frames) == 1 && s.Frames[x.Frames[0]] == flame.InKernel {
			unnamed += x.Values[column]
		}
	}
	const little = 0.05
	if all <= 0 || float64(unnamed) < little*float64(all) {
		return ""
	}
	return fmt.Sprintf("In a history functions are named only of processes that serve and that use a tenth of a CPU or more: of %s of this CPU time it is only known which process used it. slowray flame without --at names all of what computes now.",
		figure.Percent(float64(unnamed)/float64(all)))
}
