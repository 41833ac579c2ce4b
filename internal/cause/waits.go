package cause

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// The causes that are judged by wait chains (ClassWait). Each takes the chains
// whose last hop that holds anybody up is of its kind; the hops before only pass
// the time on. See docs/chains.md.
//
// They are found only where requests are slow, or stand still, and where at
// least dominantShare of the slow requests' time passed while the threads that
// should have answered waited so.

// inKernel stands for the cause of a chain that ends inside the kernel, until
// blameKernel has looked at it.
const inKernel ID = "in-kernel"

// root is what chains of waits come down to: one stopped process, one lock,
// one collector of logs.
type root struct {
	cause  ID
	key    string
	shares []*observe.WaitShare
	at     int                 // hop of the first share's chain that is to blame
	slow   []*observe.SlowTime // of the services that it holds up
	lost   float64             // ns of their slow time
	hit    float64             // slow requests, each by the part of its time that it lost to it
	of     float64             // ns of the slow requests that lost notable time to it
	ofN    int                 // those requests
}

// example is the chain that is reported: of those that cost most time.
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

// slowNS is the time of all slow requests of the services that it holds up; of who is
// stopped that of his own: what others of a pool are slow for is another matter.
func (r *root) slowNS() (ns float64) {
	if r.own() {
		return r.of
	}
	for _, s := range r.slow {
		ns += float64(s.NS)
	}
	return ns
}

// own says that what counts is the requests that it held up alone.
func (r *root) own() bool { return r.cause == ProcessStopped && r.of > 0 }

// slowCount is how many slow requests the services that it holds up have, and of how
// many of them the window ended before the answer.
func (r *root) slowCount() (slow, unfinished int) {
	for _, s := range r.slow {
		slow += s.Requests
		unfinished += s.Unfinished
	}
	if r.own() {
		return r.ofN, min(unfinished, r.ofN)
	}
	return slow, unfinished
}

// sampled is how many of the slow requests were looked at where the figures are an estimate
// from these; 0: all.
func (r *root) sampled() (n int) {
	estimate := false
	for _, s := range r.slow {
		estimate = estimate || s.Sampled > 0
		n += cmp.Or(s.Sampled, s.Requests)
	}
	if !estimate || r.own() {
		return 0
	}
	return n
}

// share is the part of the slow requests' time that it explains.
func (r *root) share() float64 { return ratio(r.lost, r.slowNS()) }

// buildRoots sorts the chains of the services in view by what they come down to.
func (v *View) buildRoots() {
	if v.Waits == nil {
		return
	}
	for i := range v.Waits.Slow {
		s := &v.Waits.Slow[i]
		v.slowOf[s.PID] = append(v.slowOf[s.PID], s)
	}
	byKey := map[string]*root{}
	for i := range v.Waits.Shares {
		s := &v.Waits.Shares[i]
		if len(s.Chain.Hops) == 0 || !v.inView(s.PID) {
			continue
		}
		id, at := blameOf(s)
		switch {
		case id == "":
			continue
		case id == DirectReclaimStall && v.swapsIn(&s.Chain):
			id = SwapThrash
		}
		key := string(id) + "|" + rootKey(id, &s.Chain, at)
		r := byKey[key]
		if r == nil {
			r = &root{cause: id, key: key, at: at}
			byKey[key] = r
			v.roots = append(v.roots, r)
		}
		r.shares = append(r.shares, s)
	}
	for _, r := range v.roots {
		slices.SortStableFunc(r.shares, func(a, b *observe.WaitShare) int {
			return cmp.Or(cmp.Compare(b.SlowNS, a.SlowNS), cmp.Compare(b.ThreadNS, a.ThreadNS))
		})
		_, r.at = blameOf(r.shares[0])
		v.addUp(r)
	}
	slices.SortStableFunc(v.roots, func(a, b *root) int { return cmp.Compare(b.lost, a.lost) })
}

// addUp adds up what the services lost to a root. The requests of who calls another of
// them are the same once more: they count unless fewer of their waits were followed as
// far as that.
func (v *View) addUp(r *root) {
	r.add(v, r.shares)
	inner := slices.DeleteFunc(slices.Clone(r.shares), func(s *observe.WaitShare) bool {
		return slices.ContainsFunc(r.shares, func(o *observe.WaitShare) bool {
			return o.PID != s.PID && o.SlowNS > 0 && slices.ContainsFunc(r.shares, func(of *observe.WaitShare) bool {
				return of.PID == s.PID && slices.ContainsFunc(of.Chain.Hops[1:], func(h observe.WaitHop) bool { return v.Master(h.Process.PID) == o.PID })
			})
		})
	})
	if len(inner) == 0 || len(inner) == len(r.shares) {
		return
	}
	least := *r
	if least.add(v, inner); least.share() > r.share() {
		callers := slices.DeleteFunc(r.shares, func(s *observe.WaitShare) bool { return slices.Contains(inner, s) })
		least.shares = append(inner, callers...)
		_, least.at = blameOf(inner[0])
		*r = least
	}
}

// add adds up what is lost to a root by these shares of it.
func (r *root) add(v *View, shares []*observe.WaitShare) {
	r.lost, r.hit, r.of, r.ofN, r.slow = 0, 0, 0, 0, nil
	for _, s := range shares {
		if list := v.slowOf[s.PID]; len(list) > 0 {
			r.slow = append(r.slow, list[len(list)-1])
		}
		r.lost += float64(s.SlowNS)
		r.hit += s.SlowRequests
		r.of += float64(s.OfNS)
		r.ofN += s.OfRequests
	}
	if r.cause == ApplicationSleep {
		// Who sleeps has one request in hand; the others wait for a thread, and not for
		// the end of this sleep. Between two looks a thread may have slept all the time.
		asleep := max(r.threadNS(), int64(r.samples())*v.Waits.EveryNS)
		r.lost = min(r.lost, float64(asleep))
	}
	r.slow = unique(r.slow)
	slices.SortStableFunc(r.slow, func(a, b *observe.SlowTime) int { return cmp.Compare(b.NS, a.NS) })
}

// inView says whether a process answers requests that are looked at.
func (v *View) inView(pid int) bool {
	return !v.forOwn[v.Master(pid)] && (v.Filter == (observe.Filter{}) || v.Serving(pid) || v.OnPath(pid) ||
		len(v.servedOf[pid]) > 0)
}

// blameOf is blame for what was seen over the window. Owners of a lock that is
// passed on while it is looked at can seem to go in a circle, for a moment.
func blameOf(s *observe.WaitShare) (id ID, at int) {
	id, at = blame(&s.Chain)
	last := len(s.Chain.Hops) - 1
	switch {
	case id == BlockedOnRemote && s.LongestNS >= waitAnswer: // it does not answer, whoever asks
	case id == "", id == BlockedOnRemote:
		if i := servedBy(&s.Chain); i >= 0 {
			return BlockedOnDisk, i
		}
	case id == inKernel:
		return blameKernel(&s.Chain, s.LongestNS), last
	case s.Chain.End == observe.EndTraced && s.LongestNS < waitRound:
		return "", last // it goes on each time: tracer-attached
	}
	if id == Deadlock && !stands(s) {
		for i := range s.Chain.Hops {
			switch h := &s.Chain.Hops[i]; {
			case h.Wants == observe.WantsRelease && h.Kind == observe.WaitLock:
				return LockConvoy, i
			case h.Wants == observe.WantsRelease && h.Kind == observe.WaitFileLock:
				return BlockedOnFileLock, i
			}
		}
		return "", at
	}
	return id, at
}

// servedBy is the hop of a chain that waits for the process which serves a file system;
// -1 when there is none. What that waits for itself is no request of its own.
func servedBy(c *observe.WaitChain) int {
	return slices.IndexFunc(c.Hops[:len(c.Hops)-1], func(h observe.WaitHop) bool { return h.Kind == observe.WaitFuse })
}

// stands says that a circle was seen to stand still: no thread of it ran from one look to
// another, long enough apart. Of what runs inside another program's runtime only the
// first is known.
func stands(s *observe.WaitShare) bool {
	if s.LongestNS < waitRound {
		return false
	}
	for i := range s.Chain.Hops[max(s.Chain.BackTo, 0):] {
		h := &s.Chain.Hops[max(s.Chain.BackTo, 0)+i]
		if h.Kind == observe.WaitFileLock && h.ForNS < waitRound {
			return false
		}
	}
	return true
}

// blame says which cause a chain comes down to, and the hop that is to blame;
// empty when nobody on the way does anything unusual.
func blame(c *observe.WaitChain) (id ID, at int) {
	last := len(c.Hops) - 1
	if c.BackTo >= 0 && c.BackTo <= last {
		for i := range c.Hops[c.BackTo:] {
			if !c.Hops[c.BackTo+i].Wants.Demands() {
				return "", last
			}
		}
		return Deadlock, c.BackTo
	}
	if i := logSocket(c); i >= 0 {
		if isLogSocket(c.Hops[i].Object) {
			return SyslogBlocked, i
		}
		return LogCollectorStalled, i
	}
	switch c.End {
	case observe.EndStopped, observe.EndTraced, observe.EndFrozen:
		return ProcessStopped, last
	case observe.EndDisk, observe.EndFuse, observe.EndKernel:
		return inKernel, last
	}
	if last == 0 && c.End == observe.EndSleep {
		return ApplicationSleep, 0
	}
	for i := last; i >= 0; i-- {
		h := &c.Hops[i]
		switch {
		case h.Wants == observe.WantsRelease && h.Kind == observe.WaitFileLock:
			return BlockedOnFileLock, i
		case h.Wants == observe.WantsRelease && h.Inside == observe.InsideMapLock:
			return MmapLockContention, i
		case h.Wants == observe.WantsRelease && c.End == observe.EndGone:
			return Deadlock, i
		case h.Wants == observe.WantsRelease:
			return LockConvoy, i
		case h.Wants == observe.WantsAccept && h.Kind == observe.WaitUnix:
			return UnixSocketBacklog, i
		case h.Wants.Demands() && h.Kind == observe.WaitUnix && isNameSocket(h.Object):
			return NSSStall, i
		case h.Wants == observe.WantsRoom && h.Kind == observe.WaitUnix && h.Datagram:
			return UnixDatagramBlocked, i
		case h.Wants == observe.WantsRoom && h.Kind == observe.WaitTerminal:
			return SlowConsole, i
		case h.Wants == observe.WantsRoom && (h.Kind == observe.WaitPipe || h.Kind == observe.WaitUnix):
			return BlockedOnPipe, i
		case h.Remote != "" && (h.Wants == observe.WantsAnswer || h.Wants == observe.WantsAccept || h.Wants == observe.WantsRoom) && toServer(h):
			return BlockedOnRemote, i
		case h.Wants.Demands():
			return "", i // whoever is called on this host: its requests tell
		}
	}
	return "", last
}

// toServer says that the thread is the client of a connection: what a client of
// its own does not read is known by the requests.
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
func rootKey(id ID, c *observe.WaitChain, at int) string {
	h := &c.Hops[at]
	last := &c.Hops[len(c.Hops)-1]
	switch id {
	case ProcessStopped:
		return itoa(last.Process.PID) + c.Path
	case Deadlock:
		var tids []string
		for i := range c.Hops[at:] {
			tids = append(tids, hopNumber(&c.Hops[at+i]))
		}
		slices.Sort(tids)
		return fmt.Sprint(tids)
	case LogCollectorStalled, BlockedOnRemote, SyslogBlocked, SlowConsole:
		return objectOf(h)
	case BlockedOnPipe, UnixDatagramBlocked:
		if at < len(c.Hops)-1 {
			return itoa(c.Hops[at+1].Process.PID)
		}
		return objectOf(h)
	case FsyncBound, BlockedOnDisk:
		if at < len(c.Hops)-1 {
			return itoa(c.Hops[at+1].Process.PID)
		}
		return c.Path + deviceOf(h)
	case BlockedOnFileLock:
		if object := objectOf(h); object != "" { // for all workers of a service, and others
			return h.Process.Container + " " + object
		}
	}
	if len(h.Stack) > 0 {
		return itoa(h.Process.PID) + h.Stack[0] // many locks of one kind
	}
	switch {
	case id == MmapLockContention:
		return itoa(h.Process.PID)
	case isKernelWait(id):
		return c.Path + deviceOf(h)
	}
	return itoa(h.Process.PID) + objectOf(h)
}

// deviceOf tells mounts at the same place in several containers apart.
func deviceOf(h *observe.WaitHop) string {
	if h.Mount == nil {
		return ""
	}
	return " " + h.Mount.Device
}

// objectOf is what a hop waits for, without the number of the descriptor.
func objectOf(h *observe.WaitHop) string {
	if _, object, ok := strings.Cut(h.Object, " → "); ok {
		return object
	}
	return h.Object
}
