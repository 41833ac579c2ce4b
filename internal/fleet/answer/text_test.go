package answer

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// The verdict stands first, and last where something was found; and all of it fits.
func TestTextBeginsWithTheVerdict(t *testing.T) {
	well := newWorld(4)
	well.run(1500)
	ill := newWorld(8)
	ill.db = step(1200, 45*time.Millisecond)
	ill.run(1500)
	for name, c := range map[string]struct {
		r       *Report
		verdict string
		ends    bool
	}{
		"well":  {well.why(t, 900, 1500), "OK  Nothing is abnormal: ", false},
		"ill":   {ill.why(t, 900, 1500), "PROBLEM  mariadbd:3306 on db-7: slow in server disk", true},
		"blind": {newWorld(1).why(t, 900, 1500), "UNKNOWN  no host has ever shipped here", false},
	} {
		for _, width := range []int{60, 80, 100, 200} {
			var b bytes.Buffer
			if err := c.r.Text(&b, width); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			if !strings.HasPrefix(lines[0], c.verdict) || (lines[len(lines)-1] == lines[0]) != c.ends {
				t.Errorf("%s: no verdict %q in\n%s", name, c.verdict, b.String())
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l); n > width {
					t.Errorf("%s: %d columns of %d: %s", name, n, width, l)
				}
			}
		}
	}
}

// TestProgressGoesOn: all phases are one bar.
func TestProgressGoesOn(t *testing.T) {
	w := newWorld(4)
	w.run(700)
	last, said := -1.0, map[string]bool{}
	progress := func(what string, done float64) {
		if said[what] = true; done < last || done > 1 {
			t.Errorf("%s: %.3f after %.3f", what, done, last)
		}
		last = done
	}
	w.why(t, 300, 700, func(q *Question) { q.Progress = progress })
	if len(said) < 2 {
		t.Errorf("only said %v", said)
	}
	last = -1
	if err := NewWatcher(w, progress).Learn(t.Context(), moment(690)); err != nil {
		t.Fatal(err)
	}
}

// TestSubjectNamesTheWorkload: as the report on a terminal does.
func TestSubjectNamesTheWorkload(t *testing.T) {
	w := observe.Workload{Namespace: "shop", Pod: "cart-1", Container: "app", Kind: "Deployment", Name: "cart"}
	for want, s := range map[string]cause.Subject{
		"cart (pid 7), deploy/cart (ns shop), container app, cgroup /kubepods/x": {Kind: "cgroup", Comm: "cart", PID: 7, Workload: w, Container: "cart-1/app (aa)", Path: "/kubepods/x"},
		"deploy/cart (ns shop), container app":                                   {Kind: "pod", Workload: w},
		"cart (pid 7), container shop (3c5a6e1f0c2b)":                            {Kind: "process", Comm: "cart", PID: 7, Container: "shop (3c5a6e1f0c2b)"},
		"10.0.0.1:80": {Kind: "destination", Addr: "10.0.0.1", Port: 80},
	} {
		if got := subjectText(&s, &Origin{}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
