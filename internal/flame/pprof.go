package flame

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/slowray/slowray/internal/observe"
)

// Pprof writes s as a gzip-compressed profile.proto, which "go tool pprof" opens
// (github.com/google/pprof/blob/main/proto/profile.proto). It has all types of
// values, the one of o first choice, and on each sample the labels comm, pid,
// thread, tid, and where they are known state and slow. Modules are mappings;
// there are no addresses, frames have their names already. The error is w's, or
// an UnknownValue.
func Pprof(w io.Writer, s *observe.Stacks, o Options) error {
	m := newModel(byLine, s)
	value, err := o.value(m)
	if err != nil {
		return err
	}
	p := &profile.Profile{TimeNanos: m.startNS, DurationNanos: m.windowNS}
	for i, t := range m.types {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: t.Type, Unit: t.Unit})
		if i == value {
			p.DefaultSampleType = t.Type
		}
	}
	if len(p.SampleType) == 0 { // a profile without any is not valid
		p.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}}
	}
	if m.hz > 0 {
		p.PeriodType = &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
		p.Period = 1e9 / int64(m.hz)
	}
	for _, text := range []string{o.title(m), o.subtitle(m, utc)} {
		if text != "" {
			p.Comments = append(p.Comments, text)
		}
	}
	for _, l := range m.losses {
		p.Comments = append(p.Comments, fmt.Sprintf("not complete: %s: %d", l.What, l.Count))
	}
	p.Comments = append(p.Comments, m.notes...)
	locations := m.locations(p)
	m.sortMappings(p, value)
	for i := range m.samples {
		p.Sample = append(p.Sample, m.profileSample(&m.samples[i], locations))
	}
	return p.Write(w)
}

// locations gives p a function and a location for each frame, and a mapping for
// each module.
func (m *model) locations(p *profile.Profile) []*profile.Location {
	mappings := map[string]*profile.Mapping{}
	locations := make([]*profile.Location, 0, len(m.functions))
	for i := range m.functions {
		f := &m.functions[i]
		file := f.Module
		if file == "" && f.Kind == observe.FrameKernel {
			file = "[kernel.kallsyms]" // as perf calls it, and pprof knows it
		}
		if file == "" {
			file = "[" + string(f.Kind) + "]"
		}
		mapping := mappings[file]
		if mapping == nil {
			mapping = &profile.Mapping{
				ID: uint64(len(p.Mapping) + 1), File: file,
				HasFunctions: true, HasFilenames: true, HasLineNumbers: true, HasInlineFrames: true, // pprof need not look for symbols
			}
			mappings[file] = mapping
			p.Mapping = append(p.Mapping, mapping)
		}
		id := uint64(i + 1)
		fn := &profile.Function{ID: id, Name: f.Name, SystemName: f.Name, Filename: f.File}
		p.Function = append(p.Function, fn)
		locations = append(locations, &profile.Location{ID: id, Mapping: mapping, Line: []profile.Line{{Function: fn, Line: int64(f.Line)}}})
	}
	p.Location = locations
	return locations
}

// sortMappings puts the module in which most of a value ends first: pprof calls
// the first one the profile's file.
func (m *model) sortMappings(p *profile.Profile, value int) {
	weight := map[*profile.Mapping]int64{}
	for i := range m.samples {
		if s := &m.samples[i]; s.node > 0 && value < len(s.values[0]) {
			mapping := p.Location[m.nodes[s.node].function].Mapping
			if !strings.HasPrefix(mapping.File, "[") {
				weight[mapping] = add(weight[mapping], s.values[0][value])
			}
		}
	}
	slices.SortStableFunc(p.Mapping, func(x, y *profile.Mapping) int { return cmp.Compare(weight[y], weight[x]) })
	for i, mapping := range p.Mapping {
		mapping.ID = uint64(i + 1)
	}
}

func (m *model) profileSample(s *sample, locations []*profile.Location) *profile.Sample {
	t := m.threads[s.thread]
	out := &profile.Sample{
		Value: s.values[0],
		Label: map[string][]string{
			"comm": {t.comm}, "pid": {strconv.Itoa(t.pid)}, "thread": {t.name}, "tid": {strconv.Itoa(t.tid)},
		},
	}
	if s.state != "" {
		out.Label["state"] = []string{s.state}
	}
	if s.slow {
		out.Label["slow"] = []string{"true"}
	}
	for at := s.node; at > 0; at = m.nodes[at].parent {
		out.Location = append(out.Location, locations[m.nodes[at].function])
	}
	return out
}
