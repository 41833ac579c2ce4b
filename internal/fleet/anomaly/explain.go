package anomaly

import (
	"cmp"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// Facts are what is known next to the points.
type Facts struct {
	Hosts []fleet.Host
	// Clients are requests of abnormal endpoints, for those whose way to their clients
	// is slow; they need not be given.
	Clients []ClientRequest
	// Places are where endpoints run, as far as it is known.
	Places map[fleet.Key]fleet.Place
	// Behind are the served endpoints that were seen to answer calls to an address which
	// no host has, such as a balancer's, by the endpoint that calls.
	Behind map[fleet.Key][]fleet.Key
}

// surely is the P below which a component is not shared by chance.
const surely = 0.05

// seldom is how few requests must be expected in the fast window for nobody to know
// whether some are missing.
const seldom = 10

// Population are the endpoints that are judged now: those that Explain compares the
// abnormal with.
func (m *Model) Population() []fleet.Key {
	var list []fleet.Key
	for _, e := range m.ends {
		if !e.whole && e.Seen >= enoughSeen && e.last >= m.at-quietFor {
			list = append(list, e.Key)
		}
	}
	return list
}

// Explain finds what the anomalies of a judgement have in common.
func (m *Model) Explain(j *Judgement, f Facts) Explanation {
	few, rare := map[fleet.Key]bool{}, map[fleet.Key]bool{}
	for _, e := range m.ends {
		f := &e.win[fast].box
		if f.n < many {
			few[e.Key] = true
		}
		// Where requests are missing everywhere, that they are few tells nothing.
		if !e.whole && e.rate(m.group[e.group])*float64(f.seconds) < seldom {
			rare[e.Key] = true
		}
	}
	weak := [layers]map[fleet.Key]bool{slower: few, failing: few, starved: rare}
	return explain(j.Anomalies, m.Population(), weak, f)
}

// Explain finds what abnormal endpoints have in common, and the others of the
// population have not.
//
// First the calls between them are followed to where the time is spent: an endpoint
// whose requests wait for calls follows from those calls, and a call follows from the
// endpoint that answers it, when that is slow by its own account. What is left are
// the origins. Then the component is looked for which tells the origins from the
// endpoints that are not abnormal: the one of the largest likelihood ratio, less what
// it costs to name one among so many components. It must not be so by chance
// (Fisher's exact test, times the number of components tried). What it explains is
// taken away, with all that follows, and the next one is looked for. It sets Follows
// of the anomalies.
func Explain(anomalies []Anomaly, population []fleet.Key, f Facts) Explanation {
	return explain(anomalies, population, [layers]map[fleet.Key]bool{}, f)
}

// explain does so; weak are endpoints that are not counted among those that are not
// abnormal, because nobody can know.
func explain(anomalies []Anomaly, population []fleet.Key, weak [layers]map[fleet.Key]bool, f Facts) Explanation {
	var x Explanation
	graphs := inLayers(anomalies, population, weak, &f)
	for _, g := range graphs {
		x.absorb(g)
		var shared []Shared
		for {
			s, ok := g.common()
			if !ok {
				break
			}
			shared = append(shared, s)
		}
		x.merge(shared)
	}
	for _, g := range graphs {
		x.absorb(g)
		var shared []Shared
		for {
			s, ok := g.single()
			if !ok {
				break
			}
			// What is abnormal by nothing but the company of others is no cause next to one.
			// Nor is a way that makes nothing slow but the call itself.
			company := len(s.Members) == 1 && s.Kind != Dependency && !g.alarm(s.Members[0])
			if len(x.Shared)+len(shared) > 0 && (company || s.Kind == Dependency && s.Network && s.Inside == 0) {
				continue
			}
			shared = append(shared, s)
		}
		x.merge(shared)
	}
	x.drop(anomalies)
	if len(x.Shared) == 0 {
		x.wholes(anomalies)
	}
	x.rest(anomalies, graphs)
	if len(f.Clients) > 0 {
		x.clients(f.Clients)
	}
	slices.SortStableFunc(x.Shared, func(a, b Shared) int { return cmp.Compare(len(b.Explains), len(a.Explains)) })
	x.describe(len(anomalies))
	return x
}

// rest notes what each endpoint follows from, in any layer, and which of them nothing
// explains.
func (x *Explanation) rest(anomalies []Anomaly, graphs []*graph) {
	byKey := map[fleet.Key]*Anomaly{}
	for i := range anomalies {
		a := &anomalies[i]
		a.Follows = nil
		byKey[a.Key] = a
	}
	for _, g := range graphs {
		for i := range g.units {
			if u := &g.units[i]; u.a != nil {
				a := byKey[u.key]
				a.Follows = union(a.Follows, u.a.Follows) // of each layer
			}
		}
	}
	explained := map[fleet.Key]bool{}
	for i := range x.Shared {
		for _, k := range x.Shared[i].Explains {
			explained[k] = true
		}
	}
	for i := range anomalies {
		if k := anomalies[i].Key; k.Host != "" && !explained[k] {
			explained[k] = true
			x.Alone = append(x.Alone, k)
		}
	}
}

// wholes names the services that are abnormal as a whole, when none of their
// endpoints is by itself.
func (x *Explanation) wholes(anomalies []Anomaly) {
	for i := range anomalies {
		a := &anomalies[i]
		if a.Host == "" {
			x.Shared = append(x.Shared, Shared{
				Component: Component{Service, a.Service}, P: a.P, Members: []fleet.Key{a.Key}, Explains: []fleet.Key{a.Key},
				Network: a.Network, Signal: a.Signal, Inside: 1, InsideOf: 1,
			})
		}
	}
}

// candidate is a component, or two, with the units that have it.
type candidate struct {
	Component
	and   *Component
	units []int
	// Of these, of the units that are compared:
	abnormal, all int
	score         float64
}

// kindOrder prefers, of components that cannot be distinguished, the one that says most.
var kindOrder = []Kind{Dependency, Host, Service, Label, Image, Config, Build, Kernel, Version, Cgroup, Endpoint}

// components are those that a unit has.
func (g *graph) components(i int) []Component {
	u := &g.units[i]
	list := []Component{{Host, u.key.Host}}
	list = g.ofProgram(g.inGroups(list, &u.key), &u.key)
	if u.key.Side == observe.Called {
		list = append(list, Component{Dependency, addrPort(&u.key)})
		if u.callee >= 0 {
			list = append(list, Component{Service, g.units[u.callee].key.Service})
			callee := &g.units[u.callee].key
			list = g.ofProgram(g.inGroups(list, callee), callee)
		}
		if u.to != "" && u.to != u.key.Host {
			list = append(list, Component{Host, u.to})
			list = g.ofHost(list, u.to)
		}
	} else {
		list = append(list, Component{Service, u.key.Service})
	}
	return g.ofHost(list, u.key.Host)
}

func (g *graph) ofHost(list []Component, name string) []Component {
	h := g.hosts[name]
	if h == nil {
		return list
	}
	add := func(c Component) {
		if c.Value != "" && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	for k, v := range h.Labels {
		add(Component{Label, k + "=" + v})
	}
	add(Component{Kernel, h.Kernel})
	add(Component{Version, h.Version})
	return list
}

// origins are the abnormal units that follow from none that is still to be explained, and
// those that would be abnormal also without what they follow from.
func (g *graph) origins() (list []int) {
	for i := range g.units {
		u := &g.units[i]
		if u.a == nil || u.gone || u.faint {
			continue
		}
		origin := true
		for _, f := range u.follows {
			o := &g.units[f]
			origin = origin && (o.gone || o.faint && len(o.follows) == 0)
		}
		if origin || u.a.own {
			list = append(list, i)
		}
	}
	if len(list) == 0 { // they follow each other in a circle
		for i := range g.units {
			if u := &g.units[i]; u.a != nil && !u.gone && !u.faint {
				list = append(list, i)
			}
		}
	}
	return list
}

// common finds the next component that several origins share.
func (g *graph) common() (Shared, bool) {
	origins := g.origins()
	if len(origins) < 2 {
		return Shared{}, false
	}
	var best, found *candidate
	var bestP float64
	var tried []*candidate
	for _, side := range [...]observe.Side{0, observe.Served, observe.Called} {
		list, of, all := g.candidates(origins, side)
		for _, c := range list {
			if c.abnormal < 2 {
				continue
			}
			c.score = gain(c.abnormal, c.all, of, all) - math.Log(float64(len(list)))
			if c.and != nil {
				c.score -= math.Log(float64(len(list)))
			}
			if best == nil || c.better(best) {
				best = c
				bestP = min(chance(c.abnormal, of, c.all, all)*float64(len(list)), 1)
			}
		}
		tried = append(tried, list...)
	}
	if best == nil || best.score <= 0 || bestP > surely {
		return Shared{}, false
	}
	found = best.wider(tried)
	s := Shared{Component: found.Component, And: found.and, P: bestP}
	for _, c := range tried {
		if found.and != nil && c.and != nil && c.Component == found.Component && *c.and != *found.and && slices.Equal(c.units, found.units) && !slices.Contains(s.Also, *c.and) {
			s.Also = append(s.Also, *c.and)
		}
		if c != found && c.and == nil && c.Component != found.Component && !found.implies(c) && slices.Equal(c.units, found.units) && !slices.Contains(s.Also, c.Component) {
			s.Also = append(s.Also, c.Component)
		}
	}
	var members []int
	for _, i := range origins {
		// Also those of the other side, as calls to one of its hosts that ships nothing.
		if list := g.components(i); slices.Contains(list, found.Component) && (found.and == nil || slices.Contains(list, *found.and)) {
			members = append(members, i)
		}
	}
	g.count(&s, found, origins)
	g.take(&s, members)
	if s.Kind == Cgroup {
		s.Name = g.container(s.Members)
	}
	return s, true
}

// implies says that a control group, or what a program is run from, goes without saying
// next to a component: each host, service and control group is in some, and each host and
// service runs something.
func (c *candidate) implies(o *candidate) bool {
	switch o.Kind {
	case Cgroup:
		return c.Kind == Host || c.Kind == Service || c.Kind == Cgroup
	case Image, Config, Build:
		return c.Kind == Host || c.Kind == Service
	}
	return false
}

// wider prefers, to a service on hosts of a label, the label alone where it tells of
// more endpoints: one component for several services.
func (c *candidate) wider(tried []*candidate) *candidate {
	if c.and == nil {
		return c
	}
	for _, o := range tried {
		if o.and == nil && o.Component == *c.and && slices.Equal(o.units, c.units) {
			return o
		}
		if o.and == nil && o.Component == *c.and && o.abnormal > c.abnormal && o.score > c.score/2 {
			return o
		}
	}
	return c
}

func (c *candidate) better(o *candidate) bool {
	if math.Abs(c.score-o.score) > 1e-9 {
		return c.score > o.score
	}
	if (c.and == nil) != (o.and == nil) {
		return c.and == nil
	}
	if d := slices.Index(kindOrder, c.Kind) - slices.Index(kindOrder, o.Kind); d != 0 {
		return d < 0
	}
	if c.Kind == Cgroup {
		return narrower(c.Value, o.Value)
	}
	return c.Value < o.Value
}

// candidates are the components of the origins, and how many of the units have them:
// of the origins, and of those that are not abnormal. side limits them to served or
// called endpoints.
func (g *graph) candidates(origins []int, side observe.Side) (list []*candidate, of, all int) {
	asked := map[Component]*candidate{}
	type pair struct{ a, b Component }
	pairs := map[pair]*candidate{}
	isOrigin := make([]bool, len(g.units))
	for _, i := range origins {
		if side != 0 && g.units[i].key.Side != side {
			continue
		}
		isOrigin[i] = true
		of++
		comps := g.components(i)
		for _, c := range comps {
			if asked[c] == nil {
				asked[c] = &candidate{Component: c}
			}
		}
	}
	if of == 0 {
		return nil, 0, 0
	}
	for i := range g.units {
		u := &g.units[i]
		if side != 0 && u.key.Side != side || u.a != nil && !isOrigin[i] || u.a == nil && u.weak {
			continue
		}
		all++
		comps := g.components(i)
		var services, places []Component
		for _, c := range comps {
			cand := asked[c]
			if cand == nil {
				continue
			}
			cand.add(i, isOrigin[i])
			switch c.Kind {
			case Service:
				services = append(services, c)
			case Label, Kernel, Version:
				places = append(places, c)
			}
		}
		for _, s := range services {
			for _, p := range places {
				k := pair{s, p}
				if pairs[k] == nil {
					and := p
					pairs[k] = &candidate{Component: s, and: &and}
				}
				pairs[k].add(i, isOrigin[i])
			}
		}
	}
	for _, c := range asked {
		list = append(list, c)
	}
	for _, c := range pairs {
		if c.abnormal > 0 {
			list = append(list, c)
		}
	}
	return list, of, all
}

func (c *candidate) add(i int, abnormal bool) {
	c.units = append(c.units, i)
	c.all++
	if abnormal {
		c.abnormal++
	}
}

// count sets Inside and Outside.
func (g *graph) count(s *Shared, c *candidate, origins []int) {
	if c.Kind == Dependency && c.and == nil {
		g.countCallers(s, c.Value, origins)
		return
	}
	s.Inside = c.abnormal
	s.Outside = c.all - c.abnormal
	sides := map[observe.Side]bool{}
	for _, i := range c.units {
		sides[g.units[i].key.Side] = true
	}
	for i := range g.units {
		u := &g.units[i]
		switch {
		case !sides[u.key.Side], u.a == nil && u.weak:
		case u.a == nil:
			s.OutsideOf++
		case slices.Contains(origins, i):
			s.InsideOf++
		}
	}
}

// take notes what a component explains, and takes it away.
func (g *graph) take(s *Shared, members []int) {
	network := 0
	signals := map[Signal]int{}
	for _, i := range members {
		u := &g.units[i]
		s.Members = append(s.Members, u.key)
		if u.a.Network {
			network++
		}
		signals[u.a.Signal]++
		if signals[u.a.Signal] > signals[s.Signal] || len(s.Members) == 1 {
			s.Signal = u.a.Signal
		}
	}
	s.Network = 2*network > len(members)
	in := g.carry(s, g.after(members))
	for i := range g.units {
		if in[i] && g.units[i].a != nil && !g.units[i].gone {
			g.units[i].gone = !g.units[i].a.own || slices.Contains(members, i)
			s.Explains = append(s.Explains, g.units[i].key)
		}
	}
}
