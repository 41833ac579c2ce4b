package compare

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
)

// Change says what became of a finding from A to B.
type Change string

// What becomes of findings.
const (
	Gone     Change = "gone"
	New      Change = "new"
	Weaker   Change = "weaker"
	Stronger Change = "stronger"
	Alike    Change = "alike"
)

// Finding is a finding in one or both.
type Finding struct {
	Cause  string   `json:"cause"`
	Title  string   `json:"title"`
	On     string   `json:"on,omitempty"` // port, interface or path
	Change Change   `json:"change"`
	A      *float64 `json:"a"` // the share it explains; null: not found
	B      *float64 `json:"b"`
	Of     string   `json:"of"` // share of what
}

// apart is by how much shares differ to be weaker or stronger.
const apart = 0.1

func findings(a, b *diagnose.Report) []Finding {
	type key struct{ cause, on string }
	all := map[key]*Finding{}
	var order []key
	add := func(r *diagnose.Report, into func(*Finding) **float64) {
		for i := range r.Findings {
			f := &r.Findings[i]
			k := key{string(f.Cause), on(&f.Subject)}
			x := all[k]
			if x == nil {
				x = &Finding{Cause: string(f.Cause), Title: f.Title, On: k.on, Of: f.Impact.Of}
				all[k] = x
				order = append(order, k)
			}
			if share := into(x); *share == nil || **share < f.Impact.Share {
				*share = some(f.Impact.Share)
			}
		}
	}
	add(a, func(f *Finding) **float64 { return &f.A })
	add(b, func(f *Finding) **float64 { return &f.B })
	list := []Finding{}
	for _, k := range order {
		f := all[k]
		switch {
		case f.A == nil:
			f.Change = New
		case f.B == nil:
			f.Change = Gone
		case *f.B < *f.A-apart:
			f.Change = Weaker
		case *f.B > *f.A+apart:
			f.Change = Stronger
		default:
			f.Change = Alike
		}
		list = append(list, *f)
	}
	rank := map[Change]int{New: 0, Stronger: 1, Gone: 2, Weaker: 3, Alike: 4}
	slices.SortStableFunc(list, func(x, y Finding) int { return cmp.Compare(rank[x.Change], rank[y.Change]) })
	return list
}

// on is what a finding is about, as far as that lasts beyond a restart.
func on(s *cause.Subject) string {
	switch {
	case s.Port != 0:
		return ":" + itoa(s.Port)
	case s.Interface != "":
		return s.Interface
	case s.Path != "":
		return ownPath(s.Path)
	}
	return s.Comm
}

// ownPath is a path as its process sees it: the number of the process is another
// one after a restart.
func ownPath(path string) string {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return path
	}
	if _, own, ok := strings.Cut(rest, "/root/"); ok {
		return "/" + own
	}
	return path
}
