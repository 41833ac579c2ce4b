package request

import (
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// The rings hold 50 ms of 150,000 requests per second and CPU.
	streamPoll = 20 * time.Millisecond
	// A LowPower stream polls half as often while little happens: they still hold
	// what may come meanwhile.
	calmPoll    = 40 * time.Millisecond
	calmRecords = 200 // in one poll
	streamFlush = time.Second
	// flushShare is the share of one CPU that flushing may take: with very many
	// connections it becomes expensive, and then rarer.
	flushShare = 0.004
)

// Stream is one Recorder for several: each subscriber is handed the requests
// from when it came to when it goes, as if the Recorder were its own. It may be
// used by several goroutines, but not from within what a subscriber is called
// with.
type Stream struct {
	mu       sync.Mutex // of all that follows
	recorder Source
	subs     []*Subscription
	ownNetNS uint64
	ownPort  uint16 // 0: nothing is left out
	ownAddrs []netip.Addr
	only     uint64 // a network namespace; 0: all
	lowPower bool
	lasting  bool
	polling  bool  // there may be requests in progress that were reported
	failed   error // of the last Flush
	closed   bool
	last     Stats // when it was closed

	stop chan struct{}
	done sync.WaitGroup
}

// Source is the Recorder, as far as a Stream needs it.
type Source interface {
	Poll(each func(*observe.Request)) int
	Flush() error
	FlushAll() error
	Counters() []Counters
	Stats() Stats
	Caller(pid int) (comm string, parent int, ok bool)
	Close()
}

// Subscription is one subscriber of a Stream.
type Subscription struct {
	stream *Stream
	each   func(*observe.Request)

	counters, last   []Counters // when it began, and ended
	all              []Counters // as last, with what the stream leaves out
	stats, lastStats Stats
}

// StartStream starts a Recorder that is polled every 20 ms from the first
// subscription on.
func StartStream(opt Options) (*Stream, error) {
	r, err := Start(opt)
	if err != nil {
		return nil, err
	}
	return NewStream(r), nil
}

// NewStream is the Stream of a source, which it closes.
func NewStream(r Source) *Stream { return &Stream{recorder: r, stop: make(chan struct{})} }

// Subscribe hands every request to each, from now on until End. It is called
// from one goroutine at a time, and must not wait. First come the requests in
// progress that take long (FlagUnfinished), as far as others were reported
// before.
func (s *Stream) Subscribe(each func(*observe.Request)) *Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &Subscription{stream: s, each: each}
	if s.closed {
		return sub
	}
	if s.polling {
		hand := func(r *observe.Request) {
			s.hand(r) // what is over by now is the others'
			if r.Flags&observe.FlagUnfinished != 0 && !s.own(r) {
				each(r)
			}
		}
		s.recorder.Poll(hand)
		_ = s.recorder.FlushAll() // when it fails, they come at their end
		s.recorder.Poll(hand)
	}
	sub.stats, sub.counters = s.recorder.Stats(), s.recorder.Counters()
	s.subs = append(s.subs, sub)
	if !s.polling {
		s.polling = true
		s.done.Add(1)
		go s.poll()
	}
	return sub
}

// OnConnect is where a program for sock:inet_sock_set_state is called when a call of
// connect() begins or fails; nil where it has to be attached. Those that succeed are in
// Counters.
func (s *Stream) OnConnect() *bpf.Slot {
	if r, ok := s.recorder.(*Recorder); ok {
		return r.onConnect
	}
	return nil
}

// Lookups is where answers of nameservers are written down, for Request.Opening; nil where
// nobody reads them. It may be written to until Close.
func (s *Stream) Lookups() *bpf.Lookups {
	if r, ok := s.recorder.(*Recorder); ok {
		return r.lookups
	}
	return nil
}

// LeaveOut leaves out what is served at a TCP port of a network namespace, and
// what is called there from within it, at loopback or one of addrs: slowray's own
// page, whoever reads it.
func (s *Stream) LeaveOut(netns uint64, port uint16, addrs []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownNetNS, s.ownPort, s.ownAddrs = netns, port, addrs
}

// Only hands out only what is of one network namespace.
func (s *Stream) Only(netns uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.only = netns
}

// LowPower makes the stream look less often while little happens.
func (s *Stream) LowPower() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lowPower = true
}

// Lasting is for a stream that goes on for days, and meets more addresses than
// there is room for: of those that found none the requests are counted by their
// records, and so not once more under "other".
func (s *Stream) Lasting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lasting = true
}

// own says whether a request is left out.
func (s *Stream) own(r *observe.Request) bool {
	at := r.Local
	if r.Side == observe.Called {
		at = r.Peer
	}
	return s.ownEnd(r.Side, r.NetNS, at.Addr(), at.Port()) || s.only != 0 && r.NetNS != s.only
}

// ownEnd says whether an address is the one that LeaveOut names.
func (s *Stream) ownEnd(side observe.Side, netns uint64, addr netip.Addr, port uint16) bool {
	if s.ownPort == 0 || port != s.ownPort || netns != s.ownNetNS {
		return false
	}
	addr = addr.Unmap()
	return side == observe.Served || addr.IsLoopback() || slices.Contains(s.ownAddrs, addr)
}

func (s *Stream) hand(r *observe.Request) {
	if s.own(r) {
		return
	}
	for _, sub := range s.subs {
		sub.each(r)
	}
}

func (s *Stream) poll() {
	defer s.done.Done()
	runtime.LockOSThread() // costs are those of this thread
	defer runtime.UnlockOSThread()
	ticker := time.NewTicker(streamPoll)
	defer ticker.Stop()
	began, calm := time.Now(), false
	var next, last time.Duration // the next flush, and what the last one cost
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		n := s.recorder.Poll(s.hand) // closed not before this goroutine has ended
		if now := s.lowPower && n < calmRecords; now != calm {
			calm = now
			ticker.Reset(map[bool]time.Duration{false: streamPoll, true: calmPoll}[calm])
		}
		if elapsed := time.Since(began); elapsed >= next {
			before := host.ThreadCPU()
			s.failed = s.recorder.Flush()
			cost := host.ThreadCPU() - before
			// Once is an accident: garbage was collected, or interrupts came.
			next = elapsed + max(streamFlush, time.Duration(float64(min(cost, last))/flushShare))
			last = cost
		}
		s.mu.Unlock()
	}
}

// Moment hands out what there is and calls do with the exact sums of every address
// (Recorder.Counters): what was handed out before and what is counted agree, and
// nothing is handed out until do returns. Requests that come while the sums are read
// may be counted too early.
func (s *Stream) Moment(do func(sums []Counters)) { _ = s.moment(nil, do) }

// Complete is Moment for what is complete by now too, however short a time nothing
// happened on its connection, and for what is still in progress. The error is that
// connections could not be asked for it; do is called all the same.
func (s *Stream) Complete(do func(sums []Counters)) error {
	return s.moment(s.recorder.FlushAll, do)
}

func (s *Stream) moment(flush func() error, do func(sums []Counters)) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		do(nil)
		return nil
	}
	s.recorder.Poll(s.hand)
	if flush != nil {
		err = flush()
		s.recorder.Poll(s.hand)
	}
	do(s.withoutOwn(s.recorder.Counters()))
	return err
}

// withoutOwn leaves out what LeaveOut names, what Only does not, and what Lasting
// does not count.
func (s *Stream) withoutOwn(all []Counters) []Counters {
	return slices.DeleteFunc(all, func(c Counters) bool {
		return s.lasting && !c.Addr.IsValid() || s.only != 0 && c.NetNS != s.only || s.ownEnd(c.Side, c.NetNS, c.Addr, c.Port)
	})
}

// Caller is as that of the Recorder; it may also be asked from within what a
// subscriber is called with.
func (s *Stream) Caller(pid int) (comm string, parent int, ok bool) {
	return s.recorder.Caller(pid)
}

// Err is why connections on which nothing happens cannot be asked for what is
// complete; nil when they can. The rest is handed out all the same.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Stats tells what was recorded and lost since the start.
func (s *Stream) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.last
	}
	return s.recorder.Stats()
}

// Close ends the recording. It may be called again.
func (s *Stream) Close() {
	s.mu.Lock()
	closed, polling := s.closed, s.polling
	if !closed {
		s.last = s.recorder.Stats()
	}
	s.closed, s.subs = true, nil
	s.mu.Unlock()
	if closed {
		return
	}
	close(s.stop)
	if polling {
		s.done.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorder.Close()
}

// End hands out what is complete by now, however short a time nothing happened
// on its connection, and what is still in progress; then no more. The error is
// that connections could not be asked for it.
func (u *Subscription) End() error {
	s := u.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.subs, u)
	if i < 0 {
		return nil
	}
	s.recorder.Poll(s.hand)
	err := s.recorder.FlushAll()
	s.recorder.Poll(s.hand)
	u.all = s.recorder.Counters()
	u.last, u.lastStats = s.withoutOwn(slices.Clone(u.all)), s.recorder.Stats()
	s.subs = slices.Delete(s.subs, i, i+1)
	return err
}

// Before is what was counted, and lost, before Subscribe.
func (u *Subscription) Before() ([]Counters, Stats) { return u.counters, u.stats }

// Counters is what was counted from Subscribe to End. The longest handshake is
// that of this time where it is the longest so far; else their mean stands for
// it, which is less.
func (u *Subscription) Counters() []Counters {
	grown := Since(u.counters, u.last)
	longest := make(map[counterKey]int64, len(u.counters))
	for i := range u.counters {
		longest[u.counters[i].key()] = u.counters[i].HandshakeMax
	}
	for i := range grown {
		if c := &grown[i]; c.HandshakeMax > 0 && c.HandshakeMax == longest[c.key()] {
			c.HandshakeMax = c.Handshake / int64(max(c.Connections, 1))
		}
	}
	return grown
}

// Opened is Counters for who asks for Connections only: also of what the stream leaves out.
func (u *Subscription) Opened() []Counters { return Since(u.counters, u.all) }

// Stats is what was lost from Subscribe to End; Records, CPU and Weight are
// those since the start.
func (u *Subscription) Stats() Stats {
	now, was := u.lastStats, u.stats
	now.Sampled -= was.Sampled
	now.LeftOut -= was.LeftOut
	now.Lost -= was.Lost
	now.Connections -= was.Connections
	now.OtherEndpoints -= was.OtherEndpoints
	now.Missed -= was.Missed
	now.Unfollowed -= was.Unfollowed
	now.Headers -= was.Headers
	now.Contexts -= was.Contexts
	now.Blocks -= was.Blocks
	now.Streams -= was.Streams
	now.Mistaken -= was.Mistaken
	return now
}
