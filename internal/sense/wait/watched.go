package wait

import (
	"slices"
	"time"
)

// watched is what is remembered of a thread from the look before.
type watched struct {
	pid, tid int
	switches uint64
	call     inCall
	state    byte
	class    class
	since    time.Time // like this, as is likely: half of the time before first
	first    time.Time // first seen like this
	seen     time.Time // last look
	listed   time.Time // last look at which it was there
	still    int       // looks in a row that it did not run
	idle     bool      // it was followed: nobody holds it up
	wait     *interval // nil when it does not wait for anybody
	followed time.Time
	use      use
}

// interval is one wait of one thread.
type interval struct {
	pid, tid int
	from, to time.Time
	open     bool // it was still going on at the last look
	running  bool // on a CPU, or ready for one: no wait
	inTurn   bool // for the lock of the interpreter of Python
	call     callKey
	shape    *shape // nil when it was over before it could be followed
	samples  int
}

// callKey is a system call of a process on the same descriptor, or lock. What
// was too short to be followed is taken for what was seen there at other times.
type callKey struct {
	pid   int
	nr    uint64
	arg   uint64
	wchan string // the function it sleeps in, of a process that uses a file system in user space
}

// class is what a thread's system call tells at first sight.
type class int

const (
	classIdle    class = iota // ready for work, or asleep of its own will
	classRunning              // on a CPU, or ready for one
	classCheap                // held up, perhaps; to follow it costs little
	classDear                 // held up, perhaps; sockets or open files must be read
	classAsleep               // for a time that it chose itself: with a request in hand that holds it up
)

// ready says that a thread is ready for work, or asleep of its own will for so long that
// no request is likely to wait for it.
func (w *watched) ready() bool {
	return w.idle || w.class == classIdle || w.class == classAsleep && w.still >= asleepAfter
}

// long says that a thread has waited for a while, for a lock or something as cheap to
// follow.
func (w *watched) long(now time.Time) bool {
	return w != nil && w.class == classCheap && now.Sub(w.since) >= glanceLasting
}

// note compares a thread with the look before; nil when there are too many.
func (s *Sampler) note(l *look, t *thread, now time.Time, gap time.Duration, frozen bool) *watched {
	w := s.threads[t.tid]
	if w == nil {
		if len(s.threads) >= maxWatched {
			return nil
		}
		w = &watched{pid: t.p.pid, tid: t.tid}
		s.threads[t.tid] = w
	}
	if !w.seen.IsZero() && w.pid == t.p.pid {
		w.count()
	} else {
		w.use = use{first: t.use.switches, name: poolName(t)}
	}
	same := w.pid == t.p.pid && w.state == t.state && w.call == t.call && t.known && w.switches == t.use.switches &&
		!w.seen.IsZero() && t.state != 'R'
	if !w.seen.IsZero() {
		gap = now.Sub(w.seen)
	}
	w.seen, w.listed = now, now
	if w.still++; !same {
		w.still = 0
	}
	if same && !(frozen && w.ready()) {
		if w.wait != nil {
			s.extend(w, now, gap)
		}
	} else {
		s.end(w, gap)
		w.pid, w.state, w.call, w.switches = t.p.pid, t.state, t.call, t.use.switches
		w.since, w.first, w.idle, w.followed = now.Add(-gap/2), now, false, time.Time{}
		w.class = s.classify(t)
		if w.class == classAsleep && l.asksForLock(t) {
			w.class = classCheap
		}
		w.use.loops = t.state == 'S' && t.call.known && s.calls[t.call.nr].does == waitsEpoll
		if frozen {
			w.class = classCheap
		}
		if w.class != classIdle {
			s.begin(w, now)
			if w.wait != nil {
				w.wait.inTurn = l.forInterpreter(t)
			}
			if s.served[w.pid] && w.wait != nil && w.wait.call != (callKey{}) {
				if key := (callKey{pid: w.pid, nr: w.call.nr, wchan: l.wchanOf(t)}); s.byCall[key] != nil {
					w.wait.call = key
				}
			}
		}
	}
	return w
}

// due says whether a thread is to be followed now.
func (s *Sampler) due(w *watched, now time.Time) bool {
	switch {
	case w.idle || w.class == classIdle || w.class == classRunning:
		return false
	case w.wait != nil && w.wait.shape != nil:
		return now.Sub(w.followed) >= refollow
	case w.class == classDear || w.class == classAsleep:
		return now.Sub(w.since) >= lasting
	}
	return true
}

// begin opens an interval.
func (s *Sampler) begin(w *watched, now time.Time) {
	if len(s.intervals) >= maxIntervals {
		s.intervals = slices.DeleteFunc(s.intervals, func(i *interval) bool {
			return !i.open && i.shape == nil && !i.running && s.byCall[i.call] == nil
		})
		if len(s.intervals) >= maxIntervals {
			s.lost++
			return
		}
	}
	w.wait = &interval{pid: w.pid, tid: w.tid, from: w.since, to: now, open: true, running: w.class == classRunning, samples: 1}
	if w.class == classDear || w.class == classCheap && w.call.known {
		w.wait.call = callKey{pid: w.pid, nr: w.call.nr, arg: w.call.args[0]}
		if c := s.calls[w.call.nr]; c.does == locksFile {
			// Each opens the file for itself, also in the workers of one service.
			master, _ := s.names.Master(w.pid)
			w.wait.call = callKey{pid: master, nr: w.call.nr}
		} else if c.does == controls {
			w.wait.call.arg = w.call.args[1]
		}
	}
	s.intervals = append(s.intervals, w.wait)
}

// extend makes the wait of a thread that did not run last until now.
func (s *Sampler) extend(w *watched, now time.Time, gap time.Duration) {
	i := w.wait
	i.to = now
	i.samples++
	if sh := i.shape; sh != nil {
		sh.samples++
		sh.now++
		sh.time += gap
		sh.last = now
		sh.longest = max(sh.longest, now.Sub(w.first))
	}
}

// end closes the wait of a thread: half of the time since it was last seen is
// counted to it.
func (s *Sampler) end(w *watched, gap time.Duration) {
	if i := w.wait; i != nil {
		i.open = false
		i.to = i.to.Add(gap / 2)
		w.wait = nil
	}
}

// classify tells from its system call whether a thread may be held up.
func (s *Sampler) classify(t *thread) class {
	switch t.state {
	case 'R':
		return classRunning
	case 'T', 't', 'D':
		return classCheap
	case 'S':
	default:
		return classIdle
	}
	switch {
	case t.call.running:
		return classRunning
	case !t.call.known, t.call.foreign:
		return classIdle // nothing is known: it is not blamed for anything
	case t.call.outside:
		return classDear
	}
	c, ok := s.calls[t.call.nr]
	if !ok {
		return classIdle
	}
	switch c.does {
	case waitsEpoll, waitsRing, waitsAIO, accepts, waitsSignal, leaves, restarts:
		return classIdle
	case sleeps:
		return classAsleep
	case waitsFutex, waitsFutex2, waitsVector, locksFile, controls, syncs:
		return classCheap
	}
	return classDear
}

// atRest notes that a thread is ready for work after all.
func (s *Sampler) atRest(w *watched) {
	if w == nil {
		return
	}
	w.idle = true
	if i := w.wait; i != nil && i.shape == nil && !i.inTurn {
		// It never counted for anything.
		i.to, i.open = i.from, false
		w.wait = nil
	}
}

// settle counts the waits that were over before they could be followed to what
// threads of the same process waited for in the same call at other times. What
// remains is not known.
func (s *Sampler) settle() {
	for _, i := range s.intervals {
		switch sh := s.byCall[i.call]; {
		case i.shape != nil || i.running || i.inTurn || i.to.Equal(i.from):
		case sh != nil && i.call != (callKey{}):
			sh.count(i)
		default:
			s.unknown += i.to.Sub(i.from)
		}
	}
}
