package store

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/safefile"
)

// Requests calls f for each stored request of the range, in order of their
// start, until f is false. The Request is f's until f returns.
func (r *Reader) Requests(q Query, f func(*Request) bool) error {
	var req Request
	var text phrases
	return r.requestRows(&q, nil, func(row *requestRow) bool {
		row.request(&req, &text)
		return f(&req)
	})
}

// Slowest are the n slowest requests of the range, slowest first.
func (r *Reader) Slowest(q Query, n int) ([]Request, error) {
	if n <= 0 {
		return nil, nil
	}
	// First how slow the slowest are, which is in few columns.
	times := make([]int64, 0, min(n, 1<<16))
	err := r.requestRows(&q, timesOnly, func(row *requestRow) bool {
		at, _ := slices.BinarySearchFunc(times, row.TotalUS, func(a, b int64) int { return cmp.Compare(b, a) })
		if at == n {
			return true
		}
		if len(times) == n {
			times = times[:n-1]
		}
		times = slices.Insert(times, at, row.TotalUS)
		return true
	})
	if err != nil || len(times) == 0 {
		return nil, err
	}
	q.MinTotal = max(q.MinTotal, time.Duration(times[len(times)-1])*time.Microsecond)
	var list []Request
	cut := func() {
		slices.SortStableFunc(list, func(a, b Request) int { return cmp.Compare(b.TotalNS(), a.TotalNS()) })
		list = list[:min(n, len(list))]
	}
	err = r.Requests(q, func(req *Request) bool {
		// Any number may have taken as long as the last one that counts.
		if list = append(list, *req); len(list) >= 2*n+1000 {
			cut()
		}
		return true
	})
	cut()
	return list, err
}

// Totals is the histogram of the total time of the stored requests of the range,
// each counted by its weight. It reads far less than Requests does.
func (r *Reader) Totals(q Query) (*observe.Histogram, error) {
	var h observe.Histogram
	err := r.requestRows(&q, timesOnly, func(row *requestRow) bool {
		h.AddN(row.TotalUS*1000, uint64(max(row.Weight, 1)))
		return true
	})
	return &h, err
}

// timesOnly are the columns by which requests are chosen and weighed.
func timesOnly(path string) bool { return path == "total_us" || path == "weight" }

// asked are the columns that the conditions of a query are about.
func (q *Query) asked(path string) bool {
	switch path {
	case "start":
		return true
	case "side":
		return q.Side != 0 || q.Addr != "" || q.Port != 0
	case "netns":
		return q.NetNS != 0
	case "addr", "peer_addr":
		return q.Addr != ""
	case "port", "peer_port":
		return q.Port != 0
	case "pid":
		return q.PID != 0
	case "comm":
		return q.Comm != ""
	case "container", "container_name":
		return q.Container != ""
	case "unit":
		return q.Unit != ""
	case "total_us":
		return q.MinTotal != 0
	case "trace_id":
		return q.Trace != ""
	}
	return false
}

// requestRows gives the stored requests of a range in order of their start, with
// the columns for which want is true (nil: all), and those that q is about.
func (r *Reader) requestRows(q *Query, want func(string) bool, f func(*requestRow) bool) error {
	from, to := q.bounds()
	snap, err := r.snapshot(kindRequests, from, to)
	if err != nil {
		return err
	}
	defer snap.close()
	columns := want
	if want != nil {
		columns = func(path string) bool { return want(path) || q.asked(path) }
	}
	least := int64((q.MinTotal + time.Microsecond - 1) / time.Microsecond)
	keep := func(g parquet.RowGroup) bool {
		total, ok := g.Schema().Lookup("total_us")
		if !ok || least <= 0 {
			return true
		}
		_, high, known := boundsOfColumn(g, total.ColumnIndex)
		return !known || high >= least
	}
	at := func(row *requestRow) int64 { return row.Start }
	matches := func(row *requestRow) bool {
		addr, port := row.Addr, row.Port
		if row.Side == observe.Called.String() {
			addr, port = row.PeerAddr, row.PeerPort
		}
		return row.Start >= from && row.TotalUS >= least && strings.HasPrefix(row.TraceID, string(q.Trace)) &&
			q.matches(row.Side, row.NetNS, addr, port, row.PID, row.Comm, row.Container, row.ContainerName, row.Unit)
	}
	if least <= 0 {
		least = -1 << 62
	}
	runs := fileRuns[requestRow](r, snap, from, to, columns, keep)
	for i := range snap.logs {
		data, ok := snap.logs[i].readable(r.skip)
		if !ok {
			continue
		}
		if refs, procs := data.inOrder(entryRequest, from, to); len(refs) > 0 {
			runs = append(runs, run[requestRow]{path: snap.logs[i].path, first: refs[0].at, lots: func(yield func([]requestRow, error) bool) {
				requestsOf(refs, procs, func(rows []requestRow) bool { return yield(rows, nil) })
			}})
		}
	}
	merge(runs, at, r.skip, func(row *requestRow) bool {
		if row.Start >= to {
			return false
		}
		return !matches(row) || f(row)
	})
	return nil
}

// Window is a stored Observation.
type Window struct {
	Path       string // for observe.Load
	Start, End time.Time
}

// In says whether a window lies in a range by the better half.
func (w *Window) In(from, to time.Time) bool {
	middle := w.Start.Add(w.End.Sub(w.Start) / 2)
	return !middle.Before(from) && middle.Before(to)
}

// Observations lists the stored windows that overlap the range, by start. Zero
// times leave the range open.
func (r *Reader) Observations(from, to time.Time) ([]Window, error) {
	root, err := safefile.OpenRoot(r.dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	defer root.Close()
	list, err := observations(root, from, to, false)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	var out []Window
	for _, o := range list {
		out = append(out, o.Window)
	}
	return out, nil
}

func overlaps(start, end, from, to time.Time) bool {
	return (to.IsZero() || start.Before(to)) && (from.IsZero() || !end.Before(from))
}

// Findings are those of windows that overlap the range, by start of the window,
// then by weight, greatest first.
func (r *Reader) Findings(from, to time.Time) ([]Finding, error) {
	// A file is named by the beginnings of its windows, which may be some time
	// before their ends.
	const longest = time.Hour
	early := from
	if !from.IsZero() {
		early = from.Add(-longest)
	}
	low, high := boundsOf(early, to)
	snap, err := r.snapshot(kindFindings, low, high)
	if err != nil {
		return nil, err
	}
	defer snap.close()
	at := func(row *findingRow) int64 { return row.Start }
	runs := fileRuns[findingRow](r, snap, low, high, nil, nil)
	for i := range snap.logs {
		data, ok := snap.logs[i].readable(r.skip)
		if !ok {
			continue
		}
		var list []findingRow
		data.findings(func(row *findingRow) bool {
			list = append(list, *row)
			return true
		})
		slices.SortStableFunc(list, func(a, b findingRow) int { return cmp.Compare(at(&a), at(&b)) })
		if len(list) > 0 {
			runs = append(runs, run[findingRow]{path: snap.logs[i].path, first: at(&list[0]), lots: func(yield func([]findingRow, error) bool) { yield(list, nil) }})
		}
	}
	var out []Finding
	merge(runs, at, r.skip, func(row *findingRow) bool {
		if f, err := row.finding(); err != nil {
			r.skip(filepath.Join(r.dir, string(kindFindings)), fmt.Errorf("a finding: %w", err))
		} else if overlaps(f.Start, f.End, from, to) {
			out = append(out, f)
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(b.Weight, a.Weight)) })
	return out, nil
}
