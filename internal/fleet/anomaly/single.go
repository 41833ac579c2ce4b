package anomaly

import (
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// single explains by one endpoint what follows from it: a dependency that makes its
// callers slow, a host that is slow alone.
func (g *graph) single() (Shared, bool) {
	best, most := -1, 0
	for _, i := range g.origins() {
		if n := len(g.after([]int{i})); n > most {
			best, most = i, n
		}
	}
	if best < 0 {
		return Shared{}, false
	}
	u := &g.units[best]
	s := Shared{Component: Component{Endpoint, u.key.Service + " on " + u.key.Host}, P: 1}
	switch {
	case u.key.Side == observe.Called:
		if !u.a.Network && u.a.OwnUS > u.a.AddedUS/2 || u.a.Signal == Rate {
			return g.alone(best)
		}
		s.Component = Component{Dependency, addrPort(&u.key)}
		if g.countCallers(&s, s.Value, g.origins()); s.Inside == 0 && len(g.after([]int{best})) == 1 {
			return g.alone(best)
		}
	default:
		if dep := g.address(best); dep != "" && g.hurts(best) {
			s.Component, s.Also = Component{Dependency, dep}, []Component{{Host, u.key.Host}}
			key := u.key
			s.Origin, s.Name = &key, u.key.Service+" on "+u.key.Host
			g.countCallers(&s, dep, g.origins())
			break
		}
		return g.alone(best)
	}
	g.take(&s, []int{best})
	return s, true
}

// alone explains by the host when the same service is well on other hosts, and
// otherwise by nothing that is shared.
func (g *graph) alone(i int) (Shared, bool) {
	u := &g.units[i]
	s := Shared{Component: Component{Host, u.key.Host}, P: 1}
	same, elsewhere := 0, 0
	for j := range g.units {
		o := &g.units[j]
		if j == i || o.key.Side != u.key.Side || o.weak {
			continue
		}
		if o.key.Host == u.key.Host {
			same++
		}
		if o.key.Service == u.key.Service && o.key.Host != u.key.Host && o.a == nil {
			elsewhere++
		}
	}
	if same > 0 || elsewhere == 0 {
		s.Component = Component{Endpoint, u.key.Service + " on " + u.key.Host}
	} else {
		s.Also = append(s.Also, Component{Endpoint, u.key.Service + " on " + u.key.Host})
	}
	s.Inside, s.InsideOf, s.OutsideOf = 1, 1, elsewhere
	s.P = chance(1, 1, 1, elsewhere+1)
	g.take(&s, []int{i})
	return s, true
}

// address is where a served endpoint is called, "" when it is not.
func (g *graph) address(i int) string {
	count := map[string]int{}
	best := ""
	for _, c := range g.callers[i] {
		a := addrPort(&g.units[c].key)
		if count[a]++; best == "" || count[a] > count[best] || count[a] == count[best] && a < best {
			best = a
		}
	}
	return best
}

// hurts says whether served endpoints elsewhere are slow because of this one.
func (g *graph) hurts(i int) bool {
	for j := range g.after([]int{i}) {
		if u := &g.units[j]; j != i && u.key.Side == observe.Served {
			return true
		}
	}
	return false
}

// countCallers counts a dependency by the services that call it: of the abnormal ones,
// those that call it themselves or follow from one that does; of the others, those that
// call it themselves.
func (g *graph) countCallers(s *Shared, addr string, origins []int) {
	calls := map[hostName]bool{}
	var through []int
	for _, c := range g.toAddr[addr] {
		u := &g.units[c]
		calls[hostName{u.key.Host, u.key.Service}] = true
		if u.a != nil {
			through = append(through, c)
		}
		if u.callee >= 0 && s.Origin == nil {
			to := g.units[u.callee]
			s.Name = to.key.Service + " on " + to.key.Host
			if to.a != nil && slices.Contains(origins, u.callee) {
				key := to.key
				s.Origin = &key
			}
		}
	}
	after := g.after(through)
	marked, all, abnormal := 0, 0, 0
	for i := range g.units {
		u := &g.units[i]
		if u.key.Side != observe.Served || u.gone || u.a == nil && u.weak || s.Origin != nil && u.key == *s.Origin {
			continue
		}
		all++
		direct := calls[hostName{u.key.Host, program(u.key.Service)}]
		switch {
		case u.a != nil && (direct || after[i]):
			abnormal++
			marked++
			s.Inside++
		case u.a != nil:
			abnormal++
		case direct:
			marked++
			s.Outside++
		}
	}
	s.InsideOf, s.OutsideOf = abnormal, all-abnormal
	s.P = min(chance(s.Inside, abnormal, marked, all)*float64(max(len(g.toAddr), 1)), 1)
}
