package cause

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// View is an Observation with the look-ups that several checks need: which
// services the user asked about, who calls whom, which processes lie on the
// way of their requests. It is built once and is read-only.
type View struct {
	*observe.Observation
	Services []*Service // with traffic, within the filter

	procs      map[int]*observe.Process
	children   map[int][]int
	namespaces map[uint64]*observe.NetNS
	onPath     map[int]bool // processes that take part in a request: servers, their callers, whom they call
	serving    map[int]bool // the servers among them
	ledgers    []*ledger    // endpoints of requests, see compareEndpoints
	sites      []*DropSite  // where packets died, see Sites
	roots      []*root      // what chains of waits come down to, most slow time first
}

// Service is one listening end with the processes behind it. Listeners of the
// same namespace and port (SO_REUSEPORT, IPv4 beside IPv6) are one Service.
type Service struct {
	NS        *observe.NetNS
	Listeners []*observe.Listener
	PIDs      []int // all that hold the listening socket, and their master
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

// NewView indexes o.
func NewView(o *observe.Observation) *View {
	v := &View{
		Observation: o,
		procs:       map[int]*observe.Process{},
		children:    map[int][]int{},
		namespaces:  map[uint64]*observe.NetNS{},
		onPath:      map[int]bool{},
		serving:     map[int]bool{},
	}
	for i := range o.Processes {
		p := &o.Processes[i]
		v.procs[p.PID] = p
		v.children[p.PPID] = append(v.children[p.PPID], p.PID)
	}
	for i := range o.Namespaces {
		v.namespaces[o.Namespaces[i].Inode] = &o.Namespaces[i]
	}
	all := v.allServices()
	v.Services = v.selectServices(all)
	for _, s := range v.Services {
		for _, pid := range s.PIDs {
			v.onPath[pid] = true
			v.serving[pid] = true
		}
	}
	for _, s := range v.Services {
		for _, pid := range v.callers(s) {
			v.onPath[pid] = true
		}
	}
	v.buildLedgers()
	v.buildSites()
	v.buildRoots()
	return v
}

// Process returns the process with this pid, or nil.
func (v *View) Process(pid int) *observe.Process { return v.procs[pid] }

// Namespace returns the network namespace with this inode, or nil.
func (v *View) Namespace(inode uint64) *observe.NetNS { return v.namespaces[inode] }

// Serving says whether the process answers requests of a service in view.
func (v *View) Serving(pid int) bool { return v.serving[pid] }

// OnPath says whether the process takes part in the requests in view: it
// serves them, or it is the local client that makes them.
func (v *View) OnPath(pid int) bool { return v.onPath[pid] }

// InScope says whether the namespace holds a service in view.
func (v *View) InScope(netns uint64) bool {
	return slices.ContainsFunc(v.Services, func(s *Service) bool { return s.NS.Inode == netns })
}

// ServiceAt finds the service in view that listens in ns at this port, or at
// this path when port is 0.
func (v *View) ServiceAt(netns uint64, port int, path string) *Service {
	for _, s := range v.Services {
		if s.NS.Inode != netns {
			continue
		}
		if port != 0 && s.Port() == port || port == 0 && path != "" && s.Path() == path {
			return s
		}
	}
	return nil
}

// ServiceOf finds a service in view that the process serves.
func (v *View) ServiceOf(pid int) *Service {
	for _, s := range v.Services {
		if slices.Contains(s.PIDs, pid) {
			return s
		}
	}
	return nil
}

// Comm is the name of a process, or "?" when it was not seen.
func (v *View) Comm(pid int) string {
	if p := v.procs[pid]; p != nil {
		return p.Comm
	}
	return "?"
}

// Master is the topmost ancestor of pid that runs the same program: the
// process an administrator knows the service by.
func (v *View) Master(pid int) int {
	for range 16 {
		p := v.procs[pid]
		if p == nil {
			return pid
		}
		parent := v.procs[p.PPID]
		if parent == nil || parent.PID == 1 || parent.Comm != p.Comm {
			return pid
		}
		pid = parent.PID
	}
	return pid
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
				for _, member := range []int{pid, v.Master(pid)} {
					if member > 0 && !slices.Contains(s.PIDs, member) {
						s.PIDs = append(s.PIDs, member)
					}
				}
			}
		}
	}
	for _, s := range services {
		slices.Sort(s.PIDs)
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
	called := map[int][]observe.Connect{}
	for _, c := range v.Connects {
		called[c.PID] = append(called[c.PID], c)
	}
	whole := v.Filter == (observe.Filter{})
	chosen := map[*Service]bool{}
	var queue []*Service
	for _, s := range all {
		if whole && (slices.ContainsFunc(s.Listeners, hasTraffic) || v.isCalled(s)) || !whole && v.matches(s) {
			chosen[s] = true
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, pid := range s.PIDs {
			for _, c := range called[pid] {
				for _, t := range all {
					if !chosen[t] && v.reaches(&c, t) {
						chosen[t] = true
						queue = append(queue, t)
					}
				}
			}
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

func (v *View) isCalled(s *Service) bool {
	return slices.ContainsFunc(v.Connects, func(c observe.Connect) bool { return c.Calls > 0 && v.reaches(&c, s) })
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

// reaches says whether a connect() goes to the service: the port is the
// service's, and the address is loopback in the same namespace or one of the
// addresses of the service's namespace.
func (v *View) reaches(c *observe.Connect, s *Service) bool {
	if c.Family == "unix" {
		// The same path may be another socket in another container. One that
		// is shared through a volume may lie in another network namespace.
		return s.Path() != "" && s.Path() == c.Path &&
			(c.NetNS == s.NS.Inode || !listensAtPath(v.namespaces[c.NetNS], c.Path))
	}
	if s.Port() == 0 || s.Port() != c.Port {
		return false
	}
	addr, err := netip.ParseAddr(c.Addr)
	if err != nil {
		return false
	}
	if addr.IsLoopback() {
		return c.NetNS == s.NS.Inode
	}
	return slices.Contains(s.NS.Addrs, addr.Unmap().String())
}

func listensAtPath(ns *observe.NetNS, path string) bool {
	return ns != nil && slices.ContainsFunc(ns.Listeners, func(l observe.Listener) bool { return l.Path == path })
}

// callers lists the local processes that connect to the service.
func (v *View) callers(s *Service) []int {
	var pids []int
	for _, l := range s.Listeners {
		pids = append(pids, l.ClientPIDs...)
	}
	for i := range v.Connects {
		if c := &v.Connects[i]; v.reaches(c, s) {
			pids = append(pids, c.PID)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// sysctl reads a knob as the namespace sees it, falling back to the host's.
func (v *View) sysctl(ns *observe.NetNS, name string) string {
	if ns != nil {
		if value, ok := ns.Sysctl[name]; ok {
			return value
		}
	}
	return v.Sysctl[name]
}

// in says how to run a command inside the namespace of ns.
func (v *View) in(ns *observe.NetNS, command string) string {
	if ns == nil || ns.Host {
		return command
	}
	return "nsenter --net=/proc/" + itoa(ns.PID) + "/ns/net " + command
}

// where names a namespace in a sentence: empty for the host's own.
func where(ns *observe.NetNS) string {
	if ns == nil || ns.Host {
		return ""
	}
	return " in network namespace " + utoa(ns.Inode)
}
