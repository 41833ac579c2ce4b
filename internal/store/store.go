package store

import (
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
)

// Why says why a request is stored.
type Why uint8

// Reasons to store a request.
const (
	Sampled Why = iota // one of many; Weight says of how many
	Slow               // it took long for its endpoint
	Failed             // an error, no answer, or a reset
)

// Request is a stored request. Its Weight counts how many requests it stands for,
// the recorder's sampling and the store's together; slow and failed ones stand
// for themselves.
type Request struct {
	observe.Request
	Process report.Process
	Why     Why
}

// Second is what one endpoint did in one second. Of Endpoint it keeps the
// counts, the histograms of the total, of the round trips and of the parts, the
// sums of the split, and the name of the process; samples, peers and arrivals
// are left to the requests.
type Second struct {
	At       int64 // s since 1970: the beginning of the second
	Endpoint observe.Endpoint
	Process  report.Process
}

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
}

// Stats is what a writer did since Open.
type Stats struct {
	Requests, Seconds, Findings, Observations uint64
	Bytes                                     int64  // on disk now
	Recovered                                 uint64 // entries of a killed writer's log that are kept
	Torn                                      uint64 // bytes at the end of such a log that were no whole entry
	Dropped                                   uint64 // requests not stored because the disk was too slow or full
	Removed                                   uint64 // files removed for age or size
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
	PID       int
	Container string // name or id
	Unit      string
}

// The functions below are to be written; this is their agreed form.
//
//	Open(dir string, opt Options) (*Store, error)   // writer: takes the lock, recovers
//	(*Store).AddRequest(*Request)                   // copies; never waits for the disk; allocates nothing in steady use
//	(*Store).AddSecond(*Second)
//	(*Store).AddObservation(*observe.Observation, []cause.Finding) error
//	(*Store).Sync() error                           // makes durable what was added; called each second
//	(*Store).Stats() Stats
//	(*Store).Close() error
//
//	OpenReader(dir string) (*Reader, error)         // any process, without the lock, also while a writer runs: Parquet files and open logs
//	(*Reader).Span() (from, to time.Time, err error)
//	(*Reader).Endpoints(Query) ([]EndpointSum, error)            // summed over the range: observe.Endpoint and report.Process
//	(*Reader).Series(Query, step time.Duration) ([]Series, error) // per endpoint: points of merged Seconds
//	(*Reader).Requests(Query, func(*Request) bool) error         // in order of start; false ends
//	(*Reader).Slowest(Query, n int) ([]Request, error)
//	(*Reader).Observations(from, to time.Time) ([]Window, error) // path, start, end; observe.Load reads one
//	(*Reader).Findings(from, to time.Time) ([]Finding, error)
//	(*Reader).Close() error
