package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// Packets also pass network namespaces that no process lives in: routers, gateways
// of a VPN, what a container engine has made for containers. They are kept by a
// mount (ip netns add). There may be hundreds, of which few matter: each is read
// when the window begins, and those only at its end that moved or dropped packets.
const (
	maxRouters   = 1024
	routersBegin = 500 * time.Millisecond
	routersEnd   = 500 * time.Millisecond

	halfTracked = 2 // where a table holds 1/n of its limit it is watched
)

// mountsLimits are those of the tables of mounts that are looked through for them.
var mountsLimits = budget.Limits{Bytes: 64 << 20, Nodes: 256 << 10, Wall: 250 * time.Millisecond}

// findRouters opens the network namespaces that are mounted somewhere, and names
// those that processes live in by what outlives these.
func (s *session) findRouters() {
	oldest := slices.Clone(s.procs)
	slices.SortStableFunc(oldest, func(a, b host.ProcSample) int { return int(a.StartTicks) - int(b.StartTicks) })
	found, left := s.fs.NetNSMounts(budget.New(s.ctx, mountsLimits), s.pids(oldest))
	s.lose("mounts of which not all could be looked through for network namespaces", int64(left))
	for _, sp := range s.spaces {
		if m, ok := found[sp.inode]; ok {
			sp.keep(m)
			delete(found, sp.inode)
		}
	}
	delete(found, s.out.Host.NetNS)
	list := host.SortedNetNSMounts(found)
	if len(list) > maxRouters {
		s.gapRouters(fmt.Errorf("%d of %d were not read: too many", len(list)-maxRouters, len(list)))
		list = list[:maxRouters]
	}
	for _, m := range list {
		ns, err := s.fs.OpenNetNSMount(m)
		if err != nil {
			s.partialGap(observe.KindPath, m.Inode, "network namespace", err)
			continue
		}
		sp := &space{ns: ns, inode: m.Inode}
		sp.keep(m)
		s.routers = append(s.routers, sp)
	}
}

// keep notes what the namespace is mounted on.
func (sp *space) keep(m host.NetNSMount) {
	sp.name = m.Name()
	if m.PID == 0 || sp.pid == 0 {
		sp.path = m.Path()
	}
}

func (s *session) gapRouters(err error) {
	s.partialGap(observe.KindPath, 0, "network namespaces without a process", err)
}

// allSpaces is the namespaces that processes live in, and those that none does.
func (s *session) allSpaces() []*space {
	return append(s.spaces[:len(s.spaces):len(s.spaces)], s.routers...)
}

// beginRouters takes the first readings of them.
func (s *session) beginRouters() {
	begun := time.Now()
	for i, sp := range s.routers {
		if time.Since(begun) > routersBegin {
			s.gapRouters(fmt.Errorf("%d of %d were not read when the window began: no time", len(s.routers)-i, len(s.routers)))
			for _, late := range s.routers[i:] {
				late.late = true
			}
			return
		}
		sp.begin(s)
	}
}

// sampleRouters looks at tables of connection tracking that may get full.
func (s *session) sampleRouters() {
	for _, sp := range s.routers {
		if sp.conntrack.Entries*halfTracked >= sp.conntrack.Max {
			sp.sampleConntrack()
		}
	}
}

// endRouters puts those that packets passed into the Observation.
// dropped is droppedIn.
func (s *session) endRouters(dropped map[uint64]uint64) {
	begun := time.Now()
	// Where packets died first.
	list := slices.Clone(s.routers)
	slices.SortStableFunc(list, func(a, b *space) int { return int(dropped[b.inode]) - int(dropped[a.inode]) })
	for i, sp := range list {
		if time.Since(begun) > routersEnd {
			s.gapRouters(fmt.Errorf("%d of %d were not read when the window ended: no time", len(list)-i, len(list)))
			return
		}
		if dropped[sp.inode] > 0 || sp.passed() {
			s.out.Namespaces = append(s.out.Namespaces, sp.finish(s, nil))
		}
	}
}

// droppedIn is how many packets died in each network namespace.
func (s *session) droppedIn() map[uint64]uint64 {
	out := map[uint64]uint64{}
	if s.out.Drops != nil {
		for i := range s.out.Drops.List {
			out[s.out.Drops.List[i].NetNS] += s.out.Drops.List[i].Packets
		}
	}
	return out
}

// passed says whether packets passed the namespace: they came in at one device and
// went out at another.
func (sp *space) passed() bool {
	if sp.late {
		return false
	}
	now, err := sp.ns.Interfaces()
	if err != nil {
		return false
	}
	moved := 0
	for _, d := range host.InterfacesBetween(sp.devices, now) {
		if d.Name != "lo" {
			moved++
		}
	}
	return moved > 1
}
