package cause

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Service is one listening end with the processes behind it. Listeners of the
// same namespace and port (SO_REUSEPORT, IPv4 next to IPv6) are one Service.
type Service struct {
	NS        *observe.NetNS
	Listeners []*observe.Listener
	PIDs      []int // all that hold the listening socket, and their master

	order    int                // its place among the services in view
	connects []*observe.Connect // of processes of this host, to it
	accepts  []*observe.Accept  // of its processes
	callers  []int              // local processes that connect to it, ascending
	nginx    *observe.Nginx     // the instance behind it, or nil
	fpm      *observe.PHPFPM    // the php-fpm behind it, with its pool, or nil
	pool     *observe.FPMPool
}

// Port is the TCP port, 0 for a unix socket.
func (s *Service) Port() int { return s.Listeners[0].Port }

// Path is the path of a unix socket, or empty.
func (s *Service) Path() string { return s.Listeners[0].Path }

// Name is what a person calls the end: ":80" or the socket's path.
func (s *Service) Name() string { return listenerName(s.Listeners[0]) }

func listenerName(l *observe.Listener) string {
	if l.Proto == "unix" {
		return l.Path
	}
	return ":" + itoa(l.Port)
}

// serviceIndex finds services in view.
type serviceIndex struct {
	reachable   *reachable
	servicesOf  map[int][]*Service          // by process
	servicesIn  map[uint64][]*Service       // by network namespace
	nginxIn     map[uint64][]*observe.Nginx // by network namespace
	nginxServes map[*observe.Nginx][]*Service
	poolServes  map[*observe.FPMPool]*Service // the first of several
	proxies     map[int]bool                  // masters of HAProxy
}

// buildServices finds the services in view, and what belongs to each.
func (v *View) buildServices() {
	v.Services = v.selectServices(v.allServices())
	v.reachable = v.reachableOf(v.Services)
	for i := range v.Connects {
		v.Step()
		c := &v.Connects[i]
		for _, s := range v.reachable.by(c, v.owners) {
			s.connects = append(s.connects, c)
			s.callers = append(s.callers, c.PID)
		}
	}
	// Who asked over kept connections and was gone before owners of sockets were looked for.
	for i := range v.Endpoints {
		v.Step()
		e := &v.Endpoints[i]
		for _, s := range v.reachable.byCalls(e, v.owners) {
			s.callers = append(append(s.callers, e.PID), e.PIDs...)
		}
	}
	v.servicesOf, v.servicesIn = map[int][]*Service{}, map[uint64][]*Service{}
	for i, s := range v.Services {
		v.Step()
		s.order = i
		v.servicesIn[s.NS.Inode] = append(v.servicesIn[s.NS.Inode], s)
		for _, l := range s.Listeners {
			s.callers = append(s.callers, l.ClientPIDs...)
		}
		s.callers = slices.DeleteFunc(s.callers, func(pid int) bool { return pid == 0 }) // the owner is not known
		slices.Sort(s.callers)
		s.callers = slices.Compact(s.callers)
		for _, pid := range s.PIDs {
			v.servicesOf[pid] = append(v.servicesOf[pid], s)
			v.onPath[pid], v.serving[pid] = true, true
		}
		for _, pid := range s.callers {
			v.onPath[pid] = true
		}
	}
	for i := range v.Accepts {
		for _, s := range v.servicesOf[v.Accepts[i].PID] {
			s.accepts = append(s.accepts, &v.Accepts[i])
		}
	}
	v.findApps()
}

// InScope says whether the namespace holds a service in view.
func (v *View) InScope(netns uint64) bool { return len(v.servicesIn[netns]) > 0 }

// ServiceAt finds the service in view that listens in ns at this port, or at
// this path when port is 0.
func (v *View) ServiceAt(netns uint64, port int, path string) *Service {
	v.Step()
	at := end{netns: netns, port: port}
	if port == 0 {
		at.addr = path
	}
	if list := v.reachable.at[at]; len(list) > 0 && at != (end{netns: netns}) {
		return list[0]
	}
	return nil
}

// ServiceOf finds a service in view that the process serves.
func (v *View) ServiceOf(pid int) *Service {
	v.Step()
	if list := v.servicesOf[pid]; len(list) > 0 {
		return list[0]
	}
	return nil
}

func (v *View) allServices() []*Service {
	type end struct {
		netns uint64
		port  int
		path  string
	}
	byEnd := map[end]*Service{}
	var services []*Service
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		for j := range ns.Listeners {
			l := &ns.Listeners[j]
			e := end{ns.Inode, l.Port, l.Path}
			if l.Proto == "unix" && l.Path == "" {
				continue
			}
			s := byEnd[e]
			if s == nil {
				s = &Service{NS: ns}
				byEnd[e] = s
				services = append(services, s)
			}
			s.Listeners = append(s.Listeners, l)
			for _, pid := range append(slices.Clone(l.PIDs), l.PID) {
				s.PIDs = append(s.PIDs, pid, v.Master(pid))
			}
		}
	}
	for _, s := range services {
		slices.Sort(s.PIDs)
		s.PIDs = slices.DeleteFunc(slices.Compact(s.PIDs), func(pid int) bool { return pid <= 0 })
	}
	return services
}

// hasTraffic says whether anybody used the listener in the window.
func hasTraffic(l *observe.Listener) bool {
	return l.Opened > 0 || l.Clients > 0 || l.QueuePeak > 0 || l.Drops > 0
}

// selectServices keeps the services the user asked about, and whatever they
// call; without a filter, every service with traffic.
func (v *View) selectServices(all []*Service) []*Service {
	reachable := v.reachableOf(all)
	reaches := make(map[int][]*Service) // by who calls
	isCalled := map[*Service]bool{}
	for i := range v.Connects {
		v.Step()
		c := &v.Connects[i]
		for _, s := range reachable.by(c, v.owners) {
			reaches[c.PID] = append(reaches[c.PID], s)
			isCalled[s] = isCalled[s] || c.Calls > 0
		}
	}
	// Calls over connections that are kept: no connect() tells of them.
	for i := range v.Endpoints {
		v.Step()
		e := &v.Endpoints[i]
		for _, s := range reachable.byCalls(e, v.owners) {
			for _, pid := range append([]int{e.PID}, e.PIDs...) {
				reaches[pid] = append(reaches[pid], s)
			}
		}
	}
	whole := v.Filter == (observe.Filter{})
	chosen := map[*Service]bool{}
	var queue []*Service
	for _, s := range all {
		if whole && (slices.ContainsFunc(s.Listeners, hasTraffic) || isCalled[s]) || !whole && v.matches(s) {
			chosen[s] = true
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, pid := range s.PIDs {
			for _, t := range reaches[pid] {
				if !chosen[t] {
					chosen[t] = true
					queue = append(queue, t)
				}
			}
			delete(reaches, pid)
		}
	}
	out := make([]*Service, 0, len(chosen))
	for _, s := range all {
		if chosen[s] {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b *Service) int {
		return cmp.Or(cmp.Compare(a.NS.Inode, b.NS.Inode), cmp.Compare(a.Port(), b.Port()), strings.Compare(a.Path(), b.Path()))
	})
	return out
}

func (v *View) matches(s *Service) bool {
	f := v.Filter
	if f.Port != 0 && s.Port() != f.Port {
		return false
	}
	if f.PID == 0 && f.Unit == "" && f.Container == "" {
		return true
	}
	return slices.ContainsFunc(s.PIDs, func(pid int) bool {
		p := v.procs[pid]
		return p != nil &&
			(f.PID == 0 || pid == f.PID || v.Master(f.PID) == v.Master(pid)) &&
			f.InUnit(p.Unit) && f.InContainer(p.Container)
	})
}
