package function

import (
	"cmp"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

const (
	shortest     = 20 * time.Microsecond // a call that is shorter is no part of why a request is slow
	maxIntervals = 1 << 20
	maxRequests  = 1 << 18
	leastSlow    = 10
)

// requests records the requests of a process, and the calls that may be part of
// them.
type requests struct {
	pid       int
	stream    *request.Stream
	from      *request.Subscription
	ring      *ringbuf.Reader
	record    ringbuf.Record
	seen      []span // by the stream's goroutine until from ends, as is unseen
	unseen    int64
	intervals []interval
	lost      int64
}

// span is a request, in wall clock time.
type span struct {
	tid           int
	start, length int64
}

// interval is a call (struct interval), in the time of the programs.
type interval struct {
	pidTgid, start, duration uint64
	probe, _                 uint32
}

func recordRequests(pid int, intervals *ebpf.Map) (*requests, error) {
	r := &requests{pid: pid}
	var err error
	if r.stream, err = request.StartStream(request.Options{Side: observe.Served, Slow: 100 * time.Millisecond}); err != nil {
		return nil, err
	}
	if r.ring, err = ringbuf.NewReader(intervals); err != nil {
		r.stream.Close()
		return nil, fmt.Errorf("read calls: %w", err)
	}
	r.from = r.stream.Subscribe(r.see)
	return r, nil
}

// see takes one request.
func (r *requests) see(q *observe.Request) {
	switch {
	case q.PID != r.pid || q.Side != observe.Served:
	case len(r.seen) >= maxRequests:
		r.unseen++
	default:
		r.seen = append(r.seen, span{q.TID, q.StartNS, q.TotalNS()})
	}
}

func (r *requests) close() {
	if r == nil {
		return
	}
	r.ring.Close()
	r.stream.Close()
}

// poll takes the calls that there are; last says that the window is over.
func (r *requests) poll(last bool) {
	if r == nil {
		return
	}
	if last {
		_ = r.from.End() // when it fails, requests on idle connections are missing
	}
	r.ring.SetDeadline(time.Now())
	for n := 0; n < maxIntervals/4 || last; n++ {
		if r.ring.ReadInto(&r.record) != nil {
			return // there is no more
		}
		if len(r.record.RawSample) < int(unsafe.Sizeof(interval{})) {
			continue
		}
		if len(r.intervals) >= maxIntervals {
			r.lost++
			continue
		}
		r.intervals = append(r.intervals, *(*interval)(unsafe.Pointer(&r.record.RawSample[0])))
	}
}

// share tells how much of the time of the slowest requests was spent inside of
// each function, by the thread that read the request.
func (r *requests) share(t *Tracer, list []observe.Function, out *observe.Functions) {
	if r == nil {
		return
	}
	r.poll(true)
	slow := slowestSpans(r.seen)
	byThread := map[uint64][][2]int64{} // probe and thread → from, to
	for _, v := range r.intervals {
		key := uint64(v.probe)<<32 | v.pidTgid&0xffffffff
		from := int64(v.start) + t.offset
		byThread[key] = append(byThread[key], [2]int64{from, from + int64(v.duration)})
	}
	for key, v := range byThread {
		byThread[key] = union(v)
	}
	for i := range list {
		f := &list[i]
		switch {
		case !f.Timed:
			continue
		case f.Kind == observe.FunctionGo:
			f.Note = "its share of requests is not known: goroutines go from thread to thread"
			continue
		}
		f.Share = &observe.FunctionShare{Requests: len(slow)}
		for _, q := range slow {
			inside := overlap(byThread[uint64(i)<<32|uint64(q.tid)], q.start, q.start+q.length)
			f.Share.TimeNS += q.length
			f.Share.InsideNS += inside
			if inside > 0 {
				f.Share.Touched++
			}
		}
	}
	var kernel uint64
	t.get(bpf.FunctionVarLostIntervals, &kernel)
	stats := r.from.Stats()
	for what, n := range map[string]int64{
		"calls and requests that were not compared with each other, because room ran out": r.lost + r.unseen + int64(kernel),
		"requests without a record of their own":                                          int64(stats.Sampled + stats.Lost + stats.LeftOut),
	} {
		if n > 0 {
			out.Losses = append(out.Losses, observe.Loss{What: what, Count: n})
		}
	}
	slices.SortFunc(out.Losses, func(a, b observe.Loss) int { return cmp.Compare(a.What, b.What) })
}

// slowestSpans is the slowest hundredth, of at least ten.
func slowestSpans(all []span) []span {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b span) int {
		return cmp.Or(cmp.Compare(b.length, a.length), cmp.Compare(a.start, b.start))
	})
	return all[:min(len(all), max(len(all)/100, leastSlow))]
}

// union puts intervals in order and makes one of those that overlap.
func union(v [][2]int64) [][2]int64 {
	slices.SortFunc(v, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	out := v[:0]
	for _, one := range v {
		if n := len(out); n > 0 && one[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], one[1])
			continue
		}
		out = append(out, one)
	}
	return out
}

// overlap is how much of from…to lies in ordered intervals.
func overlap(v [][2]int64, from, to int64) int64 {
	i, _ := slices.BinarySearchFunc(v, from, func(a [2]int64, at int64) int { return cmp.Compare(a[1], at) })
	var sum int64
	for ; i < len(v) && v[i][0] < to; i++ {
		sum += max(min(v[i][1], to)-max(v[i][0], from), 0)
	}
	return sum
}
