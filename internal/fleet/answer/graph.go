package answer

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// Graph is a Map drawn together: one Node for each program on all its hosts, one Link for
// all calls between two of them. It does not grow with the number of hosts.
type Graph struct {
	Nodes []Node `json:"nodes"` // that with most requests first
	Links []Link `json:"links"`
	Left  int    `json:"left_out"` // nodes: those with fewest requests
}

// Node is a program, with all the ports on which it answers, or an address of which nobody
// knows whose it is.
type Node struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Kind     string `json:"kind"` // "service", "caller" (it answers nowhere), "address"
	Ports    []int  `json:"ports"`
	Hosts    int    `json:"hosts"`
	Abnormal int    `json:"abnormal"` // of its hosts, on which it answers abnormally
	Why      string `json:"why,omitempty"`
	Seen
}

// Link is the calls of a program to another, as the callers saw them.
type Link struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Hosts    int    `json:"hosts"`    // that call
	Abnormal int    `json:"abnormal"` // of them, that are served abnormally
	Joined   int    `json:"joined"`
	Seen
	// WireShare is of the callers' time of the joined requests, 0 to 1; null where there
	// are none.
	WireShare *float64 `json:"wire_share"`
	wire      float64  // sum of shares by joined requests
}

// Seen is what is added up of several hosts. Times are µs.
type Seen struct {
	Rate   float64 `json:"rps"`
	Errors float64 `json:"errors"` // per second
	MeanUS float64 `json:"mean_us"`
	// P50US and P99US are of all requests of all hosts; 0 where nothing is known.
	P50US int64 `json:"p50_us"`
	P99US int64 `json:"p99_us"`
	// WorstUS is the 99th percentile of the host where it is highest.
	WorstUS int64  `json:"worst_p99_us"`
	Worst   string `json:"worst_host"`
	// Wrong is the abnormal endpoint that has cost most; null where none is.
	Wrong *Wrong `json:"wrong"`

	names map[string]bool
	wrong map[string]bool // hosts
	added float64
	times observe.Histogram
}

// Wrong is what is abnormal of an endpoint, and what it usually is.
type Wrong struct {
	Text     string  `json:"text"` // in a sentence
	Value    float64 `json:"value"`
	Expected float64 `json:"expected"`
	Unit     string  `json:"unit"` // "us", "1/s", "share"
}

// mark notes that an endpoint is abnormal; nil is not.
func (s *Seen) mark(host string, e *Endpoint) {
	if e == nil {
		return
	}
	s.wrong[host] = true
	if s.Wrong == nil || e.AddedUS > s.added {
		s.Wrong, s.added = &Wrong{e.text(), e.Value, e.Expected, e.Unit}, e.AddedUS
	}
}

func (s *Seen) add(host string, v *Saw, portion float64) {
	rate := v.Rate * portion
	if sum := s.Rate + rate; sum > 0 {
		s.MeanUS = (s.MeanUS*s.Rate + v.MeanUS*rate) / sum
	}
	s.Rate += rate
	s.Errors += v.Errors * portion
	if v.P99US > s.WorstUS || v.P99US == s.WorstUS && (s.Worst == "" || host < s.Worst) {
		s.WorstUS, s.Worst = v.P99US, host
	}
	if v.times != nil {
		// Of calls that lead to several places it is not known which took how long: they
		// count as all of them.
		s.times.Merge(v.times)
	}
}

// mostNodes and mostLinks are in a Graph at most.
const (
	mostNodes = 300
	mostLinks = 2000
)

// Graph draws the map together, and marks what a Report of the same range says to be
// abnormal.
func (m *Map) Graph(abnormal []Endpoint) *Graph {
	wrong := map[fleet.Key]*Endpoint{}
	for i := range abnormal {
		k := abnormal[i].key()
		if k.Host == "" && k.Side == observe.Served {
			k.Addr = "" // a service as a whole
		}
		wrong[k] = &abnormal[i]
	}
	// is finds an endpoint, or all that are of its kind, among what is abnormal.
	is := func(own, whole fleet.Key) *Endpoint {
		if e := wrong[own]; e != nil {
			return e
		}
		return wrong[whole]
	}
	nodes, links := map[string]*Node{}, map[[2]string]*Link{}
	node := func(id, title, kind string) *Node {
		n := nodes[id]
		if n == nil {
			n = &Node{ID: id, Title: title, Kind: kind, Ports: []int{}, Seen: Seen{names: map[string]bool{}, wrong: map[string]bool{}}}
			nodes[id] = n
		}
		return n
	}
	for i := range m.Served {
		v := &m.Served[i]
		n := node("s:"+program(v.Service), program(v.Service), "service")
		if n.names[v.Host] = true; !slices.Contains(n.Ports, v.Port) {
			n.Ports = append(n.Ports, v.Port)
		}
		n.add(v.Host, &v.Saw, 1)
		n.mark(v.Host, is(fleet.Key{Host: v.Host, Service: v.Service, Side: observe.Served, Addr: v.Addr, Port: v.Port}, fleet.Key{Service: v.Service, Side: observe.Served, Port: v.Port}))
	}
	for i := range m.Edges {
		e := &m.Edges[i]
		from := node("s:"+e.Service, e.Service, "caller")
		from.names[e.Host] = true
		var to *Node
		if e.ToService != "" {
			to = node("s:"+program(e.ToService), program(e.ToService), "service")
			to.names[e.ToHost] = true
		} else {
			at := net.JoinHostPort(e.Addr, strconv.Itoa(e.Port))
			to = node("a:"+at, at, "address")
			to.Why = e.Why
			if e.ToHost != "" {
				to.names[e.ToHost] = true
			}
			to.add(e.Host, &e.Caller, e.Portion)
		}
		key := [2]string{from.ID, to.ID}
		l := links[key]
		if l == nil {
			l = &Link{From: from.ID, To: to.ID, Seen: Seen{names: map[string]bool{}, wrong: map[string]bool{}}}
			links[key] = l
		}
		l.names[e.Host] = true
		l.add(e.Host, &e.Caller, e.Portion)
		l.mark(e.Host, is(fleet.Key{Host: e.Host, Service: e.Service, Side: observe.Called, Addr: e.Addr, Port: e.Port}, fleet.Key{Service: e.Service, Side: observe.Called, Addr: e.Addr, Port: e.Port}))
		if e.WireShare != nil {
			l.wire += *e.WireShare * float64(e.Joined)
			l.Joined += e.Joined
		}
	}
	return graphOf(nodes, links)
}

// graphOf puts into order what was added up, and leaves out what is too much to draw:
// never what is abnormal before what is not.
func graphOf(nodes map[string]*Node, links map[[2]string]*Link) *Graph {
	g := &Graph{Nodes: []Node{}, Links: []Link{}}
	called := map[string]float64{}
	for _, l := range links {
		l.Hosts, l.Abnormal = len(l.names), len(l.wrong)
		if l.Joined > 0 {
			share := l.wire / float64(l.Joined)
			l.WireShare = &share
		}
		l.P50US, l.P99US = quantiles(&l.times)
		called[l.From] += l.Rate
		g.Links = append(g.Links, *l)
	}
	for _, n := range nodes {
		n.Hosts, n.Abnormal = len(n.names), len(n.wrong)
		n.P50US, n.P99US = quantiles(&n.times)
		slices.Sort(n.Ports)
		g.Nodes = append(g.Nodes, *n)
	}
	slices.SortFunc(g.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(min(b.Abnormal, 1), min(a.Abnormal, 1)), cmp.Compare(b.Rate+called[b.ID], a.Rate+called[a.ID]), strings.Compare(a.ID, b.ID))
	})
	if g.Left = len(g.Nodes) - mostNodes; g.Left > 0 {
		g.Nodes = g.Nodes[:mostNodes]
	}
	g.Left = max(g.Left, 0)
	kept := map[string]bool{}
	for i := range g.Nodes {
		kept[g.Nodes[i].ID] = true
	}
	g.Links = slices.DeleteFunc(g.Links, func(l Link) bool { return !kept[l.From] || !kept[l.To] })
	slices.SortFunc(g.Links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(min(b.Abnormal, 1), min(a.Abnormal, 1)), cmp.Compare(b.Rate, a.Rate), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
	})
	g.Links = g.Links[:min(len(g.Links), mostLinks)]
	return g
}
