package wait

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/goroutine"
	"github.com/slowray/slowray/internal/sense/host"
)

const (
	// goEvery is the time between two looks at the goroutines of a process.
	goEvery = 150 * time.Millisecond
	// goRarely is the same while no request is known to be slow: those that stand
	// still are known only when the window ends.
	goRarely = time.Second
	// goShare is the share of a CPU that this may take, after a credit.
	goShare  = 0.005
	goCredit = 40 * time.Millisecond

	// From so many looks into slow requests, and so many requests that were in progress then,
	// those that no look fell into are held to have waited alike.
	leastLooks, leastMet = 2, 16

	maxGoPrograms = 64   // processes whose goroutines are looked at
	maxGoMoments  = 8192 // looks that are kept, of all processes
)

// goWatched is a Go program whose goroutines are looked at again and again.
type goWatched struct {
	program *goroutine.Program
	master  int
	last    time.Time
	waits   map[uint64]goWait // by number of the goroutine
	moments []goMoment
	pools   map[string]*goPool // by the function that its goroutines are in, or began with
}

// goWait is the wait of one goroutine.
type goWait struct {
	mark  uint64
	since time.Time
	seen  time.Time
}

// goMoment is what the goroutines of a process were held up by in one look.
type goMoment struct {
	at    time.Time
	since time.Duration // the look before
	held  map[*shape]goHeld
	other int // with a request in hand, and not held up by what is known
}

// goHeld is goroutines that were held up alike, and for how long all of them together
// since the look before.
type goHeld struct {
	n    int
	time time.Duration
}

// goSampling is the part of a Sampler that looks at goroutines.
type goSampling struct {
	programs map[int]*goWatched // nil of what is no Go program
	next     time.Time
	spent    time.Duration
	moments  int
	turn     int // whose goroutines are read first, of the processes of a look
}

// lookAtGoroutines looks at the goroutines of those processes that execute Go
// programs, when it is time again.
func (s *Sampler) lookAtGoroutines(l *look, pids []int, now time.Time, e Effort) {
	if e != Finish && (now.Before(s.goes.next) || s.goes.spent > goCredit+time.Duration(goShare*float64(now.Sub(s.start)))) {
		return
	}
	before := host.ThreadCPU()
	s.goes.next = now.Add(goEvery)
	if e == Glance {
		s.goes.next = now.Add(goRarely)
	}
	for i := range pids {
		// Who had no turn, because others took too long, begins the next look.
		at := (s.goes.turn + i) % len(pids)
		if l.budget.Err() != nil {
			s.goes.turn = at
			break
		}
		pid := pids[at]
		w, known := s.goes.programs[pid]
		if !known && len(s.goes.programs) < maxWatched {
			w = s.watchGo(l, pid)
			if w == nil && l.budget.Err() != nil {
				s.goes.turn = at
				break
			}
			s.goes.programs[pid] = w
		}
		if w == nil {
			continue
		}
		p := l.process(pid)
		if p.gone || l.mapLocked(p) {
			continue
		}
		listing, err := l.listGo(w.program)
		if err != nil {
			continue // the next look may be luckier
		}
		if told := fmt.Sprintf("some of the goroutines of process %d, which has more than are looked at", pid); listing.left > 0 && len(s.unseen) < 16 && !slices.Contains(s.unseen, told) {
			s.unseen = append(s.unseen, told)
		}
		s.noteGo(l, p, w, listing, now)
	}
	s.goes.spent += host.ThreadCPU() - before
}

// watchGo begins to look at the goroutines of a process; nil when it has none.
func (s *Sampler) watchGo(l *look, pid int) *goWatched {
	n := 0
	for _, w := range s.goes.programs {
		if w != nil {
			n++
		}
	}
	if n >= maxGoPrograms {
		return nil
	}
	program, err := goroutine.Open(l.part(), s.reader.fs.Proc, pid, s.reader.memory)
	if err != nil {
		if !errors.Is(err, goroutine.ErrNotGo) && !vanished(err) && len(s.unseen) < 16 {
			s.unseen = append(s.unseen, fmt.Sprintf("goroutines of process %d: %v", pid, err))
		}
		return nil
	}
	master, _ := s.names.Master(pid)
	return &goWatched{program: program, master: master, waits: map[uint64]goWait{}}
}

// noteGo adds one look at the goroutines of a process.
func (s *Sampler) noteGo(l *look, p *process, w *goWatched, listing *goListing, now time.Time) {
	m := goMoment{at: now, held: map[*shape]goHeld{}}
	since := now.Sub(w.last)
	if w.last.IsZero() {
		since = now.Sub(s.start)
	}
	// Of a wait that is new only the end of that time is known.
	gap := min(since, time.Second)
	if w.last.IsZero() {
		gap = goEvery
	}
	m.since = since
	w.last = now
	for _, group := range listing.groups() {
		first := group.members[0]
		if !heldUpGo(first) {
			if first.Serves() {
				m.other += len(group.members)
			}
			continue
		}
		var longest, held time.Duration
		for _, g := range group.members {
			age := s.ageGo(w, g, now, gap, listing.now)
			longest = max(longest, age)
			held += max(gap, min(age, since))
		}
		c := l.goChain(p, listing, group.members)
		c.Hops[0].ForNS = longest.Nanoseconds()
		sh := s.goShape(w.master, &c)
		if sh == nil {
			continue
		}
		n := len(group.members)
		m.held[sh] = goHeld{m.held[sh].n + n, m.held[sh].time + held}
		sh.samples += n
		sh.now += n
		sh.time += held
		sh.last = now
		if sh.first.IsZero() {
			sh.first = now.Add(-longest)
		}
		for _, g := range group.members[:min(n, max(maxThreadIDs-len(sh.tids), 0))] {
			sh.tids[-int(g.ID)] = true
		}
		if longest >= sh.longest {
			sh.longest, sh.chain = longest, c
		}
	}
	w.notePools(listing)
	for id, wait := range w.waits {
		if wait.seen != now {
			delete(w.waits, id)
		}
	}
	if s.goes.moments < maxGoMoments {
		s.goes.moments++
		w.moments = append(w.moments, m)
	} else {
		s.lost++
	}
}

// ageGo is for how long a goroutine has waited like this.
func (s *Sampler) ageGo(w *goWatched, g *goroutine.Goroutine, now time.Time, gap time.Duration, clock int64) time.Duration {
	old, known := w.waits[g.ID]
	if !known || old.mark != g.Mark {
		old = goWait{mark: g.Mark, since: now.Add(-min(gap, goEvery) / 2)}
	}
	old.seen = now
	w.waits[g.ID] = old
	age := now.Sub(old.since)
	if g.Since > 0 && clock > g.Since {
		age = max(age, time.Duration(clock-g.Since)) // the collector saw it wait
	}
	return age
}

// goShape is the shape of a chain of goroutines: by the places where they wait,
// not by the single lock.
func (s *Sampler) goShape(master int, c *observe.WaitChain) *shape {
	var b strings.Builder
	fmt.Fprint(&b, master, "|", c.End)
	for i := range c.Hops {
		h := &c.Hops[i]
		fmt.Fprint(&b, "|", h.Kind, " ", h.Wants)
		if len(h.Stack) > 0 && h.Kind != observe.WaitRunnable {
			b.WriteString(" " + h.Stack[0])
		}
		if i > 0 && c.BackTo < 0 {
			break // what the owner waits for differs from time to time
		}
	}
	key := b.String()
	sh := s.byKey[key]
	if sh == nil {
		if len(s.shapes) >= maxShapes {
			s.lost++
			return nil
		}
		sh = &shape{key: key, master: master, chain: *c, tids: map[int]bool{}}
		s.byKey[key] = sh
		s.shapes = append(s.shapes, sh)
	}
	return sh
}

// passOnGo passes the time of a family's slow requests on to what its goroutines
// waited for: of each look, that of the requests in progress then. Which
// goroutine has which request is not known, so each that is held up counts for
// one of them. Looks are rare in a busy program, and requests known by the
// moments that they are followed in: what enough looks met stands for the rest.
func (s *Sampler) passOnGo(f *family, t *observe.SlowTime, lost map[*shape]*loss) {
	if t.Requests == 0 {
		return
	}
	held := map[*shape]float64{}
	seen, looks, met := 0.0, 0, 0 // time of requests that looks fell into, ns
	for _, w := range s.goes.programs {
		if w == nil || w.master != f.master {
			continue
		}
		for i := range w.moments {
			m := &w.moments[i]
			requests, n := f.inProgress(m.at)
			goroutines := m.other
			for _, h := range m.held {
				goroutines += h.n
			}
			if requests == 0 || goroutines == 0 {
				continue
			}
			seen += requests * float64(m.since)
			looks++
			met += n
			each := min(1, requests/float64(goroutines))
			for sh, h := range m.held {
				held[sh] += each * float64(h.time)
			}
		}
	}
	mean, left := float64(t.NS)/float64(t.Requests), float64(t.NS)
	stands := 1.0
	if looks >= leastLooks && met >= leastMet {
		stands = max(left/seen, 1)
	}
	shapes := slices.SortedFunc(maps.Keys(held), func(a, b *shape) int { return strings.Compare(a.key, b.key) })
	for _, sh := range shapes {
		d := min(stands*held[sh], left)
		left -= d
		if lost[sh] == nil {
			lost[sh] = &loss{}
		}
		lost[sh].time += time.Duration(d)
		lost[sh].requests += d / mean
		lost[sh].reader = true
	}
}

// inProgress is how many requests of a family were in progress at a moment, and
// how many of them were followed.
func (f *family) inProgress(at time.Time) (requests float64, followed int) {
	for _, r := range f.requests {
		if !r.From.After(at) && r.To.After(at) {
			requests += f.stands(r)
			followed++
		}
	}
	return requests, followed
}

// goWaiting is how many goroutines were held up at the last look.
func (s *Sampler) goWaiting() map[*shape]int {
	out := map[*shape]int{}
	for _, w := range s.goes.programs {
		if w != nil && len(w.moments) > 0 {
			for sh, h := range w.moments[len(w.moments)-1].held {
				out[sh] += h.n
			}
		}
	}
	return out
}

// closeGo gives the files of the programs back.
func (s *Sampler) closeGo() {
	for _, w := range s.goes.programs {
		if w != nil {
			w.program.Close()
		}
	}
	s.goes.programs = nil
}
