package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/alert"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/observe"
)

// fleetAlerts hands what a watcher follows to the alerter, with what the hosts at fault
// found themselves. A nil one does nothing.
type fleetAlerts struct {
	alerter *alert.Alerter
	archive fleet.Archive
	ctx     context.Context // of asking
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	asking bool
	known  map[string]alert.FleetHarm // by incident: what asking has brought
	asked  map[string]int             // by incident: how often
	last   time.Time
}

// Hosts judge a window of a minute and ship what they find: it is asked for each half
// minute, as long as it may still come.
const (
	askEvery = 30 * time.Second
	mostAsks = 10
	askAbout = 10 * time.Minute
)

// alerts begins to send what an earlier run has left; nil without --alerts.
func (c *fleetWatchCmd) alerts(ctx context.Context, archive fleet.Archive, now func() time.Time, say func(string)) (*fleetAlerts, error) {
	if c.Alerts == "" {
		return nil, nil
	}
	rules, err := alert.Load(c.Alerts)
	if err != nil {
		return nil, err
	}
	a, err := alert.New(alert.Options{Config: rules, Dir: c.AlertsDir, Host: fleetName(c.From), Page: c.Page, Say: say, Now: now})
	if err != nil {
		return nil, err
	}
	f := &fleetAlerts{alerter: a, archive: archive, known: map[string]alert.FleetHarm{}, asked: map[string]int{}}
	f.ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.running.Go(func() { a.Run(f.ctx) })
	return f, nil
}

// fleetName names a fleet by its database, and not by its servers: they may become others.
func fleetName(from string) string {
	_, rest, _ := strings.Cut(from, "://")
	rest, _, _ = strings.Cut(rest, "?")
	_, database, _ := strings.Cut(rest, "/")
	return strings.TrimSpace("fleet " + strings.Trim(database, "/"))
}

func (f *fleetAlerts) close() {
	if f == nil {
		return
	}
	f.stop()
	f.running.Wait()
}

// learn has a watcher learn what is usual, and that what is open is not.
func (f *fleetAlerts) learn(ctx context.Context, w *answer.Watcher, now time.Time) error {
	since := now
	if f != nil {
		if at, ok := f.alerter.Since(); ok {
			since = at
		}
	}
	return w.LearnBefore(ctx, now, since)
}

// step hands over what is abnormal by now, and what was and is over.
func (f *fleetAlerts) step(w *answer.Watcher, events []answer.Event) {
	if f == nil {
		return
	}
	now := w.Judged()
	open := w.Open()
	var harms []alert.FleetHarm
	f.mu.Lock()
	for i := range open {
		harms = join(harms, f.harm(&open[i], now))
	}
	for i := range events {
		if e := &events[i]; e.Kind == answer.Over {
			harms = join(harms, f.harm(&e.Incident, e.At))
			delete(f.known, e.ID)
			delete(f.asked, e.ID)
		}
	}
	f.mu.Unlock()
	f.alerter.Fleet(f.ctx, now, harms, w.HeardOf())
	f.ask(open, now)
}

// harm is an incident as alerts have it, with the lock held.
func (f *fleetAlerts) harm(i *answer.Incident, seen time.Time) alert.FleetHarm {
	h := f.known[i.ID]
	if h.Finding == nil {
		h.Title = strings.TrimSuffix(i.Text, ".")
	}
	h.ID, h.Component, h.Since, h.Seen = i.ID, string(i.Component.Kind)+" "+i.Component.Value, i.Since, seen
	for j := range i.Endpoints {
		e := &i.Endpoints[j]
		h.Endpoints = append(h.Endpoints, e.Who())
		h.Services = suffers(h.Services, e)
		if e.Host != "" && !slices.Contains(h.Hosts, e.Host) {
			h.Hosts = append(h.Hosts, e.Host)
		}
	}
	return h
}

// together is how long after one host another one is taken to suffer by the same.
const together = 10 * time.Second

// join adds harm. Where a service is slow on all its hosts at once, and there is nothing
// else to compare it with, each is an incident by itself for the watcher; it is one alert.
func join(harms []alert.FleetHarm, h alert.FleetHarm) []alert.FleetHarm {
	const alone = string(anomaly.Endpoint) + " "
	service := string(anomaly.Service) + " "
	if len(h.Services) > 0 {
		service += h.Services[0].Name
	}
	for i := range harms {
		to := &harms[i]
		if !strings.HasPrefix(h.Component, alone) || to.Component != service && !strings.HasPrefix(to.Component, alone) ||
			len(to.Services) != 1 || len(h.Services) != 1 || to.Services[0].Name != h.Services[0].Name || h.Since.Sub(to.Since).Abs() > together {
			continue
		}
		to.Services[0].Lost += h.Services[0].Lost
		to.Services[0].Share = max(to.Services[0].Share, h.Services[0].Share)
		to.Endpoints = append(to.Endpoints, h.Endpoints...)
		for _, host := range h.Hosts {
			if !slices.Contains(to.Hosts, host) {
				to.Hosts = append(to.Hosts, host)
			}
		}
		if h.Seen.After(to.Seen) {
			to.Seen = h.Seen
		}
		if to.Component = service; to.Finding == nil {
			to.Title, to.Finding, to.RuledOut, to.NotChecked, to.Next = h.Title, h.Finding, h.RuledOut, h.NotChecked, h.Next
		}
		if to.Finding == nil {
			to.Title = fmt.Sprintf("%s is slow or fails on %d hosts at once", h.Services[0].Name, len(to.Hosts))
		}
		return harms
	}
	return append(harms, h)
}

// suffers adds an endpoint to its service over all hosts: how many of its requests are
// harmed, and for how long its clients wait more than usual. The worst endpoint, which is
// the first, says how.
func suffers(services []alert.Service, e *answer.Endpoint) []alert.Service {
	s := alert.Service{Name: e.Service, Lost: max(e.AddedUS, 0) / 1e6 * e.PerSecond * 60}
	if e.Side == observe.Called.String() {
		s.Name += " calls " + net.JoinHostPort(e.Addr, strconv.Itoa(e.Port))
	}
	// Where the mean is three times the usual one half of the requests are slow, as a
	// recorder's alerts have it.
	const timesSlower, half = 3, 0.5
	switch {
	case e.Unit != "us":
		s.Share = min(max(e.Effect, 0), 1) // that fail or are missing
	case e.Effect >= timesSlower-1:
		s.Share = half
	}
	if i := slices.IndexFunc(services, func(have alert.Service) bool { return have.Name == s.Name }); i >= 0 {
		have := &services[i]
		have.Share, have.Lost = max(have.Share, s.Share), have.Lost+s.Lost
		return services
	}
	if s.Text = e.What(); e.Host != "" {
		s.Text = "on " + e.Host + ": " + s.Text
	}
	return append(services, s)
}

// ask asks the archive, next to watching it, what the hosts at fault found.
func (f *fleetAlerts) ask(open []answer.Incident, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var about []answer.Incident
	for i := range open {
		if id := open[i].ID; f.known[id].Finding == nil && f.asked[id] < mostAsks {
			about = append(about, open[i])
		}
	}
	if len(about) == 0 || f.asking || now.Sub(f.last) < askEvery {
		return
	}
	f.last, f.asking = now, true
	for i := range about {
		f.asked[about[i].ID]++
	}
	f.running.Go(func() {
		r, err := answer.Why(f.ctx, f.archive, answer.Question{From: now.Add(-askAbout), To: now})
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asking = false
		if err != nil {
			return // the watcher meets the same error, and says it
		}
		for i := range about {
			id := about[i].ID
			if c := r.Of(&about[i]); c != nil && c.Told() != nil && f.asked[id] > 0 { // it is not over
				f.known[id] = toldBy(r, c)
			}
		}
	})
}

// toldBy is what an answer adds to an incident.
func toldBy(r *answer.Report, c *answer.Cause) alert.FleetHarm {
	h := alert.FleetHarm{Title: c.Title(), Finding: c.Told(), RuledOut: len(c.RuledOut), NotChecked: len(r.NotTested)}
	for _, command := range c.Next {
		h.Next = append(h.Next, command.String())
	}
	return h
}
