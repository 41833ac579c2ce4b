package cause

import (
	"slices"
)

// What one finding may be the reason of another is declared (ConsequenceOf), and
// narrowed by the findings (MayFollow). Beyond that, figures that were measured
// may rule it out: a quota of another service's group, a CPU that none of the
// service's threads waited for, a disk that none of them was blocked on, a limit
// of a process that is not on the way of the requests. What was not measured
// rules nothing out.

// Reasons gives a function that says of another finding whether it may be why f
// was found, as far as what was measured of the processes that f is about tells.
func (v *View) Reasons(f *Finding) func(p *Finding) bool {
	// Of full CPUs the subject may be who takes them, which nothing slows down.
	if f.Subject.PID == 0 || f.Cause == CPUSaturated {
		return func(*Finding) bool { return true }
	}
	return func(p *Finding) bool {
		// A chain of waits says itself whom it holds up.
		return p.is(ClassWait) || v.mayBringAbout(p, v.wayOf(f.Subject.PID))
	}
}

// mayBringAbout says whether p may be why something on this way is slow.
func (v *View) mayBringAbout(p *Finding, way *way) bool {
	switch {
	case p.is(ClassKill):
		return true // what is gone, or not there yet, is on nobody's way
	case p.Subject.Kind == "cgroup" && p.Subject.Path != "":
		c := v.cgroup(p.Subject.Path)
		return c == nil || len(c.PIDs) == 0 || slices.ContainsFunc(c.PIDs, way.has)
	case p.is(ClassRunQueue):
		return !way.known || way.delay >= noDelay*v.Window.Seconds
	case p.Cause == DiskSaturated:
		return way.samples == 0 || way.blocked > 0
	case p.is(ClassMachine), p.Subject.PID == 0, v.Connects == nil:
		return true
	}
	switch p.Subject.Kind {
	case "process", "pool", "listener":
		return way.has(p.Subject.PID) || way.has(v.Master(p.Subject.PID))
	}
	return true
}
