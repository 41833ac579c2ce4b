package phpfpm

import (
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
)

// Activity tells what one child is doing now: idle in accept(), running or
// runnable, alive at all.
type Activity func(pid int) (idle, running, alive bool)

// poolState is a pool with what was sampled of it.
type poolState struct {
	pool    observe.FPMPool
	max     int // pm.max_children, 0 when not known
	busy    int // sum over the rounds
	running int // sum over the rounds
	log     logtail.Counts

	now struct{ alive, idle, running int } // this round
}

// Watch gives the children to look at where the kernel does not list them
// (no CONFIG_PROC_CHILDREN). Those of Discover are the beginning.
func (in *Instance) Watch(children []int) { in.listed = append(in.listed[:0], children...) }

// Sample looks at every child once. Children are listed anew each time:
// pools of pm = dynamic and ondemand fork and end them as they go.
func (in *Instance) Sample(activity Activity) {
	for _, s := range in.pools {
		s.now.alive, s.now.idle, s.now.running = 0, 0, 0
	}
	for pid, name := range in.children() {
		s := in.byName[name]
		if s == nil {
			continue
		}
		idle, running, alive := activity(pid)
		if !alive {
			continue
		}
		s.now.alive++
		switch {
		case idle:
			s.now.idle++
		case running:
			s.now.running++
		}
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
	s.pool.BusyPeak = max(s.pool.BusyPeak, busy)
	if s.max > 0 && s.now.alive >= s.max && s.now.idle == 0 {
		s.pool.AllBusyRounds++
	}
}

// children returns the pool of every child now. The title of a child is read
// once; one that has not set its title yet is read again in the next round.
func (in *Instance) children() map[int]string {
	pids, ok := prefork.Children(in.procRoot, in.PID)
	if !ok {
		pids = in.listed
	}
	now := make(map[int]string, len(pids))
	for _, pid := range pids {
		name, known := in.poolOf[pid]
		if !known {
			if name = poolInTitle(prefork.Title(in.procRoot, pid)); name == "" {
				continue
			}
			in.seen[pid] = name
		}
		now[pid] = name
	}
	in.poolOf = now
	return now
}
