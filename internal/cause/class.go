package cause

import "slices"

// Class says what causes have in common, as far as checks go by it or other
// causes may follow from any of them. A cause may be of several classes.
type Class uint32

const (
	// ClassWait is judged by chains of waits (waits.go).
	ClassWait Class = 1 << iota
	// ClassMachine makes every thread of a service late: the machine, or a limit
	// on the service. It is reported first.
	ClassMachine
	// ClassLimit is a limit that a control group, a unit or a scheduler's setting
	// puts on a service, and what comes of it. Whatever else is seen of a service
	// that is held back, or gone, may follow from one.
	ClassLimit
	// ClassKill ends a service: its clients are refused.
	ClassKill
	// ClassShort makes both ends on this host late in what they send and take.
	ClassShort
	// ClassCPU makes only those threads late that want a CPU: workers that sleep
	// are not taken for longer because of it.
	ClassCPU
	// ClassRunQueue slows a service down only as far as its threads wait for a CPU.
	ClassRunQueue
	// ClassCompute makes the threads of a service compute, or wait for a CPU, while
	// its requests wait.
	ClassCompute
	// ClassPool is a server that takes up no more requests, because all its
	// workers, threads or connections are taken.
	ClassPool
	// ClassDatabase makes a database or cache server on this host answer late, or
	// not at all. What its callers suffer from it is reported as the consequence.
	ClassDatabase
	// ClassScan is a database that works on few large things: what its threads
	// compute for them is no cause of its own.
	ClassScan
	// ClassHost is a state of the host that makes a service late in whatever it does.
	ClassHost
	// ClassKernelWork is what the kernel does on a service's behalf (kernel_work.go).
	ClassKernelWork
	// ClassDrop is judged by where packets died on this host.
	ClassDrop
	// ClassSegment drops segments, which then look lost.
	ClassSegment

	// ClassLate makes a service late in whatever it does: the machine, and what
	// holds up its threads or keeps them busy.
	ClassLate = ClassMachine | ClassWait | ClassCompute | ClassPool | ClassHost | ClassDatabase
)

// Parent is what a cause may follow from: a cause, by its ID, or any of a Class.
type Parent interface{ includes(c *Cause) bool }

func (id ID) includes(c *Cause) bool   { return c.ID == id }
func (k Class) includes(c *Cause) bool { return c.Class&k != 0 }

// FollowsFrom says whether p may bring c about.
func (c *Cause) FollowsFrom(p *Cause) bool { return p.ID != c.ID && includes(c.ConsequenceOf, p) }

// MayComeOf says whether a finding leaves it open that it follows from p.
func (f *Finding) MayComeOf(p *Cause) bool { return f.Parents == nil || includes(f.Parents, p) }

func includes(parents []Parent, c *Cause) bool {
	return slices.ContainsFunc(parents, func(p Parent) bool { return p.includes(c) })
}

// is says whether a finding's cause is of a class.
func (f *Finding) is(k Class) bool { return f.class&k != 0 }

// mayFollow says of other findings whether one may follow from them: of causes of
// the machine by machine, of waits by waits, and of all others by own, which says
// whether they are about the same process or endpoint.
func mayFollow(machine, waits, own func(*Finding) bool) func(*Finding) bool {
	return func(p *Finding) bool {
		switch {
		case p.is(ClassMachine):
			return machine(p)
		case p.is(ClassWait):
			return waits(p)
		}
		return own(p)
	}
}

// anyFinding is the condition of what needs none.
func anyFinding(*Finding) bool { return true }

// aboutAny says of findings whether they are about one of these processes.
func aboutAny(pids []int) func(*Finding) bool {
	return func(p *Finding) bool { return slices.Contains(pids, p.Subject.PID) }
}
