package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// requestTimes notes when threads are at work on requests: from when a request is complete in the socket until the answer is
// written. What then waits to be sent, the thread does not wait for, or not
// only.
type requestTimes struct {
	stream      *request.Stream
	from        *request.Subscription
	slow        time.Duration
	pids        []int // whose requests are listed; empty = all
	ahead       int64 // wall clock less monotonic clock, ns
	times       map[worker]*workTimes
	spans       int
	requests    uint64
	slowOnes    uint64
	overlooked  uint64 // beyond maxSpans
	failedFlush error
	stats       request.Stats // at the end
}

// worker is a thread; tid 0 stands for any thread of the process.
type worker struct{ pid, tid int }

// workTimes are those of one thread, sorted and without overlap once united.
type workTimes struct{ slow, all []span }

type span struct{ from, to uint64 }

const maxSpans = 2_000_000

// watchRequests begins.
func watchRequests(slow time.Duration, pids []int) (*requestTimes, error) {
	stream, err := request.StartStream(request.Options{Side: observe.Served, Slow: slow})
	if err != nil {
		return nil, err
	}
	t := &requestTimes{stream: stream, slow: slow, pids: pids, ahead: wallAhead(), times: map[worker]*workTimes{}}
	t.from = stream.Subscribe(t.add)
	return t, nil
}

// wallAhead is how far the wall clock is ahead of the monotonic one, as the
// closest of a few readings has it.
func wallAhead() (ahead int64) {
	best := int64(math.MaxInt64)
	for range 5 {
		before := monotonic()
		wall := time.Now().UnixNano()
		if took := monotonic() - before; took < best {
			best, ahead = took, wall-before-took/2
		}
	}
	return ahead
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail on Linux
	return t.Nano()
}

// add notes one request.
func (t *requestTimes) add(r *observe.Request) {
	if r.Side != observe.Served || r.PID == 0 {
		return
	}
	isSlow := r.TotalNS() >= int64(t.slow)
	if len(t.pids) == 0 || slices.Contains(t.pids, r.PID) {
		t.requests += uint64(max(r.Requests, 1))
		if isSlow {
			t.slowOnes += uint64(max(r.Requests, 1))
		}
	}
	if t.spans >= maxSpans {
		t.overlooked++
		return
	}
	t.spans++
	begin := r.StartNS - t.ahead + r.Ledger[observe.AcceptWait] + r.Ledger[observe.TLS] + r.Ledger[observe.Upload]
	end := begin + r.Ledger[observe.RecvWait] + r.Ledger[observe.Server] + r.Ledger[observe.Stall]
	if begin < 0 || end <= begin {
		return
	}
	w := worker{r.PID, r.TID}
	of := t.times[w]
	if of == nil {
		of = &workTimes{}
		t.times[w] = of
	}
	s := span{uint64(begin), uint64(end)}
	of.all = append(of.all, s)
	if isSlow {
		of.slow = append(of.slow, s)
	}
}

// end ends watching; from then on Within can be asked.
func (t *requestTimes) end() {
	t.failedFlush = t.from.End() // told of at the end, where it matters most
	t.stats = t.from.Stats()
	t.stream.Close()
	for _, of := range t.times {
		of.slow, of.all = united(of.slow), united(of.all)
	}
}

// united sorts spans and joins those that overlap.
func united(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && s.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// Within implements callstack.Requests.
func (t *requestTimes) Within(pid, tid int, from, to uint64) (slow, other int64) {
	of := t.times[worker{pid, tid}]
	if of == nil {
		of = t.times[worker{pid, 0}] // who read the request is not known
	}
	if of == nil {
		return 0, 0
	}
	slow = overlap(of.slow, from, to)
	return slow, overlap(of.all, from, to) - slow
}

// overlap is how much of [from, to) spans that do not overlap cover.
func overlap(spans []span, from, to uint64) (sum int64) {
	i, _ := slices.BinarySearchFunc(spans, from, func(s span, from uint64) int {
		if s.to <= from {
			return -1
		}
		return 1
	})
	for ; i < len(spans) && spans[i].from < to; i++ {
		sum += int64(min(spans[i].to, to) - max(spans[i].from, from))
	}
	return sum
}

// tell adds to the stacks what was seen of requests.
func (t *requestTimes) tell(s *observe.Stacks) {
	s.Notes = append(s.Notes, fmt.Sprintf("only time in which threads were at work on requests that they had read: %s of %s requests took %s or more",
		figure.Count(t.slowOnes), figure.Count(t.requests), t.slow))
	for _, l := range []struct {
		n    uint64
		what string
	}{
		{t.stats.Lost, "requests without a record: the buffer was full"},
		{t.stats.LeftOut, "requests of connections that were left out, to stay within the budget: their time is left out"},
		{t.stats.Sampled, "requests that were only counted, to stay within the budget: their time is left out"},
		{t.overlooked, "requests whose time is left out: too many"},
	} {
		if l.n > 0 {
			s.Losses = append(s.Losses, observe.Loss{What: l.what, Count: int64(l.n)})
		}
	}
	if t.failedFlush != nil {
		s.Notes = append(s.Notes, "requests that ended last may be missing: "+t.failedFlush.Error())
	}
}
