package diagnose

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// lockWindows are 90 s of a history: a service and its MariaDB begin after 20 s, with another
// program that keeps rows locked, and are gone after 85 s. The reader of databases
// only has those that are there from the beginning of a window to its end.
func lockWindows(t *testing.T) (all []*observe.Observation) {
	t.Helper()
	for i := range 3 {
		o, err := observe.Load("testdata/lock/" + strconv.Itoa(i) + ".slowray")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}

// told is each finding with what it follows from, in the order of the report.
func told(r *Report) (list []string) {
	for i := range r.Findings {
		f := &r.Findings[i]
		text := string(f.Cause)
		if f.ConsequenceOf != nil {
			text += " of " + string(*f.ConsequenceOf)
		}
		list = append(list, text)
	}
	return slices.Compact(list)
}

// TestOneFaultOfThreeWindows: what a window cannot name is not another fault.
func TestOneFaultOfThreeWindows(t *testing.T) {
	all := lockWindows(t)
	r := judgeAll(all)
	got := told(&r)
	if len(got) == 0 || got[0] != "mariadb-lock-wait" || slices.ContainsFunc(got[1:], func(s string) bool { return !strings.HasSuffix(s, " of mariadb-lock-wait") }) {
		t.Errorf("%q, want the lock, and that all else follows from it", got)
	}
	o := r.Findings[0].Over
	if into := o.Onset.Sub(all[0].Window.Start).Seconds(); o.Before || into < 20 || into > 22 {
		t.Errorf("from %+v, want 21 s into the first window, when the first request came", o)
	}
	if a := r.Account; a.Explained < 0.9*a.Lost || slices.Contains(got, "unexplained of mariadb-lock-wait") {
		t.Errorf("%.0f of %.0f s explained, %q: nothing of it is unknown", a.Explained, a.Lost, got)
	}
	alone := judge(all[0])
	if got := told(&alone); slices.Contains(got, "mariadb-lock-wait") {
		t.Errorf("%q: the first window by itself knows nothing of the database", got)
	}
}

// TestAWindowAsksItsNeighbour: the first and the last of them by itself.
func TestAWindowAsksItsNeighbour(t *testing.T) {
	all := lockWindows(t)
	next := judge(all[1])
	for _, i := range []int{0, 2} {
		r, next := judge(all[i]), next
		next.Findings = slices.Clone(next.Findings)
		if !r.Unfolded() {
			t.Errorf("window %d: %q, which nothing could explain", i, told(&r))
		}
		r.Explain(&next)
		got := told(&r)
		if got[0] != "mariadb-lock-wait" || slices.ContainsFunc(got[1:], func(s string) bool { return !strings.HasSuffix(s, " of mariadb-lock-wait") }) {
			t.Errorf("window %d: %q, want the lock, and that all else follows from it", i, got)
		}
		o := r.Findings[0].Over
		if !o.Worst.Equal(all[1].Window.Start) || o.Windows != 1 || o.Of != 2 {
			t.Errorf("window %d: over %+v, want to read whose figures these are", i, o)
		}
		if slices.ContainsFunc(r.RuledOut, func(e Excluded) bool { return e.Cause == "mariadb-lock-wait" }) {
			t.Errorf("window %d: found and ruled out", i)
		}
	}
	healthy, r := Report{Findings: []cause.Finding{}}, judge(all[0])
	want := told(&r)
	r.Explain(&healthy)
	if diff := cmp.Diff(want, told(&r)); diff != "" {
		t.Error(diff)
	}
}

// TestAcross: windows are given as their findings, cause:port.
func TestAcross(t *testing.T) {
	for name, c := range map[string]struct{ windows, want string }{
		"before the cause is known":       {"slow-dependency:5432 | cpu-quota-throttled:5432", "cpu-quota-throttled, slow-dependency of cpu-quota-throttled"},
		"after it is known":               {"lock-convoy:5432 | slow-dependency:5432", "lock-convoy, slow-dependency of lock-convoy"},
		"another port":                    {"slow-dependency:5432 | lock-convoy:80", "lock-convoy, slow-dependency"},
		"two windows before":              {"slow-dependency:5432 | slow-dependency:5432 | lock-convoy:5432", "lock-convoy, slow-dependency"},
		"a window between":                {"slow-dependency:5432 | | lock-convoy:5432", "lock-convoy, slow-dependency"},
		"nobody looked between":           {"slow-dependency:5432 | - | lock-convoy:5432", "lock-convoy, slow-dependency"},
		"what does not follow":            {"conntrack-full:80 | lock-convoy:80", "conntrack-full, lock-convoy"},
		"of what follows from it":         {"slow-dependency:80 request-waves:80<slow-dependency | lock-convoy:80", "lock-convoy, request-waves of lock-convoy, slow-dependency of lock-convoy"},
		"without a port it may be others": {"slow-dependency:0 | lock-convoy:0", "lock-convoy, slow-dependency"},
	} {
		start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		r := NewRange()
		r.last = &observe.Observation{}
		for _, w := range strings.Split(c.windows, "|") {
			if strings.TrimSpace(w) == "-" {
				start = start.Add(2 * time.Minute)
				continue
			}
			r.windows++
			for _, one := range strings.Fields(w) {
				one, of, _ := strings.Cut(one, "<")
				id, port, _ := strings.Cut(one, ":")
				f := finding(cause.ID(id), 0.5)
				f.Subject.Port, _ = strconv.Atoi(port)
				if of != "" {
					of := cause.ID(of)
					f.Role, f.ConsequenceOf = cause.RoleConsequence, &of
				}
				r.find(&f, start, start.Add(time.Minute), 60, r.windows == 1)
			}
			start = start.Add(time.Minute)
		}
		report := r.Report()
		got := told(&report)
		slices.Sort(got)
		want := strings.Split(c.want, ", ")
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestTrace: of a finding that its window has from the beginning, the windows before it tell.
func TestTrace(t *testing.T) {
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	into := 46.0
	lock, began := finding("mariadb-lock-wait", 0.8), finding("mariadb-lock-wait", 0.8)
	began.Began = &into
	slow := finding("slow-dependency", 0.8)
	lock.Subject.Port, began.Subject.Port, slow.Subject.Port = 3306, 3306, 3306
	slowBegan := slow
	slowBegan.Began = &into
	nothing := []cause.Finding{}
	for name, c := range map[string]struct {
		before [][]cause.Finding // windows of a minute, nil: nobody looked
		want   string
	}{
		"nobody looked":           {nil, ""},
		"it was not there":        {[][]cause.Finding{nothing}, ""},
		"the one before tells":    {[][]cause.Finding{nothing, {began}}, "11:59:46"},
		"the one before that":     {[][]cause.Finding{{began}, {lock}, {lock}}, "11:57:46"},
		"what follows from it":    {[][]cause.Finding{nothing, {slowBegan}, {lock}}, "11:58:46"},
		"in all there are":        {[][]cause.Finding{{lock}, {lock}}, "before 11:58:00"},
		"not further than looked": {[][]cause.Finding{{began}, nil, {lock}}, "before 11:59:00"},
		"the first that has it":   {[][]cause.Finding{nothing, {lock}}, "11:59:00"},
	} {
		var earlier []Judged
		for i, found := range c.before {
			at := start.Add(-time.Duration(len(c.before)-i) * time.Minute)
			if found != nil {
				earlier = append(earlier, Judged{at, at.Add(time.Minute - time.Second), found})
			}
		}
		r := Report{Window: ReportWindow{Start: start, Seconds: 60}, Findings: []cause.Finding{lock, began}}
		r.Trace(earlier, Apart)
		got := ""
		if s := r.Findings[0].Since; s != nil {
			if got = s.At.Format(time.TimeOnly); s.Before {
				got = "before " + got
			}
		}
		if got != c.want || r.Findings[1].Since != nil {
			t.Errorf("%s: since %q, want %q; of one that its own window tells %v", name, got, c.want, r.Findings[1].Since)
		}
	}
}
