package web

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	fleetanswer "github.com/slowray/slowray/internal/fleet/answer"
)

// fleetView is what the page shows of a range.
type fleetView struct {
	Version  string                   `json:"version"`
	Now      float64                  `json:"now"`  // s since 1970
	From     int64                    `json:"from"` // s since 1970
	To       int64                    `json:"to"`
	Fleet    fleetanswer.Extent       `json:"fleet"`
	Why      *fleetanswer.Told        `json:"why"`
	Map      *fleetanswer.Graph       `json:"map"`
	Services []fleetanswer.ServiceRow `json:"services"`
	Hosts    []hostRow                `json:"hosts"`
	Left     leftOut                  `json:"left_out"`

	timeRange
	made time.Time
}

// leftOut counts the rows that were too many.
type leftOut struct {
	Services int `json:"services"`
	Hosts    int `json:"hosts"`
}

// hostRow is a host, and what it said of itself.
type hostRow struct {
	fleetanswer.HostRow
	Labels    map[string]string `json:"labels"`
	Addresses []string          `json:"addresses"`
	Kernel    string            `json:"kernel"`
	CPUs      int               `json:"cpus"`
	Version   string            `json:"version"`
}

// Bounds of what may be asked of a fleet.
const (
	shortestFleet = time.Minute
	longestFleet  = 24 * time.Hour // package fleet/answer judges no more together
	liveStep      = 5 * time.Second
)

// parseFleetQuery reads from and to, or last (s), or nothing: the last quarter of an
// hour before newest, which the hosts have shipped. What is live moves in steps, so that all
// who look see the same.
func parseFleetQuery(raw string, newest time.Time) (q timeRange, err error) {
	if len(raw) > maxQuery {
		return q, bad("the query is longer than %d bytes", maxQuery)
	}
	v, err := url.ParseQuery(raw)
	if err != nil {
		return q, bad("the query cannot be read: %s", clip(err.Error(), 80))
	}
	length := defaultRange
	if text := v.Get("last"); text != "" {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || !(s >= shortestFleet.Seconds() && s <= longestFleet.Seconds()) {
			return q, bad("last=%s: must be %d to %d seconds", clip(text, 40), int(shortestFleet.Seconds()), int(longestFleet.Seconds()))
		}
		length = time.Duration(s) * time.Second
	}
	q.to = newest.Truncate(liveStep).UTC()
	if text := v.Get("to"); text != "" {
		if q.to, err = parseTime(text); err != nil {
			return q, bad("to=%s: %s", clip(text, 40), err)
		}
	}
	q.from = q.to.Add(-length)
	if text := v.Get("from"); text != "" {
		if q.from, err = parseTime(text); err != nil {
			return q, bad("from=%s: %s", clip(text, 40), err)
		}
	}
	q.from, q.to = q.from.Truncate(time.Second), q.to.Truncate(time.Second)
	switch {
	case !q.from.Before(q.to):
		return q, bad("from and to: the end must be after the beginning")
	case q.to.Sub(q.from) > longestFleet:
		return q, bad("from and to: at most %d hours of a fleet are judged together", int(longestFleet.Hours()))
	case q.to.Sub(q.from) < shortestFleet:
		return q, bad("from and to: at least %d seconds", int(shortestFleet.Seconds()))
	}
	return q, nil
}

// judge asks the archive.
func (f *fleetServer) judge(ctx context.Context, q timeRange) (*fleetView, error) {
	seen, err := f.looker.Look(ctx, fleetanswer.Question{From: q.from, To: q.to, Now: f.opt.Now()})
	if err != nil {
		return nil, err
	}
	report, table, hosts := seen.Report, seen.Table, seen.Hosts
	v := &fleetView{Version: f.opt.Version, From: q.from.Unix(), To: q.to.Unix(), timeRange: q, Fleet: report.Fleet, Why: report.Told(), Map: seen.Map.Graph(report.Abnormal)}
	// What is abnormal is not left out before what is not.
	slices.SortStableFunc(table.Services, func(a, b fleetanswer.ServiceRow) int { return min(b.Abnormal, 1) - min(a.Abnormal, 1) })
	slices.SortStableFunc(table.Hosts, func(a, b fleetanswer.HostRow) int { return grave(&b) - grave(&a) })
	v.Left = leftOut{max(len(table.Services)-maxFleetRows, 0), max(len(table.Hosts)-maxFleetRows, 0)}
	v.Services = table.Services[:min(len(table.Services), maxFleetRows)]
	v.Hosts = hostRows(table.Hosts[:min(len(table.Hosts), maxFleetRows)], hosts)
	return v, nil
}

func grave(h *fleetanswer.HostRow) int {
	switch {
	case h.Abnormal > 0:
		return 2
	case h.Silent:
		return 1
	}
	return 0
}

// hostRows adds what the hosts said of themselves.
func hostRows(rows []fleetanswer.HostRow, hosts []fleet.HostSeen) []hostRow {
	known := map[string]*fleet.HostSeen{}
	for i := range hosts {
		known[hosts[i].Name] = &hosts[i]
	}
	all := make([]hostRow, len(rows))
	for i := range rows {
		all[i] = hostRow{HostRow: rows[i], Labels: map[string]string{}, Addresses: []string{}}
		h := known[rows[i].Host]
		if h == nil {
			continue
		}
		all[i].Kernel, all[i].CPUs, all[i].Version = h.Kernel, h.CPUs, h.Version
		for _, k := range slices.Sorted(maps.Keys(h.Labels)) {
			if len(all[i].Labels) == maxOfHost {
				break
			}
			all[i].Labels[k] = h.Labels[k]
		}
		all[i].Addresses = append(all[i].Addresses, h.Addresses[:min(len(h.Addresses), maxOfHost)]...)
	}
	return all
}
