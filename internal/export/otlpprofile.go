package export

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	profilespb "go.opentelemetry.io/proto/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/observe"
)

// Profiles are a signal of OTLP that is in development (alpha in opentelemetry-proto 1.11,
// package profiles.v1development): its form may change with any version, and a collector
// takes it only of its own. All that goes by that form is in this file, wire.go has its paths.

const (
	// mostSamples of a profile are sent, the largest ones: a collector takes 4 MB by gRPC.
	mostSamples = 10_000
	// maxFrame bounds a name of a function or a file, bytes.
	maxFrame = 512
)

// frameTypes are the values of profile.frame.type, of the semantic conventions.
var frameTypes = map[observe.FrameKind]string{
	observe.FrameKernel: "kernel", observe.FrameNative: "native", observe.FrameGo: "go", observe.FramePython: "cpython",
	observe.FrameJava: "jvm", observe.FramePHP: "php", observe.FrameNode: "v8js", observe.FrameRuby: "ruby",
}

// dictionary holds each item once. The first of each table is its zero value, which an
// index of 0 stands for.
type dictionary struct {
	*profilespb.ProfilesDictionary
	strings    map[string]int32
	functions  map[[2]int32]int32
	mappings   map[int32]int32
	locations  map[observe.Frame]int32
	attributes map[attributeKey]int32
	stacks     map[string]int32
}

type attributeKey struct {
	key, text string
	number    int64
}

func newDictionary() *dictionary {
	return &dictionary{
		ProfilesDictionary: &profilespb.ProfilesDictionary{
			StringTable: []string{""}, FunctionTable: []*profilespb.Function{{}}, MappingTable: []*profilespb.Mapping{{}}, LocationTable: []*profilespb.Location{{}},
			LinkTable: []*profilespb.Link{{}}, AttributeTable: []*profilespb.KeyValueAndUnit{{}}, StackTable: []*profilespb.Stack{{}},
		},
		strings: map[string]int32{"": 0}, functions: map[[2]int32]int32{}, mappings: map[int32]int32{}, locations: map[observe.Frame]int32{},
		attributes: map[attributeKey]int32{}, stacks: map[string]int32{"": 0},
	}
}

// once is the index of an item, which is appended where it is new.
func once[K comparable, T any](known map[K]int32, key K, table *[]T, item func() T) int32 {
	if i, ok := known[key]; ok {
		return i
	}
	made := item()
	i := int32(len(*table))
	*table = append(*table, made)
	known[key] = i
	return i
}

func (d *dictionary) text(s string) int32 {
	s = bounded(s, maxFrame)
	return once(d.strings, s, &d.StringTable, func() string { return s })
}

// attribute is a text, or a number where there is no text.
func (d *dictionary) attribute(key, text string, number int64) int32 {
	return once(d.attributes, attributeKey{key, text, number}, &d.AttributeTable, func() *profilespb.KeyValueAndUnit {
		value := intValue(number)
		if text != "" {
			value = textValue(bounded(text, maxFrame))
		}
		return &profilespb.KeyValueAndUnit{KeyStrindex: d.text(key), Value: value}
	})
}

func (d *dictionary) location(f observe.Frame) int32 {
	return once(d.locations, f, &d.LocationTable, func() *profilespb.Location {
		name, file := d.text(cmp.Or(f.Name, "[unknown]")), d.text(f.File)
		l := &profilespb.Location{Lines: []*profilespb.Line{{Line: int64(f.Line), FunctionIndex: once(d.functions, [2]int32{name, file}, &d.FunctionTable, func() *profilespb.Function {
			return &profilespb.Function{NameStrindex: name, FilenameStrindex: file}
		})}}}
		if f.Module != "" {
			module := d.text(f.Module)
			l.MappingIndex = once(d.mappings, module, &d.MappingTable, func() *profilespb.Mapping { return &profilespb.Mapping{FilenameStrindex: module} })
		}
		if kind := frameTypes[f.Kind]; kind != "" {
			l.AttributeIndices = []int32{d.attribute("profile.frame.type", kind, 0)}
		}
		return l
	})
}

func (d *dictionary) stack(frames []observe.Frame, indices []int32) int32 {
	var locations []int32
	key := make([]byte, 0, 4*len(indices))
	for _, i := range indices {
		if i < 0 || int(i) >= len(frames) {
			continue
		}
		l := d.location(frames[i])
		locations = append(locations, l)
		key = append(key, byte(l), byte(l>>8), byte(l>>16), byte(l>>24))
	}
	return once(d.stacks, string(key), &d.StackTable, func() *profilespb.Stack { return &profilespb.Stack{LocationIndices: locations} })
}

// profiles is stacks as a message: for each program a resource, with a profile for each
// kind of value, and how many profiles these are. who tells of a process more than its name. It is nil when nothing is in
// them. ProfilesData has the same form on the wire as ExportProfilesServiceRequest.
func (x *Exporter) profiles(list []*observe.Stacks, who map[int]observe.Identity) (data *profilespb.ProfilesData, count int) {
	d := newDictionary()
	data = &profilespb.ProfilesData{Dictionary: d.ProfilesDictionary}
	scopes := map[observe.Identity]*profilespb.ScopeProfiles{}
	for _, s := range list {
		if s == nil {
			continue
		}
		for column, t := range s.Types {
			if t.Type == "cpu" && slices.ContainsFunc(s.Types, func(t observe.StackValue) bool { return t.Type == "samples" }) {
				continue // the samples with their period say the same
			}
			of := map[observe.Identity]*profilespb.Profile{}
			for _, sample := range largest(s.Samples, column) {
				id := who[sample.PID]
				id.Comm, id.Cgroup = sample.Comm, ""
				p := of[id]
				if p == nil {
					p = d.profile(s, t)
					count++
					of[id] = p
					into := scopes[id]
					if into == nil {
						into = &profilespb.ScopeProfiles{Scope: x.scope()}
						scopes[id] = into
						data.ResourceProfiles = append(data.ResourceProfiles, &profilespb.ResourceProfiles{Resource: x.program(&id), ScopeProfiles: []*profilespb.ScopeProfiles{into}})
					}
					into.Profiles = append(into.Profiles, p)
				}
				p.Samples = append(p.Samples, d.sample(s, sample, column))
			}
		}
	}
	if count == 0 {
		return nil, 0
	}
	return data, count
}

// largest are the samples that have a value, at most mostSamples of them.
func largest(samples []observe.StackSample, column int) []*observe.StackSample {
	list := make([]*observe.StackSample, 0, len(samples))
	for i := range samples {
		if s := &samples[i]; column < len(s.Values) && s.Values[column] > 0 {
			list = append(list, s)
		}
	}
	if len(list) > mostSamples {
		slices.SortStableFunc(list, func(a, b *observe.StackSample) int { return cmp.Compare(b.Values[column], a.Values[column]) })
		list = list[:mostSamples]
	}
	return list
}

// profile has no samples yet.
func (d *dictionary) profile(s *observe.Stacks, t observe.StackValue) *profilespb.Profile {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	p := &profilespb.Profile{ProfileId: id, TimeUnixNano: uint64(max(s.StartNS, 0)), DurationNano: uint64(max(s.WindowNS, 0)),
		SampleType: &profilespb.ValueType{TypeStrindex: d.text(t.Type), UnitStrindex: d.text(t.Unit)}}
	if s.Hz > 0 {
		p.PeriodType = &profilespb.ValueType{TypeStrindex: d.text("cpu"), UnitStrindex: d.text("nanoseconds")}
		p.Period = 1e9 / int64(s.Hz)
	}
	return p
}

func (d *dictionary) sample(s *observe.Stacks, x *observe.StackSample, column int) *profilespb.Sample {
	out := &profilespb.Sample{StackIndex: d.stack(s.Frames, x.Frames), Values: []int64{x.Values[column]}}
	if x.PID > 0 {
		out.AttributeIndices = append(out.AttributeIndices, d.attribute("process.pid", "", int64(x.PID)))
	}
	if x.TID > 0 {
		out.AttributeIndices = append(out.AttributeIndices, d.attribute("thread.id", "", int64(x.TID)))
	}
	if x.Thread != "" {
		out.AttributeIndices = append(out.AttributeIndices, d.attribute("thread.name", x.Thread, 0))
	}
	if x.State != "" {
		out.AttributeIndices = append(out.AttributeIndices, d.attribute("slowray.thread.state", x.State, 0))
	}
	return out
}

// SendProfiles sends stacks to a collector, once, and says how many profiles it has taken.
// URL and headers are as of PushOptions.
func SendProfiles(ctx context.Context, opt Options, url, headers string, who map[int]observe.Identity, list ...*observe.Stacks) (int, error) {
	w, err := newWire(url, headers)
	if err != nil {
		return 0, fmt.Errorf("otlp: %w", err)
	}
	data, count := New(opt).profiles(list, who)
	if count == 0 {
		return 0, nil
	}
	body, err := proto.Marshal(data)
	if err != nil {
		return 0, fmt.Errorf("otlp: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	got := w.send(ctx, profileSignal, body)
	switch {
	case got.err != nil:
		return 0, fmt.Errorf("otlp: %s: %s: %w", w, profileSignal, got.err)
	case got.rejected > 0:
		return count - int(min(got.rejected, int64(count))), fmt.Errorf("otlp: %s: %d profiles were refused: %s", w, got.rejected, bounded(got.why, maxFrame))
	}
	return count, nil
}
