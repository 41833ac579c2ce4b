package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// reader reads one thing over a window: a row of the table in [session.readers].
// What it has nothing to do in is nil. The loop calls its functions one after the
// other, those of all readers on one thread, and counts what they cost and which
// gaps they leave.
type reader struct {
	name string
	// needs are the readers without which this one cannot be: where one of them did
	// not begin, neither does this, for the same reason.
	needs []string
	// kind is what goes unread when the reader cannot begin; empty: nothing that
	// causes ask for.
	kind    observe.Kind
	partial bool // without it, only less of the kind is read
	// begin takes the first reading, and attaches what has to be attached. After an
	// error, nothing else is called.
	begin func(*session) error
	// sample looks in between, every so often, or less often when it turns out
	// expensive; every 0: in each round of the loop.
	every  time.Duration
	sample func(*session)
	// stop takes what was recorded as soon as the window is over.
	stop func(*session)
	// end completes the Observation with it, joined with what others have read.
	end func(*session)
	// close detaches what was attached.
	close func(*session)

	pace  pace
	begun bool
	err   error // why it has not begun
	cost  Cost
}

// Cost is what a reader took of this host over a window.
type Cost struct {
	Reader  string
	CPU     time.Duration // of the thread that reads; goroutines of readers not counted
	Samples int           // looks between the first and the last
	Gaps    int           // that it left
}

// costs are those of all readers, the most expensive first.
func (s *session) costs() []Cost {
	list := make([]Cost, 0, len(s.table.readers))
	for _, r := range s.table.readers {
		r.cost.Reader = r.name
		list = append(list, r.cost)
	}
	slices.SortStableFunc(list, func(a, b Cost) int { return cmp.Compare(b.CPU, a.CPU) })
	return list
}

// meter calls a function of a reader, and counts what it costs.
func (s *session) meter(r *reader, work func(*session)) (cost time.Duration) {
	before, gaps := host.ThreadCPU(), len(s.out.Gaps)
	work(s)
	cost = host.ThreadCPU() - before
	r.cost.CPU += cost
	r.cost.Gaps += len(s.out.Gaps) - gaps
	return cost
}

// beginReaders begins with each reader in turn, until ctx is done.
func (s *session) beginReaders(ctx context.Context) error {
	first := s.table.reader(s.table.first)
	for _, r := range s.table.readers {
		if ctx.Err() != nil && !first.begun && first.err == nil {
			return errTold
		}
		s.meter(r, r.start)
	}
	if s.onlyDrops { // the counters of devices and protocols alone do not say that nothing was dropped
		return first.err
	}
	return nil
}

// start begins, unless a reader that this one needs has not.
func (r *reader) start(s *session) {
	for _, name := range r.needs {
		r.err = cmp.Or(r.err, s.table.reader(name).err)
	}
	if r.err == nil && r.begin != nil {
		r.err = r.begin(s)
	}
	r.begun, r.pace.every = r.err == nil, r.every*s.opt.sampleInterval()
	if r.err != nil && r.kind != "" {
		s.out.Gaps = append(s.out.Gaps, observe.Gap{Kind: r.kind, Because: r.err.Error(), Partial: r.partial})
	}
}

// sampleReaders looks once at everything that is due.
func (s *session) sampleReaders() {
	round := s.elapsed()
	for _, r := range s.table.readers {
		if r.begun && r.sample != nil && r.pace.due(round) {
			r.pace.took(round, s.meter(r, r.sample))
			r.cost.Samples++
		}
	}
}

// stopReaders and endReaders do so with those that have begun.
func (s *session) stopReaders() {
	for _, name := range s.table.stops {
		if r := s.table.reader(name); r != nil && r.begun {
			s.meter(r, r.stop)
		}
	}
}

func (s *session) endReaders() {
	for _, name := range s.table.ends {
		if r := s.table.reader(name); r != nil && r.begun {
			s.meter(r, r.end)
		}
	}
}

// closeReaders detaches what has begun, the last first.
func (s *session) closeReaders() {
	for _, r := range slices.Backward(s.table.readers) {
		if r.begun && r.close != nil {
			r.close(s)
		}
	}
}

// loop samples until the window is over.
func (s *session) loop(ctx context.Context) {
	s.start = time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.opt.For)
	defer cancel()
	ticker := time.NewTicker(tick * s.opt.sampleInterval())
	defer ticker.Stop()
	progress := pace{every: progressEvery}
	for {
		s.sampleReaders()
		if s.opt.Progress != nil {
			elapsed := s.elapsed()
			progress.do(elapsed, func() { s.opt.Progress(elapsed) })
		}
		select {
		case <-ctx.Done():
			s.out.Window.Seconds = s.elapsed().Seconds()
			return
		case <-ticker.C:
		}
	}
}

// elapsed is how much of the window has passed.
func (s *session) elapsed() time.Duration { return time.Since(s.start) }

// pace calls something regularly, less often when it turns out expensive: in CPU
// time of the calling thread, for on full CPUs everything takes long. The caller's
// goroutine is locked to its thread.
type pace struct {
	every time.Duration // 0: whenever there is a round
	next  time.Duration
	last  time.Duration // what it cost
}

func (p *pace) due(elapsed time.Duration) bool { return elapsed >= p.next }

// took notes what it cost this time.
func (p *pace) took(elapsed, cost time.Duration) {
	if p.every > 0 {
		// Once is an accident: garbage was collected, or interrupts came.
		p.next = elapsed + max(p.every, time.Duration(float64(min(cost, p.last))/maxShare))
	}
	p.last = cost
}

func (p *pace) do(elapsed time.Duration, work func()) {
	if !p.due(elapsed) {
		return
	}
	before := host.ThreadCPU()
	work()
	p.took(elapsed, host.ThreadCPU()-before)
}

// schedule spreads a few expensive readings over the window. When they would take
// more than snapshotShare of it, some are left out; the first and the last always
// remain.
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
