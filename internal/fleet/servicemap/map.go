package servicemap

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// How says by what it is known whom a call reached.
type How string

// The ways.
const (
	SameHost   How = "same host"  // an address of the caller's own host
	Address    How = "address"    // the host that has the address
	Translated How = "translated" // requests that were seen at both ends
	Unknown    How = "unknown"
)

// View is what one end saw over all of the time. Times are µs.
type View struct {
	Requests uint64
	Errors   uint64
	Seconds  int64 // with requests
	TotalUS  int64
	PartsUS  [observe.NumParts]int64
	SplitUS  [observe.NumServerParts]int64
	// P50US and P99US are the middle ones of those of each step, by requests.
	P50US, P99US int64
	Segments     uint64
	Retrans      uint64

	p50, p99 []weighted
}

type weighted struct {
	us int64
	n  uint64
}

// Add adds what an endpoint did.
func (v *View) Add(p *fleet.Point) {
	v.Requests += p.Requests
	v.Errors += p.Errors
	v.Seconds += int64(p.Seconds)
	v.TotalUS += p.TotalUS
	for i := range v.PartsUS {
		v.PartsUS[i] += p.PartsUS[i]
	}
	for i := range v.SplitUS {
		v.SplitUS[i] += p.SplitUS[i]
	}
	v.Segments += p.Segments
	v.Retrans += p.Retrans
	if p.Requests > 0 {
		v.p50 = append(v.p50, weighted{p.P50US, p.Requests})
		v.p99 = append(v.p99, weighted{p.P99US, p.Requests})
	}
}

// Settle makes the quantiles. It may be called again.
func (v *View) Settle() { v.P50US, v.P99US = median(v.p50), median(v.p99) }

// MeanUS is the mean request latency.
func (v *View) MeanUS() float64 {
	if v.Requests == 0 {
		return 0
	}
	return float64(v.TotalUS) / float64(v.Requests)
}

func median(list []weighted) int64 {
	slices.SortFunc(list, func(x, y weighted) int { return cmp.Or(cmp.Compare(x.us, y.us), cmp.Compare(x.n, y.n)) })
	var all, seen uint64
	for _, w := range list {
		all += w.n
	}
	for _, w := range list {
		if seen += w.n; 2*seen >= all {
			return w.us
		}
	}
	return 0
}

// Edge is the calls of a service on a host to an address.
type Edge struct {
	From fleet.Key // the called endpoint: host and service that call, address and port
	How  How
	Why  string // where it is unknown: why
	// To is what answers: only Host is set where nothing more is known, nothing where not
	// even that is.
	To fleet.Key
	// Portion of the calls of From that this edge is: 1 but where one address leads to
	// several, as far as requests seen at both ends tell.
	Portion float64
	Caller  View   // what the caller saw: of all calls of From
	Server  *View  // what To saw: of all its callers together; nil when it is not known
	Shares  Shares // of the requests that were seen at both ends
	Joined  int
}

// Map is who calls whom.
type Map struct {
	Edges []Edge // in the order of their callers
	Joins *Joins
	// Served and Called are all endpoints, and what they saw.
	Served map[fleet.Key]*View
	Called map[fleet.Key]*View
}

// Builder takes what is known, in any order, and makes a Map of it.
type Builder struct {
	hosts  []fleet.HostSeen
	served map[fleet.Key]*View
	called map[fleet.Key]*View
	ends   []End
}

// NewBuilder begins a map of these hosts.
func NewBuilder(hosts []fleet.HostSeen) *Builder {
	return &Builder{hosts: hosts, served: map[fleet.Key]*View{}, called: map[fleet.Key]*View{}}
}

// Add adds what an endpoint did.
func (b *Builder) Add(p *fleet.Point) {
	into := b.served
	if p.Side == observe.Called {
		into = b.called
	}
	v := into[p.Key]
	if v == nil {
		v = &View{}
		into[p.Key] = v
	}
	v.Add(p)
}

// AddTotal adds what an endpoint did over all of the time, instead of its points. How long
// its requests took is left out.
func (b *Builder) AddTotal(t *fleet.Total) {
	into := b.served
	if t.Side == observe.Called {
		into = b.called
	}
	into[t.Key] = &View{Requests: t.Requests, Errors: t.Errors, TotalUS: t.TotalUS, Segments: t.Segments, Retrans: t.Retrans}
}

// AddEnd adds what was kept of a request at one end.
func (b *Builder) AddEnd(e End) { b.ends = append(b.ends, e) }

// Map is who calls whom, by all that was added.
func (b *Builder) Map() *Map {
	m := &Map{Joins: Join(b.ends, b.hosts), Served: b.served, Called: b.called}
	r := newResolver(m.Joins.owners)
	for _, k := range SortedKeys(b.served) {
		b.served[k].Settle()
		r.learn(&k)
	}
	joined := m.joinedBy()
	for _, k := range SortedKeys(b.called) {
		b.called[k].Settle()
		m.Edges = append(m.Edges, m.edgesOf(k, r, joined[callOf(&k)])...)
	}
	return m
}

// SortedKeys are the endpoints, in the order of CompareKeys.
func SortedKeys(views map[fleet.Key]*View) []fleet.Key {
	keys := make([]fleet.Key, 0, len(views))
	for k := range views {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, CompareKeys)
	return keys
}

// CompareKeys orders endpoints: by host, service, side, address and port.
func CompareKeys(x, y fleet.Key) int {
	return cmp.Or(cmp.Compare(x.Host, y.Host), cmp.Compare(x.Service, y.Service), cmp.Compare(x.Side, y.Side),
		cmp.Compare(x.Addr, y.Addr), cmp.Compare(x.Port, y.Port))
}

// call is a called endpoint as requests name it.
type call struct {
	host, service string
	server        netip.AddrPort
}

func callOf(k *fleet.Key) call {
	addr, _ := address(k.Addr)
	return call{k.Host, k.Service, netip.AddrPortFrom(addr, uint16(k.Port))}
}

// reached is what the requests of a called endpoint that were seen at both ends
// reached.
type reached struct {
	to     fleet.Key
	joined int
	weight uint64
	shares Shares
}

// joinedBy sums up the requests that were seen at both ends, by who called.
func (m *Map) joinedBy() map[call][]*reached {
	type way struct {
		from call
		to   fleet.Key
	}
	ways := map[way]*reached{}
	all := map[call][]*reached{}
	for i := range m.Joins.All {
		j := &m.Joins.All[i]
		w := way{call{j.Called.Host, j.Called.Service, j.Called.Server}, j.Served.Endpoint()}
		r := ways[w]
		if r == nil {
			r = &reached{to: w.to}
			ways[w] = r
			all[w.from] = append(all[w.from], r)
		}
		r.joined++
		r.weight += uint64(j.Called.Weight)
		if s, ok := j.Shares(); ok {
			r.shares.Add(&s)
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(x, y *reached) int { return CompareKeys(x.to, y.to) })
	}
	return all
}

// edgesOf are the edges of a called endpoint: by its address, or, where that tells
// nothing, by the requests that were seen at both ends.
func (m *Map) edgesOf(k fleet.Key, r *resolver, joined []*reached) []Edge {
	e := Edge{From: k, Portion: 1, Caller: *m.Called[k]}
	to, host, how, why := r.resolve(&k)
	e.How, e.Why, e.To.Host = how, why, host
	if to != nil {
		e.To, e.Server = *to, m.Served[*to]
		for _, j := range joined {
			if j.to.Host == e.To.Host && j.to.Service == e.To.Service {
				e.Joined += j.joined
				e.Shares.Add(&j.shares)
			}
		}
		if e.Joined > 0 || len(joined) == 0 {
			return []Edge{e}
		}
		// The address is this host's, and requests were seen to arrive elsewhere: it
		// passes them on.
	}
	if len(joined) == 0 {
		return []Edge{e}
	}
	var all uint64
	for _, j := range joined {
		all += j.weight
	}
	edges := make([]Edge, 0, len(joined))
	for _, j := range joined {
		e := Edge{
			From: k, How: Translated, To: j.to, Portion: float64(j.weight) / float64(all), Caller: *m.Called[k],
			Server: m.Served[j.to], Shares: j.shares, Joined: j.joined,
		}
		if j.to.Host == k.Host {
			e.How = SameHost
		}
		edges = append(edges, e)
	}
	return edges
}
