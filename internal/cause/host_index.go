package cause

import "github.com/slowray/slowray/internal/observe"

// hostIndex finds what an Observation has of a host: processes by pid, control
// groups and containers by name, sockets by where they lead. Where there may be
// several the lists are in the order of the Observation.
type hostIndex struct {
	*stopper

	procs    map[int]*observe.Process
	places   map[int][]int // in Processes, by pid: one may be used anew within a window
	children map[int][]int
	masters  map[int]int     // of the processes that were seen, see Master
	families map[int][]int   // places in Processes, by master
	alive    map[string]bool // units with a process at the end
	profiled map[int][]int   // places in Profile.Processes, by pid

	heaps     map[int][]int               // places in Heaps, by process
	databases map[int][]*observe.Database // by process

	cgroups map[string][]*observe.Cgroup    // by path
	groups  map[int][]int                   // places in Cgroups, by process
	running map[string][]*observe.Container // containers that run, by name

	mounts map[mount]*observe.Filesystem
	logged map[string][]*observe.KernelLine // by kind

	namespaces map[uint64]*observe.NetNS
	owners     owners
	listeners  []*observe.Listener            // of TCP
	listensAt  map[int][]int                  // places in listeners, by process
	listening  map[end]bool                   // ports, and paths, at which something listens in a namespace
	sockets    map[end][]*observe.SocketGroup // by the port that is served, or by the address that is called
}

// mount is where a file system is found: by its device, or by where it is
// mounted, in a mount namespace or, where that is 0, in any.
type mount struct {
	device, dir string
	ns          uint64
}

func newHostIndex(o *observe.Observation, s *stopper) hostIndex {
	x := hostIndex{
		stopper: s,
		procs:   map[int]*observe.Process{}, places: map[int][]int{}, children: map[int][]int{}, masters: map[int]int{}, families: map[int][]int{},
		alive: map[string]bool{}, profiled: map[int][]int{}, cgroups: map[string][]*observe.Cgroup{}, groups: map[int][]int{}, running: map[string][]*observe.Container{},
		heaps: map[int][]int{}, databases: map[int][]*observe.Database{}, mounts: map[mount]*observe.Filesystem{}, logged: map[string][]*observe.KernelLine{},
		namespaces: map[uint64]*observe.NetNS{}, owners: owners{}, listensAt: map[int][]int{}, listening: map[end]bool{}, sockets: map[end][]*observe.SocketGroup{},
	}
	x.addProcesses(o)
	for i := range o.Cgroups {
		x.Step()
		c := &o.Cgroups[i]
		x.cgroups[c.Path] = append(x.cgroups[c.Path], c)
		for _, pid := range c.PIDs {
			x.groups[pid] = append(x.groups[pid], i)
		}
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.State == "running" {
			x.running[c.Name] = append(x.running[c.Name], c)
		}
	}
	for i := range o.Filesystems {
		x.Step()
		f := &o.Filesystems[i]
		for _, at := range [...]mount{{device: f.Device}, {dir: f.Dir, ns: f.MountNS}, {dir: f.Dir}} {
			if x.mounts[at] == nil {
				x.mounts[at] = f
			}
		}
	}
	for i := range o.KernelLog {
		x.Step()
		l := &o.KernelLog[i]
		x.logged[l.Kind] = append(x.logged[l.Kind], l)
	}
	for i := range o.Namespaces {
		x.namespaces[o.Namespaces[i].Inode] = &o.Namespaces[i]
	}
	x.addGone(o)
	for i := range o.Namespaces {
		if ns := &o.Namespaces[i]; x.namespaces[ns.Inode] == ns { // of two of the same inode the last one counts
			x.addNamespace(ns)
		}
	}
	return x
}

// addGone adds the network namespaces that were not looked into, as those that had ended by
// then: only requests and dropped packets tell of them. None is the host's own.
func (x *hostIndex) addGone(o *observe.Observation) {
	gone := map[uint64]*observe.NetNS{}
	add := func(inode uint64) {
		if inode != 0 && o.Host.NetNS != 0 && inode != o.Host.NetNS && x.namespaces[inode] == nil {
			gone[inode] = &observe.NetNS{Inode: inode}
			x.namespaces[inode] = gone[inode]
		}
	}
	for i := range o.Endpoints {
		add(o.Endpoints[i].NetNS)
	}
	if o.Drops != nil {
		for i := range o.Drops.List {
			add(o.Drops.List[i].NetNS)
		}
	}
	for i := range o.Processes {
		if p := &o.Processes[i]; gone[p.NetNS] != nil && gone[p.NetNS].PID == 0 && !p.EndedIn {
			gone[p.NetNS].PID = p.PID
		}
	}
}

func (x *hostIndex) addProcesses(o *observe.Observation) {
	for i := range o.Processes {
		x.Step()
		p := &o.Processes[i]
		x.procs[p.PID] = p
		x.places[p.PID] = append(x.places[p.PID], i)
		x.children[p.PPID] = append(x.children[p.PPID], p.PID)
		if !p.EndedIn && !p.Kernel {
			x.alive[p.Unit] = true
		}
	}
	for i := range o.Processes {
		pid := o.Processes[i].PID
		x.masters[pid] = x.topmost(pid)
		x.families[x.masters[pid]] = append(x.families[x.masters[pid]], i)
	}
	for i := range o.Heaps {
		x.heaps[o.Heaps[i].PID] = append(x.heaps[o.Heaps[i].PID], i)
	}
	for i := range o.Databases {
		d := &o.Databases[i]
		x.databases[d.PID] = append(x.databases[d.PID], d)
	}
	if o.Profile != nil {
		for i := range o.Profile.Processes {
			pid := o.Profile.Processes[i].PID
			x.profiled[pid] = append(x.profiled[pid], i)
		}
	}
}

func (x *hostIndex) addNamespace(ns *observe.NetNS) {
	for _, addr := range ns.Addrs {
		x.owners[addr] = append(x.owners[addr], ns.Inode)
	}
	for i := range ns.Listeners {
		x.Step()
		l := &ns.Listeners[i]
		x.listening[end{ns.Inode, l.Port, l.Path}] = true
		if l.Port == 0 {
			continue
		}
		for _, pid := range l.PIDs {
			x.listensAt[pid] = append(x.listensAt[pid], len(x.listeners))
		}
		x.listeners = append(x.listeners, l)
	}
	for i := range ns.Sockets {
		x.Step()
		g := &ns.Sockets[i]
		at := end{ns.Inode, g.Port, g.Side}
		if g.Side == observe.Called.String() {
			at.addr = g.Remote
		}
		x.sockets[at] = append(x.sockets[at], g)
	}
}

// Master is the topmost ancestor of pid that runs the same program: the
// process an administrator knows the service by.
func (x *hostIndex) Master(pid int) int {
	x.Step()
	if master, seen := x.masters[pid]; seen {
		return master
	}
	return pid
}

func (x *hostIndex) topmost(pid int) int {
	for range 16 {
		x.Step()
		p := x.procs[pid]
		if p == nil {
			return pid
		}
		parent := x.procs[p.PPID]
		if parent == nil || parent.PID == 1 || parent.Comm != p.Comm {
			return pid
		}
		pid = parent.PID
	}
	return pid
}

// cgroup returns the control group with this path, or nil.
func (x *hostIndex) cgroup(path string) *observe.Cgroup {
	x.Step()
	if list := x.cgroups[path]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// servedSockets are those of ns towards clients of a port.
func (x *hostIndex) servedSockets(ns *observe.NetNS, port int) []*observe.SocketGroup {
	if ns == nil {
		return nil
	}
	return x.sockets[end{ns.Inode, port, observe.Served.String()}]
}

// calledSockets are those of ns towards a destination, by local address.
func (x *hostIndex) calledSockets(ns *observe.NetNS, addr string, port int) []*observe.SocketGroup {
	if ns == nil {
		return nil
	}
	return x.sockets[end{ns.Inode, port, addr}]
}
