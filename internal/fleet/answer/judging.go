package answer

import (
	"context"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/observe"
)

// judging is what the models have learned and found, up to a second. One can go on from it.
type judging struct {
	model  *anomaly.Model
	step   int64            // s
	from   int64            // s: what is abnormal is known from here on
	next   int64            // s: the next step to be judged; 0 where none was
	first  int64            // s: of the first point of all
	newest map[string]int64 // s: the last point of each host
	found  map[fleet.Key]*anomaly.Anomaly
}

// judge lets the models learn from the history, and judges the lead and the range; or only
// what came since, where it can go on from what was judged before.
func (s *seen) judge(ctx context.Context, a fleet.Archive, before *judging) error {
	from, to := s.q.From.Add(-lead).Truncate(s.plan.step), s.q.To.Truncate(s.plan.step)
	b := servicemap.NewBuilder(s.hosts)
	j := before
	if j.goesOn(&s.q, s.plan.step) {
		from = time.Unix(j.next, 0)
	} else {
		j = &judging{model: anomaly.New(anomaly.Options{}), step: int64(s.plan.step / time.Second), from: s.q.From.Unix(), newest: map[string]int64{}, found: map[fleet.Key]*anomaly.Anomaly{}}
		if err := j.learn(ctx, a, &s.q, from.Add(-s.plan.history), from); err != nil {
			return err
		}
	}
	s.judged = j
	if err := j.judge(ctx, a, from, to, func(p *fleet.Point) {
		if s.totals == nil && p.At >= s.q.From.Unix() {
			b.Add(p)
		}
		s.q.tell(judgingNow, share(p.At, from, to))
	}); err != nil {
		return err
	}
	s.first = j.first
	for host, at := range j.newest {
		if at >= s.q.From.Unix() {
			s.newest[host] = at
		}
	}
	s.builder = b
	s.anomalies = j.abnormal(s.q.From.Unix())
	s.population = j.model.Population()
	for i := range s.anomalies {
		s.byKey[s.anomalies[i].Key] = &s.anomalies[i]
	}
	return nil
}

func share(at int64, from, to time.Time) float64 {
	return float64(at-from.Unix()) / max(to.Sub(from).Seconds(), 1)
}

// goesOn says that to answer a question only what came since must be judged. In a small
// fleet all is judged anew, which takes no time, and misses nothing that came late.
func (j *judging) goesOn(q *Question, step time.Duration) bool {
	return j != nil && step > time.Second && j.step == int64(step/time.Second) && j.from <= q.From.Unix() && j.next > q.From.Unix() && j.next <= q.To.Unix()
}

// learn learns from sums of the history.
func (j *judging) learn(ctx context.Context, a fleet.Archive, q *Question, from, to time.Time) error {
	return a.Points(ctx, fleet.Question{From: from, To: to}, rollUp, func(p *fleet.Point) bool {
		j.note(p)
		j.model.Warm(p)
		q.tell(learning, share(p.At, from, to))
		return true
	})
}

func (j *judging) note(p *fleet.Point) {
	if j.first == 0 || p.At < j.first {
		j.first = p.At
	}
}

// judge judges the steps of some time, and gives their points to f.
func (j *judging) judge(ctx context.Context, a fleet.Archive, from, to time.Time, f func(*fleet.Point)) error {
	at, begun := j.next, false
	if err := a.Points(ctx, fleet.Question{From: from, To: to}, time.Duration(j.step)*time.Second, func(p *fleet.Point) bool {
		if p.At < at {
			return true
		}
		j.note(p)
		for ; at != 0 && at < p.At; at += j.step {
			j.end(at)
		}
		at, begun = p.At, true
		j.model.Add(p)
		j.newest[p.Host] = max(j.newest[p.Host], p.At)
		f(p)
		return true
	}); err != nil {
		return err
	}
	if begun {
		j.end(at)
	}
	return nil
}

// end ends a step.
func (j *judging) end(at int64) {
	r := j.model.Judge(at)
	if j.next = at + j.step; j.next <= j.from {
		return
	}
	j.merge(r.Anomalies)
	j.merge(r.Ended)
}

// merge keeps each abnormal endpoint once: as it was when it was worst, from its first
// second to its last.
func (j *judging) merge(list []anomaly.Anomaly) {
	for i := range list {
		a := list[i]
		known := j.found[a.Key]
		if known == nil {
			j.found[a.Key] = &a
			continue
		}
		kept, other := *known, a
		if worse(&a, known) {
			kept, other = a, *known
		}
		kept.Join(&other)
		kept.Since, kept.Until, kept.Alarm = min(known.Since, a.Since), a.Until, known.Alarm || a.Alarm
		*known = kept
	}
}

// worse says which of two descriptions of an endpoint tells more.
func worse(a, b *anomaly.Anomaly) bool {
	if a.Until != 0 {
		return false // how it ended tells nothing of how it was
	}
	return a.AddedUS > b.AddedUS || a.AddedUS == b.AddedUS && a.Effect > b.Effect
}

// abnormal is what was abnormal from a second on, in the order of endpoints.
func (j *judging) abnormal(from int64) (list []anomaly.Anomaly) {
	for k, a := range j.found {
		switch {
		case a.Until != 0 && a.Until <= from && from > j.from:
			delete(j.found, k) // it was over before
		case a.Host == "" && j.hasMember(&a.Key): // a service as a whole, of which single hosts are abnormal
		default:
			list = append(list, *a)
		}
	}
	slices.SortFunc(list, func(x, y anomaly.Anomaly) int { return servicemap.CompareKeys(x.Key, y.Key) })
	return list
}

// hasMember says that of a service as a whole, on all its hosts, some host is abnormal.
func (j *judging) hasMember(whole *fleet.Key) bool {
	for k := range j.found {
		if k.Host != "" && k.Service == whole.Service && k.Side == whole.Side && (k.Side == observe.Served || k.Port == whole.Port) {
			return true
		}
	}
	return false
}
