package store

import (
	"errors"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/report"
)

var errLater = errors.New("store: not written yet")

// Store is the one writer of a directory. Its methods may be called from any
// goroutine.
type Store struct{}

// Open makes dir where it is missing, takes its lock, and makes good what a
// killed writer left. The error is one line.
func Open(dir string, opt Options) (*Store, error) { return nil, errLater }

// AddRequest takes a copy of r. It never waits for the disk: a request for
// which there is no room is dropped and counted. It allocates nothing in steady
// use.
func (s *Store) AddRequest(r *Request) {}

// AddSecond takes a copy of what is kept of sec; see Second. It does not wait
// for the disk either.
func (s *Store) AddSecond(sec *Second) {}

// AddObservation writes o to a file of its own and adds its findings. It waits
// for the disk.
func (s *Store) AddObservation(o *observe.Observation, findings []cause.Finding) error {
	return errLater
}

// Sync makes durable what was added before. Call it each second.
func (s *Store) Sync() error { return errLater }

// Stats is what was done since Open.
func (s *Store) Stats() Stats { return Stats{} }

// Close writes what is left and gives the lock back.
func (s *Store) Close() error { return errLater }

// Reader reads a directory from any process, also while it is written to. Its
// methods may be called from any goroutine.
type Reader struct{}

// OpenReader opens dir for reading.
func OpenReader(dir string) (*Reader, error) { return nil, errLater }

// Span is from the first to the last stored second; both zero when there is none.
func (r *Reader) Span() (from, to time.Time, err error) { return from, to, errLater }

// EndpointSum is an endpoint over a range of time. Endpoints are told apart by
// side, namespace, address, port and comm: PID and Process are the latest.
type EndpointSum struct {
	Endpoint    observe.Endpoint
	Process     report.Process
	First, Last time.Time // the first and last stored moment with traffic, as fine as was read
}

// Endpoints sums the range up, by endpoint: served ones first, then by
// namespace, address, port and comm.
func (r *Reader) Endpoints(q Query) ([]EndpointSum, error) { return nil, errLater }

// Series is one endpoint over time.
type Series struct {
	EndpointSum               // identity and process; sums of the whole range
	Step        time.Duration // of the points: at least what was asked for
	Points      []Second      // in order of time; steps without traffic are left out
}

// Series gives points of merged Seconds for each endpoint. The step is rounded up
// to one that is stored or easily made (Step says which).
func (r *Reader) Series(q Query, step time.Duration) ([]Series, error) { return nil, errLater }

// Points is Series one point at a time, in order of time, for callers that must
// not hold all histograms: the Second is f's until f returns. False ends it.
func (r *Reader) Points(q Query, step time.Duration, f func(*Second) bool) error { return errLater }

// Step is the step that Series and Points use when asked for one: 1, 2, 5, 10, 20, 30 s, 1, 2,
// 5, 10, 20, 30 min, 1, 2, 6, 12 h, days.
func Step(step time.Duration) time.Duration { return step }

// Requests calls f for each stored request of the range, in order of their
// start, until f is false. The Request is f's until f returns.
func (r *Reader) Requests(q Query, f func(*Request) bool) error { return errLater }

// Slowest are the n slowest requests of the range, slowest first.
func (r *Reader) Slowest(q Query, n int) ([]Request, error) { return nil, errLater }

// Totals is the histogram of the total time of the stored requests of the range,
// each counted by its weight. It reads far less than Requests does.
func (r *Reader) Totals(q Query) (*observe.Histogram, error) { return nil, errLater }

// Window is a stored Observation.
type Window struct {
	Path       string // for observe.Load
	Start, End time.Time
}

// Observations lists the stored windows that overlap the range, by start. Zero
// times leave the range open.
func (r *Reader) Observations(from, to time.Time) ([]Window, error) { return nil, errLater }

// Findings are those of windows that overlap the range, by start of the window,
// then by weight.
func (r *Reader) Findings(from, to time.Time) ([]Finding, error) { return nil, errLater }

// Close gives back what the Reader holds.
func (r *Reader) Close() error { return nil }
