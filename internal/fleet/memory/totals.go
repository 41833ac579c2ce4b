package memory

import (
	"cmp"
	"context"
	"time"

	"github.com/slowray/slowray/internal/fleet"
)

// Totals implements fleet.Archive.
func (a *Archive) Totals(ctx context.Context, q fleet.Question, f func(*fleet.Total) bool) error {
	a.mu.Lock()
	totals := map[fleet.Key]*fleet.Total{}
	for _, s := range a.chosen(&q) {
		if !matches(&q, &s.Key) {
			continue
		}
		t := totals[s.Key]
		if t == nil {
			t = &fleet.Total{Key: s.Key}
			totals[s.Key] = t
		}
		t.Requests += s.Requests
		t.Errors += s.Errors
		t.TotalUS += s.TotalUS
		t.Segments += s.Segments
		t.Retrans += s.Retrans
		t.Times.Merge(&s.total)
	}
	a.mu.Unlock()
	for _, t := range totals {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !f(t) {
			break
		}
	}
	return nil
}

// Places implements fleet.Archive.
func (a *Archive) Places(_ context.Context, q fleet.Question) (map[fleet.Key]fleet.Place, error) {
	const step = 5 * time.Minute
	if !q.From.IsZero() {
		q.From = q.From.Truncate(step)
	}
	if !q.To.IsZero() {
		q.To = q.To.Add(step - 1).Truncate(step)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	places := map[fleet.Key]fleet.Place{}
	for _, s := range a.chosen(&q) {
		if s.place == (fleet.Place{}) || !matches(&q, &s.Key) {
			continue
		}
		p, known := places[s.Key]
		if !known || p.Cgroup == "" {
			p.Cgroup = s.place.Cgroup
		} else if s.place.Cgroup != "" {
			p.Cgroup = fleet.CommonGroup(p.Cgroup, s.place.Cgroup)
		}
		p.Container = cmp.Or(p.Container, s.place.Container)
		places[s.Key] = p
	}
	return places, nil
}
