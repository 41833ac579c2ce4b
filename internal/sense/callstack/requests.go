package callstack

import "github.com/slowray/slowray/internal/observe"

// Requests tells when threads were at work on requests.
type Requests interface {
	// Within is how much of the time from from to to (monotonic clock, ns) a
	// thread was in slow requests, and how much only in others.
	Within(pid, tid int, from, to uint64) (slow, other int64)
}

// maxKept bounds the records that are kept until the requests are known.
const maxKept = 500_000

// kept is a record that is compared with requests when all are known.
type kept struct {
	thread thread
	frames []int32
	value  value
}

// keep counts a record, or keeps it until the requests are known.
func (w *watcher) keep(h *held) {
	switch {
	case w.opt.Requests == nil:
		w.tally.count(h.thread, h.frames, h.value)
	case len(w.kept) == maxKept:
		w.lost++
	default:
		w.kept = append(w.kept, kept{h.thread, h.frames, h.value})
	}
}

// settleRequests counts of each record that was kept what lies within
// requests, in slow ones and in others apart.
func (w *watcher) settleRequests() {
	if w.opt.Requests == nil {
		return
	}
	requests := w.opt.Requests()
	for i := range w.kept {
		k := &w.kept[i]
		if w.opt.OnCPU {
			// A moment stands for its sample's time.
			slow, other := requests.Within(k.thread.pid, k.thread.tid, k.value.from, k.value.from+1)
			if slow+other > 0 {
				k.value.slow = slow > 0
				w.tally.count(k.thread, k.frames, k.value)
			}
			continue
		}
		woken := k.value.from + uint64(k.value.first)
		slow, other := value{state: k.value.state, slow: true}, value{state: k.value.state}
		slow.first, other.first = requests.Within(k.thread.pid, k.thread.tid, k.value.from, woken)
		slow.second, other.second = requests.Within(k.thread.pid, k.thread.tid, woken, woken+uint64(k.value.second))
		for _, v := range []value{slow, other} {
			if v.first+v.second > 0 {
				w.tally.count(k.thread, k.frames, v)
			}
		}
	}
	if w.lost > 0 {
		w.out.Losses = append(w.out.Losses, observe.Loss{What: "records that were not compared with requests: too many", Count: w.lost})
	}
}
