package watch

import (
	"fmt"

	"github.com/slowray/slowray/internal/sense/host"
)

// NotFoundError says that the filter names something that does not exist.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return e.What }

// checkFilter fails when the filter names a process, unit or container that
// does not exist.
func (s *session) checkFilter() error {
	f := s.opt.Filter
	find := func(match func(*host.ProcSample) bool) bool {
		for i := range s.procs {
			if match(&s.procs[i]) {
				return true
			}
		}
		return false
	}
	switch {
	case f.PID != 0 && !find(func(p *host.ProcSample) bool { return p.PID == f.PID }):
		return &NotFoundError{fmt.Sprintf("there is no process with pid %d", f.PID)}
	case f.Pod != "" && f.Container == "":
		return &NotFoundError{fmt.Sprintf("no pod of this node is %q, as far as can be known (see slowray doctor)", f.Pod)}
	case f.Unit != "" && !find(func(p *host.ProcSample) bool { return f.InUnit(p.Unit) }):
		return &NotFoundError{fmt.Sprintf("no process runs in unit %q (see systemctl list-units)", f.Unit)}
	case f.Container != "" && !find(func(p *host.ProcSample) bool { return f.InContainer(p.Container) }):
		return &NotFoundError{fmt.Sprintf("no process runs in container %q (give the container's name or id, as docker ps shows it)", f.Container)}
	}
	return nil
}

// checkPort fails when nothing listens at the port of the filter.
func (s *session) checkPort() error {
	port := s.opt.Filter.Port
	if port == 0 {
		return nil
	}
	for _, sp := range s.spaces {
		for _, l := range sp.listeners {
			if int(l.first.Port) == port {
				return nil
			}
		}
	}
	return &NotFoundError{fmt.Sprintf("nothing listens on TCP port %d in any network namespace that can be read (see ss -ltn)", port)}
}

// checkServes fails when the process, unit or container of the filter exists
// but listens nowhere.
func (s *session) checkServes() error {
	f := s.opt.Filter
	if f.PID == 0 && f.Unit == "" && f.Container == "" {
		return nil
	}
	procs := map[int]*host.ProcSample{}
	for i := range s.procs {
		procs[s.procs[i].PID] = &s.procs[i]
	}
	top := func(pid int) int { // the topmost ancestor that runs the same program
		for range 16 {
			p := procs[pid]
			if p == nil || procs[p.PPID] == nil || p.PPID == 1 || procs[p.PPID].Comm != p.Comm {
				break
			}
			pid = p.PPID
		}
		return pid
	}
	for _, pid := range s.serving {
		p := procs[pid]
		if p != nil && (f.PID == 0 || top(pid) == top(f.PID)) &&
			f.InUnit(p.Unit) && f.InContainer(p.Container) {
			return nil
		}
	}
	return &NotFoundError{"what you asked for runs, but it does not listen anywhere: slowray looks at the requests that a service answers"}
}
