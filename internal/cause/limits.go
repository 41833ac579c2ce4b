package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// container is what an engine says of a container, by its id as in
// observe.Process; nil when it says nothing.
func (v *View) container(id string) *observe.Container {
	if id == "" {
		return nil
	}
	return v.containers.of(id, func() *observe.Container {
		for i := range v.Containers {
			c := &v.Containers[i]
			if n := min(len(c.ID), len(id)); n > 0 && c.ID[:n] == id[:n] {
				return c
			}
		}
		return nil
	})
}

// ContainerText names a container: its name with the id, else the id.
func (v *View) ContainerText(id string) string {
	if c := v.container(id); c != nil && c.Name != "" {
		return fmt.Sprintf("%s (%s)", c.Name, id)
	}
	return id
}

// SubjectContainer names the container that a finding is about, or is empty.
func (v *View) SubjectContainer(s *Subject) string {
	if s.Container != "" {
		return v.ContainerText(s.Container)
	}
	if p := v.Process(s.PID); p != nil && p.Container != "" {
		return v.ContainerText(p.Container)
	}
	for i := range v.Containers {
		if c := &v.Containers[i]; c.ID != "" && s.Kind == "cgroup" && strings.Contains(s.Path, c.ID) {
			return v.ContainerText(c.ID)
		}
	}
	return ""
}

// ContainerName is the name of a container by its id, empty when no engine tells
// it.
func (v *View) ContainerName(id string) string {
	if c := v.container(id); c != nil {
		return c.Name
	}
	return ""
}

// holder is whom a limit belongs to, and how it is set there.
type holder struct {
	text string // "container shop (3c5a…)", "shop.service", "control group /shop"
	what string // "pod", "container", "unit", "group"
	// engine and container are how its tools know a container that can be
	// changed; unit that of a unit.
	engine, container, unit string
	pod                     inPod // of a pod
}

// raised is a limit as each tool writes it that can set it.
type raised struct {
	docker  shell.Command // flags of docker run; none where docker update does not know it
	run     shell.Command // flags of docker run that docker update does not know
	systemd string        // "MemoryMax=2048M"
	// resource and amount are those of a container's resources in a manifest: "limits.memory",
	// "2048Mi". Where no manifest has it, kubelet says what of its configuration sets it.
	resource, amount string
	kubelet          string
}

func cpuSetting(cpus float64) raised {
	text := fmt.Sprintf("%.3g", cpus)
	return raised{docker: shell.Line("--cpus %s", text), systemd: fmt.Sprintf("CPUQuota=%.0f%%", cpus*100), resource: "limits.cpu", amount: text}
}

// memorySetting is a limit of memory, in bytes.
func memorySetting(want uint64) raised {
	return raised{docker: memoryFlags(want), systemd: fmt.Sprintf("MemoryMax=%dM", want>>20), resource: "limits.memory", amount: mebibytes(want)}
}

func mebibytes(n uint64) string { return utoa(n>>20) + "Mi" }

// holderOf tells whom a control group is made for, given a process in it, a
// container's id or a unit.
func (v *View) holderOf(path, containerID, unit string) holder {
	if !strings.Contains(path, containerID) {
		containerID = ""
	}
	if at := v.podOf(containerID, path); at.pod != nil {
		return holder{text: at.text(), what: "pod", pod: at}
	}
	switch {
	case containerID != "":
		h := holder{text: "container " + v.ContainerText(containerID), what: "container"}
		// Of one that is removed there is nothing left to update.
		if c := v.container(containerID); c != nil && (c.Engine == "docker" || c.Engine == "podman") && c.State != "removed" {
			h.engine, h.container = c.Engine, cmp.Or(c.Name, containerID)
		}
		return h
	case unit != "" && strings.HasSuffix(path, "/"+unit):
		return holder{text: unit, what: "unit", unit: unit}
	}
	return holder{text: "control group " + path, what: "group"}
}

// holderOfGroup is holderOf for a group of the observation.
func (v *View) holderOfGroup(c *observe.Cgroup) holder {
	for _, pid := range c.PIDs {
		if p := v.Process(pid); p != nil {
			return v.holderOf(c.Path, p.Container, p.Unit)
		}
	}
	return v.holderOf(c.Path, "", "")
}

// raise is how a limit of the holder is set: hot by writing to file, where one is known,
// and for good by the holder's own tool.
func (h *holder) raise(fix *Fix, file, value string, r raised) {
	inPod := h.what == "pod" && r.resource != ""
	if file != "" {
		write := shell.Write(value, shell.Path(file))
		if inPod { // what is written to the file is gone with the container
			write = write.Note("or at once, until the container ends")
		}
		fix.Commands = append(fix.Commands, write)
	}
	switch {
	case inPod:
		fix.Text += fmt.Sprintf(" In the manifest: %s.", h.pod.field("resources."+r.resource))
		fix.Commands = slices.Insert(fix.Commands, 0, h.pod.setResource(r.resource, r.amount))
	case h.what == "pod" && r.kubelet != "":
		fix.Persist = append(fix.Persist, shell.Line("# in the configuration of the kubelet: %s", shell.Text(r.kubelet)))
	case h.what == "pod":
	case h.what == "unit":
		fix.Persist = append(fix.Persist, shell.Line("systemctl set-property %s %s", shell.Unit(h.unit), r.systemd))
	case h.what == "container" && r.run != (shell.Command{}):
		fix.Persist = append(fix.Persist, shell.Line("# in its run command or compose file:").Note("%s", r.run))
	case h.engine != "":
		fix.Persist = append(fix.Persist, h.update(r.docker).Note("and in its compose file or run command"))
	case h.what == "container":
		fix.Persist = append(fix.Persist, shell.Line("# the limit in the specification of the pod or the container:").Note("%s", r.docker))
	}
}

// update changes a container that its engine can change, by flags of docker run.
func (h *holder) update(flags shell.Command) shell.Command {
	return shell.Line("%s update", h.engine).Then(flags).Then(shell.Line("%s", shell.Operand(h.container)))
}

// setsWhere reminds of a limit that is not to be set inside the container.
func (h *holder) setsWhere() string {
	if h.what == "container" {
		return " Set it on the host, not in the container."
	}
	return ""
}

// groupsOf lists the control groups that hold a process that answers an
// endpoint, the nearest first.
func (v *View) groupsOf(l *ledger) []*observe.Cgroup {
	out := v.groupsHolding(v.workers(l))
	slices.SortStableFunc(out, func(a, b *observe.Cgroup) int { return len(b.Path) - len(a.Path) })
	return out
}

// groupsHolding lists the control groups that hold one of these processes, in the
// order of the Observation.
func (v *View) groupsHolding(procs []*observe.Process) []*observe.Cgroup {
	var places []int
	for _, p := range procs {
		places = append(places, v.groups[p.PID]...)
	}
	return v.groupsAt(places)
}

func (v *View) groupsAt(places []int) []*observe.Cgroup {
	slices.Sort(places)
	var out []*observe.Cgroup
	for _, i := range slices.Compact(places) {
		out = append(out, &v.Cgroups[i])
	}
	return out
}

// lostRequests is how many requests of an endpoint went without a whole answer,
// at least: one may have several of these flags.
func (l *ledger) lostRequests() uint64 {
	return max(l.Unanswered, l.affected(observe.FlagReset), l.affected(observe.FlagUnanswered), l.affected(observe.FlagTruncated))
}

// memoryOf writes what is used of an amount of memory that may be exceeded.
func memoryOf(used, limit uint64) string {
	if used > limit {
		return byteText(used) + ", limit " + byteText(limit)
	}
	return byteText(used) + " of " + byteText(limit)
}

// memoryEvidence is the same as evidence, in MB; limit 0: none is known.
func memoryEvidence(fact string, used, limit uint64, source string) Evidence {
	e := Evidence{Fact: fact, Value: round(float64(used) / (1 << 20)), Unit: "MB", Source: source}
	if limit > 0 {
		e.Limit = round(float64(limit) / (1 << 20))
	}
	return e
}

// byteText writes a size of memory as its limits are written: 1 MB is 2^20 bytes.
func byteText(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.3g GB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d kB", n>>10)
}
