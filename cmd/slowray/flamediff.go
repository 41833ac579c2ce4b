package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

// profileLimits bound what is read of a recording, which may be anybody's: some bytes,
// compressed, may be gigabytes of frames. A minute of a host of 64 CPUs is a hundredth.
var profileLimits = budget.Limits{Bytes: 64 << 20, Unpacked: 64 << 20, Nodes: 8 << 20, Wall: 20 * time.Second}

// messageNodes is what a message counts for next to the numbers in it: a sample, a
// location, a label.
const messageNodes = 16

// readStacks reads what slowray flame wrote as pprof. What kind a frame is, a
// profile does not tell: see takeKinds.
func readStacks(ctx context.Context, name string) (*observe.Stacks, error) {
	if !strings.HasSuffix(strings.ToLower(name), pprofEnding) {
		return nil, fmt.Errorf("%s: must be a %s file that slowray flame wrote", name, pprofEnding)
	}
	f, size, err := observe.OpenSaved(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := parseStacks(io.LimitReader(f, size), budget.New(ctx, profileLimits))
	if err != nil {
		return nil, fmt.Errorf("%s: not a profile: %w", name, err)
	}
	return s, nil
}

// parseStacks reads a profile, compressed or not.
func parseStacks(r io.Reader, b *budget.Budget) (*observe.Stacks, error) {
	in := bufio.NewReader(b.Reader(r))
	text := io.Reader(in)
	if magic, _ := in.Peek(2); string(magic) == "\x1f\x8b" {
		zip, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		text = b.Unpacked(zip)
	}
	data, err := io.ReadAll(text)
	if err != nil {
		return nil, err
	}
	if err := countProfile(data, b); err != nil {
		return nil, err
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		return nil, err
	}
	return stacksOf(p, b)
}

// countProfile takes what the messages of a profile will be in memory (proto/profile.proto
// of google/pprof): those in it, those in these, and the numbers of packed fields.
func countProfile(data []byte, b *budget.Budget) error {
	return eachField(data, func(message []byte) error {
		if err := b.Nodes(messageNodes); err != nil {
			return err
		}
		return eachField(message, func(field []byte) error {
			numbers := 0
			for _, c := range field {
				if c < 0x80 { // the last byte of a number
					numbers++
				}
			}
			return b.Nodes(int64(messageNodes + numbers))
		})
	})
}

// eachField calls f with the fields of a message that have a length. What is no field
// ends it: that is for the reader to say.
func eachField(message []byte, f func([]byte) error) error {
	for len(message) > 0 {
		_, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil
		}
		message = message[size:]
		if kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(message)
			if size < 0 {
				return nil
			}
			if err := f(value); err != nil {
				return err
			}
			message = message[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(1, kind, message); size < 0 {
			return nil
		}
		message = message[size:]
	}
	return nil
}

// stacksOf makes stacks of a profile. A location may stand for many frames, and be in
// many samples.
func stacksOf(p *profile.Profile, b *budget.Budget) (*observe.Stacks, error) {
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
			if err := b.Nodes(int64(len(frames))); err != nil {
				return nil, err
			}
			x.Frames = append(x.Frames, frames...)
		}
		s.Samples = append(s.Samples, x)
	}
	return s, nil
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
