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
	judged      *judging
	totals      map[fleet.Key]*fleet.Total // what endpoints did over all of the range; nil where only points were read
	unknown     []Unchecked
	capped      bool     // there were more requests than are read
	absent      []string // parts of the archive that did not answer
}

func newSeen(a fleet.Archive, q Question) *seen {
	return &seen{q: q, newest: map[string]int64{}, byKey: map[fleet.Key]*anomaly.Anomaly{}, behind: behind + lingers(a)}
}

// collect reads and judges. It goes on from what was judged before where it can, which may
// be nil.
func (s *seen) collect(ctx context.Context, a fleet.Archive, before *judging) (err error) {
	q := &s.q
	if s.hosts, err = a.Hosts(ctx); err != nil {
		return err
	}
	slices.SortFunc(s.hosts, func(x, y fleet.HostSeen) int { return strings.Compare(x.Name, y.Name) })
	if q.Host != "" && !slices.ContainsFunc(s.hosts, func(h fleet.HostSeen) bool { return h.Name == q.Host }) {
		return fmt.Errorf("fleet: no host is called %q; %s ship here", q.Host, count(len(s.hosts), "host"))
	}
	n, err := population(ctx, a, later(q.From, q.To.Add(-2*rollUp)), q.To)
	if err != nil {
		return err
	}
	s.plan = planFor(n, q.To.Sub(q.From))
	if err := s.judge(ctx, a, before); err != nil {
		return err
	}
	if err := s.addUp(ctx, a); err != nil {
		return err
	}
	if err := s.requests(ctx, a); err != nil {
		return err
	}
	if err := s.explain(ctx, a); err != nil {
		return err
	}
	s.findings, err = a.Findings(ctx, fleet.Question{From: q.From.Add(-lead), To: q.To})
	return err
}

// addUp reads what endpoints did over all of the range, where that is asked for.
func (s *seen) addUp(ctx context.Context, a fleet.Archive) error {
	if s.totals == nil {
		return nil
	}
	s.q.tell(addingUp, 0)
	return a.Totals(ctx, fleet.Question{From: s.q.From, To: s.q.To}, func(t *fleet.Total) bool {
		s.totals[t.Key] = t
		s.builder.AddTotal(t)
		return true
	})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
		s.q.tell(joining, float64(i)/requestPieces)
		n := 0
		if err := a.Requests(ctx, fleet.Question{From: from, To: to, Most: mostRequests/requestPieces + 1}, func(host string, r *store.Request) bool {
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
func (s *seen) explain(ctx context.Context, a fleet.Archive) (err error) {
	facts := anomaly.Facts{Clients: s.clients()}
	if len(s.anomalies) > 0 {
		if facts.Places, err = a.Places(ctx, fleet.Question{From: s.q.From, To: s.q.To}); err != nil {
			return err
		}
	}
	for i := range s.hosts {
		facts.Hosts = append(facts.Hosts, s.hosts[i].Host)
	}
	facts.Behind = s.answerers()
	s.explanation = anomaly.Explain(s.anomalies, s.population, facts)
	return nil
}

// answerers are what answers at each called address, as far as the map tells: package anomaly
// asks for those that no host has.
func (s *seen) answerers() map[fleet.Key][]fleet.Key {
	all := map[fleet.Key][]fleet.Key{}
	for i := range s.m.Edges {
		if e := &s.m.Edges[i]; e.To.Service != "" {
			all[e.From] = append(all[e.From], e.To)
		}
	}
	return all
}

// longWay is how many times as long as at half of an endpoint's requests one must have
// been on the way to be slow on it.
const longWay = 4

// clients are the requests of abnormal endpoints by who asked: where the way is slow for
// some clients only, their network is known by it.
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
