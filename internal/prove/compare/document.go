package compare

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// SchemaCompare identifies the form of a Document in JSON.
const SchemaCompare = "slowray.compare/1"

// Document is two Observations side by side. Its JSON is a contract
// (schema/compare.schema.json).
type Document struct {
	Schema    string     `json:"schema"`
	A         Side       `json:"a"`
	B         Side       `json:"b"`
	Endpoints []Endpoint `json:"endpoints"`
	Findings  []Finding  `json:"findings"`
	Host      []Figure   `json:"host"`     // CPU, memory, pressure
	Counters  []Figure   `json:"counters"` // of the kernel, that changed much
	Functions []Figure   `json:"functions"`
	Settings  []Setting  `json:"settings"`
	Notes     []string   `json:"notes,omitempty"`
}

// Side is one of the two.
type Side struct {
	Host    string    `json:"host"`
	Kernel  string    `json:"kernel"`
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`
}

// Judgement says what a difference is.
type Judgement string

// The judgements.
const (
	Moved   Judgement = "moved"   // beyond the spread of both courses
	Within  Judgement = "within"  // the spread
	Unknown Judgement = "unknown" // there is no course to judge it by
)

// Figure is one figure in both.
type Figure struct {
	Name      string    `json:"name"`
	Unit      string    `json:"unit"` // "1/s", "share", "us", "bytes", "count"
	A         *float64  `json:"a"`    // null: not there
	B         *float64  `json:"b"`
	Judgement Judgement `json:"judgement"`
}

// much is the factor from which a figure without a course counts as different.
const much = 1.25

// Large says that the figure differs by a quarter or more, or is in one only.
func (f *Figure) Large() bool {
	switch {
	case f.A == nil || f.B == nil:
		return f.A != f.B
	case *f.A == *f.B:
		return false
	case *f.A <= 0 || *f.B <= 0:
		return true
	}
	r := *f.B / *f.A
	return math.Max(r, 1/r) >= much
}

// Compare compares two Observations, the earlier or worse of which is usually a. The
// end of ctx ends it early, and a note says so.
func Compare(ctx context.Context, a, b *observe.Observation) *Document {
	d := &Document{Schema: SchemaCompare, A: side(a), B: side(b)}
	d.Endpoints = endpoints(a, b)
	ra, rb := diagnose.Diagnose(ctx, a, diagnose.Saved), diagnose.Diagnose(ctx, b, diagnose.Saved)
	d.Findings = findings(&ra, &rb)
	d.Host = hosts(a, b)
	d.Counters = counters(a, b)
	d.Functions = functions(a, b)
	d.Settings = settings(a, b)
	d.notes(a, b)
	if why := cmp.Or(ra.CutShort, rb.CutShort); why != "" {
		d.Notes = append(d.Notes, "Findings of one may be missing in the other, for not all was judged: "+why+".")
	}
	return d
}

func side(o *observe.Observation) Side {
	return Side{Host: o.Host.Name, Kernel: o.Host.Kernel, Start: o.Window.Start, Seconds: o.Window.Seconds}
}

// notes says what makes the two hard to compare.
func (d *Document) notes(a, b *observe.Observation) {
	if a.Host.Name != b.Host.Name {
		d.Notes = append(d.Notes, "The two are of different hosts.")
	}
	if a.Host.CPUs != b.Host.CPUs {
		d.Notes = append(d.Notes, "The hosts have different numbers of CPUs.")
	}
	if a.Filter != b.Filter {
		d.Notes = append(d.Notes, "They were asked about different services: findings of one may be out of the other's view.")
	}
	if r := a.Window.Seconds / b.Window.Seconds; r > 2 || r < 0.5 {
		d.Notes = append(d.Notes, "The windows are of very different length: maxima and p99 depend on it.")
	}
	d.Notes = append(d.Notes, "Call stacks are not saved with an observation. For a differential flame graph record two windows (slowray flame -o before.pb.gz) and give the first to the second: slowray flame --diff before.pb.gz -o diff.svg")
}

// Differs says whether there is a difference that matters: a finding that is gone,
// new, weaker or stronger, a figure beyond the spread, a setting.
func (d *Document) Differs() bool {
	for i := range d.Findings {
		if d.Findings[i].Change != Alike {
			return true
		}
	}
	for i := range d.Endpoints {
		if slices.ContainsFunc(d.Endpoints[i].Figures, moved) {
			return true
		}
	}
	return len(d.Settings) > 0 || slices.ContainsFunc(d.Host, moved)
}

func moved(f Figure) bool { return f.Judgement == Moved }

// JSON writes the document.
func (d *Document) JSON(w io.Writer) error {
	return printable.WriteJSON(w, d)
}

func some(v float64) *float64 { return &v }

// nonNil keeps lists from being null in JSON.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
