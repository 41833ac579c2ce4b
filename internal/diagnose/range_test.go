package diagnose

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// minutes loads saved windows as if each had been recorded a minute after the
// one before.
func minutes(t *testing.T, names ...string) []*observe.Observation {
	t.Helper()
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var all []*observe.Observation
	for i, name := range names {
		o, err := observe.Load("testdata/" + name + ".slowray")
		if err != nil {
			t.Fatal(err)
		}
		o.Window.Start = start.Add(time.Duration(i) * time.Minute)
		all = append(all, o)
	}
	return all
}

func judgeAll(all []*observe.Observation) Report {
	r := NewRange()
	for _, o := range all {
		r.Add(context.Background(), o, Saved)
	}
	return r.Report()
}

func TestRangeTellsFindingsOfSeveralWindows(t *testing.T) {
	// Twice what conntrack does, then something else, then nothing is to be seen of it.
	all := minutes(t, "nginx-throughput-S0", "nginx-throughput-S0", "cpu-saturated")
	report := judgeAll(all)
	first, last := judge(all[0]), judge(all[2])
	if len(first.Findings) == 0 || len(last.Findings) == 0 {
		t.Fatal("the saved windows have no findings")
	}
	seconds := all[0].Window.Seconds + all[1].Window.Seconds + all[2].Window.Seconds
	if h := report.History; h == nil || h.Windows != 3 || !h.From.Equal(all[0].Window.Start) || math.Abs(h.Seconds-seconds) > 1e-6 {
		t.Fatalf("history %+v", report.History)
	}
	ids := map[Identity]bool{}
	for _, r := range []Report{first, last} {
		for i := range r.Findings {
			ids[IdentityOf(&r.Findings[i])] = true
		}
	}
	if len(report.Findings) != len(ids) {
		t.Errorf("%d findings, want %d: each cause on its subject once", len(report.Findings), len(ids))
	}
	of := func(f *cause.Finding) int {
		return slices.IndexFunc(report.Findings, func(x cause.Finding) bool { return IdentityOf(&x) == IdentityOf(f) })
	}
	f := &first.Findings[0]
	got := report.Findings[of(f)]
	share := f.Impact.Share * (all[0].Window.Seconds + all[1].Window.Seconds) / seconds
	if got.Over == nil || got.Over.Windows != 2 || got.Over.Of != 3 || !got.Over.Onset.Equal(all[0].Window.Start) || got.Over.End.After(all[2].Window.Start) {
		t.Errorf("%s: over %+v, want the first two of three windows", f.Cause, got.Over)
	}
	if math.Abs(got.Impact.Share-share) > 1e-9 {
		t.Errorf("%s: share %g, want %g: that of the windows that have it, over all", f.Cause, got.Impact.Share, share)
	}
	for i := 1; i < len(report.Findings); i++ {
		a, b := &report.Findings[i-1], &report.Findings[i]
		if a.Role == b.Role && a.Weight < b.Weight {
			t.Errorf("%s (%g) is reported before %s (%g)", a.Cause, a.Weight, b.Cause, b.Weight)
		}
	}
	excluded := map[string]bool{}
	for _, e := range append(slices.Clone(report.RuledOut), report.NotChecked...) {
		excluded[e.Cause] = true
	}
	for i := range report.Findings {
		if excluded[string(report.Findings[i].Cause)] {
			t.Errorf("%s is found and excluded", report.Findings[i].Cause)
		}
	}
	for _, c := range cause.Catalogue() {
		if i := slices.IndexFunc(report.Findings, func(x cause.Finding) bool { return x.Cause == c.ID }); i < 0 && !excluded[string(c.ID)] {
			t.Errorf("%s is neither found nor excluded", c.ID)
		}
	}
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate(t, schema, "range", report)
}

// TestRangeOfOneWindow: one window has the findings that it has by itself.
func TestRangeOfOneWindow(t *testing.T) {
	for _, name := range []string{"nginx-throughput-S0", "nginx-throughput-S3", "cpu-saturated"} {
		all := minutes(t, name)
		alone, report := judge(all[0]), judgeAll(all)
		unique := map[Identity]bool{}
		var want []string
		for i := range alone.Findings {
			f := &alone.Findings[i]
			if id := IdentityOf(f); !unique[id] {
				unique[id] = true
				want = append(want, string(f.Cause))
			}
		}
		var got []string
		for i := range report.Findings {
			got = append(got, string(report.Findings[i].Cause))
			report.Findings[i].Over = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, alone %v", name, got, want)
		}
	}
}

func TestRangeSumsTraffic(t *testing.T) {
	hist := func(n uint64, ns int64) (h observe.Histogram) {
		h.AddN(ns, n)
		return h
	}
	window := func(minute int, requests uint64, ns int64, pid int) *observe.Observation {
		return &observe.Observation{
			Window: observe.Window{Start: time.Date(2026, 11, 22, 12, minute, 0, 0, time.UTC), Seconds: 10},
			Endpoints: []observe.Endpoint{{
				Side: "served", Addr: "10.0.0.1", Port: 80, PID: pid, Comm: "app", Requests: requests, OK: requests, Recorded: requests,
				Connections: 2, Segments: 1000, Retrans: 5, MinRTT: ns, Total: hist(requests, ns),
				Parts: map[string]observe.PartStats{"server": {SumNS: int64(requests) * ns, Hist: hist(requests, ns)}},
			}},
		}
	}
	report := judgeAll([]*observe.Observation{window(0, 90, 1e6, 10), window(1, 10, 100e6, 11)})
	if len(report.Endpoints) != 1 {
		t.Fatalf("%d endpoints, want one: a service that was started anew is the same", len(report.Endpoints))
	}
	e := report.Endpoints[0]
	if *e.Requests != 100 || *e.RPS != 5 || e.Opened != 4 || *e.Retrans != 10 || *e.Loss != 5 || *e.MinRTT != 1000 {
		t.Errorf("%d requests, %g a second, %d opened, %d retransmitted, %g ‰, %g µs", *e.Requests, *e.RPS, e.Opened, *e.Retrans, *e.Loss, *e.MinRTT)
	}
	if e.Total.P50 > 1100 || e.Total.P99 < 98000 || math.Abs(e.Ledger["server"].Mean-10900) > 1 {
		t.Errorf("total %+v, server %+v", e.Total, e.Ledger["server"])
	}
	schema, err := jsonschema.NewCompiler().Compile("../../schema/report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	validate(t, schema, "range", report)
}

func TestRangeOfNothing(t *testing.T) {
	if r := NewRange().Report(); len(r.Findings)+len(r.Endpoints) != 0 {
		t.Errorf("%+v", r)
	}
}
