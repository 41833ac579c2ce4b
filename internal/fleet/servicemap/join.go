package servicemap

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// pair is two hosts, in the order of their names.
type pair struct{ a, b string }

func pairOf(x, y string) pair {
	if x > y {
		x, y = y, x
	}
	return pair{x, y}
}

// Joins are requests that were seen at both ends.
type Joins struct {
	All    []Joined
	Clocks []Clock // of pairs of hosts, in the order of their names
	// Called and Served are how many ends there were to join.
	Called, Served int

	clocks map[pair]*Clock
	owners *owners
}

// Clock is what is known of two hosts, turned so that it is b's ahead of a's; nil
// when it is not known.
func (j *Joins) Clock(a, b string) *Clock {
	c := j.clocks[pairOf(a, b)]
	if c == nil || c.A == a {
		return c
	}
	turned := *c
	turned.A, turned.B, turned.OffsetNS, turned.DriftPPM = a, b, -c.OffsetNS, -c.DriftPPM
	return &turned
}

// unknownSkew is how far clocks may be apart that nothing is known of: hosts without
// any time service are minutes off, not days.
const unknownSkew = int64(600e9)

// mostLooks is how many pairs of ends of one connection are looked at: a host whose
// requests all have one number would take all time for itself.
const mostLooks = 1_000_000

// clockSlack is by how much a pair may miss a clock that is known, ns.
const clockSlack = 200_000

// Join finds the ends that are of the same request: the same connection and the same
// number on it, with the time at the server within the caller's. Where addresses are
// translated on the way it takes those that fit nothing else (translated.go). Ends are
// not kept but pointed to.
func Join(ends []End, hosts []fleet.HostSeen) *Joins {
	j := &Joins{clocks: map[pair]*Clock{}, owners: ownersOf(hosts)}
	list := make([]*End, 0, len(ends))
	for i := range ends {
		list = append(list, &ends[i])
	}
	slices.SortFunc(list, compareEnds)
	connections := map[tuple]*connection{}
	for _, e := range list {
		c := connections[e.tuple()]
		if c == nil {
			c = &connection{}
			connections[e.tuple()] = c
		}
		if e.called() {
			c.called = append(c.called, e)
			j.Called++
		} else {
			c.served = append(c.served, e)
			j.Served++
		}
	}
	order := make([]*connection, 0, len(connections))
	for _, c := range connections {
		if len(c.called) > 0 && len(c.served) > 0 {
			order = append(order, c)
		}
	}
	slices.SortFunc(order, func(x, y *connection) int { return compareEnds(x.called[0], y.called[0]) })

	// Pairs that cannot be mistaken tell the clocks, and those tell the other pairs.
	j.All = nil
	for _, c := range order {
		j.All = append(j.All, c.certain()...)
	}
	j.learnClocks()
	j.All = nil
	taken := map[*End]bool{}
	for _, c := range order {
		for _, found := range c.join(j) {
			taken[found.Called], taken[found.Served] = true, true
			j.All = append(j.All, found)
		}
	}
	j.learnClocks()
	left := slices.DeleteFunc(list, func(e *End) bool { return taken[e] })
	j.All = append(j.All, translated(left, j)...)
	slices.SortFunc(j.All, func(x, y Joined) int {
		return cmp.Or(compareEnds(x.Called, y.Called), compareEnds(x.Served, y.Served))
	})
	j.learnClocks()
	return j
}

func (e *End) called() bool { return e.Side == observe.Called }

func compareEnds(x, y *End) int {
	return cmp.Or(cmp.Compare(x.First, y.First), cmp.Compare(x.Host, y.Host), cmp.Compare(x.Side, y.Side),
		compareAddr(x.Client, y.Client), compareAddr(x.Server, y.Server), cmp.Compare(x.Seq, y.Seq), cmp.Compare(x.TotalNS, y.TotalNS))
}

func compareAddr(x, y netip.AddrPort) int { return x.Compare(y) }

// connection is what was kept of the requests between two addresses and ports.
// Ports are used again: it may be several connections, one after the other.
type connection struct{ called, served []*End }

// certain are pairs of which there is only one of each number at each end.
func (c *connection) certain() []Joined {
	count := func(ends []*End) map[uint32]int {
		n := map[uint32]int{}
		for _, e := range ends {
			n[e.Seq]++
		}
		return n
	}
	called, served := count(c.called), count(c.served)
	byNumber := map[uint32]*End{}
	for _, e := range c.served {
		byNumber[e.Seq] = e
	}
	var all []Joined
	for _, e := range c.called {
		if s := byNumber[e.Seq]; s != nil && called[e.Seq] == 1 && served[e.Seq] == 1 && fits(e, s, nil) {
			all = append(all, Joined{Called: e, Served: s})
		}
	}
	return all
}

// join finds the pairs of a connection. Where an end has seen it only from its middle
// on, its numbers are behind by the same amount for all requests: the amount by which
// most pairs fit is taken.
func (c *connection) join(j *Joins) []Joined {
	if all := c.shifted(0, j); len(all) > 0 {
		return all
	}
	votes := map[int64]int{}
	looks := 0
	for _, e := range c.called {
		for _, s := range c.served {
			if looks++; looks > mostLooks {
				return nil
			}
			if e.sizesFit(s) && j.fits(e, s) && j.knows(e, s) {
				votes[int64(s.Seq)-int64(e.Seq)]++
			}
		}
	}
	best, most, tie := int64(0), 0, false
	for shift, n := range votes {
		if n > most {
			best, most, tie = shift, n, false
		} else if n == most {
			tie = true
		}
	}
	if most == 0 || tie {
		return nil
	}
	return c.shifted(best, j)
}

// shifted are the pairs whose numbers differ by shift. Of several that fit, the
// nearest in time is the one.
func (c *connection) shifted(shift int64, j *Joins) []Joined {
	byNumber := map[int64][]*End{}
	for _, s := range c.served {
		byNumber[int64(s.Seq)] = append(byNumber[int64(s.Seq)], s)
	}
	taken := map[*End]bool{}
	var all []Joined
	looks := 0
	for _, e := range c.called {
		var best *End
		nearest := int64(math.MaxInt64)
		for _, s := range byNumber[int64(e.Seq)+shift] {
			if looks++; looks > mostLooks {
				return all
			}
			if taken[s] || !j.fits(e, s) {
				continue
			}
			apart := abs(s.First - e.First - j.offset(e.Host, s.Host, e.First))
			if s.Host == e.Host {
				apart /= 1000 // private addresses repeat on other hosts
			}
			if apart < nearest {
				best, nearest = s, apart
			}
		}
		if best != nil {
			taken[best] = true
			all = append(all, Joined{Called: e, Served: best})
		}
	}
	return all
}

func (e *End) sizesFit(s *End) bool {
	return e.RequestBytes == s.RequestBytes && e.ResponseBytes == s.ResponseBytes
}

// fits says that the server's part may lie within the caller's, by the clock if it is
// known.
func (j *Joins) fits(c, s *End) bool {
	if c.Host == s.Host {
		return fits(c, s, &Clock{})
	}
	return fits(c, s, j.Clock(c.Host, s.Host))
}

// knows says that the difference of the ends' clocks is known.
func (j *Joins) knows(c, s *End) bool { return c.Host == s.Host || j.Clock(c.Host, s.Host) != nil }

// offset is by how much to's clock is ahead, as far as that is known, ns.
func (j *Joins) offset(from, to string, at int64) int64 {
	if c := j.Clock(from, to); c != nil {
		return c.at(at)
	}
	return 0
}

func fits(c, s *End, clock *Clock) bool {
	if c.timed() && s.timed() && s.wait() > c.wait()+2*rounding {
		return false
	}
	if clock == nil {
		return abs(s.First-c.First) < unknownSkew
	}
	ahead, slack := clock.at(c.First), clock.UncertaintyNS+clockSlack
	if s.First-c.First < ahead-slack {
		return false // received before it was sent
	}
	if c.timed() && s.timed() {
		return s.Answer-c.Answer <= ahead+slack
	}
	return s.First-c.First-ahead <= c.TotalNS+slack
}

// learnClocks estimates the clocks from the pairs that were found.
func (j *Joins) learnClocks() {
	bounds := map[pair][]bound{}
	for i := range j.All {
		c, s := j.All[i].Called, j.All[i].Served
		if c.Host == s.Host || !c.timed() || !s.timed() {
			continue
		}
		p, b := pairOf(c.Host, s.Host), boundOf(c, s)
		if p.a != c.Host { // the server's name comes first
			b = bound{at: s.First, low: -b.high, high: -b.low}
		}
		bounds[p] = append(bounds[p], b)
	}
	clear(j.clocks)
	j.Clocks = nil
	for p, list := range bounds {
		if c, ok := estimate(list); ok {
			c.A, c.B = p.a, p.b
			j.clocks[p] = &c
			j.Clocks = append(j.Clocks, c)
		}
	}
	slices.SortFunc(j.Clocks, func(x, y Clock) int { return cmp.Or(strings.Compare(x.A, y.A), strings.Compare(x.B, y.B)) })
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
