package store

import (
	"cmp"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// maxSums is how many endpoints are summed up at a time: one takes 6 KB, or some
// 15 KB with the histograms of all parts. A host that calls half a million
// addresses in a quarter of an hour, or is called at them, must not take the memory
// of whoever asks for that quarter.
const maxSums = 4096

// others is the address of what sums up the endpoints of a side that have no sum
// of their own, as it is in a second that the recorder sums up.
const others = "other"

// sums are those of endpoints, at most maxSums. Where there are more, those with
// fewest requests are put together.
type sums struct {
	byKey map[endpointKey]*sum
	empty func() *sum // gives a sum for an endpoint that has none yet
	spare func(*sum)  // takes one that is needed no more; nil: nobody does
}

func newSums(empty func() *sum, spare func(*sum)) *sums {
	return &sums{byKey: map[endpointKey]*sum{}, empty: empty, spare: spare}
}

// newSum is a sum of memory of its own.
func newSum() *sum { return &sum{} }

// add adds a row to the sum of its endpoint.
func (l *sums) add(row *secondRow) { l.of(row.key()).add(row) }

func (l *sums) of(k endpointKey) *sum {
	s := l.byKey[k]
	if s == nil {
		if len(l.byKey) >= maxSums {
			l.thin()
		}
		s = l.empty()
		l.byKey[k] = s
	}
	return s
}

// thin puts the lesser half together.
func (l *sums) thin() {
	list := make([]*sum, 0, len(l.byKey))
	for _, s := range l.byKey {
		if s.key.addr != others {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.scalars.Requests, a.scalars.Requests), a.key.compare(b.key))
	})
	for _, s := range list[min(maxSums/2, len(list)):] {
		delete(l.byKey, s.key)
		s.key = endpointKey{side: s.key.side, addr: others}
		s.process, s.pid, s.peer = observe.Identity{}, 0, nil
		l.of(s.key).merge(s)
		if l.spare != nil {
			l.spare(s)
		}
	}
}

// sorted are the sums in the order of their keys.
func (l *sums) sorted() []*sum { return sorted(l.byKey) }

func sorted(byKey map[endpointKey]*sum) []*sum {
	list := make([]*sum, 0, len(byKey))
	for _, s := range byKey {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *sum) int { return a.key.compare(b.key) })
	return list
}

func (l *sums) clear() { clear(l.byKey) }

// spareSums are sums whose memory is used again.
type spareSums []*sum

func (l *spareSums) put(s *sum) {
	s.reset()
	*l = append(*l, s)
}

func (l *spareSums) get() *sum {
	n := len(*l)
	if n == 0 {
		return &sum{}
	}
	s := (*l)[n-1]
	*l = (*l)[:n-1]
	return s
}
