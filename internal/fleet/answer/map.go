package answer

import (
	"context"
	"io"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/servicemap"
)

// SchemaMap identifies the form of a Map in JSON (schema/fleetmap.schema.json).
const SchemaMap = "slowray.fleet-map/1"

// Map is who calls whom in a range. Times are µs.
type Map struct {
	Schema string    `json:"schema"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Served []Served  `json:"served"` // every endpoint that answers
	Edges  []Edge    `json:"edges"`
	Clocks []Clock   `json:"clocks"`
	Joined int       `json:"joined"` // requests that were seen at both ends
}

// Served is an endpoint that answers.
type Served struct {
	Host    string `json:"host"`
	Service string `json:"service"`
	Addr    string `json:"addr"`
	Port    int    `json:"port"`
	Saw
}

// Saw is what an end saw. P50US and P99US are those of a typical ten seconds.
type Saw struct {
	Rate   float64 `json:"rps"`
	Errors float64 `json:"errors"` // per second
	MeanUS float64 `json:"mean_us"`
	P50US  int64   `json:"p50_us"`
	P99US  int64   `json:"p99_us"`
}

// Edge is the calls of a service on a host to an address.
type Edge struct {
	Host    string `json:"host"` // of the caller
	Service string `json:"service"`
	Addr    string `json:"addr"` // that is called
	Port    int    `json:"port"`
	How     string `json:"how"`           // servicemap.How
	Why     string `json:"why,omitempty"` // it is unknown
	// Where the call leads: no service where only the host is known, nothing where not
	// even that is.
	ToHost    string  `json:"to_host,omitempty"`
	ToService string  `json:"to_service,omitempty"`
	Portion   float64 `json:"portion"` // of the calls to this address: 1 but behind a balancer
	Caller    Saw     `json:"caller"`
	Server    *Saw    `json:"server"` // all that the called endpoint answers to whomever; null: not known
	Joined    int     `json:"joined"`
	// Of the caller's time of the joined requests, 0 to 1; null where there are none.
	ClientShare *float64 `json:"client_share"`
	ServerShare *float64 `json:"server_share"`
	WireShare   *float64 `json:"wire_share"`
}

// MapOf tells who calls whom in the question's range; its service and host choose nothing.
func MapOf(ctx context.Context, a fleet.Archive, q Question) (*Map, error) {
	q.From, q.To = q.From.Truncate(time.Second).UTC(), q.To.Truncate(time.Second).UTC()
	if err := q.check(); err != nil {
		return nil, err
	}
	s := &seen{q: q, newest: map[string]int64{}}
	var err error
	if s.hosts, err = a.Hosts(ctx); err != nil {
		return nil, err
	}
	s.builder = servicemap.NewBuilder(s.hosts)
	if err := a.Points(ctx, fleet.Question{From: q.From, To: q.To}, 10*time.Second, func(p *fleet.Point) bool {
		s.builder.Add(p)
		q.tell("adding up", float64(p.At-q.From.Unix())/q.To.Sub(q.From).Seconds())
		return true
	}); err != nil {
		return nil, err
	}
	if err := s.requests(ctx, a); err != nil {
		return nil, err
	}
	m := &Map{Schema: SchemaMap, From: q.From, To: q.To, Served: []Served{}, Edges: []Edge{}, Clocks: []Clock{}, Joined: len(s.m.Joins.All)}
	length := q.To.Sub(q.From).Seconds()
	for _, k := range servicemap.SortedKeys(s.m.Served) {
		m.Served = append(m.Served, Served{k.Host, k.Service, k.Addr, k.Port, saw(s.m.Served[k], length)})
	}
	for i := range s.m.Edges {
		m.Edges = append(m.Edges, edgeOf(&s.m.Edges[i], length))
	}
	for i := range s.m.Joins.Clocks {
		m.Clocks = append(m.Clocks, clockOf(&s.m.Joins.Clocks[i]))
	}
	return m, nil
}

func saw(v *servicemap.View, seconds float64) Saw {
	return Saw{Rate: float64(v.Requests) / seconds, Errors: float64(v.Errors) / seconds, MeanUS: v.MeanUS(), P50US: v.P50US, P99US: v.P99US}
}

func edgeOf(e *servicemap.Edge, seconds float64) Edge {
	x := Edge{
		Host: e.From.Host, Service: e.From.Service, Addr: e.From.Addr, Port: e.From.Port, How: string(e.How), Why: e.Why,
		ToHost: e.To.Host, ToService: e.To.Service, Portion: e.Portion, Caller: saw(&e.Caller, seconds), Joined: e.Joined,
	}
	if e.Server != nil {
		server := saw(e.Server, seconds)
		x.Server = &server
	}
	if e.Shares.Requests > 0 {
		wire, server := e.Shares.WireShare(), e.Shares.ServerShare()
		client := max(1-wire-server, 0)
		x.ClientShare, x.ServerShare, x.WireShare = &client, &server, &wire
	}
	return x
}

func clockOf(c *servicemap.Clock) Clock {
	return Clock{c.A, c.B, float64(c.OffsetNS) / 1e3, float64(c.UncertaintyNS) / 1e3, c.DriftPPM, c.Requests}
}

// JSON writes the map for programs.
func (m *Map) JSON(w io.Writer) error { return writeJSON(w, m) }
