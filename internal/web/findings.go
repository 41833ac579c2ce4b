package web

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// findingJSON is a cause on a subject for as long as it was found, in windows
// next to each other. What is reported for it is what the window with the greatest
// share told.
type findingJSON struct {
	Cause         cause.ID         `json:"cause"`
	Title         string           `json:"title"`
	Role          cause.Role       `json:"role"`
	ConsequenceOf *cause.ID        `json:"consequence_of"`
	Verdict       cause.Verdict    `json:"verdict"`
	Onset         float64          `json:"onset"`
	Before        bool             `json:"before,omitempty"` // it began before onset: nobody looked right before
	End           *float64         `json:"end"`              // null: still there in the last window
	Quiet         *float64         `json:"quiet,omitempty"`  // of such a one: since when no request of its endpoint was answered
	Windows       int              `json:"windows"`
	Share         float64          `json:"share"`
	Of            string           `json:"of"`
	Text          string           `json:"text"`
	Subject       cause.Subject    `json:"subject"`
	Where         string           `json:"where,omitempty"` // its workload, as the report on a terminal names it
	Evidence      []cause.Evidence `json:"evidence"`
	Fix           cause.Fix        `json:"fix"`
	Prove         *cause.Prove     `json:"prove"`
	Cost          *float64         `json:"cost_s,omitempty"` // of the windows of the range, s; absent where no request tells it
	Key           *string          `json:"key"`              // of the endpoint that it is about, where that is known
	Shares        []shareJSON      `json:"shares"`

	from        time.Time
	to          time.Time
	first, last int // the windows that it was found in

	weight float64 // summed over the range, times seconds
}

// shareJSON is how much it explained in one window.
type shareJSON struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Share float64 `json:"share"`
}

// maxShares is how many of them are reported for one finding.
const maxShares = 500

// identityOf tells findings apart. A process is known by its name: it may have been started
// anew between two windows.
func identityOf(f cause.Finding) diagnose.Identity {
	if f.Subject.Comm != "" {
		f.Subject.PID = 0
	}
	return diagnose.IdentityOf(&f)
}

// slack is how far apart windows may be that are next to each other: one begins
// when the other is judged.
const slack = 90 * time.Second

// beyond is how far outside of a range the beginning and end of a finding are
// looked for.
const beyond = time.Hour

// windowSpans are the windows that there were in a range, in order of time.
func windowSpans(windows []store.Window, findings []store.Finding) []timeRange {
	spans := make([]timeRange, 0, len(windows)+len(findings))
	for _, w := range windows {
		spans = append(spans, timeRange{w.Start, w.End})
	}
	for i := range findings {
		spans = append(spans, timeRange{findings[i].Start, findings[i].End})
	}
	slices.SortFunc(spans, func(a, b timeRange) int { return a.from.Compare(b.from) })
	// A window and its findings may tell its beginning in other precision.
	return slices.CompactFunc(spans, func(a, b timeRange) bool { return a.from.Sub(b.from).Abs() < time.Second })
}

// merge joins findings of neighbouring windows. spans are all windows, in order.
// Weight and cost are those of the windows in a range.
func merge(found []store.Finding, spans []timeRange, r timeRange) []*findingJSON {
	slices.SortStableFunc(found, func(a, b store.Finding) int { return a.Start.Compare(b.Start) })
	open := map[diagnose.Identity]*findingJSON{}
	var all []*findingJSON
	for i := range found {
		f := &found[i]
		at, _ := slices.BinarySearchFunc(spans, f.Start, func(s timeRange, t time.Time) int { return cmp.Compare(s.from.Sub(t).Truncate(time.Second), 0) })
		id := identityOf(f.Finding)
		m := open[id]
		if m == nil || at > m.last+1 || f.Start.Sub(m.to) > slack {
			onset, known := diagnose.Onset(&f.Finding, f.Start)
			m = &findingJSON{Onset: unix(onset), Before: !known && (at == 0 || f.Start.Sub(spans[at-1].to) > slack), Share: -1, from: f.Start, first: at, last: at - 1, Shares: []shareJSON{}}
			open[id] = m
			all = append(all, m)
		}
		if at != m.last { // two findings of one window count once
			m.Windows++
			if f.Start.Before(r.to) && f.End.After(r.from) {
				m.count(&f.Finding, f.End.Sub(f.Start).Seconds())
			}
		}
		m.last = at
		if f.End.After(m.to) {
			m.to = f.End
		}
		if len(m.Shares) < maxShares {
			m.Shares = append(m.Shares, shareJSON{unix(f.Start), unix(f.End), f.Impact.Share})
		}
		if f.Role == cause.RoleCause && m.Role == cause.RoleConsequence || f.Role == cmp.Or(m.Role, f.Role) && f.Impact.Share > m.Share {
			m.tell(&f.Finding)
		}
		if f.Verdict == cause.Proved {
			m.Verdict = cause.Proved
		}
	}
	for _, m := range all {
		if m.last < len(spans)-1 {
			end := unix(m.to)
			m.End = &end
		}
	}
	return all
}

// count adds what the finding weighed and cost in a window of so many seconds.
func (m *findingJSON) count(f *cause.Finding, seconds float64) {
	m.weight += f.Weight * seconds
	if f.Impact.Cost != nil {
		cost := *f.Impact.Cost
		if m.Cost != nil {
			cost += *m.Cost
		}
		m.Cost = &cost
	}
}

// ranked is what of it decides where it stands among others.
func (m *findingJSON) ranked() *cause.Finding {
	return &cause.Finding{Cause: m.Cause, Role: m.Role, Subject: m.Subject, Weight: m.weight, Impact: cause.Impact{Cost: m.Cost}}
}

// past is 0 of a cause that goes on, as far as anybody knows.
func (m *findingJSON) past() int {
	if m.Role == cause.RoleCause && m.End == nil && m.Quiet == nil {
		return 0
	}
	return 1
}

// tell takes what a window told.
func (m *findingJSON) tell(f *cause.Finding) {
	m.Cause, m.Title, m.Role, m.ConsequenceOf, m.Verdict = f.Cause, f.Title, f.Role, f.ConsequenceOf, f.Verdict
	m.Share, m.Of, m.Text = f.Impact.Share, f.Impact.Of, f.Impact.Text
	m.Where = f.Subject.Workload.ContainerText()
	m.Subject, m.Evidence, m.Fix, m.Prove = f.Subject, f.Evidence, f.Fix, f.Prove
	if m.Evidence == nil {
		m.Evidence = []cause.Evidence{}
	}
}

// about says whether an endpoint is the one that a subject is. Its program does not count where there is
// a port: who serves a port may be known late, and is another endpoint until then.
func about(s *cause.Subject, e *observe.Endpoint) bool {
	switch {
	case s.NetNS != 0 && e.NetNS != s.NetNS:
		return false
	case s.Port != 0:
		return e.Port == s.Port && (s.Addr == "" || s.Addr == e.Addr || wildcard(s.Addr))
	}
	return s.Comm != "" && s.Comm == e.Comm && e.Side == "served"
}

// endpointFor is the key of the endpoint that a subject is, where there is one: of several the one with
// most requests.
func endpointFor(s *cause.Subject, sums []store.EndpointSum) *string {
	var best *observe.Endpoint
	for i := range sums {
		e := &sums[i].Endpoint
		if about(s, e) && (best == nil || cmp.Or(cmp.Compare(served(e.Side), served(best.Side)), cmp.Compare(e.Requests, best.Requests)) > 0) {
			best = e
		}
	}
	if best == nil {
		return nil
	}
	key := keyOf(best).String()
	return &key
}

func served(side string) int {
	if side == "served" {
		return 1
	}
	return 0
}

func wildcard(addr string) bool { return addr == "0.0.0.0" || addr == "::" || addr == "*" }

// found is the findings of a range, joined, with the endpoints they are about: of those
// that had traffic in another range.
func (s *server) found(r, traffic timeRange) ([]*findingJSON, error) {
	// When it began and ended may lie outside.
	wide := timeRange{r.from.Add(-beyond), r.to.Add(beyond)}
	found, err := s.source.Findings(wide.from, wide.to)
	if err != nil {
		return nil, err
	}
	windows, err := s.source.Observations(wide.from, wide.to)
	if err != nil {
		return nil, err
	}
	joined := merge(found, windowSpans(windows, found), r)
	followed(joined)
	list := slices.DeleteFunc(joined, func(f *findingJSON) bool {
		return f.from.Compare(r.to) >= 0 || f.to.Compare(r.from) <= 0
	})
	if len(list) == 0 {
		return []*findingJSON{}, nil
	}
	sums, err := s.source.Endpoints(store.Query{From: traffic.from, To: traffic.to, Counts: true})
	if err != nil {
		return nil, err
	}
	span, err := s.span()
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		f.Key = endpointFor(&f.Subject, sums)
		if f.End == nil && span.to.Sub(f.to) > 2*slack { // the last one that was looked at, not the last there is
			end := unix(f.to)
			f.End = &end
		}
	}
	if err := s.quiet(list, span); err != nil {
		return nil, err
	}
	// What goes on comes first, each in the order of every report; of the same rank, what began first.
	slices.SortStableFunc(list, func(a, b *findingJSON) int { return cmp.Compare(a.Onset, b.Onset) })
	diagnose.Rank(list, cause.Catalogue(), (*findingJSON).ranked)
	slices.SortStableFunc(list, func(a, b *findingJSON) int { return cmp.Compare(a.past(), b.past()) })
	return list, nil
}

// followed makes consequences of what windows next to each other tell the cause of, see diagnose.Across.
func followed(list []*findingJSON) {
	near := func(f, p *findingJSON) bool {
		return f.first >= p.first-1 && f.last <= p.last+1 && f.from.Sub(p.to) <= slack && p.from.Sub(f.to) <= slack
	}
	for i, j := range diagnose.Across(list, (*findingJSON).ranked, near) {
		if j < 0 {
			continue
		}
		f, p := list[i], list[j]
		f.Role, f.ConsequenceOf = cause.RoleConsequence, &p.Cause
		if f.Onset < p.Onset {
			p.Onset, p.Before = f.Onset, f.Before
		}
	}
}

// quietFor is for how long nothing must have been answered until that is worth a word.
const quietFor = 15 * time.Second

// quiet says of findings that nobody has seen the end of where there is no traffic any more: nobody
// knows that they go on.
func (s *server) quiet(list []*findingJSON, span timeRange) error {
	goOn := func(f *findingJSON) bool { return f.End == nil && f.Key != nil }
	if !slices.ContainsFunc(list, goOn) {
		return nil
	}
	// By the second: sums of a range may be of rows of five minutes.
	last := make([]int64, len(list))
	err := s.source.Points(store.Query{From: span.to.Add(-4 * slack), To: span.to.Add(time.Second), Counts: true}, time.Second, func(sec *store.Second) bool {
		if e := &sec.Endpoint; e.Requests > e.Unanswered {
			for i, f := range list {
				if goOn(f) && about(&f.Subject, e) {
					last[i] = sec.At
				}
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for i, f := range list {
		if at := time.Unix(last[i], 0); last[i] != 0 && span.to.Sub(at) >= quietFor {
			since := unix(at)
			f.Quiet = &since
		}
	}
	return nil
}

// findings tells what was found in a range, from when to when, and, of its last
// window, what was not.
func (s *server) findings(ctx context.Context, q *query) (answer, error) {
	list, err := s.found(q.timeRange, q.timeRange)
	if err != nil {
		return answer{}, err
	}
	lost := losses{}
	ruledOut, notChecked := []diagnose.Excluded{}, []diagnose.Excluded{}
	var last *spanJSON
	windows, err := s.source.Observations(q.from, q.to)
	if err != nil {
		return answer{}, err
	}
	if n := len(windows); n > 0 {
		if f, err := s.facts(ctx, windows[n-1], judged); err != nil {
			lost.add("the last window could not be read", 1)
		} else {
			ruledOut, notChecked, lost = f.report.RuledOut, f.report.NotChecked, append(lost, f.report.Losses...)
			last = &spanJSON{unix(f.Start), unix(f.End)}
		}
	}
	return jsonAnswer(map[string]any{"findings": list, "windows": len(windows), "judged": last,
		"ruled_out": ruledOut, "not_checked": notChecked, "losses": lost})
}
