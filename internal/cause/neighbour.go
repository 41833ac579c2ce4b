package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// movedOn says whether a process may have moved its bytes on a disk or a server: by what it
// has open, else, of one that ended, by the volumes of its pod. Where neither is known it may.
func (v *View) movedOn(p *observe.Process, store string) (may, shown bool) {
	if len(p.Stores) > 0 {
		on := slices.Contains(p.Stores, store)
		return on, on
	}
	if at := v.podOfProcess(p.PID); at.pod != nil {
		for i := range at.pod.Volumes {
			if at.pod.Volumes[i].Store == store {
				return true, true
			}
		}
	}
	return true, false
}

// neighbour is a pod that moved most of what was moved on a disk or a server.
type neighbour struct {
	at         inPod
	top        *observe.Process
	bytes, all uint64
	sole       uint64 // of processes that have files open nowhere else
}

// neighbourOn is the pod that uses a disk or a server most, other than those whose requests
// wait; nil when none does, or not so much that others wait for it.
func (v *View) neighbourOn(store string, victims map[*observe.Pod]bool) *neighbour {
	if v.Kubernetes == nil || store == "" || v.idleDisk(store) {
		return nil
	}
	var all, unknown uint64
	by := map[*observe.Pod]*neighbour{}
	var order []*neighbour
	for i := range v.Processes {
		p := &v.Processes[i]
		may, shown := v.movedOn(p, store)
		if p.Kernel || p.PID == v.Self || p.MovedBytes() == 0 || !may {
			continue
		}
		// Nothing tells how much of it went to a server, where it may have gone elsewhere.
		sole := len(p.Stores) == 1 && shown
		if !shown || !sole && !isDisk(store) {
			unknown += p.MovedBytes()
			continue
		}
		all += p.MovedBytes()
		at := v.podOf(p.Container, p.Cgroup)
		if at.pod == nil || victims[at.pod] {
			continue
		}
		n := by[at.pod]
		if n == nil {
			n = &neighbour{at: at, top: p}
			by[at.pod] = n
			order = append(order, n)
		}
		if p.MovedBytes() > n.top.MovedBytes() {
			n.at, n.top = at, p
		}
		if n.bytes += p.MovedBytes(); sole {
			n.sole += p.MovedBytes()
		}
	}
	if len(order) == 0 {
		return nil
	}
	n := slices.MaxFunc(order, func(a, b *neighbour) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), strings.Compare(b.at.pod.UID, a.at.pod.UID))
	})
	if n.all = all + unknown; ratio(n.bytes, n.all) < neighbourShare {
		return nil
	}
	// Of a disk it is known how much all processes moved there, also those that have ended. Who
	// has files open elsewhere, too, is taken to have moved there what others cannot have.
	if d := v.diskNumbered(store); d != nil {
		others := n.all - n.bytes
		n.all = d.ReadBytes + d.WriteBytes
		n.bytes = min(n.bytes, n.all, max(n.sole, n.all-min(n.all, others)))
	}
	if ratio(n.bytes, n.all) < neighbourShare || float64(n.bytes) < neighbourRate*v.Window.Seconds {
		return nil
	}
	return n
}

// idleDisk says that a disk has nothing to do most of the time.
func (v *View) idleDisk(number string) bool {
	d := v.diskNumbered(number)
	return d != nil && ratio(d.BusySeconds, v.Window.Seconds) < neighbourBusy
}

// diskNumbered is the disk with a number, or nil.
func (v *View) diskNumbered(number string) *observe.Disk {
	for i := range v.Use.Disks {
		if d := &v.Use.Disks[i]; d.Number == number && number != "" {
			return d
		}
	}
	return nil
}

// noisyPod puts the pod into a finding that uses a disk or a server most, while others wait.
func (v *View) noisyPod(store string, victims map[*observe.Pod]bool, f *Finding) {
	n := v.neighbourOn(store, victims)
	if n == nil {
		return
	}
	p := n.at.pod
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "read and written there by " + n.at.text(), Value: round(float64(n.bytes) / (1 << 20)), Limit: round(float64(n.all) / (1 << 20)), Unit: "MB in all", Source: "/proc/PID/io, /proc/PID/fd"},
		Evidence{Fact: "its pod", Value: fmt.Sprintf("%s/%s: %s (pid %d)", p.Namespace, p.Name, n.top.Comm, n.top.PID), Source: "/proc/PID/cgroup"})
	text := f.Fix.Text + " " + n.at.text() + " does most of the I/O there, and no field of a pod manifest limits that."
	if p.Kind == "CronJob" {
		text += " Run it at another time (spec.schedule)."
	}
	if p.Kind != "DaemonSet" { // which is on every node
		text += fmt.Sprintf(" Keep the two on different nodes: %s.affinity.podAntiAffinity, or a taint.", n.at.spec())
	}
	f.Fix.Text = text + " Give it a StorageClass on other disks, or have the runtime set io.max for it (a blockio class of containerd or CRI-O)."
	f.Fix.Commands = append(f.Fix.Commands, shell.Line("kubectl -n %s get pod %s -o wide", shell.Word(p.Namespace), shell.Operand(p.Name)))
}

// whose names a process, with its pod where it is in one.
func (v *View) whose(p *observe.Process) string {
	text := fmt.Sprintf("%s (pid %d)", p.Comm, p.PID)
	if at := v.podOf(p.Container, p.Cgroup); at.pod != nil {
		text += " of " + at.text()
	}
	return text
}
