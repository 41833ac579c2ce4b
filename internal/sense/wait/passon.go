package wait

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// A SlowRequest is a request that a process answers, or should answer, and that
// takes long.
type SlowRequest struct {
	PID, TID   int // that read it; PID alone, of who listens, when nobody did
	From, To   time.Time
	Owner      int           // the process that has the connection, where the request is unread; 0: not known
	Read       time.Time     // before it who read it worked for others; zero: not known
	Busy       time.Duration // of it that it waited for the process: not for the network or the client
	Unfinished bool          // no answer when the window ended
	Unread     bool          // and nobody has read it
	// Lent says that it is the request of a caller of the process, which serves
	// where no request is recorded: on a unix socket. It counts only for those
	// that have none of their own.
	Lent bool
	// Stands is how many requests like it there were, of which it is the one that was
	// kept; 0: it alone.
	Stands float64
}

// maxSlow bounds the requests of a process that time is passed on for: each is
// compared with each. What these lose stands for the others.
const maxSlow = 500

// maxFamilies bounds the processes with slow requests that are reported, those with
// most time.
const maxFamilies = 256

// family is what belongs to a process and those it works with.
type family struct {
	master    int
	requests  []*SlowRequest
	readers   map[int]bool
	intervals []*interval
	byTID     map[int][]*interval
	inTurn    map[int][]*interval // of threads that waited for the lock of their interpreter
	slept     map[*interval]bool  // that a request was charged with
	threads   int                 // that it has
	thinned   float64             // of so many requests one is kept
}

// Graph puts together what was seen, and passes the time of the slow requests
// on to the waits of the threads that held them up. A request that took longer
// than slower is slow; answered says when a process gave its last answer.
//
// The waits of the thread that read a request count in full. Requests that were
// handed to another thread share the waits of the others, and only those that
// ended before the answer: a thread that goes on waiting while the answer goes
// out did not hold it up.
func (s *Sampler) Graph(requests []SlowRequest, slower time.Duration, answered func(pid int) time.Time) *observe.WaitGraph {
	s.settle()
	g := &observe.WaitGraph{
		Looks: s.looks, Processes: len(s.processes), SlowerNS: slower.Nanoseconds(), Followed: s.followed,
		UnknownNS: s.unknown.Nanoseconds(), Unseen: s.unseen,
	}
	if s.gaps > 0 {
		g.EveryNS = s.every.Nanoseconds() / int64(s.gaps)
	}
	for _, w := range s.threads {
		if w.class == classCheap && w.idle && w.state == 'S' && (w.wait == nil || !w.wait.inTurn) {
			g.Parked++
			g.ParkedNS = max(g.ParkedNS, w.listed.Sub(w.since).Nanoseconds())
		}
	}
	slack := 2 * time.Duration(g.EveryNS)
	lost := map[*shape]*loss{}
	families := s.families(requests)
	for _, f := range families {
		t := f.passOn(lost, slack, answered)
		s.passOnGo(f, &t, lost)
		if t.Requests > 0 {
			g.Slow = append(g.Slow, t)
		}
	}
	slices.SortFunc(g.Slow, func(a, b observe.SlowTime) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.PID, b.PID))
	})
	g.Slow = g.Slow[:min(len(g.Slow), maxFamilies)]
	atEnd := s.goWaiting()
	for _, i := range s.intervals {
		if i.open && i.shape != nil {
			atEnd[i.shape]++
		}
	}
	for _, sh := range s.shapes {
		if sh.asleep() && lost[sh] == nil {
			continue // who has no request in hand may sleep
		}
		share := s.share(sh, lost[sh])
		share.AtEnd = atEnd[sh]
		g.Shares = append(g.Shares, share)
	}
	g.Pools = s.pools(families)
	s.closeGo()
	slices.SortStableFunc(g.Shares, func(a, b observe.WaitShare) int {
		return cmp.Or(cmp.Compare(b.SlowNS, a.SlowNS), cmp.Compare(b.ThreadNS, a.ThreadNS), cmp.Compare(a.PID, b.PID))
	})
	return g
}

// Lost is how many waits were not kept because room ran out.
func (s *Sampler) Lost() int64 { return s.lost }

// Waiting says whether a thread was held up when it was looked at last.
func (s *Sampler) Waiting() bool {
	return len(s.goWaiting()) > 0 || slices.ContainsFunc(s.intervals, func(i *interval) bool { return i.open && i.shape != nil && !i.shape.asleep() })
}

// share is a shape as it is reported.
func (s *Sampler) share(sh *shape, l *loss) observe.WaitShare {
	out := observe.WaitShare{
		PID: sh.master, Chain: sh.chain, Samples: sh.samples, Threads: len(sh.tids), AtOnce: sh.most,
		ThreadNS: sh.time.Nanoseconds(), LongestNS: sh.longest.Nanoseconds(),
		FirstNS: max(sh.first.Sub(s.start).Nanoseconds(), 0), LastNS: max(sh.last.Sub(s.start).Nanoseconds(), 0),
	}
	out.Chain.Hops[0].ForNS = max(out.Chain.Hops[0].ForNS, out.LongestNS)
	if l != nil {
		out.SlowNS, out.SlowRequests, out.Reader = l.time.Nanoseconds(), l.requests, l.reader
		out.OfNS, out.OfRequests = l.of.Nanoseconds(), int(math.Round(l.hit))
	}
	return out
}

// loss is what slow requests lost to a shape.
type loss struct {
	time     time.Duration
	requests float64
	reader   bool
	of       time.Duration // of the requests that lost notable time so
	hit      float64       // such requests
}

// families sorts requests and waits by the process that an administrator knows.
func (s *Sampler) families(requests []SlowRequest) []*family {
	masters := map[int]int{}
	of := func(pid int) int {
		m, ok := masters[pid]
		if !ok {
			m, _ = s.names.Master(pid)
			masters[pid] = m
		}
		return m
	}
	byMaster := map[int]*family{}
	var list []*family
	for i := range requests {
		m := of(requests[i].PID)
		f := byMaster[m]
		if f == nil {
			f = &family{master: m, readers: map[int]bool{}, byTID: map[int][]*interval{}, inTurn: map[int][]*interval{}, slept: map[*interval]bool{}}
			byMaster[m] = f
			list = append(list, f)
		}
		f.requests = append(f.requests, &requests[i])
		f.readers[requests[i].TID] = true
	}
	for _, i := range s.intervals {
		switch f := byMaster[of(i.pid)]; {
		case f == nil:
		case i.shape != nil || i.running:
			f.intervals = append(f.intervals, i)
			f.byTID[i.tid] = append(f.byTID[i.tid], i)
		case i.inTurn:
			f.inTurn[i.tid] = append(f.inTurn[i.tid], i)
		}
	}
	for _, w := range s.threads {
		if f := byMaster[of(w.pid)]; f != nil {
			f.threads++
		}
	}
	for _, f := range list {
		f.own()
		f.thin()
		slices.SortStableFunc(f.intervals, func(a, b *interval) int {
			return cmp.Or(a.from.Compare(b.from), cmp.Compare(a.tid, b.tid))
		})
	}
	return list
}

// own leaves out requests that are lent to a family which has some of its own.
func (f *family) own() {
	lent := func(r *SlowRequest) bool { return r.Lent }
	if slices.ContainsFunc(f.requests, func(r *SlowRequest) bool { return !r.Lent }) {
		f.requests = slices.DeleteFunc(f.requests, lent)
	}
}

// allWait says whether all threads of a family but one, its master, were held up
// while a request was in progress.
func (f *family) allWait(r *SlowRequest) bool {
	held := map[int]bool{}
	for _, i := range f.intervals {
		if !i.running && !i.shape.asleep() && overlap(i, r) > 0 {
			held[i.tid] = true
		}
	}
	return len(held) > 0 && len(held) >= f.threads-1
}

// thin keeps a sample of very many requests, evenly over those of all lengths.
func (f *family) thin() {
	f.thinned = max(float64(len(f.requests))/maxSlow, 1)
	if len(f.requests) <= maxSlow {
		return
	}
	slices.SortStableFunc(f.requests, func(a, b *SlowRequest) int { return cmp.Compare(b.Busy, a.Busy) })
	step := float64(len(f.requests)) / maxSlow
	kept := make([]*SlowRequest, 0, maxSlow)
	for i := range maxSlow {
		kept = append(kept, f.requests[int(float64(i)*step)])
	}
	f.requests = kept
}

// stands is how many requests of those that there were one of the sample stands for.
func (f *family) stands(r *SlowRequest) float64 { return f.thinned * max(r.Stands, 1) }

// passOn passes the time of a family's slow requests on.
func (f *family) passOn(lost map[*shape]*loss, slack time.Duration, answered func(int) time.Time) observe.SlowTime {
	t := observe.SlowTime{PID: f.master}
	var requests, unfinished, unread, busy, computed, inTurn float64
	for _, r := range f.requests {
		if r.Busy <= 0 {
			continue
		}
		n := f.stands(r)
		t.Sampled++
		requests += n
		t.Lent = r.Lent
		busy += n * float64(r.Busy)
		t.LongestNS = max(t.LongestNS, r.Busy.Nanoseconds())
		if r.Unfinished {
			unfinished += n
		}
		if r.Unread {
			unread += n
		}
		direct, compute, turn := f.direct(r)
		left := r.Busy - compute - turn
		for sh, d := range direct {
			d = min(d, r.Busy)
			f.lose(lost, sh, d, r, true)
			left -= d
		}
		computed += n * float64(min(compute, r.Busy))
		inTurn += n * float64(turn)
		if sh := f.sleptFor(r, left, slack); sh != nil {
			f.lose(lost, sh, left, r, false)
			continue
		}
		if left <= slack/2 {
			continue
		}
		still := r.Unread || r.Unfinished && answered(r.PID).Before(r.From)
		if r.Lent { // the caller may wait for somebody else
			still = r.Unfinished && f.allWait(r)
		}
		for sh, d := range f.handed(r, left, slack, still) {
			f.lose(lost, sh, d, r, false)
		}
	}
	t.NS, t.ComputeNS, t.InterpreterNS = int64(busy), int64(computed), int64(inTurn)
	t.Requests, t.Unfinished, t.Unread = int(math.Round(requests)), int(math.Round(unfinished)), int(math.Round(unread))
	if t.Sampled == t.Requests {
		t.Sampled = 0
	}
	return t
}

// sleptFor is the sleep of a thread that a request was handed to: it began and ended
// within the request and took what is left of its time. nil: none did. Who sleeps has one
// request in hand: the others wait for the thread, or for what it holds.
func (f *family) sleptFor(r *SlowRequest, left, slack time.Duration) *shape {
	if left < lasting {
		return nil
	}
	for _, i := range f.intervals {
		if i.from.After(r.To) {
			break // so do all that come after it
		}
		within := !i.from.Before(r.From.Add(-slack)) && !i.to.After(r.To.Add(slack))
		if !i.running && i.tid != r.TID && i.shape.asleep() && within && !f.slept[i] && overlap(i, r) >= left*8/10 {
			f.slept[i] = true
			return i.shape
		}
	}
	return nil
}

func (f *family) lose(lost map[*shape]*loss, sh *shape, d time.Duration, r *SlowRequest, reader bool) {
	l := lost[sh]
	if l == nil {
		l = &loss{}
		lost[sh] = l
	}
	n := f.stands(r)
	l.time += time.Duration(n * float64(d))
	l.reader = l.reader || reader
	l.requests += n * float64(d) / float64(r.Busy)
	if d >= r.Busy/20 {
		l.of += time.Duration(n * float64(r.Busy))
		l.hit += n
	}
}

// direct is the waits of the thread that read a request, its time on a CPU, and that in
// which it waited for its turn at the interpreter.
func (f *family) direct(r *SlowRequest) (out map[*shape]time.Duration, compute, inTurn time.Duration) {
	out = map[*shape]time.Duration{}
	var all time.Duration
	if r.TID == 0 {
		return out, 0, 0
	}
	for _, i := range f.inTurn[r.TID] {
		inTurn += overlap(i, r)
	}
	all = inTurn
	for _, i := range f.byTID[r.TID] {
		d := overlap(i, r)
		all += d
		switch {
		case i.running:
			compute += d
		case i.shape.asleep():
			// A queue is what others' sleep comes to where there are too few workers.
			if own := earlier(i.to, r.To).Sub(later(i.from, r.Read)); own > 0 {
				out[i.shape] += min(d, own)
			}
		case d > 0:
			out[i.shape] += d
		}
	}
	// The request need not have waited for the process all the time.
	if all > r.Busy {
		scale := float64(r.Busy) / float64(all)
		compute = time.Duration(float64(compute) * scale)
		inTurn = time.Duration(float64(inTurn) * scale)
		for sh := range out {
			out[sh] = time.Duration(float64(out[sh]) * scale)
		}
	}
	return out, compute, inTurn
}

// handed is the waits of other threads that a request lost the rest of its time
// to. Several requests in progress share a thread's wait. When the process gives
// no answer any more, or does not read, its threads with work in hand are what
// all its requests wait for.
func (f *family) handed(r *SlowRequest, left, slack time.Duration, still bool) map[*shape]time.Duration {
	out := map[*shape]time.Duration{}
	var waits, running time.Duration
	var own, all span // when the reader itself did something, and when anybody waited
	held := r.Owner != 0 && slices.ContainsFunc(f.intervals, func(i *interval) bool {
		return i.pid == r.Owner && !i.running && !i.shape.asleep() && overlap(i, r) > 0
	})
	for _, i := range f.intervals {
		if i.from.After(r.To) {
			break // so do all that come after it
		}
		d := overlap(i, r)
		switch {
		case d <= 0:
		case held && i.pid != r.Owner:
			// Another process cannot read it.
		case i.tid == r.TID:
			own.add(i, r)
			all.add(i, r)
		case i.running:
			running += d
		case i.shape.asleep():
			// By its own will, for no request of others.
		case !still && f.readers[i.tid]:
			// It works for the requests that it read itself.
		case !still && !r.Unfinished && i.to.After(r.To.Add(slack)):
			// It went on waiting when the answer was out.
		default:
			out[i.shape] += d
			waits += d
			all.add(i, r)
		}
	}
	// What passed while nobody waited is nobody's.
	left = min(left, all.sum-own.sum)
	if waits == 0 || left <= 0 {
		return nil
	}
	n := 1.0
	if !still {
		n = f.atOnce(r)
	}
	scale := 1 / n
	if most := float64(left); float64(waits)*scale > most {
		scale = most / float64(waits)
	}
	if still {
		scale *= float64(waits) / float64(waits+running)
	}
	for sh := range out {
		out[sh] = time.Duration(float64(out[sh]) * scale)
	}
	return out
}

// span is time that intervals cover, which come in order of their beginnings.
type span struct {
	until time.Time
	sum   time.Duration
}

// add covers the part of an interval that lies within a request.
func (s *span) add(i *interval, r *SlowRequest) {
	from, to := later(later(i.from, r.From), s.until), earlier(i.to, r.To)
	if to.After(from) {
		s.sum += to.Sub(from)
		s.until = to
	}
}

// atOnce is how many slow requests were in progress while one was, on average.
func (f *family) atOnce(r *SlowRequest) float64 {
	length := r.To.Sub(r.From)
	if length <= 0 {
		return 1
	}
	sum := float64(length)
	for _, o := range f.requests {
		from, to := later(o.From, r.From), earlier(o.To, r.To)
		if o != r && to.After(from) {
			sum += f.stands(o) * float64(to.Sub(from))
		}
	}
	return sum / float64(length)
}

// overlap is how much of a wait passed within a request.
func overlap(i *interval, r *SlowRequest) time.Duration {
	return max(earlier(i.to, r.To).Sub(later(i.from, r.From)), 0)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
