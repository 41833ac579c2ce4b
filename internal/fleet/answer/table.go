package answer

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/observe"
)

// SchemaTable identifies the form of a Table in JSON (schema/fleettop.schema.json).
const SchemaTable = "slowray.fleet-top/1"

// tableSpan is how many seconds a Table is the average of.
const tableSpan = 10

// Table is what services and hosts do now.
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
	views := map[fleet.Key]*servicemap.View{}
	if err := w.archive.Points(ctx, q, time.Second, func(p *fleet.Point) bool {
		v := views[p.Key]
		if v == nil {
			v = &servicemap.View{}
			views[p.Key] = v
		}
		v.Add(p)
		return true
	}); err != nil {
		return nil, err
	}
	quantiles, err := w.archive.Quantiles(ctx, q, []float64{0.5, 0.99})
	if err != nil {
		return nil, err
	}
	t := &Table{Schema: SchemaTable, At: end, Seconds: tableSpan, Services: []ServiceRow{}, Hosts: []HostRow{}, Incidents: []Incident{}}
	t.Incidents = append(t.Incidents, w.Open()...)
	services, hosts := map[string]*ServiceRow{}, map[string]*HostRow{}
	for _, s := range quantiles {
		if s.Side == observe.Served && len(s.QuantilesUS) == 2 {
			services[s.Service] = &ServiceRow{Service: s.Service, Hosts: s.Hosts, P50US: s.QuantilesUS[0], P99US: s.QuantilesUS[1]}
		}
	}
	for i := range w.Hosts {
		h := &w.Hosts[i]
		row := &HostRow{Host: h.Name, Last: h.Last.UTC()}
		if at := w.Newest[h.Name]; at > h.Last.Unix() {
			row.Last = time.Unix(at, 0).UTC()
		}
		row.Silent = row.Last.Before(end.Add(-silence))
		hosts[h.Name] = row
	}
	segments := map[string][2]uint64{}
	for k, v := range views {
		v.Settle()
		row := services[k.Service]
		if row == nil {
			row = &ServiceRow{Service: k.Service}
			services[k.Service] = row
		}
		row.Rate += float64(v.Requests) / tableSpan
		row.Errors += float64(v.Errors) / tableSpan
		if v.P99US > row.WorstUS || v.P99US == row.WorstUS && k.Host < row.Worst {
			row.Worst, row.WorstUS = k.Host, v.P99US
		}
		h := hosts[k.Host]
		if h == nil {
			h = &HostRow{Host: k.Host, Last: end}
			hosts[k.Host] = h
		}
		h.Services++
		h.Rate += float64(v.Requests) / tableSpan
		h.Errors += float64(v.Errors) / tableSpan
		if v.P99US > h.WorstUS || v.P99US == h.WorstUS && k.Service < h.Worst {
			h.Worst, h.WorstUS = k.Service, v.P99US
		}
		s := segments[k.Host]
		segments[k.Host] = [2]uint64{s[0] + v.Segments, s[1] + v.Retrans}
	}
	t.abnormal(w, services, hosts)
	for _, row := range services {
		t.Services = append(t.Services, *row)
	}
	for name, row := range hosts {
		if s := segments[name]; s[0] > 0 {
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
	return t, nil
}

// abnormal counts what is abnormal now. A service as a whole counts as all its hosts.
func (t *Table) abnormal(w *Watcher, services map[string]*ServiceRow, hosts map[string]*HostRow) {
	seen := map[[2]string]bool{}
	for i := range w.Now.Anomalies {
		a := &w.Now.Anomalies[i]
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
func (t *Table) JSON(out io.Writer) error { return writeJSON(out, t) }
