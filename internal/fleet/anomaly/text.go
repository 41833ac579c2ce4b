package anomaly

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// adjective is what is wrong with endpoints of which a signal is abnormal.
func (s Signal) adjective(network bool) string {
	switch {
	case s == Errors:
		return "failing"
	case s == Rate:
		return "starved"
	case network:
		return "slow (on the way)"
	}
	return "slow"
}

// describe writes the sentences.
func (x *Explanation) describe(n int) {
	var all []string
	for i := range x.Shared {
		s := &x.Shared[i]
		s.Text = s.sentence()
		all = append(all, s.Text)
	}
	switch {
	case n == 0:
		x.Text = "Nothing is abnormal."
	case len(x.Shared) == 0:
		x.Text = fmt.Sprintf("%d endpoints are abnormal; they share nothing that others have not.", n)
	default:
		x.Text = strings.Join(all, " ")
		if len(x.Alone) > 0 {
			x.Text += fmt.Sprintf(" %d more are abnormal and share nothing that others have not.", len(x.Alone))
		}
	}
}

func (s *Shared) sentence() string {
	what := s.Signal.adjective(s.Network)
	for _, sig := range s.Besides {
		what += " and " + sig.adjective(false)
	}
	switch s.Kind {
	case Service:
		if len(s.Members) == 1 && s.Members[0].Host == "" {
			return fmt.Sprintf("%s is %s on all its hosts together.", s.Value, what)
		}
	case Endpoint:
		if len(s.Explains) > len(s.Members) {
			return fmt.Sprintf("%s is %s, and what waits for it.", s.Value, what)
		}
		return fmt.Sprintf("%s is %s, and nothing else.", s.Value, what)
	case Clients:
		return fmt.Sprintf("%d of %d %s requests come from %s; of the others %d of %d.", s.Inside, s.InsideOf, what, s.Value, s.Outside, s.OutsideOf)
	case Dependency:
		value := s.Value
		if s.Name != "" {
			value += " (" + s.Name + ")"
		}
		if s.InsideOf == 0 {
			return fmt.Sprintf("What %s answers is %s.", value, what)
		}
		if s.Inside == 1 && s.InsideOf == 1 {
			if s.Outside == 0 {
				return fmt.Sprintf("One service is %s, and of %d with enough requests it alone calls %s.", what, s.OutsideOf+1, value)
			}
			return fmt.Sprintf("One service is %s, which calls %s; so do %d of the %d others.", what, value, s.Outside, s.OutsideOf)
		}
		return fmt.Sprintf("%d of %d %s services call %s; of the others %d of %d.", s.Inside, s.InsideOf, what, value, s.Outside, s.OutsideOf)
	}
	unit := "endpoints"
	if len(s.Members) > 0 && s.Members[0].Side == observe.Called {
		unit = "calls"
	}
	have := s.Component.has()
	if s.Kind == Cgroup && s.Name != "" {
		have += " (container " + s.Name + ")"
	}
	if s.And != nil {
		have += " and " + s.And.has()
	}
	return fmt.Sprintf("%d of %d %s %s %s; of the others %d of %d.", s.Inside, s.InsideOf, what, unit, have, s.Outside, s.OutsideOf)
}

func (c Component) has() string {
	switch c.Kind {
	case Host:
		return "are on host " + c.Value
	case Service:
		return "are of " + c.Value
	case Label:
		return "have the label " + c.Value
	case Kernel:
		return "run kernel " + c.Value
	case Version:
		return "run slowray " + c.Value
	case Image:
		return "run the image " + c.Value
	case Config, Build:
		program, version := c.Value, ""
		if i := strings.LastIndexByte(c.Value, ' '); i > 0 {
			program, version = c.Value[:i], c.Value[i+1:]
		}
		if c.Kind == Config {
			return fmt.Sprintf("have %s with the configuration %s", program, version)
		}
		return fmt.Sprintf("run the build %s of %s", version, program)
	case Cgroup:
		host, path := GroupOf(c.Value)
		if host == "" {
			return "are in a control group " + path
		}
		return "are in the control group " + path + " on " + host
	}
	return "have " + c.Value
}
