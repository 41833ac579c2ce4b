package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// processes compares the processes at the end with those at the beginning.
type processes struct {
	threads     *threads
	descriptors *descriptors
}

// begin reads them again: to begin with all readers may take more than a second, which
// is none of the window's. Those that have ended since are kept as they were.
func (o *processes) begin(s *session) error {
	at := make(map[int]int, len(s.procs))
	for i := range s.procs {
		at[s.procs[i].PID] = i
	}
	now, _ := s.fs.Processes() // what cannot be read is reported when the window ends
	for i := range now {
		old, known := at[now[i].PID]
		switch {
		case !known:
			s.procs = append(s.procs, now[i])
		case s.procs[old].StartTicks == now[i].StartTicks:
			now[i].Program = s.procs[old].Program
			s.procs[old] = now[i]
		}
	}
	return nil
}

// stop takes the last reading.
func (o *processes) stop(s *session) {
	var gaps []observe.Gap
	s.last.procs, gaps = s.fs.Processes()
	s.addProcessGaps(gaps)
	s.out.Processes = host.ProcessesBetween(s.procs, s.last.procs)
	s.sumShortLived()
}

// end gives the processes what was sampled of them.
func (o *processes) end(s *session) {
	serving := map[int]bool{}
	for _, pid := range s.serving {
		serving[pid] = true
	}
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		if serving[p.PID] {
			o.threads.of(s, p)
		}
		p.FDs = max(p.FDs, o.descriptors.peak[p.PID])
		p.TracerPID = o.threads.tracers[p.PID]
		if st := o.threads.states[p.PID]; st != nil && st.Samples > 0 {
			p.States = st
		}
	}
	comm := map[int]string{}
	for i := range s.out.Processes {
		comm[s.out.Processes[i].PID] = s.out.Processes[i].Comm
	}
	for i := range s.out.Namespaces {
		for j := range s.out.Namespaces[i].Listeners {
			l := &s.out.Namespaces[i].Listeners[j]
			l.Comm = comm[l.PID]
		}
	}
	s.nameStarts()
	s.lose("network namespaces that appeared during the window and were not watched", int64(s.newNamespaces()))
}

// nameStarts says of the processes that began lately when that was.
func (s *session) nameStarts() {
	ticks := map[int]uint64{}
	var latest uint64
	for i := range s.last.procs {
		p := &s.last.procs[i]
		ticks[p.PID] = p.StartTicks
		latest = max(latest, p.StartTicks)
	}
	for i := range s.out.Processes {
		p := &s.out.Processes[i]
		if t := ticks[p.PID]; t > 0 && !p.EndedIn && t+youngTicks >= latest {
			p.StartedAt = s.fs.StartedAt(t).Sub(s.out.Window.Start).Seconds()
		}
	}
}

// addProcessGaps adds gaps that were not there yet. That process 1 is closed
// even to root, as in some sandboxes, matters to nobody.
func (s *session) addProcessGaps(gaps []observe.Gap) {
	for _, g := range gaps {
		if g.Subject != "process 1" && !slices.Contains(s.out.Gaps, g) {
			s.out.Gaps = append(s.out.Gaps, g)
		}
	}
}

// findServers finds the processes that hold a listening socket.
func (s *session) findServers() {
	owners, unreadable := s.socketOwners(s.procs)
	// Without the owners of most sockets nobody knows who serves what.
	if all := len(s.pids(s.procs)); unreadable > 0 {
		err := fmt.Errorf("the open files of %d of %d processes could not be read (needs root, or CAP_SYS_PTRACE)", unreadable, all)
		if 2*unreadable > all {
			s.gap(observe.KindProcess, "", err)
		} else {
			s.partialGap(observe.KindProcess, 0, "", err)
		}
	}
	seen := map[int]bool{}
	s.owners = owners
	for _, sp := range s.spaces {
		for inode := range sp.listeners {
			for _, pid := range owners[inode] {
				if !seen[pid] {
					seen[pid] = true
					s.serving = append(s.serving, pid)
				}
			}
		}
	}
	slices.Sort(s.serving)
	s.namePrograms()
}

// programLimits are what may be read of the files of servers whose names say nothing.
var programLimits = budget.Limits{Bytes: 128 << 20, Unpacked: 128 << 20, Nodes: 1 << 20, Files: 256, Wall: 200 * time.Millisecond}

// namePrograms finds out what the processes that listen execute, where their names do
// not say so. Their children that are called the same execute the same.
func (s *session) namePrograms() {
	b, programs := budget.New(s.ctx, programLimits), s.opt.Memory.programs()
	serving := map[int]bool{}
	for _, pid := range s.serving {
		serving[pid] = true
	}
	for i := range s.procs {
		if p := &s.procs[i]; serving[p.PID] && !p.Kernel && !host.IsProgram(p.Comm) {
			p.Program = programs.Of(b, s.fs, p.PID)
		}
	}
	named := map[int]*host.ProcSample{}
	for i := range s.procs {
		if p := &s.procs[i]; p.Program != "" {
			named[p.PID] = p
		}
	}
	for i := range s.procs {
		p := &s.procs[i]
		if parent := named[p.PPID]; parent != nil && p.Program == "" && p.Comm == parent.Comm {
			p.Program = parent.Program
		}
	}
}

// socketOwners maps the sockets of interest to processes, by the cheapest way
// there is. The second result is how many processes could not be looked into.
func (s *session) socketOwners(procs []host.ProcSample) (owners map[uint64][]int, unreadable int) {
	defer func() { host.ByAge(procs, owners) }()
	wanted := map[uint64]bool{}
	for _, sp := range s.spaces {
		sp.wantedSockets(wanted)
	}
	if s.sockets != nil {
		if owners, err := s.sockets.Owners(func(inode uint64) bool { return wanted[inode] }); err == nil {
			return owners, 0
		}
	}
	return s.fs.SocketOwners(s.pids(procs))
}

// tcpSockets lists the TCP sockets of a namespace, by the cheapest way there is.
func (s *session) tcpSockets(ns *host.NetNS, visit func(*host.SocketSample)) error {
	if s.sockets != nil {
		return s.sockets.TCP(ns, visit)
	}
	return ns.Sockets(visit)
}

func (s *session) pids(procs []host.ProcSample) []int {
	pids := make([]int, 0, len(procs))
	for i := range procs {
		if !procs[i].Kernel {
			pids = append(pids, procs[i].PID)
		}
	}
	return pids
}

// newNamespaces counts those that were not there when the window began.
func (s *session) newNamespaces() int {
	known := map[uint64]bool{}
	for inode := range host.NetNamespaces(s.procs) {
		known[inode] = true
	}
	fresh := 0
	for inode := range host.NetNamespaces(s.last.procs) {
		if !known[inode] {
			fresh++
		}
	}
	return fresh
}
