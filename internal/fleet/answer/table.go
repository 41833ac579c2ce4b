package answer

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// SchemaTable identifies the form of a Table in JSON (schema/fleettop.schema.json).
const SchemaTable = "slowray.fleet-top/1"

// tableSpan is how many seconds a Watcher's Table is the average of.
const tableSpan = 10

// Table is what services and hosts do, on average of some seconds.
type Table struct {
	Schema   string       `json:"schema"`
	At       time.Time    `json:"at"` // the end of the seconds
	Seconds  int          `json:"seconds"`
	Services []ServiceRow `json:"services"`
	Hosts    []HostRow    `json:"hosts"`
	// Incidents are what is abnormal now.
	Incidents []Incident `json:"incidents"`
}

// ServiceRow is a service on all its hosts. Times are µs.
type ServiceRow struct {
	Service  string  `json:"service"`
	Hosts    int     `json:"hosts"`
	Rate     float64 `json:"rps"`
	Errors   float64 `json:"errors"` // per second
	P50US    int64   `json:"p50_us"` // of all requests of all hosts
	P99US    int64   `json:"p99_us"`
	Worst    string  `json:"worst_host"` // of the highest p99
	WorstUS  int64   `json:"worst_p99_us"`
	Abnormal int     `json:"abnormal"` // hosts
}

// HostRow is a host.
type HostRow struct {
	Host     string    `json:"host"`
	Services int       `json:"services"`
	Rate     float64   `json:"rps"`
	Errors   float64   `json:"errors"`
	Worst    string    `json:"worst_service"` // of the highest p99
	WorstUS  int64     `json:"worst_p99_us"`
	Retrans  float64   `json:"loss_permille"`
	Abnormal int       `json:"abnormal"` // endpoints
	Last     time.Time `json:"last"`     // when it was last heard of
	Silent   bool      `json:"silent"`
}

// Table asks for the last seconds before what the watcher has judged.
func (w *Watcher) Table(ctx context.Context) (*Table, error) {
	end := time.Unix(w.at, 0).UTC()
	q := fleet.Question{From: end.Add(-tableSpan * time.Second), To: end, Side: observe.Served}
	abnormal := make([]fleet.Key, len(w.Now.Anomalies))
	for i := range w.Now.Anomalies {
		abnormal[i] = w.Now.Anomalies[i].Key
	}
	t, err := tableOf(ctx, w.archive, q, w.Hosts, w.Newest, abnormal)
	if err != nil {
		return nil, err
	}
	t.Incidents = append(t.Incidents, w.Open()...)
	return t, nil
}

// table is the Table of all of the range, with what the Report says to be abnormal.
func (s *seen) table(r *Report) *Table {
	abnormal := make([]fleet.Key, len(r.Abnormal))
	for i := range r.Abnormal {
		abnormal[i] = r.Abnormal[i].key()
	}
	x := newRows(s.q.To, s.seconds(), s.hosts, s.newest)
	for _, t := range s.totals {
		x.add(t)
	}
	return x.table(abnormal)
}

// tableOf asks for what endpoints did, and adds it up.
func tableOf(ctx context.Context, a fleet.Archive, q fleet.Question, seen []fleet.HostSeen, newest map[string]int64, abnormal []fleet.Key) (*Table, error) {
	x := newRows(q.To, q.To.Sub(q.From).Seconds(), seen, newest)
	if err := a.Totals(ctx, q, func(t *fleet.Total) bool {
		x.add(t)
		return true
	}); err != nil {
		return nil, err
	}
	return x.table(abnormal), nil
}

// rows are those of a Table, as they are added up.
type rows struct {
	end      time.Time
	span     float64 // s
	services map[string]*ServiceRow
	times    map[string]*observe.Histogram // of services
	on       map[string]map[string]bool    // hosts of services
	hosts    map[string]*HostRow
	segments map[string][2]uint64 // of hosts: sent, retransmitted
}

// newRows has the hosts, with when they were last heard of.
func newRows(end time.Time, span float64, seen []fleet.HostSeen, newest map[string]int64) *rows {
	x := &rows{end: end, span: span, services: map[string]*ServiceRow{}, times: map[string]*observe.Histogram{}, on: map[string]map[string]bool{}, hosts: map[string]*HostRow{}, segments: map[string][2]uint64{}}
	for i := range seen {
		h := &seen[i]
		row := &HostRow{Host: h.Name, Last: h.Last.UTC()}
		if at := newest[h.Name]; at > h.Last.Unix() {
			row.Last = time.Unix(at, 0).UTC()
		}
		row.Silent = row.Last.Before(end.Add(-silence))
		x.hosts[h.Name] = row
	}
	return x
}

// add adds what an endpoint served.
func (x *rows) add(t *fleet.Total) {
	if t.Side != observe.Served {
		return
	}
	k := t.Key
	_, p99 := quantiles(&t.Times)
	row := x.services[k.Service]
	if row == nil {
		row = &ServiceRow{Service: k.Service}
		x.services[k.Service] = row
		x.times[k.Service] = &observe.Histogram{}
	}
	x.times[k.Service].Merge(&t.Times)
	row.Rate += float64(t.Requests) / x.span
	row.Errors += float64(t.Errors) / x.span
	if p99 > row.WorstUS || p99 == row.WorstUS && (row.Worst == "" || k.Host < row.Worst) {
		row.Worst, row.WorstUS = k.Host, p99
	}
	if x.on[k.Service] == nil {
		x.on[k.Service] = map[string]bool{}
	}
	x.on[k.Service][k.Host] = true
	h := x.hosts[k.Host]
	if h == nil {
		h = &HostRow{Host: k.Host, Last: x.end}
		x.hosts[k.Host] = h
	}
	h.Services++
	h.Rate += float64(t.Requests) / x.span
	h.Errors += float64(t.Errors) / x.span
	if p99 > h.WorstUS || p99 == h.WorstUS && (h.Worst == "" || k.Service < h.Worst) {
		h.Worst, h.WorstUS = k.Service, p99
	}
	s := x.segments[k.Host]
	x.segments[k.Host] = [2]uint64{s[0] + t.Segments, s[1] + t.Retrans}
}

// table puts the rows into order.
func (x *rows) table(abnormal []fleet.Key) *Table {
	t := &Table{Schema: SchemaTable, At: x.end, Seconds: int(x.span), Services: []ServiceRow{}, Hosts: []HostRow{}, Incidents: []Incident{}}
	markAbnormal(abnormal, x.services, x.hosts)
	for service, row := range x.services {
		row.Hosts = len(x.on[service])
		row.P50US, row.P99US = quantiles(x.times[service])
		t.Services = append(t.Services, *row)
	}
	for name, row := range x.hosts {
		if s := x.segments[name]; s[0] > 0 {
			row.Retrans = 1000 * float64(s[1]) / float64(s[0])
		}
		t.Hosts = append(t.Hosts, *row)
	}
	slices.SortFunc(t.Services, func(a, b ServiceRow) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.Service, b.Service))
	})
	slices.SortFunc(t.Hosts, func(a, b HostRow) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.Host, b.Host))
	})
	return t
}

// markAbnormal counts what is abnormal. A service as a whole counts as all its hosts.
func markAbnormal(abnormal []fleet.Key, services map[string]*ServiceRow, hosts map[string]*HostRow) {
	seen := map[[2]string]bool{}
	for _, a := range abnormal {
		if h := hosts[a.Host]; h != nil {
			h.Abnormal++
		}
		s := services[a.Service]
		switch {
		case s == nil || a.Side != observe.Served:
		case a.Host == "":
			s.Abnormal = s.Hosts
		case !seen[[2]string{a.Service, a.Host}]:
			seen[[2]string{a.Service, a.Host}] = true
			s.Abnormal++
		}
	}
}

// JSON writes the table for programs.
func (t *Table) JSON(out io.Writer) error { return printable.WriteJSON(out, t) }
