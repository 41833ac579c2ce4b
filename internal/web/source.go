package web

import (
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Source is the history that is served. All of it may be asked by several
// requests at once.
type Source interface {
	// Span is from when to when there is anything; both zero when there is not.
	Span() (from, to time.Time, err error)
	// Endpoints is every endpoint summed over the range.
	Endpoints(store.Query) ([]store.EndpointSum, error)
	// Points is the same in steps of store.Step(step), in order of time; steps
	// without a request may be left out. The Second is f's until f returns.
	Points(q store.Query, step time.Duration, f func(*store.Second) bool) error
	// Requests gives those stored, in order of their start, until that returns false.
	Requests(store.Query, func(*store.Request) bool) error
	// Slowest is the n stored requests with the greatest total, greatest first.
	Slowest(q store.Query, n int) ([]store.Request, error)
	// Totals is the time of the stored requests, each counted by its weight. It
	// costs far less than Requests.
	Totals(store.Query) (*observe.Histogram, error)
	// Observations is the windows of the range, in order of time.
	Observations(from, to time.Time) ([]store.Window, error)
	Findings(from, to time.Time) ([]store.Finding, error)
}

// StackSource is a Source that keeps call stacks of its own. Without it the
// functions of the windows' CPU profiles are shown.
type StackSource interface {
	// Stacks is what threads did in the range; off chooses what they did off the
	// CPU. nil without an error when nothing was recorded.
	Stacks(from, to time.Time, off bool) ([]*observe.Stacks, error)
}

// Skipper is a Source that tells which of its files could not be read.
type Skipper interface {
	Skipped() []string
}

var (
	_ Source  = (*store.Reader)(nil)
	_ Skipper = (*store.Reader)(nil)
)
