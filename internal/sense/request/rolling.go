package request

import (
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// rollingEndpoints bounds the tables of a Rolling: it holds many.
const rollingEndpoints = 1024

// Rolling sums requests up over the last few intervals, for live views: one
// Table for each, merged on demand. Like a Table it is bounded, its Add
// allocates nothing in steady use, and it is not safe for concurrent use.
type Rolling struct {
	tables []*Table // a ring; the one at now is being filled
	now    int
	used   int
	merged *Table
	open   *openRequests // of all tables: a request goes on from one to the next
}

// NewRolling keeps the given number of intervals, the first of which begins at
// start. master is as Table.Master.
func NewRolling(intervals int, start time.Time, master func(pid int) (int, string)) *Rolling {
	r := &Rolling{tables: make([]*Table, max(intervals, 1)), used: 1, open: newOpenRequests()}
	for i := range r.tables {
		r.tables[i] = r.table(start, master)
	}
	r.merged = r.table(start, nil)
	return r
}

func (r *Rolling) table(start time.Time, master func(int) (int, string)) *Table {
	t := NewTable(start)
	t.Master, t.limit, t.open = master, rollingEndpoints, r.open
	return t
}

// Add counts a request in the present interval.
func (r *Rolling) Add(req *observe.Request) { r.tables[r.now].Add(req) }

// Next begins the next interval; the oldest is forgotten when there are too many.
func (r *Rolling) Next(start time.Time) {
	r.now = (r.now + 1) % len(r.tables)
	r.used = min(r.used+1, len(r.tables))
	r.tables[r.now].clear(start)
}

// Start is when the oldest interval that is kept began.
func (r *Rolling) Start() time.Time { return time.Unix(0, r.oldest().start) }

func (r *Rolling) oldest() *Table {
	return r.tables[(r.now-r.used+1+len(r.tables))%len(r.tables)]
}

// Endpoints is what was counted in all intervals; counters are those of the
// same time. Requests in progress that were not reported in this time are
// forgotten.
func (r *Rolling) Endpoints(end time.Time, counters []Counters) []observe.Endpoint {
	r.open.forget(r.oldest().start)
	r.merged.clear(r.Start())
	for i := range r.used {
		r.merged.Merge(r.tables[(r.now-i+len(r.tables))%len(r.tables)])
	}
	return r.merged.Endpoints(end, counters)
}
