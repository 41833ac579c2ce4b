package main

import (
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// family is a process with its master and their workers: what hangs together by
// parents of the same name, as the processes of an observation.
type family map[int]bool

// add takes in what an observation knows of a process's family; nothing where the
// process is not in it.
func (f family) add(o *observe.Observation, pid int) {
	processes := make(map[int]*observe.Process, len(o.Processes))
	for i := range o.Processes {
		processes[o.Processes[i].PID] = &o.Processes[i]
	}
	if processes[pid] == nil {
		return
	}
	master := masterOf(processes, pid)
	for other := range processes {
		if masterOf(processes, other) == master {
			f[other] = true
		}
	}
}

// masterOf is the topmost ancestor of a process that has its name.
func masterOf(processes map[int]*observe.Process, pid int) int {
	for range 16 {
		p := processes[pid]
		if p == nil {
			break
		}
		parent := processes[p.PPID]
		if parent == nil || parent.PID == 1 || parent.Comm != p.Comm {
			break
		}
		pid = parent.PID
	}
	return pid
}

// familyAt is the family of a process in a time of the history, as its windows
// tell; the process alone where no window does.
func familyAt(history *store.Reader, pid int, from, to time.Time) (family, error) {
	f := family{pid: true}
	windows, err := history.Observations(from, to)
	if err != nil {
		return nil, err
	}
	for _, w := range windows {
		// One that cannot be read tells nothing; why and flame say so.
		if o, err := observe.Load(w.Path); err == nil {
			f.add(o, pid)
		}
	}
	return f, nil
}
