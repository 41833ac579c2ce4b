package phpfpm

import (
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/host"
)

// poolState is a pool with what was sampled of it.
type poolState struct {
	pool    observe.FPMPool
	max     int // pm.max_children, 0 when not known
	busy    int // sum over the rounds
	running int // sum over the rounds
	blocked int // sum over the rounds
	log     logtail.Counts

	slow     *logtail.Tail // nil when the pool has no slow log
	slowPath string

	now struct{ alive, idle, running, blocked int } // this round
}

// Watch gives the children to look at where the kernel does not list them
// (no CONFIG_PROC_CHILDREN). Those of Discover are the beginning.
func (in *Instance) Watch(children []int) { in.listed = append(in.listed[:0], children...) }

// Sample looks at every child once. Children are listed anew each time:
// pools of pm = dynamic and ondemand fork and end them as they go. A child of
// which nothing can be known is not counted, nor is a round that is over the budget.
func (in *Instance) Sample(b *budget.Budget, activity func(pid int) host.Activity) {
	for _, s := range in.pools {
		s.now.alive, s.now.idle, s.now.running, s.now.blocked = 0, 0, 0, 0
	}
	for pid, name := range in.children(b) {
		if b.Err() != nil {
			return
		}
		s := in.byName[name]
		if s == nil {
			continue
		}
		doing := activity(pid)
		switch doing {
		case host.Gone, host.Unknown:
			continue
		case host.Idle:
			s.now.idle++
		case host.Running:
			s.now.running++
		case host.Waiting, host.Disk, host.Stopped:
			s.now.blocked++
		}
		s.now.alive++
	}
	for _, s := range in.pools {
		s.round()
	}
}

func (s *poolState) round() {
	busy := s.now.alive - s.now.idle
	s.pool.Rounds++
	s.busy += busy
	s.running += s.now.running
	s.blocked += s.now.blocked
	s.pool.BusyPeak = max(s.pool.BusyPeak, busy)
	if s.max > 0 && s.now.alive >= s.max && s.now.idle == 0 {
		s.pool.AllBusyRounds++
	}
}

// children returns the pool of every child now. The title of a child is read
// once; one that has not set its title yet is read again in the next round.
func (in *Instance) children(b *budget.Budget) map[int]string {
	pids, ok := prefork.Children(in.procRoot, in.PID)
	if !ok {
		pids = in.listed
	}
	now := make(map[int]string, len(pids))
	for _, pid := range pids {
		name, known := in.poolOf[pid]
		if !known {
			if b.Err() != nil {
				break
			}
			if name = poolInTitle(prefork.Title(in.procRoot, pid)); name == "" {
				continue
			}
			if len(in.seen) < maxSeen {
				in.seen[pid] = name
			}
		}
		now[pid] = name
	}
	in.poolOf = now
	return now
}
