package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ContainerOOMKilled: the kernel ended a process of the service, because its
// control group had used up its memory (mm/memcontrol.c).
const ContainerOOMKilled ID = "container-oom-killed"

var containerOOMKilled = Cause{
	ID:            ContainerOOMKilled,
	Title:         "OOM kill: the cgroup memory limit was reached",
	Layer:         LayerMachine,
	Class:         ClassMachine | ClassLimit | ClassKill,
	Needs:         []observe.Kind{observe.KindKernelLog},
	ConsequenceOf: []Parent{JVMHeapOverLimit, NodeHeapOverLimit, WorkersOverMemoryLimit, MemoryLeakTowardLimit},
	Folds:         true,
	Check:         func(v *View) Result { return checkOOM(v, false) },
	Try:           inGroups((*View).moreMemory),
}

// HostOOMKilled: the same, because the whole machine had.
const HostOOMKilled ID = "host-oom-killed"

var hostOOMKilled = Cause{
	ID:    HostOOMKilled,
	Title: "OOM kill: the machine ran out of memory",
	Layer: LayerMachine,
	Class: ClassMachine | ClassLimit | ClassKill,
	Needs: []observe.Kind{observe.KindKernelLog},
	Check: func(v *View) Result { return checkOOM(v, true) },
}

// death is what the kernel did to one service because memory ran out.
type death struct {
	kills []*observe.OOMKill // oldest first
	felt  felt
}

func (d *death) last() *observe.OOMKill { return d.kills[len(d.kills)-1] }

// felt is what a kill did to a service, or why it did nothing.
type felt struct {
	share   float64  // of the attempts to get an answer that it spoils
	text    string   // what it did; empty when nobody was seen to suffer
	because string   // when nobody was
	service *Service // that the process belonged to; nil when it is not known
	down    bool     // nothing has taken its place
}

// deaths lists what the kernel killed in one place, and what that did: by
// control group, of the host by program.
func (v *View) deaths(host bool) []death {
	return v.dead.of(host, func() []death { return v.findDeaths(host) })
}

func (v *View) findDeaths(host bool) []death {
	byPlace := map[string]int{}
	var out []death
	for _, k := range v.kills() {
		if k.Host != host {
			continue
		}
		place := cmp.Or(k.LimitCgroup, k.Cgroup, k.Comm)
		if host {
			place = k.Comm + " " + k.Cgroup
		}
		at, known := byPlace[place]
		if !known {
			at = len(out)
			byPlace[place] = at
			out = append(out, death{})
		}
		out[at].kills = append(out[at].kills, k)
	}
	for i := range out {
		d := &out[i]
		slices.SortStableFunc(d.kills, func(a, b *observe.OOMKill) int { return cmp.Compare(a.At, b.At) })
		for _, k := range d.kills {
			if f := v.felt(k); f.text != "" || d.felt.text == "" {
				d.felt = f
			}
		}
	}
	return out
}

// kills lists what the kernel killed: by its log, and where that could not be
// read by the counters of control groups, which do not say whom or when.
func (v *View) kills() []*observe.OOMKill {
	var out []*observe.OOMKill
	for i := range v.OOMKills {
		out = append(out, &v.OOMKills[i])
	}
	if !v.unread(observe.KindKernelLog) {
		return out
	}
	for i := range v.Cgroups {
		c := &v.Cgroups[i]
		if c.OOMKills == 0 || c.MemoryLimitBytes == 0 || slices.ContainsFunc(v.Cgroups, func(o observe.Cgroup) bool {
			return o.OOMKills > 0 && o.MemoryLimitBytes > 0 && strings.HasPrefix(o.Path, c.Path+"/") // an inner one is nearer
		}) {
			continue
		}
		for _, pid := range c.PIDs {
			if p := v.Process(pid); p != nil && p.EndedIn {
				out = append(out, &observe.OOMKill{At: v.Window.Seconds, PID: pid, Comm: p.Comm, Cgroup: p.Cgroup, LimitCgroup: c.Path,
					Container: p.Container, Unit: p.Unit, LimitBytes: c.MemoryLimitBytes})
				break
			}
		}
	}
	return out
}

// unread says that a kind of reading was not to be had, as a whole or in part.
func (v *View) unread(kind observe.Kind) bool {
	return slices.ContainsFunc(v.Gaps, func(g observe.Gap) bool { return g.Kind == kind })
}

// felt tells what a kill did. In the window, or so short before that the process was
// seen, it counts when it, or the group it was in, answered requests; before, when its service is still down:
// a service that is back has nothing to fix now but what the next kill shows.
func (v *View) felt(k *observe.OOMKill) felt {
	p := v.Process(k.PID)
	if s := v.victimOf(k); s != nil && (k.At >= 0 || p != nil && p.EndedIn && p.Comm == k.Comm) {
		f := felt{service: s, share: 1, down: v.ended(s)}
		lost, all := v.lostOf(s)
		when := seconds(k.At) + " into the window"
		if k.At < 0 {
			when = seconds(-k.At) + " before the window"
		}
		f.text = fmt.Sprintf("%s answered requests on %s, and was killed %s", k.Comm, s.Name(), when)
		switch {
		case f.down:
			f.text += "; nothing has answered there since"
		case all > 0:
			f.share = max(ratio(lost, all), killLeast)
			f.text += fmt.Sprintf("; %s of %s requests got no whole answer", count(lost), count(all))
		}
		return f
	}
	down, what := v.downSince(k)
	ago := seconds(v.Window.Seconds - k.At)
	named := fmt.Sprintf("%s (pid %d) was killed %s ago", k.Comm, k.PID, ago)
	switch {
	case !v.asksFor(k) && !v.refusedWhere(k):
		return felt{because: named + ", and no service in view is the worse for it"}
	case v.Filter.Container == "" && v.Filter.Unit == "" && removedLongAgo(v.container(k.Container)):
		return felt{because: named + "; its container was removed since, by somebody who knew"}
	case !down:
		return felt{because: named + "; what it belonged to runs again, or was no service"}
	}
	return felt{share: 1, down: true, text: fmt.Sprintf("%s was killed %s ago, and %s", k.Comm, ago, what)}
}

// removedLongAgo says that somebody removed what was left of a container, and
// that it ended more than five minutes ago.
func removedLongAgo(c *observe.Container) bool {
	return c != nil && c.State == "removed" && c.EndedAt < -300
}

// victimOf is the service in view that a killed process answered for: it held
// the listening socket, or its parent does, or another process of its group.
func (v *View) victimOf(k *observe.OOMKill) *Service {
	var p *observe.Process
	if q := v.Process(k.PID); q != nil && q.Comm == k.Comm {
		p = q
	}
	var first *Service
	serves := func(pid int) {
		for _, s := range v.servicesOf[pid] {
			if first == nil || s.order < first.order {
				first = s
			}
		}
	}
	if q := v.Process(k.PID); q == nil || q.Comm == k.Comm {
		serves(k.PID)
	}
	if p != nil {
		if parent := v.Process(p.PPID); parent != nil && parent.Comm == p.Comm {
			serves(parent.PID)
		}
	}
	if k.Container != "" {
		for _, pid := range v.kin()[kin{k.Comm, k.Container, true}] {
			serves(pid)
		}
	}
	if k.Cgroup != "" && k.Cgroup != "/" {
		for _, pid := range v.kin()[kin{k.Comm, k.Cgroup, false}] {
			serves(pid)
		}
	}
	return first
}

// kin is what processes of one program have in common: their container, or
// their control group.
type kin struct {
	comm, group string
	container   bool
}

// findKin sorts the processes.
func (v *View) findKin() map[kin][]int {
	out := map[kin][]int{}
	for i := range v.Processes {
		p := &v.Processes[i]
		for _, k := range [...]kin{{p.Comm, p.Cgroup, false}, {p.Comm, p.Container, true}} {
			out[k] = append(out[k], p.PID)
		}
	}
	return out
}

// ended says that all processes which answered for a service are gone.
func (v *View) ended(s *Service) bool {
	any := false
	for _, pid := range s.PIDs {
		if p := v.Process(pid); p != nil {
			any = true
			if !p.EndedIn {
				return false
			}
		}
	}
	return any
}

// lostOf is how many requests of a service got no whole answer, and the
// connections that nobody took up, of all.
func (v *View) lostOf(s *Service) (lost, all uint64) {
	for _, l := range v.ledgersAt(s.NS.Inode, s.Port()) {
		if !l.called() {
			lost += l.lostRequests()
			all += l.Requests
		}
	}
	for _, c := range s.connects {
		lost += c.Failed
		all += c.Failed
	}
	return lost, all
}

// asksFor says that the user asked for what the killed process belonged to, or
// for nothing in particular.
func (v *View) asksFor(k *observe.OOMKill) bool {
	f := v.Filter
	switch {
	case f == (observe.Filter{}):
		return true
	case f.PID != 0:
		return f.PID == k.PID
	case f.Container != "":
		return k.Container != "" && f.InContainer(k.Container)
	case f.Unit != "":
		return f.InUnit(k.Unit)
	}
	return false
}

// refusedWhere says that processes on the requests' way called an address of
// this host in vain where nobody listens, while the container or unit of the
// killed process is down.
func (v *View) refusedWhere(k *observe.OOMKill) bool {
	if down, _ := v.downSince(k); !down || k.Host && k.Container == "" && !strings.HasSuffix(k.Unit, ".service") {
		return false
	}
	// Of several that are down, what is missed now is most likely the last one.
	for _, o := range v.lastDown() {
		if o.At > k.At && placeOf(o) != placeOf(k) {
			return false
		}
	}
	return len(v.missed()) > 0
}

// placeOf is what a killed process belonged to.
func placeOf(k *observe.OOMKill) string {
	return cmp.Or(k.Container, k.Unit, k.LimitCgroup, k.Cgroup)
}

// findLastDown gives the last kills of the two services or containers that fell
// last and are still down.
func (v *View) findLastDown() (last []*observe.OOMKill) {
	kills := make([]*observe.OOMKill, 0, len(v.OOMKills))
	for i := range v.OOMKills {
		kills = append(kills, &v.OOMKills[i])
	}
	slices.SortStableFunc(kills, func(a, b *observe.OOMKill) int { return cmp.Compare(b.At, a.At) })
	for _, k := range kills {
		if down, _ := v.downSince(k); !down || len(last) == 1 && placeOf(last[0]) == placeOf(k) {
			continue
		}
		if last = append(last, k); len(last) == 2 {
			break
		}
	}
	return last
}

// findMissed lists who on the requests' way called an address of this host in vain at a
// port where nobody listens.
func (v *View) findMissed() (pids []int) {
	for i := range v.Connects {
		c := &v.Connects[i]
		if c.Refused > 0 && c.Family != "unix" && (v.OnPath(c.PID) || v.Serving(c.PID)) && !v.live()[c.Port] && v.hostAddress(c) {
			pids = append(pids, c.PID)
		}
	}
	return pids
}

// missedSince says that one of those ran when a service was killed: of what began
// afterwards nothing tells that it ever had an answer from it.
func (v *View) missedSince(k *observe.OOMKill) bool {
	return slices.ContainsFunc(v.missed(), func(pid int) bool {
		p := v.Process(pid)
		return p == nil || k.At >= 0 || !p.StartedIn && (p.StartedAt == 0 || p.StartedAt <= k.At)
	})
}

// findLive finds the ports at which something listens when the window ends.
func (v *View) findLive() map[int]bool {
	ports := map[int]bool{}
	for i := range v.Namespaces {
		for j := range v.Namespaces[i].Listeners {
			if l := &v.Namespaces[i].Listeners[j]; !ports[l.Port] && !v.listenerEnded(l) {
				ports[l.Port] = true
			}
		}
	}
	return ports
}

// hostAddress says that a call goes to an address of this host.
func (v *View) hostAddress(c *observe.Connect) bool {
	a := address(c.Addr)
	return a.IsLoopback() || len(v.owners.of(a)) > 0
}

func (v *View) listenerEnded(l *observe.Listener) bool {
	return len(l.PIDs) > 0 && !slices.ContainsFunc(l.PIDs, func(pid int) bool { p := v.Process(pid); return p == nil || !p.EndedIn })
}

// downSince says whether what the killed process belonged to does not run any
// more, and in which words.
func (v *View) downSince(k *observe.OOMKill) (down bool, what string) {
	c := v.container(k.Container)
	switch {
	case c != nil && c.Name != "" && slices.ContainsFunc(v.running[c.Name], func(o *observe.Container) bool { return o.ID != c.ID }):
		return false, "" // another one has taken its place
	case c != nil && c.Down():
		if c.State == "removed" {
			return true, fmt.Sprintf("its container %s was removed", v.ContainerText(c.ID))
		}
		text := fmt.Sprintf("its container %s does not run any more (%s)", v.ContainerText(c.ID), c.State)
		if c.OOMKilled {
			text = fmt.Sprintf("its container %s does not run any more (%s, the engine says: killed because memory ran out)", v.ContainerText(c.ID), c.State)
		}
		return true, text
	case strings.HasSuffix(k.Unit, ".service"):
		if v.alive[k.Unit] {
			return false, ""
		}
		return true, fmt.Sprintf("no process of %s is left", k.Unit)
	}
	// No engine knows it, or nobody's: whether something has taken its place cannot
	// be reported, but for what its callers meet.
	if group := cmp.Or(k.LimitCgroup, k.Cgroup); !k.Host && len(group) > 1 && v.missedSince(k) && !v.listensIn(group) {
		return true, "nothing in its control group listens since; its callers are refused"
	}
	return false, ""
}

// listensIn says that a process of a control group, or of one below, listens.
func (v *View) listensIn(group string) bool {
	for i := range v.Namespaces {
		for j := range v.Namespaces[i].Listeners {
			l := &v.Namespaces[i].Listeners[j]
			if !v.listenerEnded(l) && slices.ContainsFunc(l.PIDs, func(pid int) bool {
				p := v.Process(pid)
				return p != nil && strings.HasPrefix(p.Cgroup+"/", group+"/")
			}) {
				return true
			}
		}
	}
	return false
}

func checkOOM(v *View, host bool) Result {
	r := ruledOut("the kernel killed no process because memory ran out, in the window or in the quarter of an hour before, as far as its log goes back")
	if v.unread(observe.KindKernelLog) {
		r = Result{NotChecked: "the kernel log could not be read, and no control group of a service counted a kill"}
	}
	for _, d := range v.deaths(host) {
		if d.felt.text == "" {
			r = ruledOut(d.felt.because)
			continue
		}
		f := v.killFinding(&d)
		if host {
			v.hostOOMFix(&f, &d)
		} else {
			v.groupOOMFix(&f, &d)
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// killFinding begins a finding about a service that was killed.
func (v *View) killFinding(d *death) Finding {
	k := d.last()
	where := Subject{Kind: "process", PID: k.PID, Comm: k.Comm, Path: cmp.Or(k.LimitCgroup, k.Cgroup), Container: k.Container}
	f := supported(where)
	if s := d.felt.service; s != nil {
		f.Subject.NetNS, f.Subject.Port = s.NS.Inode, s.Port()
	}
	f.Weight, f.uncounted = d.felt.share, true
	// The same kill may be reported by what led to it.
	f.MayFollow = func(p *Finding) bool { return p.Subject.Path == where.Path && p.Subject.PID == where.PID }
	f.Impact = Impact{Share: round(d.felt.share), Of: "requests", Text: d.felt.text}
	f.Evidence = []Evidence{{Fact: "killed by the kernel", Value: fmt.Sprintf("%s (pid %d), %s", k.Comm, k.PID, v.whenText(k)), Source: "kernel log"}}
	if n := len(d.kills); n > 1 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "kills there, the first " + v.whenText(d.kills[0]), Value: n, Unit: "kills", Source: "kernel log"})
	}
	if k.AnonBytes > 0 {
		f.Evidence = append(f.Evidence, memoryEvidence("its own memory when it was killed", k.AnonBytes, k.LimitBytes, "kernel log"))
	}
	f.Evidence = append(f.Evidence, v.exitEvidence(v.podOf(k.Container, where.Path))...)
	if ct := v.container(k.Container); ct != nil {
		said := ct.State
		if ct.OOMKilled {
			said = strings.TrimPrefix(said+", OOM-killed", ", ")
		}
		if said != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "its container, " + v.ContainerText(ct.ID), Value: said, Source: ct.Engine})
		}
	}
	return f
}

// whenText tells when a process was killed.
func (v *View) whenText(k *observe.OOMKill) string {
	if k.At >= 0 && k.At <= v.Window.Seconds {
		return fmt.Sprintf("%s into the window", seconds(k.At))
	}
	return fmt.Sprintf("%s before its end", seconds(v.Window.Seconds-k.At))
}

func (v *View) hostOOMFix(f *Finding, d *death) {
	k := d.last()
	f.Evidence = append(f.Evidence, memoryEvidence("memory of the machine available now", v.Use.Memory.AvailableBytes, v.Use.Memory.TotalBytes, "/proc/meminfo"))
	if big := v.largest(); big != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: "largest process now", Value: v.whose(big) + " " + byteText(big.RSSBytes), Source: "/proc/PID/stat"})
	}
	if k.By != "" && k.By != k.Comm {
		f.Evidence = append(f.Evidence, Evidence{Fact: "who asked for memory when there was none left", Value: k.By, Source: "kernel log"})
	}
	f.Fix.Text = "Give whatever used up the memory a limit of its own, or the machine more memory; and tell the kernel to spare this service."
	v.memoryPod(f, v.podOf(k.Container, k.Cgroup).pod)
	if strings.HasSuffix(k.Unit, ".service") {
		f.Fix.Commands = []shell.Command{shell.Line("systemctl restart %s", shell.Unit(k.Unit))}
		f.Fix.Persist = []shell.Command{shell.Line("systemctl edit %s   # [Service] OOMScoreAdjust=-500", shell.Unit(k.Unit))}
	} else if c := v.container(k.Container); c != nil && c.State == "exited" && (c.Engine == "docker" || c.Engine == "podman") {
		f.Fix.Commands = []shell.Command{shell.Line("%s start %s", c.Engine, shell.Operand(cmp.Or(c.Name, c.ID)))}
	}
}

// largest is the process that holds most memory.
func (v *View) largest() *observe.Process {
	var big *observe.Process
	for i := range v.Processes {
		if p := &v.Processes[i]; !p.EndedIn && (big == nil || p.RSSBytes > big.RSSBytes) {
			big = p
		}
	}
	return big
}

// groupOOMFix tells what the limit is and how to raise it.
func (v *View) groupOOMFix(f *Finding, d *death) {
	k := d.last()
	h := v.holderOf(cmp.Or(k.LimitCgroup, k.Cgroup), k.Container, k.Unit)
	limit := v.limitOf(k)
	f.Title = fmt.Sprintf("The kernel killed %s: %s ran out of memory", k.Comm, h.text)
	if limit == 0 {
		f.Fix.Text = "Raise the memory limit of " + h.text + ", or have its processes use less." + h.setsWhere()
		return
	}
	want := max(2*limit, 64<<20)
	f.Fix.Text = fmt.Sprintf("Raise the memory limit of %s from %s to about %s, or have its processes use less.%s", h.text, byteText(limit), byteText(want), h.setsWhere())
	if c := v.container(k.Container); c != nil && !c.Down() || h.what == "unit" || h.what == "pod" {
		h.raise(&f.Fix, "", "", memorySetting(want))
		f.Fix.Commands = append(f.Fix.Commands, f.Fix.Persist...)
		f.Fix.Persist = nil
	} else if c != nil && c.State == "exited" && h.engine != "" {
		f.Fix.Commands = append(f.Fix.Commands, h.update(memoryFlags(want)), shell.Line("%s start %s", c.Engine, shell.Operand(cmp.Or(c.Name, c.ID))))
	}
}

// memoryFlags are those of docker and podman; without the second one an
// increase beyond the limit of memory and swap together is refused.
func memoryFlags(bytes uint64) shell.Command {
	return shell.Line("--memory %sm --memory-swap %sm", bytes>>20, bytes>>20)
}

// limitOf is the limit that a process was killed for, bytes; 0 when not known.
func (v *View) limitOf(k *observe.OOMKill) uint64 {
	if k.LimitBytes > 0 {
		return k.LimitBytes
	}
	for _, c := range v.cgroups[k.LimitCgroup] {
		if c.MemoryLimitBytes > 0 {
			return c.MemoryLimitBytes
		}
	}
	if c := v.container(k.Container); c != nil {
		return c.MemoryLimitBytes
	}
	return 0
}
