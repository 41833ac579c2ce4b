package diagnose

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

func costly(id string, weight, cost float64) cause.Finding {
	f := finding(cause.ID(id), weight)
	f.Impact.Cost = &cost
	return f
}

// TestTriflesComeAfterOutages: shares of different services compare by what they
// are shares of.
func TestTriflesComeAfterOutages(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []cause.Finding
		want []string
	}{
		{"a stray process that waits for itself", []cause.Finding{costly("high-rtt", 1, 0.365), costly("lock-convoy", 0.63, 87)},
			[]string{"lock-convoy", "high-rtt"}},
		{"one dropped attempt", []cause.Finding{costly("accept-queue-overflow", 1, 1), costly("cpu-hot-function", 0.27, 30)},
			[]string{"cpu-hot-function", "accept-queue-overflow"}},
		{"a small service that is down is reported all the same", []cause.Finding{costly("upstream-refused", 1, 5), costly("cpu-saturated", 0.9, 300)},
			[]string{"cpu-saturated", "upstream-refused"}},
		{"an outage before what is a little slow, at a fifth of its cost", []cause.Finding{costly("cpu-hot-function", 0.2, 40), costly("upstream-refused", 0.9, 9)},
			[]string{"upstream-refused", "cpu-hot-function"}},
		{"where the cost is not known the share counts", []cause.Finding{costly("high-rtt", 0.5, 100), finding("fd-limit", 0.9)},
			[]string{"fd-limit", "high-rtt"}},
		{"a consequence is no measure", []cause.Finding{costly("client-aborts", 0.9, 1000), costly("conntrack-full", 0.9, 10), costly("accept-queue-overflow", 1, 9)},
			[]string{"accept-queue-overflow", "conntrack-full", "client-aborts < accept-queue-overflow"}},
	} {
		fold(cause.NewView(&observe.Observation{}), c.in, cause.Catalogue())
		if diff := cmp.Diff(c.want, order(rank(c.in, cause.Catalogue()))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestUnexplainedByLoss: of harm without a cause, what lost most comes first, whatever part of
// its own service that is.
func TestUnexplainedByLoss(t *testing.T) {
	in := []cause.Finding{costly("unexplained", 1, 172), costly("accept-queue-wait", 0.9, 600), costly("unexplained", 0.95, 675)}
	got := rank(in, cause.Catalogue())
	if first, last := got[0], got[2]; *first.Impact.Cost != 675 || *last.Impact.Cost != 600 {
		t.Errorf("%v", order(got))
	}
}

// TestRangeRanksByCost: over several windows what was lost in all of them counts.
func TestRangeRanksByCost(t *testing.T) {
	r := NewRange()
	r.windows, r.seconds, r.last = 2, 120, &observe.Observation{}
	for _, f := range []cause.Finding{costly("accept-queue-overflow", 1, 1), costly("cpu-hot-function", 0.3, 30)} {
		r.find(&f, r.from, r.to, 60, false)
	}
	r.windows = 3
	f := costly("cpu-hot-function", 0.2, 20)
	r.find(&f, r.from, r.to, 60, false)
	got := r.Report().Findings
	if diff := cmp.Diff([]string{"cpu-hot-function", "accept-queue-overflow"}, order(got)); diff != "" {
		t.Fatal(diff)
	}
	if cost := got[0].Impact.Cost; cost == nil || *cost != 50 {
		t.Errorf("cost %v, want that of both windows: 50 s", cost)
	}
}

// TestOnsetIsWhenItBegan: not when the window began that tells of it.
func TestOnsetIsWhenItBegan(t *testing.T) {
	start := time.Date(2026, 11, 22, 12, 34, 54, 0, time.UTC)
	into := 46.0
	began := start.Add(46 * time.Second)
	f := finding("lock-convoy", 0.8)
	f.Began = &into
	later := finding("lock-convoy", 0.9)
	windows := []Judged{{start, start.Add(time.Minute), []cause.Finding{f}}, {start.Add(time.Minute), start.Add(2 * time.Minute), []cause.Finding{later}}}
	r := NewRange()
	r.last, r.seconds = &observe.Observation{}, 120
	for _, w := range windows {
		r.windows++
		r.find(&w.Findings[0], w.Start, w.End, 60, r.windows == 1)
	}
	if o := r.Report().Findings[0].Over; !o.Onset.Equal(began) || !o.Worst.Equal(windows[1].Start) {
		t.Errorf("over %+v, want from %s on", o, began)
	}
	f.Began, f.Asked = nil, &into
	if at, known := Onset(&f, start); !known || !at.Equal(began) {
		t.Errorf("onset %s, want not before the first request, at %s", at, began)
	}
}
