package record

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/kube"
	"github.com/slowray/slowray/internal/sense/nat"
	"github.com/slowray/slowray/internal/sense/request"
	"github.com/slowray/slowray/internal/store"
	"github.com/slowray/slowray/internal/watch"
)

// Store keeps what is recorded; store.Store does.
type Store interface {
	AddRequest(*store.Request)
	AddSecond(*store.Second)
	AddObservation(*observe.Observation, []cause.Finding) error
	Sync() error
	Stats() store.Stats
}

// Options say what to record. Zero values are the defaults.
type Options struct {
	Window time.Duration // of the Observations; 60 s
	Slow   time.Duration // what is slow, at any endpoint; 0 = what is slow for it
	Labels bool          // keep what was asked for
	Budget float64       // as in request.Options
	Silent bool          // as in watch.Options
	// OwnNamespace records only TCP connections of this process's network
	// namespace; of findings, those on another one are left out. What concerns the
	// whole host is found as always.
	OwnNamespace bool
	Version      string
	// Names gives a memory of the processes' names, one for each goroutine; nil
	// = one without the names of containers.
	Names func() *host.Names
	// Kube, when set, tells of the pods of this host and of those at other ends.
	Kube  *kube.Kube
	Sinks []Sink
	// Alive, when set, is called each second in which the recorder did its work.
	Alive func()
	// Trouble, when set, gets what went wrong, and does not go on to.
	Trouble func(error)
}

const (
	defaultWindow = time.Minute
	// leastWindow is the shortest window that is kept: what is ruled out after
	// less is not sure.
	leastWindow = 2 * time.Second
	// patience is how long the last window may take to be put together and judged.
	patience = watch.JudgeGrace + 50*time.Millisecond
	// closePatience is how long the kernel may take to detach what is attached: the end
	// of the process does that, too.
	closePatience = 100 * time.Millisecond
	// retry is when a window is tried again after one that failed.
	retry = 10 * time.Second
)

// Recorder records a host from New on until Run ends.
type Recorder struct {
	opt     Options
	store   Store
	stream  *request.Stream
	seconds *seconds
	sync    chan struct{}

	diagnose func(context.Context, *observe.Observation, diagnose.Bound) diagnose.Report

	// Of the stream's goroutine.
	keeper *keeper
	names  *host.Names
	nat    *nat.Table
	kept   store.Request

	memory *watch.Memory
	looked time.Time // when whole stacks were recorded last; of the goroutine that watches

	mu     sync.Mutex // of what follows
	status Status
	use    []use // each second of the last minute
	over   bool  // a window that is put together now comes too late
}

// use is the CPU time that this process had used at a time.
type use struct {
	at  time.Time
	cpu time.Duration
}

// New starts to record. It needs what request.Start needs.
func New(st Store, opt Options) (*Recorder, error) {
	if opt.Window == 0 {
		opt.Window = defaultWindow
	}
	if opt.Names == nil {
		opt.Names = func() *host.Names { return host.Default().Names() }
	}
	watch.RaisePriority() // on a busy host the rings would run full
	stream, err := request.StartStream(request.Options{Split: true, Labels: opt.Labels, Budget: opt.Budget, Slow: opt.Slow})
	if err != nil {
		return nil, err
	}
	stream.LowPower()
	stream.Lasting()
	netns := ownNetNS()
	if opt.OwnNamespace {
		if netns == 0 {
			stream.Close()
			return nil, errors.New("the own network namespace cannot be known (/proc/self/ns/net)")
		}
		stream.Only(netns)
	}
	now := time.Now()
	r := &Recorder{
		opt: opt, store: st, stream: stream, seconds: newSeconds(opt.Names, now), sync: make(chan struct{}, 1),
		diagnose: diagnose.Diagnose,
		memory:   watch.NewMemory(),
		keeper:   newKeeper(opt.Slow, now), names: opt.Names(), nat: nat.New(host.Default()),
	}
	r.names.Gone, r.seconds.names.Gone = stream.Caller, stream.Caller
	r.seconds.stream = stream
	r.status.Since = now
	return r, nil
}

// LeaveOut leaves out what is served at a TCP port of this process's network
// namespace, and who calls it from there: the recorder's own page; 0 is none.
func (r *Recorder) LeaveOut(port uint16) {
	if netns := ownNetNS(); port != 0 && netns != 0 {
		r.stream.LeaveOut(netns, port, ownAddrs())
	}
}

// ownAddrs is the addresses of this process's network namespace; none when they
// cannot be known.
func ownAddrs() (addrs []netip.Addr) {
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr().Unmap())
		}
	}
	return addrs
}

// ownNetNS is the network namespace of this process; 0 when it cannot be known.
func ownNetNS() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// Close ends a recording that was not Run.
func (r *Recorder) Close() {
	r.stream.Close()
	r.nat.Close()
}

// Run records until ctx is done, and then writes what is left; that takes about half a
// second at most.
func (r *Recorder) Run(ctx context.Context) {
	defer r.detach()
	defer r.nat.Close()
	sub := r.stream.Subscribe(r.add)
	var syncing sync.WaitGroup
	syncing.Go(r.keepSyncing)
	windows := make(chan struct{})
	go func() {
		defer close(windows)
		r.watch(ctx)
	}()

	r.tickSeconds(ctx)
	// Counting ends now; the window that was being watched still needs the
	// requests that are complete by now.
	if err := sub.End(); err != nil {
		r.trouble(fmt.Errorf("requests on idle connections: %w", err))
	}
	r.endSecond(time.Now())
	select {
	case <-windows:
	case <-time.After(budget.GraceOf(ctx, patience)):
		r.trouble(fmt.Errorf("the last window was not put together within %s: it is not kept", patience))
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	close(r.sync)
	syncing.Wait()
	if err := r.store.Sync(); err != nil {
		r.trouble(err)
	}
}

func (r *Recorder) detach() {
	detached := make(chan struct{})
	go func() {
		r.stream.Close()
		close(detached)
	}()
	select {
	case <-detached:
	case <-time.After(closePatience):
	}
}

// add is handed every request, by the stream's goroutine.
func (r *Recorder) add(q *observe.Request) {
	r.seconds.filling.Add(q)
	if ownCall(q.Side, q.PID) {
		return
	}
	why, weight := r.keeper.keep(q)
	if weight == 0 {
		return
	}
	r.kept = store.Request{Request: *q, Process: processOf(r.names, q.PID, q.StartNS+q.TotalNS()), Why: why}
	r.kept.Weight = weight
	r.kept.PeerWorkload = r.opt.Kube.PeerOfRequest(&r.kept.Process, q, r.nat)
	r.store.AddRequest(&r.kept)
	for _, s := range r.opt.Sinks {
		s.Request(&r.kept)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch why {
	case store.Slow:
		r.status.Requests.Slow++
	case store.Failed:
		r.status.Requests.Failed++
	case store.Sampled:
		r.status.Requests.Sampled++
	}
}

// ownCall says whether this process called: where what is recorded is sent to is not
// recorded, or it would never end.
func ownCall(side observe.Side, pid int) bool { return side == observe.Called && pid == os.Getpid() }

// tickSeconds ends each second as the clock has it.
func (r *Recorder) tickSeconds(ctx context.Context) {
	for {
		now := time.Now()
		next := time.NewTimer(now.Truncate(time.Second).Add(time.Second).Sub(now))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
		r.endSecond(time.Now())
		if r.opt.Alive != nil {
			r.opt.Alive()
		}
	}
}

// nameCalled says who answers at a called address.
func (r *Recorder) nameCalled(s *store.Second, now time.Time) {
	e := &s.Endpoint
	if r.opt.Kube == nil || e.Side != observe.Called.String() {
		return
	}
	if addr, err := netip.ParseAddr(e.Addr); err == nil {
		if w := r.opt.Kube.PeerOf(&s.Process, addr, now.UnixNano()); w != (observe.Workload{}) {
			e.Workload = &w
		}
	}
}

func (r *Recorder) endSecond(now time.Time) {
	at, list := r.seconds.end(now, func() { r.keeper.tick(now) })
	list = slices.DeleteFunc(list, func(s store.Second) bool {
		return s.Endpoint.Side == observe.Called.String() && ownCall(observe.Called, s.Endpoint.PID)
	})
	var seen uint64
	for i := range list {
		r.nameCalled(&list[i], now)
		seen += list[i].Endpoint.Requests
		r.store.AddSecond(&list[i])
	}
	for _, s := range r.opt.Sinks {
		s.Second(at, list)
	}
	select {
	case r.sync <- struct{}{}:
	default: // the disk is slow: the last one is not done yet
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Requests.Seen += seen
	r.use = append(r.use, use{now, processCPU()})
	r.use = r.use[max(0, len(r.use)-61):]
}

// keepSyncing makes durable what was added, each second: in a goroutine of its
// own, for a disk may take long.
func (r *Recorder) keepSyncing() {
	var told string
	for range r.sync {
		err := r.store.Sync()
		// The same each second is reported once.
		if err != nil && err.Error() != told {
			r.trouble(err)
		}
		if told = ""; err != nil {
			told = err.Error()
		}
	}
}

func (r *Recorder) trouble(err error) {
	if r.opt.Trouble != nil {
		r.opt.Trouble(err)
	}
}

// Status tells what was done so far.
func (r *Recorder) Status() Status {
	stats := r.stream.Stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Store = r.store.Stats()
	s.RSSBytes = residentBytes()
	s.Missing = stats.Missing
	if n := len(r.use); n > 1 {
		first, last := r.use[0], r.use[n-1]
		s.CPUShare = float64(last.cpu-first.cpu) / float64(last.at.Sub(first.at)) / float64(hostCPUs())
	}
	for _, l := range []observe.Loss{
		{What: observe.LossSampled, Count: int64(stats.Sampled)},
		{What: "requests counted without a record of their own, because the ring was full", Count: int64(stats.Lost)},
		{What: observe.LossEstimated, Count: int64(stats.LeftOut)},
		{What: "connections that could not be watched because kernel memory ran out", Count: int64(stats.Connections)},
		{What: "connections whose requests are counted by their records only, for there were too many addresses", Count: int64(stats.OtherEndpoints)},
		{What: "events of connections that the kernel kept from slowray", Count: int64(stats.Missed)},
		{What: "requests of HTTP/2, over 128 at once on a connection, or connections, over 1,024 at once, that were not told apart", Count: int64(stats.Streams)},
		{What: observe.LossFrames, Count: int64(stats.Frames)},
		{What: observe.LossUntaken, Count: int64(stats.Untaken)},
		{What: observe.LossHeaders, Count: int64(stats.Headers)},
		{What: observe.LossBlocks, Count: int64(stats.Blocks)},
		{What: observe.LossContexts, Count: int64(stats.Contexts)},
		{What: "requests that were to be stored, for which the disk was too slow or full", Count: int64(s.Store.Dropped)},
	} {
		if l.Count > 0 {
			s.Losses = append(s.Losses, l)
		}
	}
	return s
}

func processCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with a valid pointer
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentBytes is the resident memory of this process (proc_pid_statm(5)); 0
// when it cannot be read.
func residentBytes() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	return parseStatm(string(text))
}

// parseStatm is the resident memory in a statm file, bytes.
func parseStatm(text string) int64 {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || pages < 0 || pages > math.MaxInt64/int64(os.Getpagesize()) {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
