package answer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/observe"
)

// figures are what an endpoint did before something began, and until it was over.
type figures struct{ before, since servicemap.View }

// rising is how many seconds before something was found it may have begun: it takes the windows
// that it is found by (anomaly), and requests count where they began, however long they were in hand.
const rising = 45

// figuresOf asks for an endpoint's points once more, from the beginning of the lead on. What
// may be of the beginning is neither before nor since, unless nothing else is known.
func (s *seen) figuresOf(ctx context.Context, a fleet.Archive, k *fleet.Key, since, until int64) (*figures, error) {
	var near servicemap.View
	q := fleet.Question{From: s.q.From.Add(-lead), To: s.q.To, Host: k.Host, Service: k.Service, Side: k.Side, Port: k.Port}
	f := &figures{}
	err := a.Points(ctx, q, s.plan.step, func(p *fleet.Point) bool {
		switch {
		case p.Key != *k:
		case p.At+int64(s.plan.step/time.Second) <= since-rising:
			f.before.Add(p)
		case p.At < since:
			near.Add(p)
		case until > 0 && p.At >= until:
		default:
			f.since.Add(p)
		}
		return true
	})
	if f.before.Requests == 0 {
		f.before = near
	}
	f.before.Settle()
	f.since.Settle()
	return f, err
}

// times is how many times as much; ok is false where nothing was before.
func times(now, before float64) (float64, bool) {
	if before <= 0 {
		return 0, false
	}
	return now / before, true
}

// evidence gathers the facts of a cause, and what they rule out.
func (s *seen) evidence(ctx context.Context, a fleet.Archive, c *Cause, shared *anomaly.Shared, origin *fleet.Key, since int64) error {
	if origin != nil && origin.Service != "" {
		until := int64(0)
		if x := s.byKey[*origin]; x != nil {
			since, until = min(since, x.Since), x.Until
		}
		f, err := s.figuresOf(ctx, a, origin, since, until)
		if err != nil {
			return err
		}
		s.originFacts(c, f)
		s.ownCalls(c, origin)
	}
	s.bothEnds(c, shared, origin)
	s.spread(c)
	return nil
}

// originFacts are what the origin itself did: slower, in which part, with how many
// requests.
func (s *seen) originFacts(c *Cause, f *figures) {
	o := c.Origin
	name := o.Service + " on " + o.Host
	had := f.before.Requests > 0
	add := func(fact string, now, before float64, unit string) {
		x := Fact{Fact: fact, Value: now, Unit: unit, Source: "requests of " + name}
		if had {
			x.Usual = &before
		}
		c.Evidence = append(c.Evidence, x)
	}
	if f.since.Requests == 0 {
		add("requests", 0, float64(f.before.Requests)/float64(max(f.before.Seconds, 1)), "1/s")
		return
	}
	add("mean request latency", f.since.MeanUS(), f.before.MeanUS(), "us")
	// That of the middle step: where only some seconds are slow it tells nothing.
	if !had || float64(f.since.P99US) >= 1.2*float64(f.before.P99US) {
		add("p99, typically", float64(f.since.P99US), float64(f.before.P99US), "us")
	}
	per := func(v *servicemap.View, of func(v *servicemap.View) int64) float64 {
		return float64(of(v)) / float64(max(v.Requests, 1))
	}
	for part := range observe.AckDelay {
		of := func(v *servicemap.View) int64 { return v.PartsUS[part] }
		if o.Part == part.String() {
			add("of it "+observe.PartName(part.String()), per(&f.since, of), per(&f.before, of), "us")
		}
	}
	for part := range observe.NumServerParts {
		of := func(v *servicemap.View) int64 { return v.SplitUS[part] }
		if o.Part == part.String() {
			add("of it "+observe.PartName(part.String()), per(&f.since, of), per(&f.before, of), "us")
		}
	}
	if f.since.Errors > 0 {
		add("share of requests that fail", float64(f.since.Errors)/float64(f.since.Requests), float64(f.before.Errors)/float64(max(f.before.Requests, 1)), "share")
	}
	rate := float64(f.since.Requests) / float64(max(f.since.Seconds, 1))
	usual := float64(f.before.Requests) / float64(max(f.before.Seconds, 1))
	if r, ok := times(rate, usual); ok && r >= 1.3 {
		add("requests", rate, usual, "1/s")
	} else if ok {
		c.RuledOut = append(c.RuledOut, Unchecked{"more load on " + name, fmt.Sprintf("%s requests a second, %s before", short(rate), short(usual))})
	}
}

func short(n float64) string {
	return strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf("%.1f", n), "0"), ".")
}

// ownCalls says that the origin does not wait for what it calls.
func (s *seen) ownCalls(c *Cause, origin *fleet.Key) {
	x := s.byKey[*origin]
	if x == nil || x.AddedUS <= 0 || origin.Side != observe.Served {
		return
	}
	calls, abnormal := 0, 0
	for k := range s.m.Called {
		if k.Host == origin.Host && k.Service == program(origin.Service) {
			calls++
			if y := s.byKey[k]; y != nil && y.Signal != anomaly.Rate {
				abnormal++
			}
		}
	}
	if calls > 0 && abnormal == 0 {
		c.RuledOut = append(c.RuledOut, Unchecked{"what " + origin.Service + " on " + origin.Host + " calls",
			fmt.Sprintf("%s, all as usual; of the %s added to a request %s are its own",
				count(calls, "called endpoint"), figure.Seconds(x.AddedUS/1e6), figure.Seconds(max(x.OwnUS, 0)/1e6))})
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return figure.Count(n) + " " + what + "s"
}

// bothEnds adds what requests that were seen at both ends tell: of those that abnormal
// calls made to the origin, or that it made itself, the share of the time that the host
// which answers had, and the wire.
func (s *seen) bothEnds(c *Cause, shared *anomaly.Shared, origin *fleet.Key) {
	if origin == nil || origin.Service == "" {
		return
	}
	abnormal := map[call]bool{}
	for _, k := range shared.Explains {
		if k.Side == observe.Called && s.byKey[k] != nil {
			abnormal[call{k.Host, k.Service, addrPort(&k)}] = true
		}
	}
	own := call{origin.Host, origin.Service, addrPort(origin)}
	var sum servicemap.Shares
	for i := range s.m.Joins.All {
		j := &s.m.Joins.All[i]
		from := call{j.Called.Host, j.Called.Service, j.Called.Server.String()}
		switch {
		case j.Called.First < c.Since.UnixNano() || c.Until != nil && j.Called.First >= c.Until.UnixNano():
			continue
		case origin.Side == observe.Called && from != own,
			origin.Side == observe.Served && (j.Served.Host != origin.Host || j.Served.Service != origin.Service),
			origin.Side == observe.Served && len(abnormal) > 0 && !abnormal[from]:
			continue
		}
		if shares, ok := j.Shares(); ok {
			sum.Add(&shares)
		}
	}
	if sum.Requests == 0 {
		return
	}
	source := count(int(sum.Requests), "request") + " seen at both ends"
	c.Evidence = append(c.Evidence,
		Fact{Fact: "share of the callers' time on the host that answers", Value: sum.ServerShare(), Unit: "share", Source: source},
		Fact{Fact: "share of it on the wire", Value: sum.WireShare(), Unit: "share", Source: source},
		Fact{Fact: "share of it on the caller's host", Value: 1 - sum.ServerShare() - sum.WireShare(), Unit: "share", Source: source})
	wire := fmt.Sprintf("of %s the wire had %s of the callers' time", source, figure.Percent(sum.WireShare()))
	switch way := "the network to " + origin.Service + " on " + origin.Host; {
	case sum.WireShare() >= 0.5:
		c.Network = true
		c.where = wire
	case sum.WireShare() < 0.2 && !c.Network:
		if origin.Side == observe.Called {
			way = "the network to " + shared.Value
		}
		c.RuledOut = append(c.RuledOut, Unchecked{way, wire})
	}
}

// call is a called endpoint, without the form of its address.
type call struct{ host, service, server string }

// spread rules out what the affected hosts have in common by chance only: labels,
// kernels and versions of which they have several, like the others.
func (s *seen) spread(c *Cause) {
	hosts := map[string]bool{}
	for i := range c.Affected {
		hosts[c.Affected[i].Host] = true
	}
	if len(hosts) < 3 {
		return
	}
	names := map[string]map[string]bool{} // label → values among the affected
	all := map[string]map[string]bool{}
	note := func(m map[string]map[string]bool, name, value string) {
		if m[name] == nil {
			m[name] = map[string]bool{}
		}
		m[name][value] = true
	}
	for i := range s.hosts {
		h := &s.hosts[i]
		of := map[string]string{"kernel": h.Kernel, "slowray": h.Version}
		maps.Copy(of, h.Labels)
		for name, value := range of {
			note(all, name, value)
			if hosts[h.Name] {
				note(names, name, value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if n, of := len(names[name]), len(all[name]); of > 1 && 3*n >= 2*of && n > 1 && !shares(c, name) {
			c.RuledOut = append(c.RuledOut, Unchecked{"one " + name, fmt.Sprintf("the affected are of %d of %d", n, of)})
		}
	}
}

// shares says that a label is what the cause is about.
func shares(c *Cause, name string) bool {
	return strings.HasPrefix(c.Component.Value, name+"=") || c.And != nil && strings.HasPrefix(c.And.Value, name+"=")
}
