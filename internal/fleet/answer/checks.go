package answer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/servicemap"
)

const (
	// silence is how long a host may say nothing: it says Hello each minute.
	silence = 150 * time.Second
	// behind is how far a host's figures may be behind those of the others, next to the
	// time that they wait before they are sent.
	behind = 20 * time.Second
	// clockAhead is by how much a host's clock must be ahead to be reported: they say Hello once
	// a minute, and a clock may be read before what is here.
	clockAhead = 30 * time.Second
	// mostListed of a kind are named; the others are counted.
	mostListed = 5
	// littleHistory is how much there must be before the range for "usual" to mean much.
	littleHistory = 10 * time.Minute
)

// silent says that a host had not been heard of for a while at the end of the range.
func (s *seen) silent(h *fleet.HostSeen) bool {
	return h.Last.Before(s.q.To.Add(-silence)) && s.newest[h.Name] < s.q.To.Add(-silence).Unix()
}

// heard is when a host was last heard of: it says Hello once a minute, and its figures come
// between.
func (s *seen) heard(h *fleet.HostSeen) time.Time {
	at := h.Last
	if s.judged != nil {
		if newest := time.Unix(s.judged.newest[h.Name], 0); newest.After(at) {
			at = newest
		}
	}
	return at.UTC()
}

// lastHeard is when any host was last heard of.
func (s *seen) lastHeard() time.Time {
	var last time.Time
	for i := range s.hosts {
		last = later(last, s.heard(&s.hosts[i]))
	}
	return last
}

// notChecked is what could not be known.
func (s *seen) notChecked(r *Report) []Unchecked {
	all := append(s.absentUnchecked(), s.unknown...)
	all = append(all, s.hostsUnchecked()...)
	all = append(all, s.callsUnchecked()...)
	if s.q.Service != "" && !s.known() {
		all = append(all, Unchecked{"the service " + s.q.Service, s.others()})
	}
	if len(r.Causes) > 0 && len(s.m.Joins.All) == 0 {
		all = append(all, Unchecked{"the network between hosts, from both ends", "no request was kept at both ends"})
	}
	for i := range r.Causes {
		c := &r.Causes[i]
		if c.Origin != nil && len(c.Findings) == 0 {
			all = append(all, Unchecked{"why " + c.Origin.Host + " is slow", "the host itself found nothing in the range: its windows, of a minute each, may not be here yet"})
		}
		all = append(all, s.clockUnchecked(c)...)
	}
	if s.capped {
		all = append(all, Unchecked{"all stored requests", fmt.Sprintf("there are more than %s: the first ones of each twentieth of the range were joined", figure.Count(mostRequests))})
	}
	if r.Fleet.Endpoints > 0 {
		switch h := time.Duration(r.Fleet.History * float64(time.Second)); {
		case s.first >= s.q.From.Unix():
			all = append(all, Unchecked{"what is usual", "there is no history before " + time.Unix(s.first, 0).UTC().Format(time.TimeOnly) + ", within the range"})
		case h < littleHistory:
			all = append(all, Unchecked{"what is usual", fmt.Sprintf("there are only %s of history before the range", figure.Seconds(h.Round(time.Second).Seconds()))})
		}
	}
	if n := r.Fleet.Endpoints - r.Fleet.Judged; n > 0 && r.Fleet.Judged < r.Fleet.Endpoints*9/10 {
		all = append(all, Unchecked{count(n, "endpoint"), "not known well enough: a minute of requests is needed"})
	}
	return all
}

// known says that something of what was asked about did anything in the range.
func (s *seen) known() bool {
	for _, views := range []map[fleet.Key]*servicemap.View{s.m.Served, s.m.Called} {
		for k := range views {
			if s.asked(&k) {
				return true
			}
		}
	}
	return false
}

// others says what names there are, where one is asked for that nobody has.
func (s *seen) others() string {
	requests := map[string]uint64{}
	for k, v := range s.m.Served {
		if s.q.Host == "" || s.q.Host == k.Host {
			requests[k.Service] += v.Requests
		}
	}
	text := "nobody was seen to answer or call by this name in the range"
	names := slices.SortedFunc(maps.Keys(requests), func(x, y string) int {
		return cmp.Or(cmp.Compare(requests[y], requests[x]), strings.Compare(x, y))
	})
	if len(names) == 0 {
		return text
	}
	text += "; seen were " + strings.Join(names[:min(len(names), mostNames)], ", ")
	if n := len(names) - mostNames; n > 0 {
		text += fmt.Sprintf(" and %s more (slowray fleet top --once)", figure.Count(n))
	}
	return text
}

// mostNames of services are reported where one is asked for that nobody has.
const mostNames = 8

// hostsUnchecked are hosts that say nothing, or are late.
func (s *seen) hostsUnchecked() (all []Unchecked) {
	switch {
	case len(s.hosts) > 0:
	case len(s.absent) > 0:
		return nil
	default:
		return []Unchecked{{"everything", "no host has ever shipped here"}}
	}
	var newest int64
	for _, at := range s.newest {
		newest = max(newest, at)
	}
	if newest == 0 {
		all = append(all, Unchecked{"the whole fleet", "no host has figures of this range; the last that was heard of any is of " + s.lastHeard().Format(time.DateTime)})
	}
	var gone, late, idle []Unchecked
	for i := range s.hosts {
		h := &s.hosts[i]
		at, shipped := s.newest[h.Name]
		switch {
		case s.silent(h):
			gone = append(gone, Unchecked{h.Name, "silent since " + s.heard(h).Format(time.DateTime) + ", by its own clock"})
		case !shipped && newest > 0:
			idle = append(idle, Unchecked{h.Name, "it is there, and has no figures of this range"})
		case shipped && newest-at > int64(s.behind/time.Second):
			late = append(late, Unchecked{h.Name, fmt.Sprintf("its figures end %s before those of others, by its own clock", figure.Seconds(float64(newest-at)))})
		}
	}
	for _, list := range []struct {
		of   []Unchecked
		what string
	}{{gone, "are silent"}, {late, "are behind with their figures"}, {idle, "have no figures of this range"}} {
		all = append(all, few(list.of, list.what)...)
	}
	var twins []Unchecked
	for i := range s.hosts {
		if h := &s.hosts[i]; h.Twins > 0 {
			twins = append(twins, Unchecked{h.Name, fmt.Sprintf("%s send by this name at once, which mixes up what they do: give each its own (slowray record --host)", count(h.Twins+1, "host"))})
		}
	}
	all = append(all, few(twins, "have a name that others have, too")...)
	var ahead []Unchecked
	for i := range s.hosts {
		if h := &s.hosts[i]; !s.q.Now.IsZero() && h.Last.After(s.q.Now.Add(clockAhead)) {
			ahead = append(ahead, Unchecked{h.Name, "its clock is about " + h.Last.Sub(s.q.Now).Round(time.Second).String() + " ahead of the one here: what it did is recorded under another time (chronyc tracking there)"})
		}
	}
	return append(all, few(ahead, "have clocks that are ahead")...)
}

// few are the first ones, and how many others there are.
func few(list []Unchecked, what string) []Unchecked {
	n := len(list) - mostListed
	if n > 0 {
		list = append(list[:mostListed:mostListed], Unchecked{count(n, "more host"), what})
	}
	return list
}

// callsUnchecked are calls that are abnormal and lead nobody knows where, and how many
// others do.
func (s *seen) callsUnchecked() (all []Unchecked) {
	var edges []*servicemap.Edge
	others := 0
	for i := range s.m.Edges {
		e := &s.m.Edges[i]
		switch {
		case e.How != servicemap.Unknown:
		case s.byKey[e.From] != nil && (s.asked(&e.From)):
			edges = append(edges, e)
		default:
			others++
		}
	}
	slices.SortStableFunc(edges, func(x, y *servicemap.Edge) int { return cmp.Compare(y.Caller.TotalUS, x.Caller.TotalUS) })
	seen := map[string]bool{}
	more := 0
	for _, e := range edges {
		to := addrPort(&e.From)
		switch {
		case seen[to] || slices.ContainsFunc(s.unknown, func(u Unchecked) bool { return strings.HasSuffix(u.What, " "+to) }):
		case len(seen) < mostListed:
			seen[to] = true
			all = append(all, Unchecked{"what answers at " + to, e.Why})
		default:
			more++
		}
	}
	if more > 0 {
		all = append(all, Unchecked{count(more, "more slow call"), "it is not known what answers"})
	}
	if others > 0 {
		all = append(all, Unchecked{count(others, "other call"), "it is not known what answers; they are as usual"})
	}
	return all
}

// clockUnchecked says which hosts of a cause's chain have clocks that are not known
// next to each other: their moments cannot be compared.
func (s *seen) clockUnchecked(c *Cause) (all []Unchecked) {
	told := map[string]bool{}
	for i := 1; i < len(c.Chain); i++ {
		a, b := c.Chain[i-1].Host, c.Chain[i].Host
		if a == b || told[a+"\x00"+b] || s.m.Joins.Clock(a, b) != nil {
			continue
		}
		told[a+"\x00"+b] = true
		all = append(all, Unchecked{"the clocks of " + a + " and " + b, "too few requests were kept at both"})
	}
	return all
}

// clocksOf are the clocks between hosts that are named.
func (s *seen) clocksOf(named map[string]bool) []Clock {
	var all []Clock
	for i := range s.m.Joins.Clocks {
		c := &s.m.Joins.Clocks[i]
		if named[c.A] && named[c.B] {
			all = append(all, clockOf(c))
		}
	}
	return all
}
