package answer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// Question is what Why is asked. The zero value of a text chooses all.
type Question struct {
	From, To time.Time // From inclusive, To exclusive; whole seconds
	Service  string    // only what is wrong with this service: "nginx:80", or "nginx"
	Host     string    // only what is wrong on this host
	// Now, if set, is what time it is: hosts that are ahead of it have wrong clocks.
	Now time.Time
	// Progress, if set, is called with what is being done, and how much of it, 0 to 1. It is
	// called often.
	Progress func(what string, done float64)
}

const (
	// lead is how much of the time before the range is judged as the range is: what
	// was wrong when the range began began in there, for the most part.
	lead = 15 * time.Minute
	// shortHistory and longHistory are how much is looked at before to learn what is usual.
	shortHistory = 6 * time.Hour
	longHistory  = 15 * 24 * time.Hour
	rollUp       = 5 * time.Minute
	// mostHistory bounds the sums that are asked for.
	mostHistory = 2_000_000
	// longest is the longest range.
	longest = 24 * time.Hour
)

// mostPoints is where seconds become too many: then ten of them are judged together. A
// test may lower it.
var mostPoints = 3_000_000.0

// check says what is wrong with a question.
func (q *Question) check() error {
	length := q.To.Sub(q.From)
	switch {
	case q.From.IsZero() || q.To.IsZero() || length <= 0:
		return fmt.Errorf("fleet: a range from %s to %s has no length", q.From.Format(time.RFC3339), q.To.Format(time.RFC3339))
	case length > longest:
		return fmt.Errorf("fleet: a range of %s: at most %s can be judged together", length, longest)
	}
	return nil
}

// phases are what answering consists of, one after the other.
var phases = []string{learning, judgingNow, addingUp, joining}

const (
	learning   = "learning what is usual"
	judgingNow = "judging"
	addingUp   = "adding up"
	joining    = "joining requests"
)

// tell says which of the phases is on, and of it which share is done; all of them are one
// bar, which goes on and never back.
func (q *Question) tell(what string, done float64) {
	if q.Progress != nil {
		q.Progress(what, (float64(slices.Index(phases, what))+min(max(done, 0), 1))/float64(len(phases)))
	}
}

// plan is how much is asked for, by how many endpoints there are.
type plan struct {
	history time.Duration
	step    time.Duration
}

func planFor(endpoints int, length time.Duration) plan {
	p := plan{history: longHistory, step: time.Second}
	perDay := float64(max(endpoints, 1)) * float64(24*time.Hour/rollUp)
	p.history = time.Duration(mostHistory / perDay * float64(24*time.Hour)).Truncate(rollUp)
	p.history = min(max(p.history, shortHistory), longHistory)
	if float64(endpoints)*(length+lead).Seconds() > mostPoints {
		p.step = 10 * time.Second
	}
	return p
}

// population is how many endpoints there are at the end of the range.
func population(ctx context.Context, a fleet.Archive, from, to time.Time) (int, error) {
	keys := map[fleet.Key]bool{}
	err := a.Points(ctx, fleet.Question{From: from, To: to}, rollUp, func(p *fleet.Point) bool {
		keys[p.Key] = true
		return true
	})
	return len(keys), err
}
