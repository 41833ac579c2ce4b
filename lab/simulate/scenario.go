package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Cause is an injected cause: a component, in the words of package anomaly.
type Cause struct {
	Kind  string `json:"kind"`
	Value string `json:"value"`
	// Same are components of the same endpoints, which nobody can tell from it.
	Same []string `json:"same,omitempty"`
	// Both says that requests take longer there and fail, too: one is not all of it.
	Both bool `json:"slow_and_failing,omitempty"`
}

// Scenario is a fault that can be injected, or a control without one.
type Scenario struct {
	Name    string
	Summary string
	Control bool // nothing is wrong
	// Slow says that it comes on slowly: it cannot be found within seconds.
	Slow bool
	// Days is how many days must have been watched before, where what is usual at the
	// time of the day or on the day of the week is part of it.
	Days int
	// Lasts is how many seconds it takes until it must be reported right, 60 when it is 0.
	Lasts int64
	// Balanced says that it needs a fleet with a balancer: see Options.
	Balanced bool
	// inject chooses what is hit and how hard, before the first second.
	inject func(p *injecting) plan
}

// plan is what a scenario does: begin at its onset, end when it is over, and during
// each of its seconds; any may be nil.
type plan struct {
	causes     []Cause
	begin, end func(at int64)
	during     func(at, since int64)
}

// Injected is a scenario in a fleet.
type Injected struct {
	Scenario
	Causes []Cause
	Size   float64 // how hard it hits: 1 is as declared
	Onset  int64
	Until  int64
	plan   plan
	begun  bool
	ended  bool
}

func (p *Injected) at(_ *Fleet, at int64) {
	if at >= p.Onset && at < p.Until {
		if !p.begun {
			p.begun = true
			if p.plan.begin != nil {
				p.plan.begin(at)
			}
		}
		if p.plan.during != nil {
			p.plan.during(at, at-p.Onset)
		}
	}
	if p.begun && !p.ended && at >= p.Until {
		p.ended = true
		if p.plan.end != nil {
			p.plan.end(at)
		}
	}
}

// injecting is what a scenario is injected with.
type injecting struct {
	f *Fleet
	r *rand.Rand
	// size is the severity, 1 on average of the logarithm: 0.4 to 2.5.
	size  float64
	onset int64
}

// Inject injects a scenario from onset until, s since 1970. seed chooses what it hits,
// and how hard; size, when it is not 0, multiplies how hard. It must be called before
// the first second is made.
func (f *Fleet) Inject(s Scenario, onset, until int64, seed uint64, size float64) *Injected {
	r := rand.New(rand.NewPCG(seed, 0x9a7))
	p := &injecting{f: f, r: r, onset: onset, size: math.Exp((2*r.Float64() - 1) * 0.9)}
	if size > 0 {
		p.size *= size
	}
	made := s.inject(p)
	f.scenario = &Injected{Scenario: s, Causes: made.causes, Size: p.size, Onset: onset, Until: until, plan: made}
	return f.scenario
}

// Find is the scenario of that name.
func Find(name string) (Scenario, bool) {
	i := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return Scenarios[i], true
}

// named is the service of that process name.
func (f *Fleet) named(comm string) *service {
	for _, s := range f.services {
		if s.comm == comm {
			return s
		}
	}
	return nil
}

// app is an application with at least so many hosts, the one with most when none has.
func (p *injecting) app(atLeast int) *service {
	var list []*service
	var most *service
	for _, s := range p.f.services {
		if s.tier == 1 || s.tier == 2 {
			if most == nil || len(s.hosts) > len(most.hosts) {
				most = s
			}
			if len(s.hosts) >= atLeast {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		return most
	}
	return list[p.r.IntN(len(list))]
}

// called is an endpoint of the service that is called, by most callers when the draw
// says nothing else.
func (p *injecting) called(s *service) *served {
	var list []*served
	for _, e := range s.hosts {
		for _, c := range p.f.calls {
			if c.to == e {
				list = append(list, e)
				break
			}
		}
	}
	if len(list) == 0 {
		return s.hosts[0]
	}
	return list[p.r.IntN(len(list))]
}

func (e *served) dependency() Cause {
	c := Cause{Kind: "dependency", Value: e.host.Addresses[0] + ":" + itoa(e.key.Port), Same: []string{"endpoint:" + e.key.Service + " on " + e.host.Name, "host:" + e.host.Name}}
	if len(e.svc.hosts) == 1 {
		c.Same = append(c.Same, "service:"+e.key.Service)
	}
	return c
}

func (s *service) cause() Cause {
	c := Cause{Kind: "service", Value: s.name}
	if len(s.hosts) == 1 {
		c.Same = []string{"endpoint:" + s.name + " on " + s.hosts[0].host.Name, "host:" + s.hosts[0].host.Name, "dependency:" + s.hosts[0].dependency().Value}
	}
	return c
}

// on are the endpoints of a host.
func (f *Fleet) on(h *Host) (list []*served) {
	for _, e := range f.all {
		if e.host == h {
			list = append(list, e)
		}
	}
	return list
}

// each sets a fault on endpoints and takes it away in the end.
func each(list []*served, set func(e *served)) (begin, end func(int64)) {
	return func(int64) {
			for _, e := range list {
				set(e)
			}
		}, func(int64) {
			for _, e := range list {
				e.fault = fault{}
			}
		}
}
