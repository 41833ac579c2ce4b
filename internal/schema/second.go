package schema

import (
	"github.com/slowray/slowray/internal/observe"
)

// Second is what one endpoint did in one second. Of Endpoint it keeps the counts,
// the sums of the parts and of the split, the histograms of the total, of the round
// trips and of Server, those of the other parts in sums of five minutes, and the
// name of the process; samples, peers, arrivals and slow parts are left to the
// requests.
type Second struct {
	At       int64 // s since 1970: the beginning of the second
	Endpoint observe.Endpoint
	Process  observe.Identity
}

// Merge is how the values of several seconds come together.
type Merge uint8

// The ways.
const (
	Sum   Merge = iota
	Most        // the greatest
	Least       // the least that is not 0
)

// Count is one value of an endpoint's second.
type Count struct {
	Name  string // of the column, with the unit
	Kind  Kind   // Number or Micros
	Merge Merge
	// Of is the value, of a time in ns; nil where it comes from the parts or the
	// histograms, which are large: whoever goes through them has it for nothing.
	Of func(e *observe.Endpoint) int64
	// Set is the inverse.
	Set func(e *observe.Endpoint, n int64)
}

// Value is the count as the forms have it: times are whole µs, rounded. It is 0
// where Of is nil.
func (c *Count) Value(e *observe.Endpoint) int64 {
	switch {
	case c.Of == nil:
		return 0
	case c.Kind == Micros:
		return RoundMicros(c.Of(e))
	}
	return c.Of(e)
}

// SetValue is the inverse.
func (c *Count) SetValue(e *observe.Endpoint, n int64) {
	if c.Kind == Micros {
		n *= 1000
	}
	if c.Set != nil {
		c.Set(e, n)
	}
}

// Add adds another value to one.
func (m Merge) Add(a, b int64) int64 {
	switch {
	case m == Sum:
		return a + b
	case m == Most:
		return max(a, b)
	case b > 0 && (a == 0 || b < a):
		return b
	}
	return a
}

// RoundMicros is a time of ns in µs, rounded.
func RoundMicros(ns int64) int64 {
	us := (ns + 500) / 1000
	if (ns+500)%1000 < 0 {
		us--
	}
	return us
}

func counter(name string, at func(e *observe.Endpoint) *uint64) Count {
	return Count{name, Number, Sum, func(e *observe.Endpoint) int64 { return int64(*at(e)) }, func(e *observe.Endpoint, n int64) { *at(e) = uint64(n) }}
}

func span(name string, m Merge, at func(e *observe.Endpoint) *int64) Count {
	return Count{name, Micros, m, func(e *observe.Endpoint) int64 { return *at(e) }, func(e *observe.Endpoint, n int64) { *at(e) = n }}
}

// status counts responses of a class: "2xx".
func status(class string) Count {
	return Count{"http_" + class, Number, Sum, func(e *observe.Endpoint) int64 { return int64(e.Statuses[class]) }, func(e *observe.Endpoint, n int64) {
		if n <= 0 {
			return
		}
		if e.Statuses == nil {
			e.Statuses = map[string]uint64{}
		}
		e.Statuses[class] = uint64(n)
	}}
}

// Counts are the values of an endpoint's second but for the parts of its requests'
// time, in the order of their columns.
var Counts = func() []Count {
	type endpoint = observe.Endpoint
	unfinished := counter("unfinished", func(e *endpoint) *uint64 { return &e.Unfinished })
	unfinished.Merge = Most // in progress: the same ones, second after second
	return []Count{
		counter("requests", func(e *endpoint) *uint64 { return &e.Requests }),
		counter("ok", func(e *endpoint) *uint64 { return &e.OK }),
		counter("errors", func(e *endpoint) *uint64 { return &e.Errors }),
		counter("unanswered", func(e *endpoint) *uint64 { return &e.Unanswered }),
		unfinished,
		counter("overlapped", func(e *endpoint) *uint64 { return &e.Overlapped }),
		counter("recorded", func(e *endpoint) *uint64 { return &e.Recorded }),
		status("1xx"), status("2xx"), status("3xx"), status("4xx"), status("5xx"),
		counter("bytes_in", func(e *endpoint) *uint64 { return &e.BytesIn }),
		counter("bytes_out", func(e *endpoint) *uint64 { return &e.BytesOut }),
		counter("segments", func(e *endpoint) *uint64 { return &e.Segments }),
		counter("retrans", func(e *endpoint) *uint64 { return &e.Retrans }),
		counter("connections", func(e *endpoint) *uint64 { return &e.Connections }),
		counter("syn_retrans", func(e *endpoint) *uint64 { return &e.SynRetrans }),
		span("handshake_us", Sum, func(e *endpoint) *int64 { return &e.Handshake }),
		span("handshake_max_us", Most, func(e *endpoint) *int64 { return &e.HandshakeMax }),
		span("min_rtt_us", Least, func(e *endpoint) *int64 { return &e.MinRTT }),
		{"total_us", Micros, Sum, nil, nil},
		{"total_max_us", Micros, Most, nil, nil},
		{"server_max_us", Micros, Most, nil, nil},
		{"rtt_max_us", Micros, Most, nil, nil},
	}
}()
