package diagnose

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
)

// crowded is a host on which everything is ill: judging it takes seconds.
func crowded(n int) observetest.Host {
	return observetest.Host{Called: n, Services: n / 2, Processes: n / 2, Namespaces: n / 16, Sockets: n, Waits: n / 4, Drops: n / 8, Pools: n / 64, Ill: 1}
}

// longestStretch is the most CPU time that may pass between two looks at whether judging
// was ended: a small part of the second in which a command ends. It is about 30 ms here,
// and sorting that much, or in garbage collection, takes longer on a slow machine.
const longestStretch = 120 * time.Millisecond

// TestLooksOften: judging a host, however large and ill, looks again and again whether
// it was ended, in every check and before and after them.
func TestLooksOften(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 10 s of CPU time: how often judging looks whether it was ended is NOT tested")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	large := observetest.Large()
	large.Called, large.Services, large.Sockets = 2*large.Called, 2*large.Services, 2*large.Sockets
	for name, h := range map[string]observetest.Host{"large": large, "ill": crowded(2048)} {
		o := h.Observation()
		doing, worst, in := "the view", time.Duration(0), ""
		last := threadCPU()
		look := func() error {
			now := threadCPU()
			if took := now - last; took > worst {
				worst, in = took, doing
			}
			last = now
			return nil
		}
		do := func(what string, work func()) {
			doing = what
			work()
			_ = look()
		}
		var v *cause.View
		do("the view", func() { v = cause.NewViewUntil(o, look) })
		do("endpoints", func() { endpoints(v) })
		r := Report{}
		for _, c := range cause.Catalogue() {
			do(string(c.ID), func() { r.Findings = append(r.Findings, c.Judge(v).Findings...) })
		}
		do("the order of findings", func() {
			(&judging{ctx: t.Context(), bound: Saved, began: time.Now()}).conclude(v, &r, cause.Catalogue())
		})
		t.Logf("%s: %d findings, at most %s between two looks, in %s", name, len(r.Findings), worst, in)
		if worst > longestStretch {
			t.Errorf("%s: %s pass between two looks in %s, want at most %s", name, worst, in, longestStretch)
		}
	}
}

// endsAfter is a context that ends when it was looked at so many times.
type endsAfter struct {
	context.Context
	left int
}

func (e *endsAfter) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestEndedAtAnyMoment: what was not judged is not checked, never ruled out, and no
// report that was cut short says that there is nothing.
func TestEndedAtAnyMoment(t *testing.T) {
	all := endsAfter{t.Context(), 1 << 30}
	o := crowded(256).Observation()
	whole := Diagnose(&all, o, Saved)
	looks := 1<<30 - all.left
	if whole.CutShort != "" || looks < 100 {
		t.Fatalf("judged with %d looks: %q", looks, whole.CutShort)
	}
	tries := 50
	if testing.Short() {
		tries = 5
	}
	for range tries {
		n := rand.N(looks)
		r := Diagnose(&endsAfter{t.Context(), n}, o, Saved)
		if r.CutShort == "" || r.Summary() == "nothing found" {
			t.Errorf("ended at look %d of %d: %q, %s", n, looks, r.CutShort, r.Summary())
		}
		answered := map[string]bool{}
		for _, f := range r.Findings {
			answered[string(f.Cause)] = true
			if !slices.ContainsFunc(whole.Findings, func(w cause.Finding) bool { return w.Cause == f.Cause && w.Subject.PID == f.Subject.PID }) {
				t.Errorf("ended at look %d: %s is found, and is not where all is judged", n, f.Cause)
			}
		}
		for _, e := range r.RuledOut {
			answered[e.Cause] = true
			if !slices.Contains(whole.RuledOut, e) {
				t.Errorf("ended at look %d: %s is ruled out, and is not where all is judged", n, e.Cause)
			}
		}
		cut := 0
		for _, e := range r.NotChecked {
			answered[e.Cause] = true
			if strings.HasSuffix(e.Because, r.CutShort) {
				cut++
			}
		}
		if cut == 0 {
			t.Errorf("ended at look %d: nothing is listed as not judged", n)
		}
		for _, c := range cause.Catalogue() {
			if !answered[string(c.ID)] {
				t.Errorf("ended at look %d: nothing is said of %s", n, c.ID)
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
}

// TestBound: judging ends within its CPU time, with what it found.
func TestBound(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o := crowded(4096).Observation()
	bound := Bound{CPU: 300 * time.Millisecond, Wall: time.Minute}
	began := threadCPU()
	r := Diagnose(t.Context(), o, bound)
	took := threadCPU() - began
	t.Logf("%s of CPU time, %d findings, %d not judged", took, len(r.Findings), len(r.NotChecked))
	if most := bound.CPU + reserve.CPU + 2*longestStretch; took > most {
		t.Errorf("judging took %s of CPU time, want at most %s", took, most)
	}
	if !strings.Contains(r.CutShort, "CPU time") || len(r.NotChecked) == 0 {
		t.Errorf("cut short: %q, not checked: %v", r.CutShort, r.NotChecked)
	}
	if r := Diagnose(t.Context(), o, Bound{CPU: time.Minute, Wall: time.Millisecond}); !strings.Contains(r.CutShort, "clock") {
		t.Errorf("cut short: %q", r.CutShort)
	}
}

// TestCutShortOverWindows: a window that was not judged in full is reported once for all.
func TestCutShortOverWindows(t *testing.T) {
	over := NewRange()
	over.Add(&endsAfter{t.Context(), 0}, &observe.Observation{}, Saved)
	over.Add(t.Context(), &observe.Observation{}, Saved)
	if r := over.Report(); r.CutShort == "" {
		t.Error("all windows together were judged in full")
	}
	if d := Drops(&endsAfter{t.Context(), 0}, crowded(256).Observation(), Saved); len(d.NotChecked) == 0 {
		t.Error("drops: nothing says that it was ended")
	}
}
