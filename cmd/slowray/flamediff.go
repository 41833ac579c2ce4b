package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/slowray/slowray/internal/observe"
)

// maxProfile bounds what is read of a recording, in bytes.
const maxProfile = 256 << 20

// readStacks reads what slowray flame wrote as pprof. What kind a frame is, a
// profile does not tell: see takeKinds.
func readStacks(name string) (*observe.Stacks, error) {
	if !strings.HasSuffix(strings.ToLower(name), pprofEnding) {
		return nil, fmt.Errorf("%s: must be a %s file that slowray flame wrote", name, pprofEnding)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Parse(io.LimitReader(f, maxProfile))
	if err != nil {
		return nil, fmt.Errorf("%s: not a profile: %w", name, err)
	}
	return stacksOf(p), nil
}

func stacksOf(p *profile.Profile) *observe.Stacks {
	s := &observe.Stacks{StartNS: p.TimeNanos, WindowNS: p.DurationNanos}
	for _, t := range p.SampleType {
		s.Types = append(s.Types, observe.StackValue{Type: t.Type, Unit: t.Unit})
	}
	if p.Period > 0 {
		s.Hz = int(1e9 / p.Period)
	}
	index := map[*profile.Location][]int32{}
	for _, sample := range p.Sample {
		x := observe.StackSample{
			PID: number(sample, "pid"), TID: number(sample, "tid"), Comm: label(sample, "comm"), Thread: label(sample, "thread"),
			State: label(sample, "state"), Slow: label(sample, "slow") == "true", Values: sample.Value,
		}
		for _, l := range sample.Location {
			frames, ok := index[l]
			if !ok {
				for _, line := range l.Line {
					frames = append(frames, int32(len(s.Frames)))
					s.Frames = append(s.Frames, frameOf(l, line))
				}
				index[l] = frames
			}
			x.Frames = append(x.Frames, frames...)
		}
		s.Samples = append(s.Samples, x)
	}
	return s
}

func frameOf(l *profile.Location, line profile.Line) observe.Frame {
	f := observe.Frame{Kind: observe.FrameUnknown, Line: int(line.Line)}
	if line.Function != nil {
		f.Name, f.File = line.Function.Name, line.Function.Filename
	}
	if l.Mapping != nil {
		f.Module = l.Mapping.File
		// Frames that are in no module are in one that is called as their kind.
		if kind, ok := strings.CutPrefix(f.Module, "["); ok {
			f.Module, f.Kind = "", observe.FrameKind(strings.TrimSuffix(kind, "]"))
		}
	}
	return f
}

func label(s *profile.Sample, key string) string {
	if v := s.Label[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func number(s *profile.Sample, key string) int {
	n, _ := strconv.Atoi(label(s, key)) // 0: not known
	return n
}

// takeKinds gives the frames of an earlier recording the kinds that equal
// frames, or others of their module, have in a later one.
func takeKinds(of, from *observe.Stacks) {
	type identity struct{ name, module, file string }
	exact, inModule := map[identity]observe.FrameKind{}, map[string]observe.FrameKind{}
	for _, f := range from.Frames {
		exact[identity{f.Name, f.Module, f.File}] = f.Kind
		if f.Module != "" {
			inModule[f.Module] = f.Kind
		}
	}
	for i := range of.Frames {
		f := &of.Frames[i]
		if kind, ok := exact[identity{f.Name, f.Module, f.File}]; ok {
			f.Kind = kind
		} else if kind, ok := inModule[f.Module]; ok {
			f.Kind = kind
		}
	}
}
