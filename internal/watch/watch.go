package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/nginx"
	"github.com/slowray/slowray/internal/sense/app/phpfpm"
	"github.com/slowray/slowray/internal/sense/app/pool"
	"github.com/slowray/slowray/internal/sense/connect"
	"github.com/slowray/slowray/internal/sense/dns"
	"github.com/slowray/slowray/internal/sense/drop"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/sense/socket"
	"github.com/slowray/slowray/internal/sense/stack"
)

// Options says what to look at and for how long.
type Options struct {
	For     time.Duration // length of the window; it ends early when the context does
	Filter  observe.Filter
	Version string
	// Silent asks no server for its status, not even those that tell it without
	// a password.
	Silent bool
	// Requests, when set, is a recording that goes on already, of all requests
	// and with their split. The window takes part in it; otherwise it makes one
	// of its own.
	Requests *request.Stream
	// KeepStacks keeps the stacks of services that computed while their requests
	// were slow, and not only the functions that they tell of.
	KeepStacks bool
	// Rarely is how many times less often than in a short window things are looked
	// at, where windows follow each other all the time: 1 to 6; 0 = 1. What a
	// window of a minute sees is then about what one of ten seconds sees.
	Rarely int
	// Spare leaves the dear look at interpreters out: see closely.go.
	Spare bool
	// Memory, when set, is that of windows that follow each other.
	Memory *Memory
	// Progress, when set, is called about four times a second.
	Progress func(elapsed time.Duration)
}

// rarely is Rarely within its bounds.
func (o *Options) rarely() time.Duration { return time.Duration(min(max(o.Rarely, 1), 6)) }

// NotFoundError says that the filter names something that does not exist.
type NotFoundError struct{ What string }

func (e *NotFoundError) Error() string { return e.What }

// How often things are looked at. Each is stretched when looking costs more
// than maxShare of the time.
const (
	tick            = 50 * time.Millisecond // php-fpm children
	listenersEvery  = 250 * time.Millisecond
	threadsEvery    = 250 * time.Millisecond
	processesEvery  = 500 * time.Millisecond // descriptors of servers, nginx connections
	cpuEvery        = 250 * time.Millisecond
	cpuSpans        = 1000  // at most, in a long window
	maxShare        = 0.004 // of one CPU, for each of the above
	socketSnapshots = 4     // full dumps of the sockets in a window
	snapshotShare   = 0.005 // of one CPU, for those that are left out first
)

// session is one window being watched.
type session struct {
	ctx     context.Context // of all readers; it ends Grace after that of Run
	opt     Options
	fs      host.FS
	out     *observe.Observation
	spaces  []*space
	use     host.UseSample
	cpu     host.CPUSample // the last reading, where a span of Use.Course begins
	course  []observe.CPUSpan
	procs   []host.ProcSample
	serving []int // processes with a listening socket
	states  map[int]*observe.ThreadStates
	courses courses
	closely closely
	flows   flows
	fdPeak  map[int]int
	fdLimit map[int]int
	tracers map[int]int // of the processes that serve and were seen stopped

	sockets   *socket.Iterators // nil where BPF is not to be had
	kmsg      *host.Kmsg
	connect   *connect.Watcher
	dns       *dns.Watcher
	calls     calls
	errors    callErrors
	state     hostState
	profile   *stack.Profiler
	request   *requests
	drops     *drop.Watcher
	waits     *waits // nil where requests are not recorded
	watched   []*server
	nginx     []*nginx.Instance // of watched
	fpm       []*phpfpm.Instance
	apps      []*pool.Instance
	turn      int // whose workers were looked at last
	databases databases
	limits    limits
	owners    map[uint64][]int              // socket inode → processes, at the beginning
	opened    map[connect.PassiveKey]uint64 // handshakes completed, from BPF
}

// Grace is how long after it was told to end a window may still be read: all of slowray
// has a second then, and what was read has to be judged, too.
const Grace = 300 * time.Millisecond

// JudgeGrace is how long after the same moment what was watched may still be judged:
// Grace of it passes before that can begin.
const JudgeGrace = Grace + 150*time.Millisecond

// errTold says that there is nothing to report.
var errTold = errors.New("was told to end before it began to watch")

// Run watches the host for opt.For, or until ctx is done, and returns what was
// seen. A reader that fails leaves a Gap; the error is for what makes the
// whole observation pointless: no /proc, or a filter that names nothing.
func Run(ctx context.Context, opt Options) (*observe.Observation, error) {
	s := &session{
		opt: opt, fs: host.Default(),
		out:    &observe.Observation{Schema: observe.SchemaObservation, Version: opt.Version, Filter: opt.Filter},
		states: map[int]*observe.ThreadStates{},
		fdPeak: map[int]int{}, fdLimit: map[int]int{}, tracers: map[int]int{},
	}
	var cancel context.CancelFunc
	s.ctx, cancel = budget.Grace(ctx, Grace)
	defer cancel()
	defer s.leave(ctx)
	Hurry()
	var err error
	if s.out.Host, err = s.fs.Host(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	s.loop(ctx)
	// What is left takes well under two seconds; that much less where it was a Ctrl-C
	// that ended the window.
	s.end()
	return s.out, nil
}

// leave detaches what was attached. The kernel waits, program by program, until no CPU
// runs it: that may take half a second, which whoever was told to end does not have, and
// the end of the process does it too.
func (s *session) leave(ctx context.Context) {
	if ctx.Err() != nil {
		go s.close()
		return
	}
	s.close()
}

func (s *session) close() {
	for _, sp := range s.spaces {
		sp.ns.Close()
	}
	if s.sockets != nil {
		s.sockets.Close()
	}
	if s.kmsg != nil {
		s.kmsg.Close()
	}
	if s.connect != nil {
		s.calls.resting.Wait()
		s.connect.Close()
	}
	if s.dns != nil {
		s.dns.Close()
	}
	s.errors.close()
	s.closely.stop(s.ctx)
	s.flows.close()
	if s.drops != nil {
		s.drops.Close()
	}
	if s.profile != nil {
		s.profile.Close()
	}
	if s.waits != nil {
		s.waits.end()
	}
	if s.request != nil {
		s.request.close()
	}
}

func (s *session) gap(kind observe.Kind, subject string, err error) {
	s.out.Gaps = append(s.out.Gaps, observe.Gap{Kind: kind, Subject: subject, Because: err.Error()})
}

func (s *session) partialGap(kind observe.Kind, netns uint64, subject string, err error) {
	s.out.Gaps = append(s.out.Gaps, observe.Gap{Kind: kind, NetNS: netns, Subject: subject, Because: err.Error(), Partial: true})
}

func (s *session) lose(what string, count int64) {
	if count > 0 {
		s.out.Losses = append(s.out.Losses, observe.Loss{What: what, Count: count})
	}
}

// begin takes the first readings and attaches the BPF programs.
func (s *session) begin(ctx context.Context) error {
	var gaps []observe.Gap
	s.procs, gaps = s.fs.Processes()
	s.addProcessGaps(gaps)
	if len(s.procs) == 0 {
		return errors.New("no process can be seen in /proc")
	}
	known := s.resolveContainer()
	if err := s.checkFilter(); err != nil && !known {
		return err
	}
	// Without the iterators the same is read in dearer ways.
	if it, err := socket.Open(); err == nil {
		s.sockets = it
	}
	s.openSpaces()
	if err := s.checkPort(); err != nil {
		return err
	}
	s.findServers()
	for i := range s.procs {
		s.fdLimit[s.procs[i].PID] = s.procs[i].FDLimit
	}
	if err := s.checkServes(); err != nil && !known {
		return err
	}
	if s.opt.Progress != nil {
		s.opt.Progress(0)
	}

	seen := s.seenProcesses()
	for _, step := range []func(){
		func() { s.beginDatabases(seen) }, // before anything is recorded: asking is no request of anybody's
		s.startKmsg, s.startConnects, s.startDNS, s.startErrors, s.beginHostState, s.startProfile,
		func() { s.beginServers(seen) },
		s.beginLimits, s.beginUse, s.startDrops, s.startRequests,
	} {
		if ctx.Err() != nil {
			return errTold
		}
		step()
	}
	s.courses.begin(s.fs, s.serving)
	s.cpu, _ = s.fs.CPU() // one that fails is a gap of Use already
	s.out.Window.Start, s.out.Self = time.Now().UTC(), os.Getpid()
	return nil
}

func (s *session) startKmsg() {
	var err error
	if s.kmsg, err = host.OpenKmsg("/dev/kmsg"); err != nil {
		s.partialGap(observe.KindKernelLog, 0, "", err)
	}
}

func (s *session) startConnects() {
	var err error
	if s.connect, err = connect.Start(); err != nil {
		s.gap(observe.KindConnects, "", err)
	}
}

func (s *session) beginUse() {
	use, gaps := s.fs.Use()
	s.use, s.out.Gaps = use, append(s.out.Gaps, gaps...)
	for _, sp := range s.spaces {
		sp.begin(s)
	}
}

func (s *session) startRequests() {
	var err error
	if s.request, err = startRequests(s.fs, s.opt.Requests, s.databases.kept); err != nil {
		s.gap(observe.KindRequests, "", err)
		s.gap(observe.KindWaits, "", err)
	} else {
		self := 0
		if s.opt.Requests != nil {
			// A recorder serves its page, and waits in the kernel until programs of the
			// window before are freed: that is no service's trouble.
			self = os.Getpid()
		}
		s.waits = startWaits(s.fs, s.serving, s.request.slow, s.opt.rarely(), self)
	}
}

// checkFilter fails when the filter names a process, unit or container that
// does not exist.
func (s *session) checkFilter() error {
	f := s.opt.Filter
	find := func(match func(*host.ProcSample) bool) bool {
		for i := range s.procs {
			if match(&s.procs[i]) {
				return true
			}
		}
		return false
	}
	switch {
	case f.PID != 0 && !find(func(p *host.ProcSample) bool { return p.PID == f.PID }):
		return &NotFoundError{fmt.Sprintf("there is no process with pid %d", f.PID)}
	case f.Unit != "" && !find(func(p *host.ProcSample) bool { return f.InUnit(p.Unit) }):
		return &NotFoundError{fmt.Sprintf("no process runs in unit %q (see systemctl list-units)", f.Unit)}
	case f.Container != "" && !find(func(p *host.ProcSample) bool { return f.InContainer(p.Container) }):
		return &NotFoundError{fmt.Sprintf("no process runs in container %q (give the container's name or id, as docker ps shows it)", f.Container)}
	}
	return nil
}

// checkPort fails when nothing listens at the port of the filter.
func (s *session) checkPort() error {
	port := s.opt.Filter.Port
	if port == 0 {
		return nil
	}
	for _, sp := range s.spaces {
		for _, l := range sp.listeners {
			if int(l.first.Port) == port {
				return nil
			}
		}
	}
	return &NotFoundError{fmt.Sprintf("nothing listens on TCP port %d in any network namespace that can be read (see ss -ltn)", port)}
}

// checkServes fails when the process, unit or container of the filter exists
// but listens nowhere.
func (s *session) checkServes() error {
	f := s.opt.Filter
	if f.PID == 0 && f.Unit == "" && f.Container == "" {
		return nil
	}
	procs := map[int]*host.ProcSample{}
	for i := range s.procs {
		procs[s.procs[i].PID] = &s.procs[i]
	}
	top := func(pid int) int { // the topmost ancestor that runs the same program
		for range 16 {
			p := procs[pid]
			if p == nil || procs[p.PPID] == nil || p.PPID == 1 || procs[p.PPID].Comm != p.Comm {
				break
			}
			pid = p.PPID
		}
		return pid
	}
	for _, pid := range s.serving {
		p := procs[pid]
		if p != nil && (f.PID == 0 || top(pid) == top(f.PID)) &&
			f.InUnit(p.Unit) && f.InContainer(p.Container) {
			return nil
		}
	}
	return &NotFoundError{"what you asked for runs, but it does not listen anywhere: slowray looks at the requests that a service answers"}
}

// loop samples until the window is over.
func (s *session) loop(ctx context.Context) {
	runtime.LockOSThread() // for pace
	defer runtime.UnlockOSThread()
	start := time.Now()
	rarely := s.opt.rarely()
	ctx, cancel := context.WithTimeout(ctx, s.opt.For)
	defer cancel()
	var (
		ticker    = time.NewTicker(tick * rarely)
		listeners = pace{every: rarely * listenersEvery}
		threads   = pace{every: rarely * threadsEvery}
		processes = pace{every: rarely * processesEvery}
		frequency = pace{every: rarely * processesEvery}
		children  = pace{every: rarely * tick}
		databases = pace{every: rarely * databasesEvery}
		cpu       = pace{every: rarely * max(cpuEvery, s.opt.For/cpuSpans)}
		runs      = pace{every: rarely * max(cpuEvery, s.opt.For/cpuSpans)}
		closer    = pace{every: rarely * closelyEvery}
		limits    = pace{every: rarely * limitsEvery}
		progress  = pace{every: 250 * time.Millisecond}
		snapshots schedule
	)
	defer ticker.Stop()
	for {
		elapsed := time.Since(start)
		children.do(elapsed, s.sampleServers)
		listeners.do(elapsed, s.sampleListeners)
		threads.do(elapsed, s.sampleThreads)
		processes.do(elapsed, s.sampleProcesses)
		frequency.do(elapsed, s.sampleHostState)
		databases.do(elapsed, s.sampleDatabases)
		s.sampleCalls(elapsed)
		s.sampleErrors(elapsed)
		cpu.do(elapsed, func() { s.sampleCPU(elapsed) })
		limits.do(elapsed, s.sampleLimits)
		closer.do(elapsed, func() { s.lookClosely(time.Since(start)) })
		runs.do(elapsed, func() { s.courses.sample(s.fs, time.Since(start)) })
		snapshots.do(elapsed, s.opt.For, s.sampleSockets)
		if s.opt.Progress != nil {
			progress.do(elapsed, func() { s.opt.Progress(elapsed) })
		}
		select {
		case <-ctx.Done():
			if snapshots.done == 0 {
				s.sampleSockets()
			}
			s.out.Window.Seconds = time.Since(start).Seconds()
			s.sampleCPU(time.Since(start))
			s.courses.sample(s.fs, time.Since(start))
			return
		case <-ticker.C:
		}
	}
}

// pace calls something regularly, less often when it turns out dear: in CPU time
// of the calling thread, for on full CPUs everything takes long. The caller's
// goroutine is locked to its thread.
type pace struct {
	every time.Duration
	next  time.Duration
	last  time.Duration // what it cost
}

func (p *pace) do(elapsed time.Duration, work func()) {
	if elapsed < p.next {
		return
	}
	before := host.ThreadCPU()
	work()
	cost := host.ThreadCPU() - before
	// Once is an accident: garbage was collected, or interrupts came.
	p.next = elapsed + max(p.every, time.Duration(float64(min(cost, p.last))/maxShare))
	p.last = cost
}

// schedule spreads a few dear readings over the window. When they turn out so
// dear that they would take more than snapshotShare of it, some are left out;
// the first and the last always remain.
type schedule struct {
	slot, done int
	spent      time.Duration
}

func (c *schedule) do(elapsed, window time.Duration, work func()) {
	if elapsed < window*time.Duration(2*c.slot+1)/(2*socketSnapshots) {
		return
	}
	c.slot++
	if c.slot > 1 && c.slot < socketSnapshots {
		each := c.spent / time.Duration(max(c.done, 1))
		if c.spent+2*each > time.Duration(snapshotShare*float64(window)) {
			return
		}
	}
	before := time.Now()
	work()
	c.spent += time.Since(before)
	c.done++
}

func (s *session) sampleListeners() {
	for _, sp := range s.spaces {
		sp.sampleListeners(s)
		sp.sampleConntrack()
	}
}

func (s *session) sampleSockets() {
	for _, sp := range s.spaces {
		if !sp.quiet() {
			sp.sampleSockets(s)
		}
	}
}

// sampleCPU adds a span to the course of the CPUs' use. A reading that fails
// makes the span longer.
func (s *session) sampleCPU(elapsed time.Duration) {
	now, err := s.fs.CPU()
	if err != nil {
		return
	}
	used := host.CPUBetween(s.cpu, now)
	if used.Total() > 0 && elapsed > 0 {
		s.course = append(s.course, observe.CPUSpan{Seconds: elapsed.Seconds(), Busy: used.Busy(), Idle: used.Idle + used.IOWait})
		s.lookAtPackets(used.SoftIRQ / used.Total() * float64(max(s.out.Host.CPUs, 1)))
	}
	s.cpu = now
}

// maxThreadProcesses bounds how many processes one round looks into.
const maxThreadProcesses = 64

func (s *session) sampleThreads() {
	for _, pid := range s.serving[:min(len(s.serving), maxThreadProcesses)] {
		st := s.states[pid]
		if st == nil {
			st = &observe.ThreadStates{}
			s.states[pid] = st
		}
		// A process that ended or may not be read simply has fewer samples.
		was := st.Stopped
		_ = s.fs.SampleThreads(pid, st)
		if st.Stopped > was && s.tracers[pid] == 0 {
			s.tracers[pid] = s.fs.Tracer(pid)
		}
	}
	// The next round begins with those that had no turn.
	if len(s.serving) > maxThreadProcesses {
		s.serving = append(s.serving[maxThreadProcesses:], s.serving[:maxThreadProcesses]...)
	}
}

func (s *session) sampleProcesses() {
	for _, pid := range s.serving {
		if n, err := s.fs.FDCount(pid); err == nil {
			s.fdPeak[pid] = max(s.fdPeak[pid], n)
		}
	}
	b := budget.New(s.ctx, roundLimits)
	for i, in := range s.nginx {
		in.SampleConnections(b.Share(len(s.nginx)-i), s.fs.SocketFDCount)
	}
}
