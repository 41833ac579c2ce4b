package store

import (
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/schema"
)

// A stored request, why it is stored, and a second of an endpoint: see package schema.
type (
	Request = schema.Request
	Why     = schema.Why
	Second  = schema.Second
)

// Reasons to store a request.
const (
	Sampled = schema.Sampled
	Slow    = schema.Slow
	Failed  = schema.Failed
)

// Finding is a finding of one window.
type Finding struct {
	Start, End time.Time // of the window
	cause.Finding
}

// Options bound the store. Zero values are the defaults.
type Options struct {
	MaxBytes int64         // all files together; default 2 GiB. The oldest go first
	MaxAge   time.Duration // default 7 days
	Segment  time.Duration // how much time a Parquet file covers before it is compacted; default 5 min
	Links    []Link        // where logs are linked to, for those who send them elsewhere
}

// Stats is what a writer did since Open.
type Stats struct {
	Requests, Seconds, Findings, Observations uint64
	Bytes                                     int64  // on disk now
	Recovered                                 uint64 // entries of a killed writer's log that are kept
	Torn                                      uint64 // bytes at the end of such a log that were no whole entry
	Dropped                                   uint64 // requests not stored because the disk was too slow or full
	DroppedSeconds                            uint64 // Seconds and findings not stored for the same reason
	Removed                                   uint64 // files removed for age or size
	Unlinked                                  uint64 // logs that could not be linked to one of Options.Links in time
	LastError                                 string // of writing, "" when the last write was well
}

// Query chooses what is read. Zero values choose all.
type Query struct {
	From, To  time.Time // From inclusive, To exclusive
	Side      observe.Side
	NetNS     uint64
	Addr      string
	Port      int
	Comm      string
	PID       int    // of an endpoint: its master process
	Container string // name or id, which may be shortened
	Unit      string // with or without ".service"

	// MinTotal chooses requests that took at least this long.
	MinTotal time.Duration

	// Trace chooses requests of a trace, or of those whose ID begins so; "" all.
	Trace observe.TraceMatch

	// PartHists reads the histograms of all parts too, for their quantiles, where
	// they are kept: in sums of five minutes. Otherwise only those of the total, the
	// round trips and Server are read, and Parts has only the sums of the others.
	PartHists bool

	// Counts reads counts and sums only: the histograms are most of what a row takes to
	// read. Quantiles are 0 then, and Flags empty.
	Counts bool
}
