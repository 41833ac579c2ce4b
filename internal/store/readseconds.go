package store

import (
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/safefile"
)

// EndpointSum is an endpoint over a range of time. Endpoints are distinguished by
// side, namespace, address, port and comm: PID and Process are the latest.
type EndpointSum struct {
	Endpoint    observe.Endpoint
	Process     observe.Identity
	First, Last time.Time // from the first to the last moment with traffic, as fine as what was read
}

// Series is one endpoint over time.
type Series struct {
	EndpointSum               // the sum of all points
	Step        time.Duration // of the points: at least what was asked for
	Points      []Second      // in order of time; steps without traffic are left out
}

// steps are those that Series and Points use, in seconds; then come whole days.
var steps = [...]int64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400}

// Step is the step that Series and Points use at least when asked for one: 1, 2,
// 5, 10, 20, 30 s, 1, 2, 5, 10, 15, 30 min, 1, 2, 3, 6, 12 h, days.
func Step(step time.Duration) time.Duration {
	for _, s := range steps {
		if d := time.Duration(s) * time.Second; d >= step {
			return d
		}
	}
	const day = 24 * time.Hour
	return (step + day - 1) / day * day
}

// kindFor is the coarsest kind of which steps of some seconds are made.
func kindFor(step int64) kind {
	switch {
	case step%300 == 0:
		return kindMinutes5
	case step%10 == 0:
		return kindSeconds10
	}
	return kindSeconds
}

// Endpoints sums the range up, by endpoint: served ones first, then by
// namespace, address, port and comm. The histograms of parts other than Server
// (PartHists) are those of the whole five minutes in the range, by the clock, and
// of what is in no file yet. Of more than 4,096 endpoints those with fewest requests
// are summed up as "other", for each side.
func (r *Reader) Endpoints(q Query) ([]EndpointSum, error) {
	sums := newSums(newSum, nil)
	from, to := q.bounds()
	for _, p := range pieces(from, to) {
		err := r.secondRows(p.kind, p.from, p.to, &q, func(row *secondRow) bool {
			sums.add(row)
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	list := make([]EndpointSum, 0, len(sums.byKey))
	for _, s := range sums.sorted() {
		list = append(list, s.endpointSum())
	}
	return list, nil
}

// piece is a part of a range that is read from rows of one width.
type piece struct {
	kind     kind
	from, to int64 // µs since 1970
}

// pieces cuts a range so that most of it is read from the coarsest rows.
func pieces(from, to int64) []piece {
	if from >= to {
		return nil
	}
	list := []piece{{kindMinutes5, from, to}}
	for _, finer := range []struct{ coarse, fine kind }{{kindMinutes5, kindSeconds10}, {kindSeconds10, kindSeconds}} {
		var cut []piece
		for _, p := range list {
			if p.kind != finer.coarse {
				cut = append(cut, p)
				continue
			}
			width := widthOf(finer.coarse) * 1e6
			inner := piece{p.kind, p.from, p.to}
			if from > -1<<61 {
				inner.from = floorTo(p.from+width-1, width)
			}
			if to < 1<<61 {
				inner.to = floorTo(p.to, width)
			}
			if inner.from >= inner.to {
				cut = append(cut, piece{finer.fine, p.from, p.to})
				continue
			}
			if p.from < inner.from {
				cut = append(cut, piece{finer.fine, p.from, inner.from})
			}
			cut = append(cut, inner)
			if inner.to < p.to {
				cut = append(cut, piece{finer.fine, inner.to, p.to})
			}
		}
		list = cut
	}
	return list
}

// Series gives points of merged Seconds for each endpoint. The step is rounded up
// to one that is stored or easily made (Step says which); where single seconds
// are no longer kept, to ten at least.
func (r *Reader) Series(q Query, step time.Duration) ([]Series, error) {
	points := map[endpointKey][]Second{}
	sums := map[endpointKey]*sum{}
	width, err := r.points(&q, step, newSums(newSum, nil), func(at int64, s *sum) bool {
		if sums[s.key] == nil {
			sums[s.key] = &sum{}
		}
		sums[s.key].merge(s)
		points[s.key] = append(points[s.key], s.second(at))
		return true
	})
	if err != nil {
		return nil, err
	}
	var list []Series
	for _, s := range sorted(sums) {
		list = append(list, Series{EndpointSum: s.endpointSum(), Step: time.Duration(width) * time.Second, Points: points[s.key]})
	}
	return list, nil
}

// Points is Series one point at a time, in order of time, for callers that need
// not hold all histograms: the Second and all in it is f's only until f returns.
// False ends it. Of more than 4,096 endpoints in a step those with fewest requests
// are summed up as "other".
func (r *Reader) Points(q Query, step time.Duration, f func(*Second) bool) error {
	var spare spareSums
	_, err := r.points(&q, step, newSums(spare.get, spare.put), func(at int64, s *sum) bool {
		sec := s.second(at)
		more := f(&sec)
		spare.put(s)
		return more
	})
	return err
}

// points gives the sum of each endpoint and step, in order of time, and tells how
// many seconds the steps have.
func (r *Reader) points(q *Query, asked time.Duration, sums *sums, f func(at int64, s *sum) bool) (width int64, err error) {
	width = int64(Step(asked) / time.Second)
	from, to := q.bounds()
	if kindFor(width) == kindSeconds {
		gone, err := r.secondsGone(from)
		if err != nil {
			return 0, err
		}
		if gone {
			width = max(width, 10)
		}
	}
	step := width * 1e6
	if from > -1<<61 {
		from = floorTo(from, step)
	}
	if to < 1<<61 {
		to = floorTo(to+step-1, step)
	}
	begin := int64(0) // of the step that sums is of
	more := true
	flush := func() {
		for _, s := range sums.sorted() {
			if more = more && f(begin/1e6, s); !more {
				break
			}
		}
		sums.clear()
	}
	err = r.secondRows(kindFor(width), from, to, q, func(row *secondRow) bool {
		if at := floorTo(row.At, step); at != begin {
			flush()
			begin = at
		}
		if more {
			sums.add(row)
		}
		return more
	})
	if err == nil && more {
		flush()
	}
	return width, err
}

// secondsGone says whether rows of single seconds were removed of the beginning of
// a range, while rows of ten seconds are there.
func (r *Reader) secondsGone(from int64) (bool, error) {
	root, err := safefile.OpenRoot(r.dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	fine, _, err := segments(root, kindSeconds)
	if err != nil {
		return false, err
	}
	coarse, _, err := segments(root, kindSeconds10)
	if err != nil || len(coarse) == 0 || len(fine) == 0 {
		return len(coarse) > 0, err
	}
	return coarse[0].first+10 < fine[0].first && from < fine[0].first*1e6, nil
}

// secondRows gives the rows of a kind that begin in a range, in order of time.
func (r *Reader) secondRows(k kind, from, to int64, q *Query, f func(*secondRow) bool) error {
	snap, err := r.snapshot(k, from, to)
	if err != nil {
		return err
	}
	defer snap.close()
	at := func(row *secondRow) int64 { return row.At }
	runs := fileRuns[secondRow](r, snap, from, to, q.hists().reads, nil)
	for i := range snap.logs {
		data, ok := snap.logs[i].readable(r.skip)
		if !ok {
			continue
		}
		if refs, _ := data.inOrder(entrySecond, from, to); len(refs) > 0 {
			runs = append(runs, run[secondRow]{path: snap.logs[i].path, first: refs[0].at, lots: func(yield func([]secondRow, error) bool) {
				lot := make([]secondRow, 1)
				secondsOf(refs, q.hists(), func(row *secondRow) bool {
					lot[0] = *row
					return yield(lot, nil)
				})
			}})
		}
	}
	merge(runs, at, r.skip, func(row *secondRow) bool {
		if row.At >= to {
			return false
		}
		return row.At < from || !q.matches(row.Side, row.NetNS, row.Addr, row.Port, row.PID, row.Comm, row.Container, row.ContainerName, row.Unit) || f(row)
	})
	return nil
}

// matches says whether a row is one of those that are asked for, its time aside.
func (q *Query) matches(side string, netns int64, addr string, port, pid int32, comm, container, name, unit string) bool {
	return (q.Side == 0 || side == q.Side.String()) &&
		(q.NetNS == 0 || uint64(netns) == q.NetNS) &&
		(q.Addr == "" || addr == q.Addr) &&
		(q.Port == 0 || int(port) == q.Port) &&
		(q.PID == 0 || int(pid) == q.PID) &&
		(q.Comm == "" || comm == q.Comm) &&
		(q.Container == "" || name == q.Container || strings.HasPrefix(container, q.Container)) &&
		(q.Unit == "" || unit == q.Unit || unit == q.Unit+".service")
}
