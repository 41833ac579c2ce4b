package experiment

import (
	"math"
	"time"
)

// Block is what was measured in one stretch of time.
type Block struct {
	Start   time.Time `json:"start"`
	Seconds float64   `json:"seconds"`

	Requests   uint64 `json:"requests"`   // answered, well or not
	Good       uint64 `json:"good"`       // answered well
	Errors     uint64 `json:"errors"`     // answered with an error
	Unanswered uint64 `json:"unanswered"` // refused, cut off, or given up
	// Tried counts signs that somebody wants to be served next to the requests:
	// connections opened, SYNs retransmitted, requests that
	// were still going on at the end.
	Tried uint64 `json:"tried,omitempty"`

	// P50 and P99 are quantiles, in ns, of Timed requests: read from a histogram,
	// or told by a load generator. They mean nothing when Timed is 0.
	P50   float64 `json:"p50_ns"`
	P99   float64 `json:"p99_ns"`
	Timed uint64  `json:"timed"`

	// Parts are parts of the ledger: the 99th percentile, in ns.
	Parts map[string]float64 `json:"parts_p99_ns,omitempty"`
	// Counters are increases per second of what belongs to the finding.
	Counters map[string]float64 `json:"counters_per_s,omitempty"`
}

// Metric is something that a block is judged by.
type Metric string

// The metrics that are judged.
const (
	GoodRate   Metric = "good_per_s"  // good responses, 1/s: the more the better
	ErrorShare Metric = "error_share" // of all that was asked for, 0 to 1
	P50        Metric = "p50"         // of good responses, ns
	P99        Metric = "p99"         // of good responses, ns
)

// Metrics lists them, the one that matters most first.
func Metrics() []Metric { return []Metric{GoodRate, ErrorShare, P50, P99} }

// kind is how a metric is read, and what is too little of it.
type kind struct {
	unit   string  // of the value
	higher bool    // is better
	offset float64 // added before the logarithm: what is nothing next to it does not count
	least  float64 // smallest effect that counts, as a logarithm
	floor  float64 // smallest difference that counts, in the unit
	sure   float64 // an effect of this size is believed when it came and went once
	enough uint64  // requests in a block, below which the metric says nothing
}

var kinds = map[Metric]kind{
	GoodRate: {unit: "1/s", higher: true, offset: 0.5, least: math.Log(1.05), sure: math.Log(2), enough: 30},
	// Two in a thousand is what a healthy service may have.
	ErrorShare: {unit: "share", offset: 0.002, least: math.Log(1.5), floor: 0.005, sure: math.Log(4), enough: 30},
	P50:        {unit: "ns", offset: 1e3, least: math.Log(1.10), floor: 20e3, sure: math.Log(2), enough: 30},
	P99:        {unit: "ns", offset: 1e3, least: math.Log(1.20), floor: 100e3, sure: math.Log(4), enough: 200},
}

// closedErrors is ErrorShare under a closed loop, where a client that is given up
// after seconds counts as one while others ask a thousand times.
var closedErrors = kind{unit: "share", offset: 0.0005, least: math.Log(1.5), floor: 0.001, sure: math.Log(4), enough: 30}

// counterKind is a counter of harm: packets dropped, calls refused.
var counterKind = kind{unit: "1/s", offset: 1, least: math.Log(1.5), floor: 1, sure: math.Log(4)}

// value is the metric's in b.
func (m Metric) value(b *Block) float64 {
	switch m {
	case GoodRate:
		return ratio(float64(b.Good), b.Seconds)
	case ErrorShare:
		return ratio(float64(b.Errors+b.Unanswered), float64(b.Requests+b.Unanswered))
	case P50:
		return b.P50
	case P99:
		return b.P99
	}
	return 0
}

// weight is how many requests the metric's value in b rests on.
func (m Metric) weight(b *Block) uint64 {
	switch m {
	case P50, P99:
		return b.Timed
	}
	return b.Requests + b.Unanswered
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// score is a value on the scale of the judgement: a logarithm that grows with
// what is better.
func (k kind) score(v float64) float64 {
	s := math.Log(max(v, 0) + k.offset)
	if k.higher {
		return s
	}
	return -s
}
