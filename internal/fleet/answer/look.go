package answer

import (
	"context"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// View is all that a page shows of a range.
type View struct {
	Report *Report
	Map    *Map
	Table  *Table // of all of the range; it has no incidents: the Report has causes
	Hosts  []fleet.HostSeen
}

// Looker answers all at once, for which the archive is read once. Where it is asked again
// and again for ranges that move on, and the fleet is large, it judges only what is new:
// what hosts that were away sent later counts in figures, but is not judged. It is for one
// goroutine at a time.
type Looker struct {
	archive fleet.Archive
	before  *judging // the newest
	absent  []string // what was away then
}

// NewLooker makes one that has seen nothing yet.
func NewLooker(a fleet.Archive) *Looker { return &Looker{archive: a} }

// Look looks at a range. The question's service and host choose nothing but what the
// Report tells of.
func (l *Looker) Look(ctx context.Context, q Question) (*View, error) {
	q.From, q.To = q.From.Truncate(time.Second).UTC(), q.To.Truncate(time.Second).UTC()
	if err := q.check(); err != nil {
		return nil, err
	}
	var s *seen
	err := inPart(ctx, l.archive, func(absent []string) error {
		if !slices.Equal(absent, l.absent) {
			l.before, l.absent = nil, absent // it knows other hosts than are seen now
		}
		s = newSeen(l.archive, q)
		s.totals, s.absent = map[fleet.Key]*fleet.Total{}, absent
		return s.collect(ctx, l.archive, l.before)
	})
	switch {
	case s == nil:
	case err != nil && s.judged == l.before:
		l.before = nil // it may have come halfway
	case err == nil && (l.before == nil || s.judged.next >= l.before.next):
		l.before = s.judged
	}
	if err != nil {
		return nil, err
	}
	r, err := s.report(ctx, l.archive)
	if err != nil {
		return nil, err
	}
	return &View{Report: r, Map: s.mapOf(), Table: s.table(r), Hosts: s.hosts}, nil
}
