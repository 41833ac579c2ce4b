package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// The causes that are judged by wait chains. Each takes the chains whose last
// hop that holds anybody up is of its kind; the hops before only pass the time
// on. See docs/chains.md.
//
// They are found only where requests are slow, or stand still, and where at
// least dominantShare of the slow requests' time passed while the threads that
// should have answered waited so.
var waitCauses = []string{
	"process-stopped", deadlockID, "log-collector-stalled", "blocked-on-pipe", "unix-socket-backlog", "blocked-on-file-lock",
	"lock-convoy", "fsync-bound", "blocked-on-disk", "blocked-on-remote",
}

const (
	waitLost    = 10e6 // ns of a slow request: less nobody notices
	waitSamples = 5    // looks at a thread that waited so: fewer say nothing,
	waitLongest = 5e8  // ns: unless one of them saw a wait as long as that
	waitRound   = 1e9  // ns: a circle that lasts no longer is none
	waitAnswer  = 1e9  // ns: a remote service that answers sooner does answer
	slowShare   = 0.01 // of the requests are slow, or have no answer; fewer count only
	waitMean    = 1e8  // ns: where they take so long on average,
	waitWeight  = 0.2  // and this much of the time of all
)

// deadlockID is the cause of chains that come back to themselves.
const deadlockID = "deadlock"

// root is what chains of waits come down to: one stopped process, one lock,
// one collector of logs.
type root struct {
	cause  string
	key    string
	shares []*observe.WaitShare
	at     int                 // hop of the first share's chain that is to blame
	slow   []*observe.SlowTime // of the services that it holds up
	lost   float64             // ns of their slow time
	hit    float64             // slow requests, each by the part of its time that it lost to it
}

// example is the chain that is told: of those that cost most time.
func (r *root) example() *observe.WaitChain { return &r.shares[0].Chain }

// last is the hop at the end of the chain, blamed the one that is to blame.
func (r *root) last() *observe.WaitHop   { h := r.example().Hops; return &h[len(h)-1] }
func (r *root) blamed() *observe.WaitHop { return &r.example().Hops[r.at] }

func (r *root) threads() (n, atOnce int) {
	for _, s := range r.shares {
		n += s.Threads
		atOnce = max(atOnce, s.AtOnce)
	}
	return n, atOnce
}

func (r *root) longest() (ns int64) {
	for _, s := range r.shares {
		ns = max(ns, s.LongestNS)
	}
	return ns
}

func (r *root) threadNS() (ns int64) {
	for _, s := range r.shares {
		ns += s.ThreadNS
	}
	return ns
}

func (r *root) samples() (n int) {
	for _, s := range r.shares {
		n += s.Samples
	}
	return n
}

// slowNS is the time of all slow requests of the services that it holds up.
func (r *root) slowNS() (ns float64) {
	for _, s := range r.slow {
		ns += float64(s.NS)
	}
	return ns
}

// share is the part of the slow requests' time that it explains.
func (r *root) share() float64 { return ratio(r.lost, r.slowNS()) }

// buildRoots sorts the chains of the services in view by what they come down to.
func (v *View) buildRoots() {
	if v.Waits == nil {
		return
	}
	slow := map[int]*observe.SlowTime{}
	for i := range v.Waits.Slow {
		slow[v.Waits.Slow[i].PID] = &v.Waits.Slow[i]
	}
	byKey := map[string]*root{}
	for i := range v.Waits.Shares {
		s := &v.Waits.Shares[i]
		if len(s.Chain.Hops) == 0 || !v.inView(s.PID) {
			continue
		}
		id, at := blameOf(s)
		if id == "" {
			continue
		}
		key := id + "|" + rootKey(id, &s.Chain, at)
		r := byKey[key]
		if r == nil {
			r = &root{cause: id, key: key, at: at}
			byKey[key] = r
			v.roots = append(v.roots, r)
		}
		r.shares = append(r.shares, s)
		if st := slow[s.PID]; st != nil && !slices.Contains(r.slow, st) {
			r.slow = append(r.slow, st)
		}
		r.lost += float64(s.SlowNS)
		r.hit += s.SlowRequests
	}
	for _, r := range v.roots {
		slices.SortStableFunc(r.shares, func(a, b *observe.WaitShare) int {
			return cmp.Or(cmp.Compare(b.SlowNS, a.SlowNS), cmp.Compare(b.ThreadNS, a.ThreadNS))
		})
		_, r.at = blameOf(r.shares[0])
		slices.SortStableFunc(r.slow, func(a, b *observe.SlowTime) int { return cmp.Compare(b.NS, a.NS) })
	}
	slices.SortStableFunc(v.roots, func(a, b *root) int { return cmp.Compare(b.lost, a.lost) })
}

// inView says whether a process answers requests that are looked at.
func (v *View) inView(pid int) bool {
	return v.Filter == (observe.Filter{}) || v.Serving(pid) || v.OnPath(pid) ||
		slices.ContainsFunc(v.ledgers, func(l *ledger) bool { return !l.called() && l.pid == pid })
}

// blameOf is blame for what was seen over the window. Owners of a lock that is
// passed on while it is looked at can seem to go in a circle, for a moment.
func blameOf(s *observe.WaitShare) (id string, at int) {
	id, at = blame(&s.Chain)
	if id == deadlockID && s.LongestNS < waitRound {
		for i := range s.Chain.Hops {
			if h := &s.Chain.Hops[i]; h.Wants == observe.WantsRelease && h.Kind == observe.WaitLock {
				return "lock-convoy", i
			}
		}
		return "", at
	}
	return id, at
}

// blame says which cause a chain comes down to, and the hop that is to blame;
// empty when nobody on the way does anything unusual.
func blame(c *observe.WaitChain) (id string, at int) {
	last := len(c.Hops) - 1
	if c.BackTo >= 0 && c.BackTo <= last {
		for i := range c.Hops[c.BackTo:] {
			if !c.Hops[c.BackTo+i].Wants.Demands() {
				return "", last
			}
		}
		return deadlockID, c.BackTo
	}
	if i := logSocket(c); i >= 0 {
		return "log-collector-stalled", i
	}
	switch c.End {
	case observe.EndStopped, observe.EndTraced, observe.EndFrozen:
		return "process-stopped", last
	case observe.EndDisk, observe.EndFuse:
		if isSync(c.Hops[last].Syscall) && c.End == observe.EndDisk {
			return "fsync-bound", last
		}
		return "blocked-on-disk", last
	case observe.EndKernel:
		if isSync(c.Hops[last].Syscall) {
			return "fsync-bound", last
		}
		return "", last
	}
	for i := last; i >= 0; i-- {
		h := &c.Hops[i]
		switch {
		case h.Wants == observe.WantsRelease && h.Kind == observe.WaitFileLock:
			return "blocked-on-file-lock", i
		case h.Wants == observe.WantsRelease && c.End == observe.EndGone:
			return deadlockID, i
		case h.Wants == observe.WantsRelease:
			return "lock-convoy", i
		case h.Wants == observe.WantsAccept && h.Kind == observe.WaitUnix:
			return "unix-socket-backlog", i
		case h.Wants == observe.WantsRoom && (h.Kind == observe.WaitPipe || h.Kind == observe.WaitUnix || h.Kind == observe.WaitTerminal):
			return "blocked-on-pipe", i
		case h.Remote != "" && (h.Wants == observe.WantsAnswer || h.Wants == observe.WantsAccept || h.Wants == observe.WantsRoom) && toServer(h):
			return "blocked-on-remote", i
		case h.Wants.Demands():
			return "", i // whoever is called on this host: its requests tell
		}
	}
	return "", last
}

// toServer says that the thread is the client of a connection: what a client of
// its own does not read is told by the requests.
func toServer(h *observe.WaitHop) bool { return !strings.Contains(h.Object, "→ tcp from ") }

func isSync(syscall string) bool {
	switch syscall {
	case "fsync", "fdatasync", "sync_file_range", "syncfs", "msync", "sync":
		return true
	}
	return false
}

// Programs that pass logs on, as the kernel shortens their names.
var logPrograms = []string{
	"containerd-shim", "dockerd", "conmon", "docker-proxy", "fluentd", "fluent-bit", "ruby-fluentd", "td-agent", "vector", "logger", "svlogd", "multilog",
	"systemd-journal", "rsyslogd", "rs:main", "syslog-ng", "filebeat", "logstash", "promtail", "alloy", "otelcol", "logspout", "podman", "crio", "cronolog", "rotatelogs",
}

// Ports that collectors of logs listen at: syslog, fluentd's forward, logstash,
// GELF, splunk.
var logPorts = []string{":514", ":601", ":6514", ":5140", ":24224", ":24225", ":5044", ":12201", ":8088", ":1514"}

func isLogProgram(comm string) bool {
	return slices.ContainsFunc(logPrograms, func(p string) bool { return strings.HasPrefix(comm, p) })
}

// logSocket is the last hop of a chain that writes to a socket which nobody
// reads, where what was written into a pipe before is a log: the standard output
// of a program, or what a program for logs reads. -1 when it is no such chain.
func logSocket(c *observe.WaitChain) int {
	pipe, at := -1, -1
	log := false
	for i := range c.Hops {
		h := &c.Hops[i]
		log = log || i > 0 && isLogProgram(h.Process.Comm)
		switch {
		case h.Wants != observe.WantsRoom:
		case h.Kind == observe.WaitPipe && pipe < 0:
			pipe = i
			log = log || strings.HasPrefix(h.Object, "fd 1 ") || strings.HasPrefix(h.Object, "fd 2 ")
		case h.Kind == observe.WaitTCP && pipe >= 0, h.Kind == observe.WaitUnix && pipe >= 0:
			at = i
			_, to, _ := strings.Cut(h.Object, "→ tcp to ")
			log = log || slices.ContainsFunc(logPorts, func(p string) bool { return strings.HasSuffix(to, p) })
		case h.Kind == observe.WaitUnix && isLogSocket(h.Object):
			return i
		}
	}
	if !log {
		return -1
	}
	return at
}

// isLogSocket says whether a unix socket is that of the system's log.
func isLogSocket(object string) bool {
	return slices.ContainsFunc([]string{"/dev/log", "/run/systemd/journal/", "/var/run/log"}, func(name string) bool { return strings.Contains(object, name) })
}

// rootKey is what chains have in common that come down to the same.
func rootKey(id string, c *observe.WaitChain, at int) string {
	h := &c.Hops[at]
	last := &c.Hops[len(c.Hops)-1]
	switch id {
	case "process-stopped":
		return itoa(last.Process.PID) + c.Path
	case deadlockID:
		var tids []int
		for _, hop := range c.Hops[at:] {
			tids = append(tids, hop.TID)
		}
		slices.Sort(tids)
		return fmt.Sprint(tids)
	case "log-collector-stalled", "blocked-on-remote":
		return objectOf(h)
	case "blocked-on-pipe":
		if at < len(c.Hops)-1 {
			return itoa(c.Hops[at+1].Process.PID)
		}
		return objectOf(h)
	case "fsync-bound", "blocked-on-disk":
		return c.Path
	}
	return itoa(h.Process.PID) + objectOf(h)
}

// objectOf is what a hop waits for, without the number of the descriptor.
func objectOf(h *observe.WaitHop) string {
	if _, object, ok := strings.Cut(h.Object, " → "); ok {
		return object
	}
	return h.Object
}

// judgeRoots runs what a wait cause has to say of each of its roots.
func (v *View) judgeRoots(c *Cause, none string, describe func(*root, *Finding)) Result {
	if v.Waits == nil {
		return Result{NotChecked: "what the threads of the services wait for was not watched"}
	}
	r := Result{RuledOut: none}
	best := -1.0
	for _, o := range v.roots {
		if o.cause != c.ID {
			continue
		}
		because := v.harmless(o)
		if because == "" {
			r.Findings = append(r.Findings, v.rootFinding(c, o, describe))
			continue
		}
		if o.lost > best {
			r.RuledOut, best = v.rootText(o)+": "+because, o.lost
		}
	}
	return r
}

// rootText says who was held up, how long.
func (v *View) rootText(r *root) string {
	s := r.shares[0]
	return fmt.Sprintf("threads of %s waited %s in all, the longest %s, %s", v.serviceText(s.PID), nanoseconds(float64(r.threadNS())),
		nanoseconds(float64(r.longest())), shortChain(r.example()))
}

// shortChain tells a chain in a clause.
func shortChain(c *observe.WaitChain) string {
	h := &c.Hops[0]
	what := strings.TrimSpace(doingWhat(h) + " " + objectOf(h))
	if last := &c.Hops[len(c.Hops)-1]; len(c.Hops) > 1 {
		return fmt.Sprintf("in %s, for %s (pid %d)", what, last.Process.Comm, last.Process.PID)
	}
	return "in " + what
}

func doingWhat(h *observe.WaitHop) string {
	switch {
	case h.Kind == observe.WaitStopped:
		return "a stop"
	case h.Syscall != "":
		return h.Syscall
	}
	return "the kernel"
}

// harmless says why what threads wait for is not to blame for slow requests;
// empty when it is.
func (v *View) harmless(r *root) string {
	var slow, all, unfinished uint64
	for _, s := range r.slow {
		slow += uint64(s.Requests)
		unfinished += uint64(s.Unfinished)
		all += v.requestsOf(s.PID)
	}
	share := r.share()
	switch {
	case slow == 0:
		return fmt.Sprintf("but no request there took longer than %s", nanoseconds(float64(v.Waits.SlowerNS)))
	case r.lost == 0:
		return fmt.Sprintf("but not while one of its %s slow requests was in progress", count(slow))
	case share < dominantShare:
		return fmt.Sprintf("%s of the time of its %s slow requests", percent(share), count(slow))
	case r.hit < fewAffected-0.5:
		return fmt.Sprintf("that is the time of %.3g requests", r.hit)
	case ratio(slow, max(all+unfinished, slow)) < slowShare && (r.slowNS()/float64(slow) < waitMean || v.slowWeight(r) < waitWeight):
		return fmt.Sprintf("%s of %s requests were slow, %s of the time of all", count(slow), count(all), percent(v.slowWeight(r)))
	case r.lost/float64(slow) < waitLost:
		return fmt.Sprintf("that is %s of a slow request", nanoseconds(r.lost/float64(slow)))
	case r.cause == "blocked-on-remote" && r.longest() < waitAnswer:
		return fmt.Sprintf("but it answers, after %s at most", nanoseconds(float64(r.longest())))
	case r.samples() < waitSamples && r.longest() < waitLongest:
		return fmt.Sprintf("seen %d times only", r.samples())
	}
	if r.cause == "lock-convoy" && r.example().End == observe.EndRunning {
		for _, l := range v.ledgers {
			if !l.called() && l.pid == r.shares[0].PID {
				if idle, full := v.cpuFull(l); full {
					return fmt.Sprintf("but who holds the lock runs, and the CPUs are full (%s idle), which makes every thread late", percent(idle))
				}
			}
		}
	}
	return ""
}

// requestsOf is the requests that a process and its family answered.
func (v *View) requestsOf(pid int) uint64 {
	var n uint64
	for _, l := range v.ledgers {
		if !l.called() && l.pid == pid {
			n += l.Requests
		}
	}
	return n
}

// serviceText names a service by process and port.
func (v *View) serviceText(pid int) string {
	s := fmt.Sprintf("%s (pid %d)", v.Comm(pid), pid)
	if port := v.portOf(pid); port != 0 {
		s += fmt.Sprintf(" on :%d", port)
	}
	return s
}

// portOf is the port at which a process answers most, 0 when none is known.
func (v *View) portOf(pid int) int {
	for _, l := range v.ledgers {
		if !l.called() && l.pid == pid {
			return l.Port
		}
	}
	for _, s := range v.Services {
		if slices.Contains(s.PIDs, pid) && s.Port() != 0 {
			return s.Port()
		}
	}
	return 0
}

// rootFinding makes a finding: which service is held up, how much of its slow
// time that explains, and the chain.
func (v *View) rootFinding(c *Cause, r *root, describe func(*root, *Finding)) Finding {
	service := r.shares[0].PID
	f := c.supported(Subject{Kind: "process", PID: service, Comm: v.Comm(service), Port: v.portOf(service), NetNS: r.example().Hops[0].Process.NetNS})
	var slow, unfinished int
	for _, s := range r.slow {
		slow += s.Requests
		unfinished += s.Unfinished
	}
	f.Weight = r.share() * v.slowWeight(r)
	f.Impact = Impact{Share: round(r.share()), Of: "slow time",
		Text: fmt.Sprintf("%s slow requests of %s took %s in all, %s of it held up by this", count(slow), v.servicesText(r), nanoseconds(r.slowNS()), nanoseconds(r.lost))}
	if unfinished > 0 {
		f.Impact.Text += fmt.Sprintf("; %s of them had no answer when the window ended", count(unfinished))
	}
	threads, atOnce := r.threads()
	f.Chain, f.ChainEnd = r.example().Hops, r.example().Text
	f.Evidence = []Evidence{
		{Fact: "slow requests, each by the part of its time that it lost to this", Value: round(r.hit), Limit: slow, Unit: "requests of over " + nanoseconds(float64(v.Waits.SlowerNS)), Source: "request records, and looks at the threads"},
		{Fact: "threads that waited like this, at once at most", Value: atOnce, Limit: threads, Unit: "threads", Source: taskFiles},
		{Fact: "the longest", Value: round(float64(r.longest()) / 1e9), Unit: "s without running, at least", Source: taskFiles},
		{Fact: "of all threads together", Value: round(float64(r.threadNS()) / 1e9), Limit: round(v.Window.Seconds), Unit: "s of the window", Source: fmt.Sprintf("%s, every %s", taskFiles, nanoseconds(float64(v.Waits.EveryNS)))},
	}
	if all := v.Use.CPU.Total(); all > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "CPU idle meanwhile", Value: round(ratio(v.Use.CPU.Idle+v.Use.CPU.IOWait, all)), Unit: "share", Source: "/proc/stat"})
	}
	for _, s := range r.shares {
		if !slices.Contains(f.Holds, s.PID) {
			f.Holds = append(f.Holds, s.PID)
		}
		for i := range s.Chain.Hops {
			if pid := v.Master(s.Chain.Hops[i].Process.PID); !slices.Contains(f.Via, pid) {
				f.Via = append(f.Via, pid)
			}
		}
	}
	describe(r, &f)
	if len(f.Fix.Commands) == 0 {
		f.Fix.Commands = []string{lookAtWaits(service)}
	}
	return f
}

const taskFiles = "/proc/PID/task/TID"

// slowWeight is the part of the services' time that is slow requests'.
func (v *View) slowWeight(r *root) float64 {
	var all float64
	for _, s := range r.slow {
		var time float64
		for _, l := range v.ledgers {
			if !l.called() && l.pid == s.PID {
				time += l.TimeNS()
			}
		}
		all += max(time, float64(s.NS))
	}
	return ratio(r.slowNS(), all)
}

// servicesText names the services that a root holds up.
func (v *View) servicesText(r *root) string {
	var names []string
	for _, s := range r.slow {
		names = append(names, v.serviceText(s.PID))
	}
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// heldUpBy says whether a finding about waits is about what holds the endpoint
// l up: its processes, or those that answer its calls on this host.
func (v *View) heldUpBy(l *ledger, p *Finding) bool {
	if !l.called() {
		return slices.Contains(p.Holds, l.pid)
	}
	there := v.servedHere(l)
	return there != nil && (slices.Contains(p.Holds, there.pid) || slices.Contains(p.Holds, l.pid) && slices.Contains(p.Via, there.pid))
}

// holdsUp says of findings about waits whether they are about what holds up one
// of these processes.
func holdsUp(pids []int) func(*Finding) bool {
	return func(p *Finding) bool {
		return slices.Contains(waitCauses, p.Cause) && slices.ContainsFunc(p.Holds, func(pid int) bool { return slices.Contains(pids, pid) })
	}
}

// who is a process of a hop as it is named in a sentence.
func who(h *observe.WaitHop) string { return fmt.Sprintf("%s (pid %d)", h.Process.Comm, h.Process.PID) }
