package lab

import (
	"slices"
	"testing"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
)

// flat is a measurement of the same rate in each of four seconds.
func flat(rate float64, bad, total int64, p99 time.Duration) Measure {
	return Measure{Samples: []Sample{{
		Rates:   []float64{rate, rate, rate, rate},
		Outcome: &load.Outcome{Requests: total, Non2xx: bad, P99: p99},
	}}}
}

func TestDecide(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name        string
		base        Measure
		removals    map[string]Measure
		hurts, best []string
	}{
		{"one masks the other", flat(0, 99, 100, ms), map[string]Measure{
			"a": flat(300, 90, 100, ms), "b": flat(0, 99, 100, ms)}, []string{"a"}, []string{"a"}},
		{"two help, one more", flat(300, 99, 100, ms), map[string]Measure{
			"a": flat(1800, 97, 100, ms), "b": flat(3600, 1, 100, ms)}, []string{"a", "b"}, []string{"b"}},
		{"two help alike", flat(300, 99, 100, ms), map[string]Measure{
			"a": flat(3400, 1, 100, ms), "b": flat(3600, 1, 100, ms)}, []string{"a", "b"}, []string{"a", "b"}},
		{"noise in a storm of errors", flat(420, 99, 100, ms), map[string]Measure{
			"a": flat(670, 99, 100, ms)}, nil, nil},
		{"only errors go", flat(9000, 40, 100, ms), map[string]Measure{
			"a": flat(9100, 0, 100, ms), "b": flat(8900, 41, 100, ms)}, []string{"a"}, []string{"a"}},
		{"only the tail goes, though good answers fall", flat(17000, 0, 100, 1200*ms), map[string]Measure{
			"a": flat(14000, 0, 100, 110*ms)}, []string{"a"}, []string{"a"}},
		{"errors go because answers do", flat(0, 100, 100, ms), map[string]Measure{
			"a": flat(0, 0, 3, ms)}, nil, nil},
		{"noise", flat(9000, 0, 100, 100*ms), map[string]Measure{
			"a": flat(9700, 0, 100, 80*ms)}, nil, nil},
		{"errors below one in a hundred", flat(9000, 9, 1000, 30*ms), map[string]Measure{
			"a": flat(9000, 0, 1000, 10*ms)}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			truth := Truth{Base: tt.base}
			for _, name := range []string{"a", "b"} {
				if m, ok := tt.removals[name]; ok {
					truth.Removals = append(truth.Removals, Removal{Fault: name, Cause: name, Measure: m})
				}
			}
			truth.decide()
			if got := truth.hurting(); !slices.Equal(got, tt.hurts) {
				t.Errorf("hurts %v, want %v", got, tt.hurts)
			}
			if got := truth.best(); !slices.Equal(got, tt.best) {
				t.Errorf("best %v, want %v", got, tt.best)
			}
		})
	}
}

// What a storm of errors leaves varies from trial to trial more than other answers do.
func TestUnsure(t *testing.T) {
	for _, c := range []struct {
		base, without Measure
		want          []int
	}{
		{flat(197, 99, 100, 0), flat(503, 98, 100, 0), []int{0}},
		{flat(197, 99, 100, 0), flat(3141, 0, 100, 0), nil},
		{flat(197, 99, 100, 0), flat(198, 99, 100, 0), nil},
		{flat(1000, 0, 100, 0), flat(1150, 0, 100, 0), []int{0}},
		{flat(1000, 0, 100, 0), flat(2560, 0, 100, 0), nil},
	} {
		truth := Truth{Base: c.base, Removals: []Removal{{Fault: "a", Cause: "a", Measure: c.without}}}
		truth.decide()
		if got := truth.unsure(); !slices.Equal(got, c.want) {
			t.Errorf("%v good answers, then %v: unsure %v, want %v", c.base.Median(), c.without.Median(), got, c.want)
		}
	}
}

// What helped in one trial and not in the next is noise.
func TestDecideNeedsEveryTrial(t *testing.T) {
	m := flat(300, 0, 100, 0)
	m.Samples = append(m.Samples, flat(0, 100, 100, 0).Samples...)
	truth := Truth{Base: flat(0, 100, 100, 0), Removals: []Removal{{Fault: "a", Cause: "a", Measure: m}}}
	truth.decide()
	if truth.Removals[0].Hurts {
		t.Errorf("%+v", truth.Removals[0])
	}
}

func TestDisturbedTrialsDoNotCount(t *testing.T) {
	m := flat(100, 0, 100, 0)
	m.Samples[0].Others = 0.6
	m.Samples = append(m.Samples, flat(900, 0, 100, 0).Samples...)
	if got := m.Median(); got != 900 {
		t.Errorf("median %v, want that of the undisturbed trial", got)
	}
	m.Samples[1].Others = 0.7
	if got := m.Median(); got != 100 || !m.disturbed() {
		t.Errorf("median %v, disturbed %v, want that of the least disturbed trial", got, m.disturbed())
	}
}

// A gain that others' leaving the CPUs explains is none.
func TestDecideAllowsForOthers(t *testing.T) {
	base := flat(10000, 0, 100, 0)
	base.Samples[0].Others = 0.3
	truth := Truth{Base: base, Removals: []Removal{{Fault: "a", Cause: "a", Measure: flat(13000, 0, 100, 0)}}}
	truth.decide()
	if truth.Removals[0].Hurts {
		t.Errorf("%+v", truth.Removals[0])
	}
}

func TestCountGood(t *testing.T) {
	log := `10.0.0.2 - - [21/Nov/2026:02:41:47 +0000] "GET / HTTP/2.0" 200 22 "-" "-"
10.0.0.2 - - [21/Nov/2026:02:41:47 +0000] "GET / HTTP/1.1" 304 0 "-" "-"
10.0.0.2 - - [21/Nov/2026:02:41:47 +0000] "GET / HTTP/1.1" 499 0 "-" "-"
10.0.0.2 - - [21/Nov/2026:02:41:47 +0000] "GET / HTTP/1.1" 404 153 "-" "-"
10.0.0.2 - - [21/Nov/2026:02:41:47 +0000] "GET / HTTP/1.1" 2`
	if got := countGood([]byte(log)); got != 2 {
		t.Errorf("got %d, want 2", got)
	}
}

// One fault is what hurts, as it says; two have to be measured, and a decoy hurts
// nobody.
func TestDeclared(t *testing.T) {
	a, b := incident.Fault{Name: "a", Cause: "cause-a"}, incident.Fault{Name: "b", Cause: "cause-b"}
	decoy := incident.Fault{Name: "d", Decoy: true}
	for _, c := range []struct {
		r      runner
		faults []incident.Fault
		ok     bool
	}{
		{runner{opt: Options{Declared: true}}, []incident.Fault{a, decoy}, true},
		{runner{opt: Options{Declared: true}}, []incident.Fault{a, b}, false},
		{runner{opt: Options{Declared: true}}, []incident.Fault{decoy}, false},
		{runner{opt: Options{Declared: true}, Incident: incident.Incident{Stepped: true}}, []incident.Fault{a}, false},
		{runner{opt: Options{Declared: true}, Incident: incident.Incident{Control: true}}, []incident.Fault{a}, false},
		{runner{}, []incident.Fault{a}, false},
	} {
		list, ok := c.r.declared(c.faults)
		if ok != c.ok {
			t.Errorf("%+v: %v, want %v", c.faults, ok, c.ok)
		}
		for _, l := range list {
			if ok && l.Hurts == l.Decoy {
				t.Errorf("%+v", l)
			}
		}
	}
}
