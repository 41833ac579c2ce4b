package anomaly

import (
	"cmp"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
)

// layer is a way to be abnormal. An endpoint can be so in several ways at once, and each
// has a cause of its own: what makes a service slow needs not be what makes it fail.
type layer uint8

const (
	slower  layer = iota // requests take longer
	failing              // requests fail
	starved              // requests are missing
	layers
)

// layerOf is the layer that a signal tells of.
func layerOf(sig Signal) layer {
	switch sig {
	case Rate:
		return starved
	case Errors:
		return failing
	}
	return slower
}

// Wrong is what one signal of an endpoint is, and what it usually is.
type Wrong struct {
	Signal   Signal  `json:"signal"`
	Value    float64 `json:"value"`    // in the signal's Unit
	Expected float64 `json:"expected"` // at this time of the day and week
	Effect   float64 `json:"effect"`   // as in Anomaly
}

// view is an anomaly as far as it is one of a layer.
type view struct {
	Wrong
	in bool
	// faint says that it is not unusual at this moment, or never was so unusual that it
	// would be abnormal without the other layers: it can follow, and is no cause.
	faint bool
	// joined says that it was so unusual once since it began.
	joined bool
}

// mixtures are the P values of an endpoint, by layer.
type mixtures [layers]mixture

// all is the mixture of all layers.
func (m *mixtures) all() (sum mixture) {
	for _, l := range m {
		sum.sum += l.sum
	}
	return sum
}

// with is the mixture of a layer in two windows.
func (m *mixtures) with(o *mixtures, l layer) mixture { return mixture{m[l].sum + o[l].sum} }

// inLayer gives the anomalies of a layer, as it sees them: none where none of them is
// abnormal by that alone.
func inLayer(anomalies []Anomaly, l layer) []Anomaly {
	var list []Anomaly
	joined, clear := false, false
	for i := range anomalies {
		a := anomalies[i]
		v := a.views[l]
		if a.views == ([layers]view{}) && layerOf(a.Signal) == l { // nobody told more
			v = view{Wrong{a.Signal, a.Value, a.Expected, a.Effect}, true, a.faint, true}
		}
		if !v.in {
			continue
		}
		joined = joined || v.joined
		clear = clear || v.joined && !v.faint
		a.Signal, a.Value, a.Expected, a.Effect, a.faint = v.Signal, v.Value, v.Expected, v.Effect, v.faint
		a.own = a.own && l == slower
		a.views = [layers]view{}
		a.views[l] = v
		list = append(list, a)
	}
	if !joined {
		return nil
	}
	if !clear { // it is going by: what never was clear is no cause now
		list = slices.DeleteFunc(list, func(a Anomaly) bool { return !a.views[l].joined })
	}
	return list
}

// inLayers makes a graph of each layer in which something is abnormal, of the most
// endpoints first.
func inLayers(anomalies []Anomaly, population []fleet.Key, weak [layers]map[fleet.Key]bool, f *Facts) (graphs []*graph) {
	joined := map[*graph]int{}
	for l := range layers {
		list := inLayer(anomalies, l)
		if len(list) == 0 {
			continue
		}
		g := newGraph(list, population, weak[l], f)
		for i := range list {
			if list[i].views[l].joined {
				joined[g]++
			}
		}
		graphs = append(graphs, g)
	}
	slices.SortStableFunc(graphs, func(a, b *graph) int { return cmp.Compare(joined[b], joined[a]) })
	return graphs
}

// absorb takes away in a layer what the causes found in others explain of it: origins that
// are among the endpoints of such a cause are so for the same reason, as far as anybody can
// tell, and so is what waits for them.
func (x *Explanation) absorb(g *graph) {
	for n := range x.Shared {
		s := &x.Shared[n]
		var own []int
		clear, sig := 0, Total
		for _, i := range g.origins() {
			u := &g.units[i]
			if slices.Contains(s.Members, u.key) {
				own = append(own, i)
				if sig = u.a.Signal; !u.faint {
					clear++
				}
			}
		}
		if len(own) == 0 {
			continue
		}
		as := *s
		as.Signal, as.Members, as.Explains, as.Besides = sig, nil, nil, nil
		g.take(&as, own)
		s.Explains = union(s.Explains, as.Explains)
		if layerOf(as.Signal) != layerOf(s.Signal) && 2*clear >= len(s.Members) && !slices.Contains(s.Besides, as.Signal) {
			s.Besides = append(s.Besides, as.Signal)
		}
	}
}

// Join adds in what other ways an endpoint was abnormal at another second.
func (a *Anomaly) Join(o *Anomaly) {
	for l := range layers {
		v, w := &a.views[l], &o.views[l]
		if w.in && (!v.in || w.joined && !v.joined || v.faint && !w.faint) {
			*v = *w
		}
	}
	if slow, lacks := &a.views[slower], &a.views[starved]; slow.joined && !slow.faint && lacks.in && !lacks.beyond(slow.Effect) {
		lacks.in, lacks.joined = false, false
	}
	a.tellBesides()
}

// beyond says whether more requests are missing than is so where clients wait for one
// answer before they ask again, and each takes longer by a time relative to the usual.
func (v *view) beyond(time float64) bool {
	return -math.Log1p(-min(v.Effect, 0.999)) >= math.Log1p(max(time, 0))
}

// tellBesides tells what else is wrong than Signal.
func (a *Anomaly) tellBesides() {
	a.Besides = nil
	for l := range layers {
		if v := &a.views[l]; v.in && v.joined && l != layerOf(a.Signal) {
			a.Besides = append(a.Besides, v.Wrong)
		}
	}
}

// merge takes the components of another layer: those that are there already are slow and
// failing at once.
func (x *Explanation) merge(list []Shared) {
	have := len(x.Shared)
	for _, s := range list {
		i := slices.IndexFunc(x.Shared[:have], func(o Shared) bool { return o.same(&s) })
		if i < 0 {
			x.Shared = append(x.Shared, s)
			continue
		}
		o := &x.Shared[i]
		if s.Signal != o.Signal && !slices.Contains(o.Besides, s.Signal) {
			o.Besides = append(o.Besides, s.Signal)
		}
		o.Members = union(o.Members, s.Members)
		o.Explains = union(o.Explains, s.Explains)
		o.P = min(o.P, s.P)
	}
}

// same says whether two components, of different layers, are one cause.
func (s *Shared) same(o *Shared) bool {
	if (s.And == nil) != (o.And == nil) || s.And != nil && *s.And != *o.And {
		return false
	}
	if s.Component == o.Component || slices.Contains(s.Also, o.Component) || slices.Contains(o.Also, s.Component) {
		return true
	}
	return s.origin() != nil && o.origin() != nil && *s.origin() == *o.origin()
}

// origin is the one endpoint that a cause is, nil when it is of several.
func (s *Shared) origin() *fleet.Key {
	if s.Origin != nil {
		return s.Origin
	}
	if len(s.Members) == 1 {
		return &s.Members[0]
	}
	return nil
}

func union(a, b []fleet.Key) []fleet.Key {
	for _, k := range b {
		if !slices.Contains(a, k) {
			a = append(a, k)
		}
	}
	return a
}
