package proof

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
)

// Service is whose requests the experiment goes by.
type Service struct {
	Port     int     `json:"port,omitempty"`
	NetNS    uint64  `json:"netns,omitempty"`
	PID      int     `json:"pid,omitempty"`
	Comm     string  `json:"comm,omitempty"`
	Requests float64 `json:"requests_per_s"` // seen in the look
}

// climbs bounds how many services in front of each other are followed.
const climbs = 8

// Measured is the service whose requests tell whether a change helps: the one at
// the port that was asked for; else the one that f is about, or the outermost of
// those in front of it, since there the users' requests come in; else the one
// with most requests. Port is 0 where no service listens on TCP.
func Measured(o *observe.Observation, f *cause.Finding) Service {
	v := cause.NewView(o)
	var all []*candidate
	for _, s := range v.Services {
		if s.Port() != 0 {
			all = append(all, newCandidate(v, s))
		}
	}
	if len(all) == 0 {
		return Service{}
	}
	most := func(of []*candidate) *candidate {
		return slices.MaxFunc(of, func(a, b *candidate) int { return cmp.Compare(a.requests, b.requests) })
	}
	if p := o.Filter.Port; p != 0 {
		asked := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return c.s.Port() != p })
		if len(asked) > 0 {
			return most(asked).service(o)
		}
	}
	if c := subject(v, all, f); c != nil {
		return climb(o, all, c).service(o)
	}
	front := slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool { return climb(o, all, c) != c })
	if len(front) == 0 || most(front).requests == 0 {
		front = all
	}
	return most(front).service(o)
}

// candidate is a service on TCP.
type candidate struct {
	s        *cause.Service
	requests uint64
	pid      int
	comm     string
}

func newCandidate(v *cause.View, s *cause.Service) *candidate {
	c := &candidate{s: s, pid: v.Master(s.Listeners[0].PID)}
	c.comm = v.Comm(c.pid)
	for i := range v.Endpoints {
		if e := &v.Endpoints[i]; e.Side == observe.Served.String() && e.Port == s.Port() && e.NetNS == s.NS.Inode {
			c.requests += e.Requests
		}
	}
	return c
}

func (c *candidate) service(o *observe.Observation) Service {
	s := Service{Port: c.s.Port(), NetNS: c.s.NS.Inode, PID: c.pid, Comm: c.comm}
	if o.Window.Seconds > 0 {
		s.Requests = float64(c.requests) / o.Window.Seconds
	}
	return s
}

// subject is the service that a finding is about.
func subject(v *cause.View, all []*candidate, f *cause.Finding) *candidate {
	if f == nil {
		return nil
	}
	at := &f.Subject
	for _, c := range all {
		if at.Port != 0 && c.s.Port() == at.Port && (at.NetNS == 0 || c.s.NS.Inode == at.NetNS) {
			return c
		}
	}
	var best *candidate
	for _, c := range all {
		if at.PID != 0 && (slices.Contains(c.s.PIDs, at.PID) || slices.Contains(c.s.PIDs, v.Master(at.PID))) && (best == nil || c.requests > best.requests) {
			best = c
		}
	}
	return best
}

// climb goes from a service to the one in front of it that calls it, while there
// is one that has requests.
func climb(o *observe.Observation, all []*candidate, c *candidate) *candidate {
	for range climbs {
		front := caller(o, all, c)
		if front == nil {
			break
		}
		c = front
	}
	return c
}

// caller is the service that calls c most.
func caller(o *observe.Observation, all []*candidate, c *candidate) *candidate {
	var best *candidate
	var calls uint64
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		if e.Side != observe.Called.String() || e.Port != c.s.Port() || e.NetNS != c.s.NS.Inode || e.Requests <= calls {
			continue
		}
		for _, front := range all {
			if front != c && front.requests > 0 && (slices.Contains(front.s.PIDs, e.PID) || slices.ContainsFunc(e.PIDs, func(pid int) bool { return slices.Contains(front.s.PIDs, pid) })) {
				best, calls = front, e.Requests
			}
		}
	}
	return best
}
