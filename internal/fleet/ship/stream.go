package ship

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/store"
)

// stream is one stream on its way to one target.
type stream struct {
	to      *destination
	name    fleet.Stream
	backoff backoff
	linger  time.Duration // how long records wait for others

	mu      sync.Mutex // of what follows: it is not held while the target is asked
	cursor  *cursorFile
	state   state
	build   builder
	sending bool  // the batch is with the target
	again   bool  // the batch was with the target before
	newest  int64 // µs since 1970: about when what was sent last was recorded
	dropped state // the batch that was given up while it was not known whether it had arrived

	// Of run's goroutine.
	doubt  bool // it is not known what the target has
	asked  bool // Mark was answered since the start
	blind  bool // the target has no Mark: what is noted here must outlive a power cut too
	since  time.Time
	packed *logFile // what has to be made a log before anything else is sent

	sent    atomic.Uint64
	records atomic.Uint64 // that the bytes below are of
	bytes   atomic.Uint64
}

func newStream(to *destination, name fleet.Stream, c *cursorFile, was state) *stream {
	linger := to.shipper.opt.linger[name]
	if l, ok := to.Target.(fleet.Lingerer); ok {
		linger = max(linger, l.Linger(name))
	}
	return &stream{to: to, name: name, linger: linger, backoff: backoff{gate: &to.gate}, cursor: c, state: was, build: builder{stream: name}, doubt: true, again: was.First != 0}
}

// run ships the stream until ctx ends, and then what is left, for as long as
// lastPatience.
func (s *stream) run(ctx context.Context) {
	news := (*s.to.shipper.store.Load()).Follow(string(s.name))
	for ctx.Err() == nil {
		begun := processCPU()
		ready, wait := s.fill(false)
		if s.doubt && !s.settle(ctx) {
			continue
		}
		if s.packed != nil {
			s.unpack(ctx)
			continue
		}
		if !ready {
			s.to.reporter.works(string(s.name)) // nothing to send, and the target answers
			s.await(ctx, news, wait)
			continue
		}
		if s.send(ctx) {
			s.rest(ctx, begun)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
	defer cancel()
	for last.Err() == nil && !s.doubt {
		if ready, _ := s.fill(true); !ready || !s.send(last) {
			return
		}
	}
}

// lastPatience is how long what is left at the end may take.
const lastPatience = 400 * time.Millisecond

// await waits for more to send.
func (s *stream) await(ctx context.Context, news <-chan struct{}, wait time.Duration) {
	if wait <= 0 {
		wait = 10 * time.Second // files may have been given up
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-news:
	case <-timer.C:
	}
}

// rest takes care that this process leaves the CPU to others while there is much to
// send: after a batch it rests as its share says, unless all is sent.
func (s *stream) rest(ctx context.Context, begun time.Duration) {
	if s.build.next != 0 && s.caughtUp() {
		return
	}
	s.leaveCPU(ctx, processCPU()-begun)
}

// leaveCPU pauses after something that took some CPU time.
func (s *stream) leaveCPU(ctx context.Context, cost time.Duration) {
	pause := time.Duration(float64(cost) * (1/s.to.shipper.opt.share - 1))
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(min(pause, 2*time.Second))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// caughtUp says whether the log that is being written is all there is.
func (s *stream) caughtUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.to.shipper.durable(s.name)
	return s.build.log == d.Log && s.build.frame >= d.Bytes
}

// fill reads more of what is to be sent into the batch. ready says that the batch is
// to be sent now; else there may be a time to wait for more.
func (s *stream) fill(hurry bool) (ready bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.build
	for !b.full {
		if s.state.First != 0 && b.batch.Count > 0 {
			break // the batch that was under way is read
		}
		if b.file == nil {
			found, err := s.openNext()
			if err != nil {
				return s.unreadable(err)
			}
			if !found {
				return false, 0
			}
		}
		log := b.log
		durable := s.to.shipper.durable(s.name)
		limit := int64(-1)
		if log >= durable.Log {
			limit = durable.Bytes
		}
		var last uint32
		if s.state.First != 0 {
			last = numberOf(s.state.Last)
		}
		end, err := b.extend(limit, last)
		if err != nil {
			return s.unreadable(err)
		}
		s.to.reporter.works(string(s.name) + " logs")
		switch {
		case !end:
		case limit < 0 && b.batch.Count == 0:
			s.finish(log)
		case limit < 0:
			b.full = true
		case b.batch.Count == 0:
			return false, 0
		default:
			return s.ripe(hurry)
		}
	}
	return true, 0
}

// unreadable says that a log cannot be read: that is tried again later.
func (s *stream) unreadable(err error) (ready bool, wait time.Duration) {
	s.to.reporter.fails(string(s.name)+" logs", fleet.Permanent(err))
	return false, s.to.shipper.opt.lastWait
}

// ripe says whether a batch that may become larger is sent now.
func (s *stream) ripe(hurry bool) (bool, time.Duration) {
	if s.since.IsZero() {
		s.since = time.Now()
	}
	left := s.linger - time.Since(s.since)
	const many = 256 << 10
	return hurry || left <= 0 || len(s.build.buf) >= many, left
}

// openNext opens the log that comes next; false when there is none.
func (s *stream) openNext() (bool, error) {
	for _, f := range waiting(s.to.dir) {
		done := s.state.Done
		if f.stream != s.name {
			continue
		}
		if f.number < logOf(done) || done == at(f.number, allOfLog) {
			s.to.dir.remove(f.name) // all of it was sent
			continue
		}
		if f.packed {
			s.packed = &f
			return false, nil
		}
		next := uint32(1)
		if f.number == logOf(done) {
			next = numberOf(done) + 1
		}
		err := s.build.open(s.to.dir, f.number, next)
		if errors.Is(err, store.ErrNotLog) {
			s.to.dir.remove(f.name)
			continue
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if s.state.First != 0 && logOf(s.state.First) != f.number {
			s.state.First, s.state.Last, s.again = 0, 0, false // the log of what was under way is not there any more
		}
		return err == nil, err
	}
	return false, nil
}

// finish closes a log that was sent whole, and removes its name. What is damaged in it is
// read by nobody: not here, and not by the history itself.
func (s *stream) finish(log uint64) {
	if n := s.build.file.Damaged(); n > 0 {
		s.to.reporter.note(fmt.Sprintf("the last %s of a log of %s are damaged, and are not sent (log %d)", figure.Bytes(n), s.name, log))
	}
	s.build.close()
	s.state.Done = max(s.state.Done, at(log, allOfLog))
	s.note(true)
	s.to.dir.remove(store.LogName(string(s.name), log))
}

// note keeps the state. A disk that is full does not stop the sending: the target
// can tell what it has.
func (s *stream) note(durable bool) {
	if err := s.cursor.write(s.state, durable); err != nil {
		s.to.reporter.fails("cursor", fmt.Errorf("%s.cursor: %w", s.name, err))
	} else {
		s.to.reporter.works("cursor")
	}
}

// send sends the batch; false when that failed.
func (s *stream) send(ctx context.Context) bool {
	s.mu.Lock()
	b := &s.build
	if b.batch.Count == 0 { // given up meanwhile
		s.mu.Unlock()
		return false
	}
	batch := b.fixed(s.to.host.Load())
	batch.Again = s.again
	if s.state.First != batch.First || s.state.Last != batch.Last {
		s.state.First, s.state.Last = batch.First, batch.Last
		s.note(s.blind)
	}
	b.full, s.sending = true, true
	s.mu.Unlock()

	try, cancel := s.attempt(ctx)
	err := s.to.Target.Send(try, batch)
	cancel()

	s.mu.Lock()
	s.sending = false
	if err == nil {
		s.taken(batch.Last)
		s.mu.Unlock()
		s.succeeded()
		return true
	}
	s.doubt, s.again = true, true
	if errors.Is(err, fleet.ErrTooLarge) && batch.Count > 1 {
		s.smaller(batch.Count)
		err = fmt.Errorf("%v (smaller batches of %s are sent from now on)", err, s.name) // it fixes itself
	}
	s.mu.Unlock()
	s.failed(ctx, err)
	return false
}

// smaller begins anew with batches of half as many records at most as one that was refused
// for its size, for as long as this process runs.
func (s *stream) smaller(count int) {
	s.build.close()
	s.build.most = max(count/2, 1)
	s.since = time.Time{}
	s.state.First, s.state.Last, s.again = 0, 0, false
	s.note(s.blind)
}

// attempt is the time that the target is given. When ctx ends, what is under way may
// still come to its end.
func (s *stream) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	try, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.to.shipper.opt.timeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastPatience, cancel) })
	return try, func() {
		stop()
		cancel()
	}
}

// taken says that the target has all up to a position, of the batch or beyond.
func (s *stream) taken(last fleet.Position) {
	b := &s.build
	if b.batch.Count > 0 {
		s.newest = b.oldest
	}
	if last == b.batch.Last {
		s.sent.Add(uint64(b.batch.Count))
		s.records.Add(uint64(b.batch.Count))
		s.bytes.Add(uint64(len(b.buf)))
		b.drop()
	} else {
		b.close()
	}
	s.since, s.again = time.Time{}, false
	s.state.Done, s.state.Sent = max(s.state.Done, last), max(s.state.Sent, last)
	s.state.First, s.state.Last = 0, 0
	s.note(false)
}

func (s *stream) succeeded() {
	s.to.reporter.works(string(s.name))
	s.backoff.success()
}

func (s *stream) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.to.reporter.fails(string(s.name), err)
	s.backoff.pause(ctx, !fleet.Temporary(err), fleet.After(err))
}

func processCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with a valid pointer
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
