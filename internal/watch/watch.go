package watch

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/kube"
	"github.com/slowray/slowray/internal/sense/nat"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/sense/socket"
)

// Options says what to look at and for how long.
type Options struct {
	For     time.Duration // length of the window; it ends early when the context does
	Filter  observe.Filter
	Version string
	// Silent asks no server for its status, not even those that tell it without
	// a password.
	Silent bool
	// Budget is that of the recording that the window makes of its own, as in
	// request.Options.
	Budget float64
	// Requests, when set, is a recording that goes on already, of all requests
	// and with their split. The window takes part in it; otherwise it makes one
	// of its own.
	Requests *request.Stream
	// KeepStacks keeps the stacks of services that computed while their requests
	// were slow, and not only the functions that they tell of.
	KeepStacks bool
	// SampleInterval is how many times less often than in a short window things are looked
	// at, where windows follow each other all the time: 1 to 6; 0 = 1. What a
	// window of a minute sees is then about what one of ten seconds sees.
	SampleInterval int
	// SkipUnwinder leaves the expensive look at interpreters out: see closely.go.
	SkipUnwinder bool
	// Kube, when set, tells of the pods of this host.
	Kube *kube.Kube
	// NAT, when set, says where calls really go, in windows that follow each other; otherwise the
	// window looks for who tracks connections itself.
	NAT *nat.Table
	// Memory, when set, is that of windows that follow each other.
	Memory *Memory
	// Progress, when set, is called about four times a second.
	Progress func(elapsed time.Duration)
	// Costs, when set, is called at the end with what each reader took, the most
	// expensive first.
	Costs func([]Cost)
}

// sampleInterval is SampleInterval within its bounds.
func (o *Options) sampleInterval() time.Duration {
	return time.Duration(min(max(o.SampleInterval, 1), 6))
}

// How often things are looked at. Each is stretched when looking costs more
// than maxShare of the time.
const (
	tick            = 50 * time.Millisecond // php-fpm children
	listenersEvery  = 250 * time.Millisecond
	threadsEvery    = 250 * time.Millisecond
	processesEvery  = 500 * time.Millisecond // descriptors of servers, nginx connections
	cpuEvery        = 250 * time.Millisecond
	cpuSpans        = 1000 // at most, in a long window
	progressEvery   = 250 * time.Millisecond
	maxShare        = 0.004 // of one CPU, for each of the above
	socketSnapshots = 4     // full dumps of the sockets in a window
	snapshotShare   = 0.005 // of one CPU, for those that are left out first
)

// session is one window being watched.
type session struct {
	ctx context.Context // of all readers; it ends Grace after that of Run
	opt Options
	fs  host.FS
	out *observe.Observation

	onlyDrops bool // the window is one of Drops

	// What there was when the window began, which most readers go by.
	procs   []host.ProcSample
	spaces  []*space
	routers []*space          // network namespaces that no process lives in
	serving []int             // processes with a listening socket
	owners  map[uint64][]int  // socket inode → processes
	sockets *socket.Iterators // nil where BPF is not to be had
	unread  map[openKey]int   // who has the connections on which bytes lie unread; nil: not asked

	table table
	start time.Time // of the loop
	last  lastReading
}

// lastReading is what there is when the window has ended.
type lastReading struct {
	procs  []host.ProcSample
	owners map[uint64][]int // as session.owners, and those before
}

// Grace is how long after it was asked to end a window may still be read: all of slowray
// has a second then, and what was read has to be judged, too.
const Grace = 300 * time.Millisecond

// JudgeGrace is how long after the same moment what was watched may still be judged:
// Grace of it passes before that can begin.
const JudgeGrace = Grace + 150*time.Millisecond

// errTold says that there is nothing to report.
var errTold = errors.New("was asked to end before it began to watch")

// Run watches the host for opt.For, or until ctx is done, and returns what was
// seen. A reader that fails leaves a Gap; the error is for what makes the
// whole observation pointless: no /proc, or a filter that names nothing.
func Run(ctx context.Context, opt Options) (*observe.Observation, error) {
	RaisePriority()
	return watch(ctx, &session{opt: opt})
}

// watch is a window of all readers, or of those with these names, of which the first
// must have begun.
func watch(ctx context.Context, s *session, names ...string) (*observe.Observation, error) {
	runtime.LockOSThread() // costs are those of this thread
	defer runtime.UnlockOSThread()
	s.fs = host.Default()
	s.out = &observe.Observation{Schema: observe.SchemaObservation, Version: s.opt.Version, Filter: s.opt.Filter}
	var cancel context.CancelFunc
	s.ctx, cancel = budget.Grace(ctx, Grace)
	defer cancel()
	<-left // what the session before attached
	left <- struct{}{}
	defer s.leave()
	if err := s.look(); err != nil {
		return nil, err
	}
	if s.opt.Progress != nil {
		s.opt.Progress(0)
	}
	if s.table = s.readers(); len(names) > 0 {
		s.table = s.table.only(names[0], names[1:]...)
	}
	if err := s.beginReaders(ctx); err != nil {
		return nil, err
	}
	s.out.Window.Start, s.out.Self = time.Now().UTC(), os.Getpid()
	s.loop(ctx)
	// What is left takes well under two seconds; that much less where it was a Ctrl-C
	// that ended the window.
	s.stopReaders()
	s.endReaders()
	if s.opt.Costs != nil {
		s.opt.Costs(s.costs())
	}
	return s.out, nil
}

// left has a value while no session that is over detaches what it attached.
var left = func() chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	return c
}()

// leave detaches what was attached, next to what follows. The kernel waits, program by
// program, until no CPU runs it: that may take half a second, which who wants the verdict
// does not have. The end of the process does it too; only another session waits for it.
func (s *session) leave() {
	<-left
	go func() {
		s.close()
		left <- struct{}{}
	}()
}

func (s *session) close() {
	s.closeReaders()
	for _, sp := range s.allSpaces() {
		sp.ns.Close()
	}
	if s.sockets != nil {
		s.sockets.Close()
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

// keep adds what a reader could not read, and what it lost.
func (s *session) keep(gaps []observe.Gap, losses []observe.Loss) {
	s.out.Gaps = append(s.out.Gaps, gaps...)
	s.out.Losses = append(s.out.Losses, losses...)
}

// look finds what there is: processes, network namespaces, and who listens there.
func (s *session) look() (err error) {
	if s.out.Host, err = s.fs.Host(); err != nil {
		return err
	}
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
	// Without the iterators the same is read in more expensive ways.
	if it, err := socket.Open(); err == nil {
		s.sockets = it
	}
	s.openSpaces()
	if err := s.checkPort(); err != nil {
		return err
	}
	s.findServers()
	if err := s.checkServes(); err != nil && !known {
		return err
	}
	return nil
}

// seenProcesses are the processes as they were found at the beginning.
func (s *session) seenProcesses() []observe.Process { return host.ProcessesBetween(s.procs, s.procs) }
