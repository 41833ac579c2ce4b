package memory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Hosts implements fleet.Archive, in the order of their names.
func (a *Archive) Hosts(context.Context) ([]fleet.HostSeen, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []fleet.HostSeen
	for _, name := range slices.Sorted(maps.Keys(a.hosts)) {
		all = append(all, *a.hosts[name])
	}
	return all, nil
}

// between is the question's time, in s since 1970, as far as seconds go; to is
// exclusive.
func between(q *fleet.Question) (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if !q.From.IsZero() {
		from = ceil(q.From)
	}
	if !q.To.IsZero() {
		to = ceil(q.To)
	}
	return from, to
}

func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// chosen are the seconds within the question's time, in their order.
func (a *Archive) chosen(q *fleet.Question) []*second {
	a.sort()
	from, to := between(q)
	first := sort.Search(len(a.seconds), func(i int) bool { return a.seconds[i].At >= from })
	last := sort.Search(len(a.seconds), func(i int) bool { return a.seconds[i].At >= to })
	return a.seconds[first:max(first, last)]
}

func matches(q *fleet.Question, k *fleet.Key) bool {
	return (q.Host == "" || q.Host == k.Host) && (q.Service == "" || q.Service == k.Service) &&
		(q.Side == 0 || q.Side == k.Side) && (q.Port == 0 || q.Port == k.Port)
}

// Points implements fleet.Archive. Steps begin at multiples of their length since
// 1970.
func (a *Archive) Points(ctx context.Context, q fleet.Question, step time.Duration, f func(*fleet.Point) bool) error {
	seconds := int64(step / time.Second)
	if seconds < 1 || step%time.Second != 0 {
		return fmt.Errorf("memory: points of %s: a step is whole seconds", step)
	}
	// f may ask again: the lock is not held while it runs. A second is never changed.
	a.mu.Lock()
	list := slices.Clone(a.chosen(&q))
	a.mu.Unlock()
	for len(list) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := list[0].At - (list[0].At%seconds+seconds)%seconds
		n := 0
		sums := map[fleet.Key]*second{}
		for ; n < len(list) && list[n].At < at+seconds; n++ {
			s := list[n]
			if !matches(&q, &s.Key) {
				continue
			}
			sum := sums[s.Key]
			if sum == nil {
				sum = &second{Point: fleet.Point{Key: s.Key, At: at, Seconds: int(seconds)}}
				sums[s.Key] = sum
			}
			sum.add(s)
		}
		for _, k := range slices.SortedFunc(maps.Keys(sums), func(x, y fleet.Key) int { return compareKeys(&x, &y) }) {
			p := sums[k]
			p.P50US, p.P99US = p.total.Quantile(0.5)/1000, p.total.Quantile(0.99)/1000
			if !f(&p.Point) {
				return nil
			}
		}
		list = list[n:]
	}
	return nil
}

func (s *second) add(o *second) {
	s.Requests += o.Requests
	s.Errors += o.Errors
	s.TotalUS += o.TotalUS
	for i := range s.PartsUS {
		s.PartsUS[i] += o.PartsUS[i]
	}
	for i := range s.SplitUS {
		s.SplitUS[i] += o.SplitUS[i]
	}
	s.Segments += o.Segments
	s.Retrans += o.Retrans
	s.SynAgain += o.SynAgain
	if o.MinRTTUS > 0 && (s.MinRTTUS == 0 || o.MinRTTUS < s.MinRTTUS) {
		s.MinRTTUS = o.MinRTTUS
	}
	s.total.Merge(&o.total)
}

// Quantiles implements fleet.Archive, in the order of services and sides.
func (a *Archive) Quantiles(_ context.Context, q fleet.Question, quantiles []float64) ([]fleet.ServiceTimes, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	type key struct {
		service string
		side    observe.Side
	}
	type sum struct {
		fleet.ServiceTimes
		total observe.Histogram
		hosts map[string]bool
	}
	sums := map[key]*sum{}
	list := a.chosen(&q)
	for _, s := range list {
		if !matches(&q, &s.Key) {
			continue
		}
		k := key{s.Service, s.Side}
		t := sums[k]
		if t == nil {
			t = &sum{ServiceTimes: fleet.ServiceTimes{Service: s.Service, Side: s.Side}, hosts: map[string]bool{}}
			sums[k] = t
		}
		t.Requests += s.Requests
		t.Errors += s.Errors
		t.hosts[s.Host] = true
		t.total.Merge(&s.total)
	}
	all := make([]fleet.ServiceTimes, 0, len(sums))
	for _, t := range sums {
		t.Hosts = len(t.hosts)
		for _, quantile := range quantiles {
			t.QuantilesUS = append(t.QuantilesUS, t.total.Quantile(quantile)/1000)
		}
		all = append(all, t.ServiceTimes)
	}
	slices.SortFunc(all, func(x, y fleet.ServiceTimes) int {
		return compareKeys(&fleet.Key{Service: x.Service, Side: x.Side}, &fleet.Key{Service: y.Service, Side: y.Side})
	})
	return all, nil
}

// Findings implements fleet.Archive: those of windows that overlap the question's
// time, in the order in which the windows ended. The question's service does not
// choose: a host's finding may be about anything that a service needs.
func (a *Archive) Findings(_ context.Context, q fleet.Question) ([]fleet.HostFinding, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sort()
	var all []fleet.HostFinding
	for i := range a.findings {
		f := &a.findings[i]
		if (q.Host == "" || q.Host == f.Host) && (q.Port == 0 || q.Port == f.Subject.Port) &&
			(q.From.IsZero() || f.End.After(q.From)) && (q.To.IsZero() || f.Start.Before(q.To)) {
			all = append(all, *f)
		}
	}
	return all, nil
}

// Requests implements fleet.Archive.
func (a *Archive) Requests(ctx context.Context, q fleet.Question, f func(host string, r *store.Request) bool) error {
	a.mu.Lock()
	a.sort()
	list := slices.Clone(a.requests)
	a.mu.Unlock()
	n := 0
	for i := range list {
		r := &list[i]
		at := time.Unix(0, r.StartNS)
		if !q.From.IsZero() && at.Before(q.From) || !q.To.IsZero() && !at.Before(q.To) || q.Side != 0 && q.Side != r.Side || q.Trace != "" && !q.Trace.Has(&r.Trace) {
			continue
		}
		end := r.Local
		if r.Side == observe.Called {
			end = r.Peer
		}
		k := fleet.Key{Host: r.host, Service: fleet.Service(r.Side, &r.Process, int(end.Port())), Side: r.Side, Port: int(end.Port())}
		if !matches(&q, &k) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		copied := r.Request
		if n++; !f(r.host, &copied) || n == q.Most {
			return nil
		}
	}
	return nil
}
