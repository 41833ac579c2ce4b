package export

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/store"
)

// Options bound an Exporter. Zero values are the defaults.
type Options struct {
	// Endpoints is how many endpoints of each side have series of their own;
	// the others are summed up. Default 250, at most 10,000.
	Endpoints int
	// Idle is after how long without traffic a series ends. Default 15 min.
	Idle time.Duration
	// Conventions adds metrics by the names of OpenTelemetry's conventions to what is
	// pushed: services that have them of their own would have them twice.
	Conventions bool
	Version     string // of slowray
	Host        string // its name
	Node        string // what Kubernetes calls the host; empty where it is no node
	Now         func() time.Time
	// Status, if set, tells what the recorder did and costs. It must not wait.
	Status func() record.Status
	// Targets, if set, tells how far what is recorded was sent elsewhere. It must
	// not wait.
	Targets func() []ship.Status
}

const (
	defaultEndpoints = 250
	mostEndpoints    = 10_000
	defaultIdle      = 15 * time.Minute
	// displaceIdle is after how long without traffic an endpoint has to give its
	// place to one that has none.
	displaceIdle  = time.Minute
	displaceEvery = 5 * time.Second // to look for one is expensive
)

// Exporter adds up what slowray record sees, for those who ask. It is safe for
// concurrent use. Those who add wait for the sums of one endpoint at most.
type Exporter struct {
	opt   Options
	since time.Time

	mu      sync.Mutex
	series  map[identity]*series // as shown
	told    map[identity]*series // as told: a cache
	counts  [2]int               // series by side, without others
	sorted  []*series            // nil when a series came or went
	changes uint64               // how often one did
	full    [2]time.Time         // by side: no series is idle before then
	looked  time.Time            // when idle series were looked for
	ended   uint64               // series that ended for lack of traffic
	crowded uint64               // seconds of endpoints that were counted among others

	findings findings
	self     self
	push     atomic.Pointer[pusher] // nil: nothing is sent
}

// New makes an Exporter that has seen nothing.
func New(opt Options) *Exporter {
	if opt.Endpoints <= 0 {
		opt.Endpoints = defaultEndpoints
	}
	opt.Endpoints = min(opt.Endpoints, mostEndpoints)
	if opt.Idle <= 0 {
		opt.Idle = defaultIdle
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	now := opt.Now()
	return &Exporter{opt: opt, since: now, looked: now, series: map[identity]*series{}, told: map[identity]*series{}}
}

// Second adds what each endpoint did in a second. It implements record.Sink.
func (x *Exporter) Second(_ int64, endpoints []store.Second) {
	for i := range endpoints {
		x.add(&endpoints[i])
	}
}

// add adds what an endpoint did in a second. It keeps nothing of s.
func (x *Exporter) add(s *store.Second) {
	now := x.opt.Now()
	id := identityOf(s)
	x.mu.Lock()
	if now.Sub(x.looked) >= displaceIdle {
		x.endIdle(now)
	}
	to := x.told[id]
	if to == nil {
		to = x.meet(id.clone(), now)
	}
	if to.id.addr == other {
		x.crowded++
	}
	to.last = now // so that it is not ended meanwhile
	x.mu.Unlock()

	to.mu.Lock()
	to.seen(&s.Process, now)
	to.sums.add(&s.Endpoint)
	if x.opt.Conventions {
		to.sums.addHTTP(&s.Endpoint)
	}
	to.mu.Unlock()
}

// meet finds or makes the series of an endpoint that was not told so before.
func (x *Exporter) meet(id identity, now time.Time) *series {
	shown := id.shown()
	to := x.series[shown]
	if to == nil {
		side := sideIndex(shown.side)
		if shown.addr != other && x.counts[side] >= x.opt.Endpoints && !x.displace(shown.side, now) {
			shown = otherOf(shown.side)
			to = x.series[shown]
		}
		if to == nil {
			to = x.begin(shown, now)
		}
	}
	// Those without a place are asked again each time: there may be one by then.
	if to.id.addr != other || id.addr == other {
		if len(x.told) >= 8*x.opt.Endpoints {
			clear(x.told)
		}
		x.told[id] = to
	}
	return to
}

// begin makes a series.
func (x *Exporter) begin(id identity, now time.Time) *series {
	s := &series{id: id, since: now, last: now, exposed: expose(id, now)}
	x.series[id] = s
	x.changed()
	if id.addr != other {
		x.counts[sideIndex(id.side)]++
	}
	return s
}

// displace ends the series of a side that has been idle for longest, if that
// is long enough.
func (x *Exporter) displace(side string, now time.Time) bool {
	i := sideIndex(side)
	if now.Before(x.full[i]) {
		return false
	}
	var idlest *series
	var last time.Time
	for _, s := range x.series {
		if s.id.side != side || s.id.addr == other {
			continue
		}
		if idlest == nil || s.last.Before(last) {
			idlest, last = s, s.last
		}
	}
	if idlest == nil || now.Sub(last) < displaceIdle {
		x.full[i] = now.Add(displaceEvery)
		return false
	}
	x.end(idlest)
	clear(x.told)
	return true
}

// endIdle ends the series that had no traffic for Options.Idle.
func (x *Exporter) endIdle(now time.Time) {
	x.looked = now
	for _, s := range x.series {
		if s.id.addr != other && now.Sub(s.last) >= x.opt.Idle {
			x.end(s)
			clear(x.told)
		}
	}
}

func (x *Exporter) end(s *series) {
	delete(x.series, s.id)
	x.counts[sideIndex(s.id.side)]--
	x.changed()
	x.ended++
}

func (x *Exporter) changed() {
	x.sorted = nil
	x.changes++
}

// all are the series there are, in the order of their labels.
func (x *Exporter) all() []*series {
	x.mu.Lock()
	sorted, changes := x.sorted, x.changes
	var list []*series
	if sorted == nil {
		list = make([]*series, 0, len(x.series))
		for _, s := range x.series {
			list = append(list, s)
		}
	}
	x.mu.Unlock()
	if sorted != nil {
		return sorted
	}
	slices.SortFunc(list, func(a, b *series) int {
		i, j := &a.id, &b.id
		return cmp.Or(
			-cmp.Compare(i.side, j.side), // served before called
			cmp.Compare(i.netns, j.netns), cmp.Compare(i.addr, j.addr), cmp.Compare(i.port, j.port),
			cmp.Compare(i.comm, j.comm), cmp.Compare(i.container, j.container), cmp.Compare(i.namespace, j.namespace), cmp.Compare(i.pod, j.pod), cmp.Compare(i.workload, j.workload), cmp.Compare(i.unit, j.unit))
	})
	x.mu.Lock()
	if x.changes == changes {
		x.sorted = list
	}
	x.mu.Unlock()
	return list
}

func sideIndex(side string) int {
	if side == observe.Called.String() {
		return 1
	}
	return 0
}
