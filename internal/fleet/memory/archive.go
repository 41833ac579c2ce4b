package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Archive keeps everything it is given. The zero value is empty and ready; its
// methods may be called by several goroutines.
type Archive struct {
	mu       sync.Mutex
	hosts    map[string]*fleet.HostSeen // by name
	marks    map[stream]fleet.Position
	seconds  []*second
	requests []request
	findings []fleet.HostFinding
	events   []fleet.Event
	sorted   bool
}

var (
	_ fleet.Archive = (*Archive)(nil)
	_ fleet.Target  = (*Archive)(nil)

	_ fleet.EventStore = (*Archive)(nil)
)

// stream is one of a host's, of one history.
type stream struct {
	host, id string
	of       fleet.Stream
}

// second is what an endpoint did in a second.
type second struct {
	fleet.Point
	place fleet.Place
	total observe.Histogram
}

type request struct {
	host string
	store.Request
}

// Hello implements fleet.Target.
func (a *Archive) Hello(_ context.Context, h *fleet.Host, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hosts == nil {
		a.hosts = map[string]*fleet.HostSeen{}
	}
	seen := a.hosts[h.Name]
	if seen == nil {
		seen = &fleet.HostSeen{}
		a.hosts[h.Name] = seen
	}
	seen.Host = *h
	seen.Labels, seen.Addresses, seen.Programs = maps.Clone(h.Labels), slices.Clone(h.Addresses), maps.Clone(h.Programs)
	if now.After(seen.Last) {
		seen.Last = now
	}
	return nil
}

// Send implements fleet.Target: the batch is there when it returns. One that was
// there already, or goes back behind what is there, is an error and changes nothing.
func (a *Archive) Send(_ context.Context, b *fleet.Batch) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := stream{b.Host.Name, b.Host.ID, b.Stream}
	if b.First <= a.marks[key] || b.Last < b.First {
		return fmt.Errorf("memory: positions %d to %d of %s of %s: the archive is at %d", b.First, b.Last, b.Stream, b.Host.Name, a.marks[key])
	}
	switch b.Stream {
	case fleet.Seconds:
		for _, s := range b.Seconds {
			a.addSecond(b.Host.Name, s)
		}
	case fleet.Requests:
		for _, r := range b.Requests {
			a.addRequest(b.Host.Name, r)
		}
	case fleet.Findings:
		for _, f := range b.Findings {
			a.addFinding(b.Host.Name, f)
		}
	default:
		return fmt.Errorf("memory: there is no stream %q", b.Stream)
	}
	if a.marks == nil {
		a.marks = map[stream]fleet.Position{}
	}
	a.marks[key] = b.Last
	return nil
}

// Mark implements fleet.Target.
func (a *Archive) Mark(_ context.Context, h *fleet.Host, s fleet.Stream) (fleet.Position, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.marks[stream{h.Name, h.ID, s}], nil
}

// Close does nothing.
func (a *Archive) Close() error { return nil }

// AddSecond adds a second of a host as if it had come in a batch. Like the other
// Add… it keeps nothing of its argument that may change.
func (a *Archive) AddSecond(host string, s *store.Second) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addSecond(host, s)
}

// AddRequest adds a request.
func (a *Archive) AddRequest(host string, r *store.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addRequest(host, r)
}

// AddFinding adds a finding.
func (a *Archive) AddFinding(host string, f *store.Finding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.addFinding(host, f)
}

// AddEvents implements fleet.EventStore.
func (a *Archive) AddEvents(_ context.Context, events []fleet.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, events...)
	return nil
}

// Events are those that were added, in the order in which they were.
func (a *Archive) Events() []fleet.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.events)
}

func (a *Archive) addSecond(host string, s *store.Second) {
	e := &s.Endpoint
	side := observe.Served
	if e.Side == observe.Called.String() {
		side = observe.Called
	}
	p := &second{Point: fleet.Point{
		Key: fleet.Key{Host: host, Service: fleet.Service(side, &s.Process, e.Port), Side: side, Addr: e.Addr, Port: e.Port},
		At:  s.At, Seconds: 1, Requests: e.Requests, Errors: e.Errors + e.Unanswered,
		Segments: e.Segments, Retrans: e.Retrans, SynAgain: e.SynRetrans, MinRTTUS: e.MinRTT / 1000,
	}}
	for part := range observe.NumParts {
		us := e.Parts[part.String()].SumNS / 1000
		p.PartsUS[part] = us
		if part != observe.AckDelay {
			p.TotalUS += us
		}
	}
	if e.Split != nil && e.Split.Requests > 0 {
		// One of several requests may be followed: what is known of them holds for all.
		scale := 1.0
		if e.Split.ServerNS > 0 {
			scale = max(1, float64(p.PartsUS[observe.Server])*1000/float64(e.Split.ServerNS))
		}
		for part := range observe.NumServerParts {
			p.SplitUS[part] = int64(float64(e.Split.Parts[part.String()].SumNS) / 1000 * scale)
		}
	}
	p.place = fleet.Place{Cgroup: s.Process.Cgroup, Container: cmp.Or(s.Process.ContainerName, s.Process.Container)}
	p.total.Merge(&e.Total)
	a.seconds, a.sorted = append(a.seconds, p), false
}

func (a *Archive) addRequest(host string, r *store.Request) {
	a.requests, a.sorted = append(a.requests, request{host, *r}), false
}

func (a *Archive) addFinding(host string, f *store.Finding) {
	a.findings, a.sorted = append(a.findings, fleet.HostFinding{Host: host, Finding: *f}), false
}

// sort puts all into the order of time. What is of one time keeps an order of its
// own, whatever order it came in.
func (a *Archive) sort() {
	if a.sorted {
		return
	}
	slices.SortStableFunc(a.seconds, func(x, y *second) int { return cmp.Or(cmp.Compare(x.At, y.At), compareKeys(&x.Key, &y.Key)) })
	slices.SortStableFunc(a.requests, func(x, y request) int {
		return cmp.Or(cmp.Compare(x.StartNS, y.StartNS), cmp.Compare(x.host, y.host))
	})
	slices.SortStableFunc(a.findings, func(x, y fleet.HostFinding) int {
		return cmp.Or(x.End.Compare(y.End), cmp.Compare(x.Host, y.Host))
	})
	a.sorted = true
}

func compareKeys(x, y *fleet.Key) int {
	return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Service, y.Service), cmp.Compare(x.Side, y.Side),
		cmp.Compare(x.Addr, y.Addr), cmp.Compare(x.Port, y.Port))
}
