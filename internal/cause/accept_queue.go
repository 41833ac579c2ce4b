package cause

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// AcceptQueueOverflow: a connection whose handshake is complete waits in the
// listening socket's queue until the application accepts it. When the queue is
// longer than the backlog (sk_acceptq_is_full, include/net/sock.h), the kernel
// drops SYNs and final ACKs, and the client tries again after 1, 3, 7 seconds.
// A unix socket refuses at once instead, with EAGAIN (unix_stream_connect).
const AcceptQueueOverflow ID = "accept-queue-overflow"

var acceptQueueOverflow = Cause{
	ID:            AcceptQueueOverflow,
	Title:         "The accept queue overflows",
	Layer:         LayerSocket,
	Needs:         []observe.Kind{observe.KindListeners, observe.KindCounters},
	ConsequenceOf: []Parent{PHPFPMChildrenExhausted, ClassPool, ClassWait},
	Folds:         true, // under what holds up who should accept
	Check:         checkAcceptQueueOverflow,
	Try:           tryLongerQueue,
}

// callSeconds is for how long calls of accept(), and of connect() to unix
// sockets, were watched. Observations of before there was a choice have them
// for all of the window.
func (v *View) callSeconds() float64 {
	if v.CallSeconds == 0 && len(v.Accepts) > 0 {
		return v.Window.Seconds
	}
	return v.CallSeconds
}

func checkAcceptQueueOverflow(v *View) Result {
	var r Result
	fullest := "no listening socket with traffic"
	top := -1.0
	for _, s := range v.Services {
		for _, l := range s.Listeners {
			o := overflowOf(v, s, l)
			if o.dropped == 0 {
				if use := ratio(l.QueuePeak, l.Limit); use > top && l.Limit > 0 {
					top = use
					fullest = fmt.Sprintf("no connection dropped; the fullest queue is %s%s with at most %s waiting",
						listenerName(l), where(s.NS), ofLimit(l.QueuePeak, l.Limit, "connections"))
				}
				continue
			}
			r.Findings = append(r.Findings, overflowFinding(v, s, l, o))
		}
	}
	r.RuledOut = fullest
	return r
}

// overflow is what one listening socket turned away.
type overflow struct {
	dropped  uint64  // SYNs and handshakes (TCP) or connect() calls (unix)
	opened   uint64  // connections that came through
	accepted uint64  // accept() calls that returned one
	watched  float64 // s in which those, and connect() calls to unix sockets, were counted
	backlog  observe.Setting
	somax    int // net.core.somaxconn of the namespace, 0 when not known
}

// queueFault is why a queue overflows.
type queueFault int

const (
	shortQueue queueFault = iota
	notAccepting
	ended
	acceptsSlowly
)

// rate is how many connections are accepted in a second, as far as it was watched.
func (o *overflow) rate() float64 { return float64(o.accepted) / max(o.watched, 0.001) }

func (o *overflow) fault(v *View, l *observe.Listener) queueFault {
	owner := v.Process(v.Master(l.PID))
	rate := o.rate()
	switch {
	case o.watched >= v.Window.Seconds/2 && o.accepted == 0 && l.FullSamples == l.Samples:
		return notAccepting
	case owner != nil && owner.EndedIn:
		return ended
	case l.QueueMean >= alwaysFull*float64(l.Limit) && rate > 0 && float64(l.Limit)/rate >= slowDrain:
		return acceptsSlowly
	}
	return shortQueue
}

// wantedBacklog is the length that is proposed for a queue.
func wantedBacklog(l *observe.Listener) int { return max(4096, int(l.Limit)*8) }

func overflowOf(v *View, s *Service, l *observe.Listener) overflow {
	o := overflow{opened: l.Opened, backlog: v.configuredBacklog(s, l)}
	o.somax, _ = strconv.Atoi(v.sysctl(s.NS, "net.core.somaxconn"))
	if l.Proto == "unix" {
		for _, c := range s.connects {
			o.dropped += c.Errors["EAGAIN"]
			o.opened += c.Started
		}
	} else if s.NS.Counters["TcpExt.ListenOverflows"] > 0 && (l.FullSamples > 0 || l.Drops > 0) {
		// sk_drops of a listener also counts SYNs lost for other reasons: it
		// is an overflow only where the namespace counted overflows, and no
		// more than it counted.
		o.dropped = min(max(l.Drops, 1), s.NS.Counters["TcpExt.ListenOverflows"])
	}
	for _, a := range s.accepts {
		if v.acceptsFrom(a, s, l) {
			o.accepted += a.Accepted
		}
	}
	o.watched = v.callSeconds()
	return o
}

// acceptsFrom says whether who accepts may do so from this listener of a service: two
// programs may have one port, at different addresses.
func (v *View) acceptsFrom(a *observe.Accept, s *Service, l *observe.Listener) bool {
	by := v.Master(a.PID)
	return by == v.Master(l.PID) || !slices.ContainsFunc(s.Listeners, func(other *observe.Listener) bool { return by == v.Master(other.PID) })
}

func overflowFinding(v *View, s *Service, l *observe.Listener, o overflow) Finding {
	owner := v.Master(l.PID)
	f := supported(Subject{
		Kind: "listener", NetNS: s.NS.Inode, PID: owner, Comm: v.Comm(owner), Port: l.Port, Addr: l.Addr, Path: l.Path,
	})
	f.MayFollow = holdsUp(s.PIDs)
	if l.Proto == "unix" {
		f.Title = "The listen backlog of a unix socket is full"
		f.Subject.Addr = "unix:" + l.Path
	}
	if o.backlog.File != "" {
		f.Subject.Path = fmt.Sprintf("%s:%d", o.backlog.File, o.backlog.Line)
	}
	dropped := ratio(o.dropped, o.dropped+o.opened)
	f.Weight = dropped
	if l.Proto != "unix" {
		// A client whose attempt is dropped tries again after a second at the
		// earliest (TCP_TIMEOUT_INIT): so many of them stand outside, next to
		// those that are connected, whose requests it does not touch.
		outside := float64(o.dropped) / max(v.Window.Seconds, 1)
		f.Weight = ratio(outside, outside+float64(l.Clients))
	}
	if f.lostAttempts(o.dropped); o.fault(v, l) != shortQueue {
		f.lost, f.uncounted = nil, true // who was let into the queue waits too
	}
	f.Impact = Impact{Share: round(dropped), Of: "new connections",
		Text: fmt.Sprintf("%s attempts dropped on %s, %s connections came through", count(o.dropped), listenerName(l), count(o.opened))}
	f.Evidence = []Evidence{
		{Fact: "attempts dropped at this socket", Value: o.dropped, Unit: "attempts", Source: dropSource(l)},
		{Fact: "connections waiting for accept(), peak", Value: l.QueuePeak, Limit: l.Limit, Unit: "connections", Source: "sock_diag, Recv-Q and Send-Q"},
	}
	if l.Samples > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "readings with the queue full", Value: l.FullSamples, Limit: l.Samples, Unit: "readings", Source: "sock_diag"})
	}
	if l.Proto != "unix" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "ListenOverflows in the namespace", Value: s.NS.Counters["TcpExt.ListenOverflows"], Unit: "attempts", Source: "/proc/net/netstat"})
	}
	if o.somax > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "net.core.somaxconn", Value: o.somax, Unit: "connections", Source: "sysctl" + where(s.NS)})
	}
	if o.backlog.Value != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "backlog the application asks for", Value: o.backlog.Value, Unit: "connections", Source: settingSource(o.backlog)})
	}

	rate := o.rate()
	if o.watched > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "connections accepted", Value: round(rate), Unit: "per second", Source: "accept() results"})
		if o.watched < partlyWatched*v.Window.Seconds {
			f.Evidence = append(f.Evidence, Evidence{Fact: "calls were counted for", Value: round(o.watched), Limit: round(v.Window.Seconds), Unit: "s", Source: "when the queue filled, and samples before"})
		}
	}
	switch o.fault(v, l) {
	case notAccepting:
		describeNotAccepting(v, s, l, &f)
		return f
	case ended:
		f.Fix.Text = fmt.Sprintf("%s (pid %d) ended during the window: find out why (its log, the kernel log), and start it again.", v.Comm(owner), owner)
		return f
	case acceptsSlowly:
		describeSlow(v, s, l, rate, &f)
	default:
		describeLimit(v, s, l, o, &f)
	}
	if pool := v.exhaustedPool(s); pool != nil && l.Limit >= smallBacklog {
		f.follows(PHPFPMChildrenExhausted)
	}
	// What takes up nothing for lack of workers would fill any queue.
	if id := v.exhaustedWorkers(s); id != "" {
		f.follows(id)
	}
	return f
}

// describeLimit says which of the two limits binds, and how to raise it: the
// queue holds min(application's backlog, somaxconn) at the time of listen().
func describeLimit(v *View, s *Service, l *observe.Listener, o overflow, f *Finding) {
	want := wantedBacklog(l)
	backlog, err := strconv.Atoi(o.backlog.Value)
	known := err == nil
	bySomaxconn := o.somax > 0 && int(l.Limit) >= o.somax
	byBacklog := known && backlog >= 0 && backlog <= int(l.Limit)

	switch {
	case bySomaxconn && byBacklog:
		f.Fix.Text = fmt.Sprintf("Both limits bind: raise net.core.somaxconn (%d) and the application's backlog (%d) to %d, then let it listen again.", o.somax, backlog, want)
	case bySomaxconn:
		f.Fix.Text = fmt.Sprintf("net.core.somaxconn (%d) cuts the backlog: raise it to %d, then let the application listen again; a queue keeps the limit it was made with.", o.somax, want)
		if known && backlog < want {
			f.Fix.Text += fmt.Sprintf(" The application asks for %d: raise that too.", backlog)
		}
	default:
		f.Fix.Text = fmt.Sprintf("The application's own backlog (%d) binds: raise it to %d and let it listen again.", l.Limit, want)
		if o.somax > 0 && o.somax < want {
			bySomaxconn = true
			f.Fix.Text += fmt.Sprintf(" net.core.somaxconn (%d) must rise with it.", o.somax)
		}
	}
	if bySomaxconn {
		v.setSysctl(&f.Fix, s.NS, "net.core.somaxconn", want)
	}
	f.Fix.Commands = append(f.Fix.Commands, v.backlogCommands(s, l, o.backlog, want)...)
}

// describeSlow is the case in which the queue is always full because the
// application takes connections out of it too slowly: in a longer one they
// would only wait longer.
func describeSlow(v *View, s *Service, l *observe.Listener, rate float64, f *Finding) {
	f.Title = "The application accepts connections too slowly"
	working, samples := 0, 0
	for _, pid := range s.PIDs {
		if p := v.Process(pid); p != nil && p.States != nil {
			working += p.States.Running
			samples += p.States.Samples
		}
	}
	doing := "its threads mostly wait: find what for, or give it more of them"
	if ratio(working, samples) > 0.5 {
		doing = "its threads mostly compute: give it more workers on other CPUs, or make a request cheaper"
	}
	if samples > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "threads on or ready for a CPU", Value: round(ratio(working, samples)), Unit: "share of the readings", Source: "/proc/PID/task"})
	}
	f.Fix.Text = fmt.Sprintf("%s accepts only %.3g connections a second, and has %s of work waiting; %s. A longer backlog would only let clients wait longer.",
		f.Subject.Comm, rate, seconds(float64(l.QueueMean)/rate), doing)
}

// describeNotAccepting is the case in which no limit is at fault: the queue
// filled because nobody takes connections out of it.
func describeNotAccepting(v *View, s *Service, l *observe.Listener, f *Finding) {
	f.Title = "The application does not call accept()"
	state, stopped := "", false
	for _, pid := range s.PIDs {
		p := v.Process(pid)
		if p == nil {
			continue
		}
		state = p.State
		if p.State == "T" || p.State == "t" {
			stopped = true
			f.Subject.PID, f.Subject.Comm = pid, p.Comm
			break
		}
	}
	f.Evidence = append(f.Evidence, Evidence{Fact: "state of the process", Value: state, Source: "/proc/PID/stat"})
	f.Fix.Text = fmt.Sprintf("No connection was accepted in %s: a longer queue would not help. Find what %s (pid %d) waits for.",
		seconds(v.Window.Seconds), f.Subject.Comm, f.Subject.PID)
	if stopped {
		f.Fix.Text = fmt.Sprintf("Process %d (%s) is stopped: let it run again.", f.Subject.PID, f.Subject.Comm)
		f.Fix.Commands = []shell.Command{shell.Line("kill -CONT %s", f.Subject.PID)}
		return
	}
	f.Fix.Commands = []shell.Command{lookAtWaits(f.Subject.PID)}
}

func dropSource(l *observe.Listener) string {
	if l.Proto == "unix" {
		return "connect() results, EAGAIN"
	}
	return "sock_diag, drops of the listening socket"
}

func settingSource(s observe.Setting) string {
	switch {
	case s.File != "" && s.Line > 0:
		return fmt.Sprintf("%s:%d", s.File, s.Line)
	case s.Default:
		return "the program's default"
	case s.File != "":
		return s.File
	}
	return "configuration"
}

// configuredBacklog finds the backlog that the application's configuration
// asks for, with its file as seen from the host; the zero Setting when the
// application is not known.
func (v *View) configuredBacklog(s *Service, l *observe.Listener) observe.Setting {
	if n := s.nginx; n != nil && v.belongsTo(l, n.PID) {
		for _, ln := range n.Listens {
			if l.Port != 0 && ln.Port == l.Port || l.Path != "" && ln.Path == l.Path {
				return fromHost(n.Root, ln.Backlog)
			}
		}
	}
	if m, pool := s.fpm, s.pool; pool != nil && v.belongsTo(l, m.PID) {
		return fromHost(m.Root, pool.ListenBacklog)
	}
	return observe.Setting{}
}

// belongsTo says whether a socket is of a server: at another address of the same port another
// program may listen.
func (v *View) belongsTo(l *observe.Listener, server int) bool {
	return l.PID == 0 || v.Master(l.PID) == v.Master(server)
}

// backlogCommands tells how to give the application a longer backlog.
func (v *View) backlogCommands(s *Service, l *observe.Listener, have observe.Setting, want int) []shell.Command {
	if n := s.nginx; n != nil && v.belongsTo(l, n.PID) {
		// nginx takes a new backlog at reload: it calls listen() again on the
		// open socket when the value changed (ngx_configure_listening_sockets).
		file := n.Root + n.Config
		if have.File != "" {
			file = have.File
		}
		return []shell.Command{
			shell.Line("# in %s: listen … backlog=%s;", file, want),
			shell.Line("kill -HUP %s   # nginx master: reload", n.PID),
		}
	}
	if m, pool := s.fpm, s.pool; pool != nil && v.belongsTo(l, m.PID) {
		file := m.Root + m.Config
		if have.File != "" {
			file = have.File
		}
		// A reload (SIGUSR2) hands the open socket on and never calls listen()
		// again (fpm_sockets.c): only a restart makes a new queue.
		restart := shell.Line("# stop and start php-fpm (master pid %s): a reload keeps the old queue", m.PID)
		if p := v.Process(m.PID); p != nil && p.Unit != "" && p.Container == "" {
			restart = shell.Line("systemctl restart %s   # a reload keeps the old queue", shell.Unit(p.Unit))
		}
		return []shell.Command{shell.Line("# in %s, [%s]: listen.backlog = %s", file, pool.Name, want), restart}
	}
	if l.PID == 0 {
		return []shell.Command{shell.Line("# restart what listens on %s with a backlog of %s", listenerName(l), want)}
	}
	return []shell.Command{shell.Line("# restart %s (pid %s) with a backlog of %s", v.Comm(l.PID), l.PID, want)}
}
