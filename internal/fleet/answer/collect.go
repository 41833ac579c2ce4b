package answer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// seen is all that was read from the archive for a question, and what the models say
// of it.
type seen struct {
	q        Question
	plan     plan
	hosts    []fleet.HostSeen
	newest   map[string]int64 // s: the last second of each host in the range
	first    int64            // s: of the first point of all
	behind   time.Duration    // how far a host's figures may be behind those of the others
	ends     []servicemap.End
	builder  *servicemap.Builder
	m        *servicemap.Map
	findings []fleet.HostFinding // since the lead began

	anomalies   []anomaly.Anomaly // that overlap the range
	byKey       map[fleet.Key]*anomaly.Anomaly
	population  []fleet.Key
	explanation anomaly.Explanation
	judged      int
	unknown     []Unchecked
	capped      bool // there were more requests than are read
}

// collect reads and judges.
func collect(ctx context.Context, a fleet.Archive, q Question) (*seen, error) {
	s := &seen{q: q, newest: map[string]int64{}, byKey: map[fleet.Key]*anomaly.Anomaly{}, behind: behind + lingers(a)}
	var err error
	if s.hosts, err = a.Hosts(ctx); err != nil {
		return nil, err
	}
	slices.SortFunc(s.hosts, func(x, y fleet.HostSeen) int { return strings.Compare(x.Name, y.Name) })
	if q.Host != "" && !slices.ContainsFunc(s.hosts, func(h fleet.HostSeen) bool { return h.Name == q.Host }) {
		return nil, fmt.Errorf("fleet: no host is called %q; %s ship here", q.Host, count(len(s.hosts), "host"))
	}
	n, err := population(ctx, a, later(q.From, q.To.Add(-2*rollUp)), q.To)
	if err != nil {
		return nil, err
	}
	s.plan = planFor(n, q.To.Sub(q.From))
	if err := s.judge(ctx, a); err != nil {
		return nil, err
	}
	if err := s.requests(ctx, a); err != nil {
		return nil, err
	}
	s.explain()
	s.findings, err = a.Findings(ctx, fleet.Question{From: q.From.Add(-lead), To: q.To})
	return s, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// judge lets the models learn from the history, and judges the lead and the range.
func (s *seen) judge(ctx context.Context, a fleet.Archive) error {
	model := anomaly.New(anomaly.Options{})
	from := s.q.From.Add(-lead)
	began := from.Add(-s.plan.history)
	note := func(p *fleet.Point) {
		if s.first == 0 || p.At < s.first {
			s.first = p.At
		}
	}
	share := func(at int64, from, to time.Time) float64 { return float64(at-from.Unix()) / to.Sub(from).Seconds() }
	if err := a.Points(ctx, fleet.Question{From: began, To: from}, rollUp, func(p *fleet.Point) bool {
		note(p)
		model.Warm(p)
		s.q.tell("learning what is usual", share(p.At, began, from))
		return true
	}); err != nil {
		return err
	}
	at, step := int64(0), int64(s.plan.step/time.Second)
	end := func() {
		j := model.Judge(at)
		if at+step <= s.q.From.Unix() {
			return
		}
		s.merge(j.Anomalies)
		s.merge(j.Ended)
	}
	b := servicemap.NewBuilder(s.hosts)
	if err := a.Points(ctx, fleet.Question{From: from, To: s.q.To}, s.plan.step, func(p *fleet.Point) bool {
		note(p)
		for ; at != 0 && at < p.At; at += step {
			end()
		}
		at = p.At
		model.Add(p)
		if p.At >= s.q.From.Unix() {
			b.Add(p)
			s.newest[p.Host] = max(s.newest[p.Host], p.At)
		}
		s.q.tell("judging", share(p.At, from, s.q.To))
		return true
	}); err != nil {
		return err
	}
	if at != 0 {
		end()
	}
	s.builder = b
	for _, a := range s.byKey {
		if a.Host == "" && s.hasMember(&a.Key) {
			continue // a service as a whole, of which single hosts are abnormal
		}
		s.anomalies = append(s.anomalies, *a)
	}
	clear(s.byKey)
	slices.SortFunc(s.anomalies, func(x, y anomaly.Anomaly) int { return servicemap.CompareKeys(x.Key, y.Key) })
	s.population = model.Population()
	s.judged = len(s.population)
	for i := range s.anomalies {
		s.byKey[s.anomalies[i].Key] = &s.anomalies[i]
	}
	return nil
}

// hasMember says that of a service as a whole, on all its hosts, some host is abnormal.
func (s *seen) hasMember(whole *fleet.Key) bool {
	for k := range s.byKey {
		if k.Host != "" && k.Service == whole.Service && k.Side == whole.Side && (k.Side == observe.Served || k.Port == whole.Port) {
			return true
		}
	}
	return false
}

// merge keeps each abnormal endpoint once: as it was when it was worst, from its first
// second to its last.
func (s *seen) merge(list []anomaly.Anomaly) {
	for i := range list {
		a := list[i]
		known := s.byKey[a.Key]
		if known == nil {
			s.byKey[a.Key] = &a
			continue
		}
		since := min(known.Since, a.Since)
		until := a.Until
		if worse(&a, known) {
			*known = a
		}
		known.Since, known.Until, known.Alarm = since, until, known.Alarm || a.Alarm
	}
}

// worse says which of two descriptions of an endpoint tells more.
func worse(a, b *anomaly.Anomaly) bool {
	if a.Until != 0 {
		return false // how it ended tells nothing of how it was
	}
	return a.AddedUS > b.AddedUS || a.AddedUS == b.AddedUS && a.Effect > b.Effect
}

// Requests are read in pieces of the range, so many of each at most: those of a rush
// would leave no room for those after it.
const (
	requestPieces = 20
	mostRequests  = 200_000
)

// requests reads both ends of requests, and joins them.
func (s *seen) requests(ctx context.Context, a fleet.Archive) error {
	length := s.q.To.Sub(s.q.From) / requestPieces
	for i := range requestPieces {
		from := s.q.From.Add(time.Duration(i) * length)
		to := from.Add(length)
		if i == requestPieces-1 {
			to = s.q.To
		}
		s.q.tell("joining requests", float64(i)/requestPieces)
		n := 0
		if err := a.Requests(ctx, fleet.Question{From: from, To: to}, func(host string, r *store.Request) bool {
			if n++; n > mostRequests/requestPieces {
				s.capped = true
				return false
			}
			if r.Flags&observe.FlagUnfinished == 0 {
				e := servicemap.EndOf(host, r)
				s.ends = append(s.ends, e)
				s.builder.AddEnd(e)
			}
			return true
		}); err != nil {
			return err
		}
	}
	s.m = s.builder.Map()
	return nil
}

// explain finds what the abnormal endpoints have in common.
func (s *seen) explain() {
	facts := anomaly.Facts{Clients: s.clients()}
	for i := range s.hosts {
		facts.Hosts = append(facts.Hosts, s.hosts[i].Host)
	}
	s.explanation = anomaly.Explain(s.anomalies, s.population, facts)
}

// longWay is how many times as long as at half of an endpoint's requests one must have
// been on the way to be slow on it.
const longWay = 4

// clients are the requests of abnormal endpoints by who asked: where the way is slow for
// some clients only, their network is told by it.
func (s *seen) clients() (all []anomaly.ClientRequest) {
	ways := map[fleet.Key][]int64{}
	keyOf := make([]fleet.Key, len(s.ends))
	for i := range s.ends {
		e := &s.ends[i]
		if e.Side != observe.Served {
			continue
		}
		k := e.Endpoint()
		a := s.byKey[k]
		if a == nil || e.First < a.Since*1e9 || a.Until != 0 && e.First >= a.Until*1e9 {
			continue
		}
		keyOf[i] = k
		ways[k] = append(ways[k], e.Ledger[observe.Network])
	}
	half := map[fleet.Key]int64{}
	for k, list := range ways {
		slices.Sort(list)
		half[k] = list[len(list)/2]
	}
	for i := range s.ends {
		k, e := keyOf[i], &s.ends[i]
		if k.Host == "" {
			continue
		}
		bad := e.Retrans > 0 || e.Ledger[observe.Retrans] > 0 || e.Ledger[observe.Network] > longWay*max(half[k], 1)
		all = append(all, anomaly.ClientRequest{Key: k, Client: e.Client.Addr(), Bad: bad, Weight: e.Weight})
	}
	return all
}
