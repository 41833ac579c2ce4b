package waterfall

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// Hop is a request of a trace, as one end of its connection saw it.
type Hop struct {
	Host    string // "" where there is only this one
	Request schema.Request
}

func (h *Hop) end() int64 { return h.Request.StartNS + h.Request.TotalNS() }

// Step is one request of a trace: the end that calls, the end that serves, or both.
type Step struct {
	Depth          int
	Called, Served *Hop
}

// first is the end that saw it first.
func (s *Step) first() *Hop {
	if s.Called != nil {
		return s.Called
	}
	return s.Served
}

// slack is how far apart two measurements of one moment on a host may be: a store keeps
// microseconds, and a call is seen when it is sent.
const slack = 100_000 // ns

// MaxHops bounds the hops of a trace that are put in order.
const MaxHops = 10_000

// Traces are the steps of each trace among hops, the trace that began first first. Hops
// without a trace are left out.
func Traces(hops []Hop) [][]Step {
	of := map[[16]byte][]Hop{}
	for _, h := range hops {
		if h.Request.Trace.Known() {
			of[h.Request.Trace.ID] = append(of[h.Request.Trace.ID], h)
		}
	}
	var list [][]Step
	for _, mine := range of {
		list = append(list, stepsOf(mine))
	}
	slices.SortFunc(list, func(a, b []Step) int {
		x, y := &a[0].first().Request, &b[0].first().Request
		return cmp.Or(cmp.Compare(x.StartNS, y.StartNS), bytes.Compare(x.Trace.ID[:], y.Trace.ID[:]))
	})
	return list
}

// stepsOf are the steps of one trace, each before those that were made for it, which are in
// order of their beginning.
func stepsOf(hops []Hop) []Step {
	hops = latest(hops)
	twin := ends(hops)
	var steps []Step
	for i := range hops {
		h := &hops[i]
		switch j, paired := twin[i]; {
		case h.Request.Side == observe.Called && paired:
			steps = append(steps, Step{Called: h, Served: &hops[j]})
		case h.Request.Side == observe.Called:
			steps = append(steps, Step{Called: h})
		case !paired:
			steps = append(steps, Step{Served: h})
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.first().Request.StartNS, b.first().Request.StartNS) })
	children := map[int][]int{} // by parent; -1: none
	for i := range steps {
		up := madeFor(steps, i)
		children[up] = append(children[up], i)
	}
	ordered := make([]Step, 0, len(steps))
	var walk func(parent, depth int)
	walk = func(parent, depth int) {
		for _, i := range children[parent] {
			steps[i].Depth = depth
			ordered = append(ordered, steps[i])
			walk(i, depth+1)
		}
	}
	walk(-1, 0)
	return ordered
}

// latest leaves out records that others amend, and sorts by start.
func latest(hops []Hop) []Hop {
	type key struct {
		host        string
		side        observe.Side
		netns       uint64
		local, peer netip.AddrPort
		seq         uint32
		parent      [8]byte
	}
	slices.SortStableFunc(hops, func(a, b Hop) int {
		return cmp.Or(cmp.Compare(a.Request.StartNS, b.Request.StartNS), cmp.Compare(a.Request.TotalNS(), b.Request.TotalNS()))
	})
	last := map[key]int{}
	keyOf := func(h *Hop) key {
		r := &h.Request
		return key{h.Host, r.Side, r.NetNS, r.Local, r.Peer, r.Seq, r.Trace.Parent}
	}
	for i := range hops {
		last[keyOf(&hops[i])] = i
	}
	kept := hops[:0]
	for i := range hops {
		if last[keyOf(&hops[i])] == i {
			kept = append(kept, hops[i])
		}
	}
	return kept
}

// connection is a request's connection, as its client names it, with the span that sent it.
type connection struct {
	client, server netip.AddrPort
	parent         [8]byte
}

func connectionOf(r *observe.Request) connection {
	c := connection{plain(r.Peer), plain(r.Local), r.Trace.Parent}
	if r.Side == observe.Called {
		c.client, c.server = c.server, c.client
	}
	return c
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// ends finds the records that are two ends of one request, by their place in hops: those of
// one connection and one span, each in its turn; and where addresses are translated on the
// way, those of a span that only one request at each end carries.
func ends(hops []Hop) map[int]int {
	twin := map[int]int{}
	join := func(keyOf func(h *Hop) connection, several bool) {
		called, served := map[connection][]int{}, map[connection][]int{}
		for i := range hops {
			if _, joined := twin[i]; joined {
				continue
			}
			into := served
			if hops[i].Request.Side == observe.Called {
				into = called
			}
			k := keyOf(&hops[i])
			into[k] = append(into[k], i)
		}
		for k, c := range called {
			s := served[k]
			if len(s) != len(c) || len(c) > 1 && !several {
				continue
			}
			for n := range c {
				twin[c[n]], twin[s[n]] = s[n], c[n]
			}
		}
	}
	join(func(h *Hop) connection { return connectionOf(&h.Request.Request) }, true)
	join(func(h *Hop) connection { return connection{parent: h.Request.Trace.Parent} }, false)
	return twin
}

// madeFor is the step that a step was made for: the request of the same trace that its
// process had in hand when it called; -1 where there is none, or several that differ in
// nothing else.
func madeFor(steps []Step, i int) int {
	call := steps[i].Called
	if call == nil || call.Request.PID == 0 {
		return -1
	}
	found, sameThread, several := -1, false, false
	for j := range i { // what began before it, so that none hangs on itself
		s := steps[j].Served
		if s == nil || s.Host != call.Host || s.Request.PID != call.Request.PID ||
			call.Request.StartNS < s.Request.StartNS-slack || call.Request.StartNS > s.end()+slack {
			continue
		}
		same := s.Request.TID == call.Request.TID
		switch {
		case found < 0, same && !sameThread:
			found, sameThread, several = j, same, false
		case same == sameThread:
			several = true
		}
	}
	if several {
		return -1
	}
	return found
}
