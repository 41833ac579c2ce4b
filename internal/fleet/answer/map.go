package answer

import (
	"io"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
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

// Saw is what an end saw. P50US and P99US are of all its requests of the range.
type Saw struct {
	Rate   float64 `json:"rps"`
	Errors float64 `json:"errors"` // per second
	MeanUS float64 `json:"mean_us"`
	P50US  int64   `json:"p50_us"`
	P99US  int64   `json:"p99_us"`

	times *observe.Histogram // nil where it is not known
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

// mapOf is who calls whom, by what was collected.
func (s *seen) mapOf() *Map {
	q, totals := &s.q, s.totals
	m := &Map{Schema: SchemaMap, From: q.From, To: q.To, Served: []Served{}, Edges: []Edge{}, Clocks: []Clock{}, Joined: len(s.m.Joins.All)}
	length := s.seconds()
	for _, k := range servicemap.SortedKeys(s.m.Served) {
		m.Served = append(m.Served, Served{k.Host, k.Service, k.Addr, k.Port, saw(s.m.Served[k], totals[k], length)})
	}
	for i := range s.m.Edges {
		m.Edges = append(m.Edges, edgeOf(&s.m.Edges[i], totals, length))
	}
	for i := range s.m.Joins.Clocks {
		m.Clocks = append(m.Clocks, clockOf(&s.m.Joins.Clocks[i]))
	}
	return m
}

// saw is what an end did in so many seconds; t is nil where nothing is known of all of it.
func saw(v *servicemap.View, t *fleet.Total, seconds float64) Saw {
	x := Saw{Rate: float64(v.Requests) / seconds, Errors: float64(v.Errors) / seconds, MeanUS: v.MeanUS()}
	if t != nil {
		x.times = &t.Times
		x.P50US, x.P99US = quantiles(x.times)
	}
	return x
}

// quantiles are the median and the 99th percentile, in µs.
func quantiles(h *observe.Histogram) (p50, p99 int64) {
	return h.Quantile(0.5) / 1000, h.Quantile(0.99) / 1000
}

func edgeOf(e *servicemap.Edge, totals map[fleet.Key]*fleet.Total, seconds float64) Edge {
	x := Edge{
		Host: e.From.Host, Service: e.From.Service, Addr: e.From.Addr, Port: e.From.Port, How: string(e.How), Why: e.Why,
		ToHost: e.To.Host, ToService: e.To.Service, Portion: e.Portion, Caller: saw(&e.Caller, totals[e.From], seconds), Joined: e.Joined,
	}
	if e.Server != nil {
		server := saw(e.Server, totals[e.To], seconds)
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
func (m *Map) JSON(w io.Writer) error { return printable.WriteJSON(w, m) }
