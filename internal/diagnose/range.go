package diagnose

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// History says that a Report is of several windows.
type History struct {
	From    time.Time `json:"from"` // the beginning of the first window
	To      time.Time `json:"to"`   // the end of the last one
	Windows int       `json:"windows"`
	Seconds float64   `json:"seconds"` // that were watched: all windows together
}

// Range judges several windows together. A finding is the same cause on the
// same subject, with the figures of the window where it weighs most, ranked by
// its weight and its cost over all of them; what was not found in any window is ruled out.
type Range struct {
	seconds  float64
	windows  int
	from, to time.Time
	findings map[Identity]*overWindows
	order    []*overWindows // the same, as they were found
	account  cause.Account
	ruledOut map[string]string // by cause: why, as the last window has it
	checked  map[Excluded]bool // what could not be checked, of any window
	missing  []Excluded        // the same, in their order
	losses   []observe.Loss
	traffic  traffic
	last     *observe.Observation
	changes  []Change
	cutShort string // of the first window that was not judged in full
}

// overWindows is a finding of some windows.
type overWindows struct {
	worst         cause.Finding
	over          observe.Over
	first, last   int     // the windows that had it first and last
	weight, share float64 // times seconds
	cost          float64 // of all windows that tell it, s
	priced        bool
}

// NewRange is a Range without a window.
func NewRange() *Range {
	return &Range{findings: map[Identity]*overWindows{}, account: cause.Account{Victims: []cause.Victim{}}, ruledOut: map[string]string{}, checked: map[Excluded]bool{}, traffic: traffic{}}
}

// Add judges a window, as Diagnose does. Windows come in the order of time.
func (r *Range) Add(ctx context.Context, o *observe.Observation, b Bound) {
	report := Diagnose(ctx, o, b)
	r.cutShort = cmp.Or(r.cutShort, report.CutShort)
	end := report.end()
	first := r.windows == 0 || o.Window.Start.Sub(r.to) > Apart
	if r.windows == 0 {
		r.from = o.Window.Start
	}
	r.to = end
	r.windows++
	r.seconds += o.Window.Seconds
	for i := range report.Findings {
		r.find(&report.Findings[i], o.Window.Start, end, o.Window.Seconds, first)
	}
	r.account.Add(&report.Account)
	for _, e := range report.RuledOut {
		r.ruledOut[e.Cause] = e.Because
	}
	for _, e := range report.NotChecked {
		if !r.checked[e] {
			r.checked[e] = true
			r.missing = append(r.missing, e)
		}
	}
	for _, l := range report.Losses {
		i := slices.IndexFunc(r.losses, func(known observe.Loss) bool { return known.What == l.What })
		if i < 0 {
			r.losses = append(r.losses, l)
			continue
		}
		r.losses[i].Count += l.Count
		r.losses[i].Of += l.Of
	}
	r.traffic.add(o)
	r.last, r.changes = o, report.Changes
}

// find adds a finding of a window; nobody looked right before the first one.
func (r *Range) find(f *cause.Finding, start, end time.Time, seconds float64, first bool) {
	id := IdentityOf(f)
	g := r.findings[id]
	if g == nil {
		onset, known := Onset(f, start)
		g = &overWindows{worst: *f, first: r.windows, over: observe.Over{Onset: onset, Before: first && !known, Worst: start}}
		r.findings[id], r.order = g, append(r.order, g)
	}
	if g.last == r.windows {
		return // twice in one window
	}
	g.last = r.windows
	g.over.End = end
	g.over.Windows++
	g.weight += f.Weight * seconds
	g.share += f.Impact.Share * seconds
	if f.Impact.Cost != nil {
		g.cost, g.priced = g.cost+*f.Impact.Cost, true
	}
	if f.Weight > g.worst.Weight {
		g.worst, g.over.Worst = *f, start
	}
}

// Report is the judgement of all windows that were added; of none it is empty.
func (r *Range) Report() Report {
	out := Report{Schema: SchemaReport, Findings: []cause.Finding{}, Account: r.account, Endpoints: []Endpoint{}, RuledOut: []Excluded{}, NotChecked: []Excluded{},
		Losses: append([]observe.Loss{}, r.losses...)}
	if r.windows == 0 {
		return out
	}
	h := r.last.Host
	out.Host = ReportHost{Name: h.Name, Kernel: h.Kernel, CPUs: h.CPUs, BootID: h.BootID}
	out.Window = ReportWindow{Start: r.from, Seconds: r.to.Sub(r.from).Seconds()}
	out.History = &History{From: r.from, To: r.to, Windows: r.windows, Seconds: r.seconds}
	out.Endpoints = r.traffic.endpoints(r.last, r.seconds)
	out.Changes, out.CutShort = r.changes, r.cutShort
	catalogue := cause.Catalogue()
	found := map[cause.ID]bool{}
	for _, g := range r.linked() {
		f, over := g.worst, g.over
		over.Of = r.windows
		f.Over = &over
		f.Weight, f.Impact.Share = g.weight/max(r.seconds, 0.001), min(g.share/max(r.seconds, 0.001), 1)
		f.Impact.Cost = nil
		if g.priced {
			cost := math.Round(g.cost*1000) / 1000
			f.Impact.Cost = &cost
		}
		out.Findings = append(out.Findings, f)
		found[f.Cause] = true
	}
	out.settle()
	out.Findings = rank(out.Findings, catalogue)
	told := map[cause.ID]bool{}
	for i := range catalogue {
		id := catalogue[i].ID
		because, ruled := r.ruledOut[string(id)]
		if told[id] || found[id] || !ruled {
			continue
		}
		told[id] = true
		out.RuledOut = append(out.RuledOut, Excluded{string(id), because})
	}
	for _, e := range r.missing {
		// What could be checked in another window is answered.
		if id := cause.ID(e.Cause); !told[id] && !found[id] {
			out.NotChecked = append(out.NotChecked, e)
		}
	}
	return out
}

// linked are the findings, those that follow from one of the windows next to theirs as such: what
// they follow from lasted from the first of them to the last.
func (r *Range) linked() []*overWindows {
	near := func(f, p *overWindows) bool {
		return f.first >= p.first-1 && f.last <= p.last+1 && f.over.Onset.Sub(p.over.End) <= Apart && p.over.Onset.Sub(f.over.End) <= Apart
	}
	for i, j := range Across(r.order, func(g *overWindows) *cause.Finding { return &g.worst }, near) {
		if j < 0 {
			continue
		}
		f, p := r.order[i], r.order[j]
		id := p.worst.Cause
		f.worst.Role, f.worst.ConsequenceOf = cause.RoleConsequence, &id
		if f.over.Onset.Before(p.over.Onset) {
			p.over.Onset, p.over.Before = f.over.Onset, f.over.Before
		}
		if f.over.End.After(p.over.End) {
			p.over.End = f.over.End
		}
	}
	return r.order
}

// rooted gives a finding what its parent follows from where that is reported only as a
// consequence itself, and makes it a cause again where nothing is: each is reported as its own
// worst window has it.
func rooted(findings []cause.Finding) {
	roots, follows := map[cause.ID]bool{}, map[cause.ID]*cause.ID{}
	for i := range findings {
		if f := &findings[i]; f.Role == cause.RoleCause {
			roots[f.Cause] = true
		} else if follows[f.Cause] == nil {
			follows[f.Cause] = f.ConsequenceOf
		}
	}
	for i := range findings {
		f := &findings[i]
		for hops := 0; f.ConsequenceOf != nil && !roots[*f.ConsequenceOf]; hops++ {
			if f.ConsequenceOf = follows[*f.ConsequenceOf]; f.ConsequenceOf == nil || hops > len(follows) {
				f.Role, f.ConsequenceOf = cause.RoleCause, nil
			}
		}
	}
}
