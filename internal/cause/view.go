package cause

import (
	"cmp"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// View is an Observation with the look-ups that several checks need: which
// services the user asked about, who calls whom, which processes lie on the
// way of their requests. The indexes are built once, so that a check looks
// nothing up by searching: a host may have thousands of each thing. A View is
// for one goroutine.
type View struct {
	*observe.Observation
	Services []*Service // with traffic, within the filter

	onPath  map[int]bool // processes that take part in a request: servers, their callers, whom they call
	serving map[int]bool // the servers among them

	hostIndex
	serviceIndex
	ledgerIndex
	onDemand

	ledgers []*ledger    // endpoints of requests, see compareEndpoints
	forOwn  map[int]bool // masters of processes that answer slowray and nobody else
	remains []*ledger    // what is left of those that ended before the window, see remain
	sites   []*DropSite  // where packets died, see Sites
	// What is known to have died of full connection tracking tables, by network namespace.
	tableTook map[uint64]uint64
	slowOf    map[int][]*observe.SlowTime // by process
	roots     []*root                     // what chains of waits come down to, most slow time first
}

// NewView indexes o, however long that takes.
func NewView(o *observe.Observation) *View {
	return NewViewUntil(o, func() error { return nil })
}

// NewViewUntil indexes o. Once stop, which is asked again and again, gives an error,
// this and whatever is done with the View panics with Stopped.
func NewViewUntil(o *observe.Observation, stop func() error) *View {
	s := &stopper{stop: stop}
	v := &View{
		Observation: o, hostIndex: newHostIndex(o, s),
		onPath: map[int]bool{}, serving: map[int]bool{}, slowOf: map[int][]*observe.SlowTime{}, tableTook: map[uint64]uint64{},
	}
	v.onDemand = v.demand()
	v.buildServices()
	v.buildLedgers()
	v.buildSites()
	v.buildRoots()
	return v
}

// Process returns the process with this pid, or nil.
func (v *View) Process(pid int) *observe.Process {
	v.Step()
	return v.procs[pid]
}

// Namespace returns the network namespace with this inode, or nil.
func (v *View) Namespace(inode uint64) *observe.NetNS { return v.namespaces[inode] }

// place is Namespace for commands: of one that was not looked into what is known at least,
// lest they are taken for the host's.
func (v *View) place(inode uint64) *observe.NetNS {
	if ns := v.namespaces[inode]; ns != nil || inode == 0 || v.Host.NetNS == 0 || inode == v.Host.NetNS {
		return ns
	}
	ns := &observe.NetNS{Inode: inode}
	for i := range v.Processes {
		if p := &v.Processes[i]; p.NetNS == inode && !p.EndedIn {
			ns.PID = p.PID
			break
		}
	}
	return ns
}

// Serving says whether the process answers requests of a service in view.
func (v *View) Serving(pid int) bool {
	v.Step()
	return v.serving[pid]
}

// OnPath says whether the process takes part in the requests in view: it
// serves them, or it is the local client that makes them.
func (v *View) OnPath(pid int) bool {
	v.Step()
	return v.onPath[pid]
}

// Comm is the name of a process, or "?" when it was not seen.
func (v *View) Comm(pid int) string {
	v.Step()
	if p := v.procs[pid]; p != nil {
		return p.Comm
	}
	return "?"
}

// sysctl reads a knob as the namespace sees it, falling back to the host's.
func (v *View) sysctl(ns *observe.NetNS, name string) string {
	v.Step()
	if ns != nil {
		if value, ok := ns.Sysctl[name]; ok {
			return value
		}
	}
	return v.Sysctl[name]
}

// in says how to run a command inside the namespace of ns.
func (v *View) in(ns *observe.NetNS, command shell.Command) shell.Command {
	if ns == nil || ns.Host {
		return command
	}
	switch {
	case ns.Name != "":
		return shell.Line("ip netns exec %s", shell.Word(ns.Name)).Then(command)
	case ns.Path != "":
		return shell.Line("nsenter --net=%s", ns.Path).Then(command)
	case ns.PID == 0: // the command would tell of the host's own
		line, note := command.Parts()
		return shell.Line("# in network namespace %s, which has no process any more:", ns.Inode).Note("%s", shell.Text(cmp.Or(line, note)))
	}
	return shell.Line("nsenter --net=/proc/%s/ns/net", ns.PID).Then(command)
}

// where names a namespace in a sentence: empty for the host's own.
func where(ns *observe.NetNS) string {
	if ns == nil || ns.Host {
		return ""
	}
	if ns.Name != "" {
		return " in network namespace " + ns.Name
	}
	return " in network namespace " + utoa(ns.Inode)
}
