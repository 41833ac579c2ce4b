package web

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/language"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Bounds of what may be asked for.
const (
	maxQuery      = 32 << 10 // bytes of a query
	maxKeys       = 64       // endpoints
	defaultPoints = 300
	maxPoints     = 1000
	defaultLimit  = 100
	maxLimit      = 1000
	maxRange      = 400 * 24 * time.Hour
	defaultRange  = 15 * time.Minute
	maxID         = 300
	lastSecond    = 253402300799 // of the year 9999
)

// timeRange is from inclusive, to exclusive; the zero range is none.
type timeRange struct{ from, to time.Time }

func (r timeRange) zero() bool { return r.from.IsZero() && r.to.IsZero() }

// overlap is how much of two ranges is the same.
func (r timeRange) overlap(o timeRange) time.Duration {
	from, to := r.from, r.to
	if o.from.After(from) {
		from = o.from
	}
	if o.to.Before(to) {
		to = o.to
	}
	return max(to.Sub(from), 0)
}

// query is what a client asks for, checked.
type query struct {
	timeRange           // zero ends are filled in by the server
	against   timeRange // to compare with
	keys      []endpointKey
	points    int
	limit     int
	slow      time.Duration
	statuses  []statusFilter
	byTime    bool         // sort=time; otherwise the slowest first
	side      observe.Side // of requests; 0: both
	id        string
	trace     observe.TraceMatch // of requests: only those of a trace
	off       bool               // kind=off
	csv       bool
	ledger    bool
	noStacks  bool   // of a request
	paths     bool   // requests with all that belongs to them
	value     string // of a flame graph
	roots     string
}

// statusFilter is a status, or a class or code of HTTP.
type statusFilter struct {
	status observe.Status
	known  bool // status counts; otherwise low to high does
	low    int
	high   int
}

func (f statusFilter) matches(r *store.Request) bool {
	if f.known {
		return r.Status == f.status || f.status == observe.StatusError && r.Flags&observe.FlagUnanswered != 0
	}
	return r.HTTP >= f.low && r.HTTP <= f.high
}

// badRequest is an error that the client made.
type badRequest struct{ text string }

func (e *badRequest) Error() string { return e.text }

func bad(format string, args ...any) error { return &badRequest{fmt.Sprintf(format, args...)} }

// parseQuery reads a raw query. What it does not know is left alone: the page's
// own address has more in it.
func parseQuery(raw string) (*query, error) {
	if len(raw) > maxQuery {
		return nil, bad("the query is longer than %d bytes", maxQuery)
	}
	v, err := url.ParseQuery(raw)
	if err != nil {
		return nil, bad("the query cannot be read: %s", clip(err.Error(), 80))
	}
	q := &query{points: defaultPoints, limit: defaultLimit, ledger: v.Get("ledger") != "0", noStacks: v.Get("stacks") == "0", paths: v.Get("paths") == "1", byTime: v.Get("sort") == "time"}
	for _, t := range []struct {
		name string
		into *time.Time
	}{{"from", &q.from}, {"to", &q.to}, {"against_from", &q.against.from}, {"against_to", &q.against.to}} {
		if text := v.Get(t.name); text != "" {
			if *t.into, err = parseTime(text); err != nil {
				return nil, bad("%s=%s: %s", t.name, clip(text, 40), err)
			}
		}
	}
	if err := checkRange("from and to", q.timeRange); err != nil {
		return nil, err
	}
	if q.against.from.IsZero() != q.against.to.IsZero() {
		return nil, bad("against_from and against_to go together")
	}
	if err := checkRange("against_from and against_to", q.against); err != nil {
		return nil, err
	}
	if q.points, err = number(v, "points", defaultPoints, maxPoints); err != nil {
		return nil, err
	}
	if q.limit, err = number(v, "limit", defaultLimit, maxLimit); err != nil {
		return nil, err
	}
	if err := q.parseKeys(v["ep"]); err != nil {
		return nil, err
	}
	if text := v.Get("slow_us"); text != "" {
		us, err := strconv.ParseFloat(text, 64)
		if err != nil || !(us >= 0 && us <= 1e15) {
			return nil, bad("slow_us=%s: must be microseconds", clip(text, 40))
		}
		q.slow = time.Duration(us * 1e3)
	}
	for _, text := range v["status"] {
		if text == "" {
			continue
		}
		f, err := parseStatus(text)
		if err != nil {
			return nil, err
		}
		q.statuses = append(q.statuses, f)
	}
	return q, q.parseChoices(v)
}

func (q *query) parseKeys(list []string) error {
	if len(list) > maxKeys {
		return bad("more than %d endpoints", maxKeys)
	}
	for _, text := range list {
		if text == "" {
			continue
		}
		k, err := parseKey(text)
		if err != nil {
			return bad("ep=%s: %s", clip(text, 80), err)
		}
		if !slices.Contains(q.keys, k) {
			q.keys = append(q.keys, k)
		}
	}
	return nil
}

func (q *query) parseChoices(v url.Values) error {
	for _, c := range []struct {
		name    string
		allowed []string
	}{
		{"lang", append([]string{""}, language.Names()...)}, {"sort", []string{"", "slow", "time"}}, {"kind", []string{"", "cpu", "off"}}, {"format", []string{"", "json", "csv"}},
		{"side", []string{"", observe.Served.String(), observe.Called.String()}}, {"value", []string{"", "cpu", "off-cpu", "runnable", "samples"}}, {"roots", []string{"", "comm", "process", "thread"}},
	} {
		if text := v.Get(c.name); !slices.Contains(c.allowed, text) {
			return bad("%s=%s: must be one of %s", c.name, clip(text, 40), fmt.Sprint(c.allowed[1:]))
		}
	}
	if q.id = v.Get("id"); len(q.id) > maxID {
		return bad("id is longer than %d bytes", maxID)
	}
	if text := v.Get("trace"); text != "" {
		var err error
		if q.trace, err = observe.ParseTraceMatch(text); err != nil {
			return bad("trace=%s: %s", clip(text, 40), err)
		}
	}
	switch v.Get("side") {
	case observe.Served.String():
		q.side = observe.Served
	case observe.Called.String():
		q.side = observe.Called
	}
	q.off, q.csv, q.value, q.roots = v.Get("kind") == "off", v.Get("format") == "csv", v.Get("value"), v.Get("roots")
	return nil
}

// parseTime reads seconds since 1970, or RFC 3339.
func parseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil && t.Unix() >= 0 && t.Unix() <= lastSecond {
		return t.UTC(), nil
	}
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s >= 0 && s <= lastSecond) {
		return time.Time{}, fmt.Errorf("must be seconds since 1970")
	}
	whole, part := math.Modf(s)
	// A float of this size knows no less than a quarter of a microsecond.
	return time.Unix(int64(whole), int64(math.Round(part*1e6))*1e3).UTC(), nil
}

func checkRange(names string, r timeRange) error {
	if r.from.IsZero() || r.to.IsZero() {
		return nil
	}
	if !r.from.Before(r.to) {
		return bad("%s: the end must be after the beginning", names)
	}
	if r.to.Sub(r.from) > maxRange {
		return bad("%s: more than %d days", names, int(maxRange.Hours()/24))
	}
	return nil
}

func number(v url.Values, name string, otherwise, most int) (int, error) {
	text := v.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, bad("%s=%s: must be 1 to %d", name, clip(text, 40), most)
	}
	return n, nil
}

func parseStatus(text string) (statusFilter, error) {
	for _, s := range []observe.Status{observe.StatusUnknown, observe.StatusOK, observe.StatusError} {
		if text == s.String() {
			return statusFilter{status: s, known: true}, nil
		}
	}
	if len(text) == 3 && text[0] >= '1' && text[0] <= '9' {
		if class := int(text[0]-'0') * 100; text[1:] == "xx" {
			return statusFilter{low: class, high: class + 99}, nil
		}
		if code, err := strconv.ParseUint(text, 10, 16); err == nil {
			return statusFilter{low: int(code), high: int(code)}, nil
		}
	}
	return statusFilter{}, bad("status=%s: must be ok, error, unknown, a class as 5xx or a code as 503", clip(text, 40))
}

// clip shortens what a client sent for an error that quotes it.
func clip(text string, most int) string {
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// complete fills in the ends that were not given: the latest part of what there
// is.
func (q *query) complete(span timeRange, now time.Time) error {
	end := span.to
	if span.zero() {
		end = now
	}
	if q.to.IsZero() {
		if q.to = end; !q.from.IsZero() && !q.from.Before(q.to) {
			q.to = q.from.Add(time.Second)
		}
	}
	if q.from.IsZero() {
		q.from = q.to.Add(-defaultRange)
	}
	return checkRange("from and to", q.timeRange)
}

// queries are what the store is asked, one for each endpoint that was chosen.
func (q *query) queries(r timeRange) []store.Query {
	base := store.Query{From: r.from, To: r.to}
	if len(q.keys) == 0 {
		return []store.Query{base}
	}
	list := make([]store.Query, 0, len(q.keys))
	for _, k := range q.keys {
		list = append(list, k.query(base))
	}
	return list
}

// slowQueries are those for requests of the side that was asked for, that took as long
// as was.
func (q *query) slowQueries(r timeRange) []store.Query {
	var list []store.Query
	for _, ask := range q.queries(r) {
		switch {
		case q.side == 0 || ask.Side == q.side:
		case ask.Side == 0:
			ask.Side = q.side
		default:
			continue // an endpoint of the other side
		}
		ask.MinTotal, ask.Trace = q.slow, q.trace
		list = append(list, ask)
	}
	return list
}
