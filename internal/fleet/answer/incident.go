package answer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/anomaly"
	"github.com/slowray/slowray/internal/fleet/servicemap"
	"github.com/slowray/slowray/internal/printable"
)

// SchemaEvent identifies the form of an Event in JSON (schema/fleetevent.schema.json).
const SchemaEvent = "slowray.fleet-event/1"

// Kinds of events.
const (
	Onset  = "onset"
	Update = "update" // what it is, is known better
	Over   = "end"
)

// Event is that an incident began, became clearer, or ended.
type Event struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"` // the second by which it was judged
	Kind   string    `json:"kind"`
	Incident
}

// Incident is a component that abnormal endpoints share, or an abnormal endpoint that
// shares nothing, from when it began until it is over.
type Incident struct {
	ID        string            `json:"id"`
	Since     time.Time         `json:"since"`
	Until     *time.Time        `json:"until"` // null while it lasts
	Text      string            `json:"text"`
	Component anomaly.Component `json:"component"`
	Network   bool              `json:"network"`
	Endpoints []Endpoint        `json:"endpoints"` // abnormal ones, worst first
	// PartOf is the ID of the incident that covers what is left of this one at its end.
	PartOf string `json:"part_of,omitempty"`

	within string             // the text of that
	keys   map[fleet.Key]bool // all that ever belonged to it
	told   int64              // s: when an event last told it
}

// updateEvery is how many seconds lie between two events of an incident at least, but
// for its end.
const updateEvery = 5

// incidents follows what is abnormal from second to second.
type incidents struct {
	open   map[string]*Incident
	behind bool // an update waits until it may be reported
	last   int64
}

// due says that something waits to be reported.
func (x *incidents) due(at int64) bool { return x.behind && at-x.last >= updateEvery }

// group is what is abnormal now by one component.
type group struct {
	component anomaly.Component
	text      string
	network   bool
	list      []*anomaly.Anomaly
}

// groups puts the abnormal endpoints under what explains them: those that are slow and
// fail, for two causes, under both.
func groups(anomalies []anomaly.Anomaly, e *anomaly.Explanation) []group {
	byKey := map[fleet.Key]*anomaly.Anomaly{}
	for i := range anomalies {
		byKey[anomalies[i].Key] = &anomalies[i]
	}
	var all []group
	left := maps.Clone(byKey)
	for i := range e.Shared {
		s := &e.Shared[i]
		g := group{component: s.Component, text: s.Text, network: s.Network}
		for _, k := range s.Explains {
			if a := byKey[k]; a != nil {
				g.list = append(g.list, a)
				delete(left, k)
			}
		}
		if len(g.list) > 0 {
			all = append(all, g)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(left), servicemap.CompareKeys) {
		a := byKey[k]
		value := k.Service + " on " + k.Host
		all = append(all, group{anomaly.Component{Kind: anomaly.Endpoint, Value: value}, endpointOf(a).text() + ".", a.Network, []*anomaly.Anomaly{a}})
	}
	return all
}

// follow takes what is abnormal at a second.
func (x *incidents) follow(at int64, anomalies []anomaly.Anomaly, e *anomaly.Explanation) (events []Event) {
	now := time.Unix(at, 0).UTC()
	x.last, x.behind = at, false
	met := map[*Incident]bool{}
	for _, g := range groups(anomalies, e) {
		i := x.same(&g, met)
		kind := Update
		changed := false
		if i == nil {
			kind, changed = Onset, true
			i = x.begin(&g)
		}
		met[i] = true
		more := false
		for _, a := range g.list {
			more = more || !i.keys[a.Key]
			i.keys[a.Key] = true
		}
		changed = changed || i.Component != g.component || more && len(g.list) >= 2*len(i.Endpoints)
		if changed && kind == Update && at-i.told < updateEvery {
			x.behind = true
			continue
		}
		if changed || len(g.list) >= len(i.Endpoints) {
			i.Component, i.Text, i.Network = g.component, g.text, g.network
			i.Endpoints = i.Endpoints[:0:0]
			for _, a := range g.list {
				i.Endpoints = append(i.Endpoints, endpointOf(a))
			}
			worstFirst(i.Endpoints)
		}
		if changed {
			i.told = at
			events = append(events, Event{SchemaEvent, now, kind, *i})
		}
	}
	abnormal := map[fleet.Key]bool{}
	for i := range anomalies {
		abnormal[anomalies[i].Key] = true
	}
	for _, id := range slices.Sorted(maps.Keys(x.open)) {
		i := x.open[id]
		if met[i] {
			continue
		}
		// It may have become part of another one; it ends when nothing of it is left.
		if touches(i.keys, abnormal) {
			whole := coveredBy(i.keys, abnormal, met)
			if whole == nil {
				continue
			}
			i.PartOf, i.within = whole.ID, whole.Text
		}
		i.Until = &now
		delete(x.open, id)
		events = append(events, Event{SchemaEvent, now, Over, *i})
	}
	return events
}

// touches says that something of an incident is abnormal still.
func touches(keys, abnormal map[fleet.Key]bool) bool {
	for k := range keys {
		if abnormal[k] {
			return true
		}
	}
	return false
}

// coveredBy is the incident that most of what is left of another belongs to; nil where
// something of that belongs to none.
func coveredBy(keys, abnormal map[fleet.Key]bool, met map[*Incident]bool) *Incident {
	has := map[*Incident]int{}
	for k := range keys {
		if !abnormal[k] {
			continue
		}
		found := false
		for i := range met {
			if i.keys[k] {
				has[i]++
				found = true
			}
		}
		if !found {
			return nil
		}
	}
	var most *Incident
	for i, n := range has {
		if most == nil || cmp.Or(n-has[most], compareIncidents(*most, *i)) > 0 {
			most = i
		}
	}
	return most
}

// same is the incident that a group belongs to: that of the same component, or that
// which has most of its endpoints; nil when there is none.
func (x *incidents) same(g *group, met map[*Incident]bool) *Incident {
	var best *Incident
	most := 0
	for _, id := range slices.Sorted(maps.Keys(x.open)) {
		i := x.open[id]
		if met[i] {
			continue
		}
		n := 0
		for _, a := range g.list {
			if i.keys[a.Key] {
				n++
			}
		}
		if i.Component == g.component {
			n += len(g.list)
		}
		if n > most {
			best, most = i, n
		}
	}
	return best
}

// begin opens an incident.
func (x *incidents) begin(g *group) *Incident {
	since := g.list[0].Since
	for _, a := range g.list {
		since = min(since, a.Since)
	}
	// Two that begin in the same second with the same component are not: the first takes it.
	id := fmt.Sprintf("%d-%s-%s", since, g.component.Kind, g.component.Value)
	for n := 2; x.open[id] != nil; n++ {
		id = fmt.Sprintf("%d-%s-%s-%d", since, g.component.Kind, g.component.Value, n)
	}
	i := &Incident{ID: id, Since: time.Unix(since, 0).UTC(), keys: map[fleet.Key]bool{}, Endpoints: []Endpoint{}}
	x.open[id] = i
	return i
}

func compareIncidents(a, b Incident) int {
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
}

// Line is the event on a line.
func (e *Event) Line() string {
	clock := e.At.Format(time.TimeOnly)
	lasted := figure.Seconds(e.At.Sub(e.Since).Seconds())
	text := ""
	switch e.Kind {
	case Onset:
		text = fmt.Sprintf("%s BEGINS  %s (since %s)", clock, e.Text, e.Since.Format(time.TimeOnly))
	case Update:
		text = fmt.Sprintf("%s CLEARER %s (since %s)", clock, e.Text, e.Since.Format(time.TimeOnly))
	default:
		text = fmt.Sprintf("%s OVER    %s, after %s", clock, strings.TrimSuffix(e.Text, "."), lasted)
		if e.PartOf != "" {
			text = fmt.Sprintf("%s MERGED  %s; now a part of: %s", clock, strings.TrimSuffix(e.Text, "."), e.within)
		}
	}
	return printable.Text(text)
}

// JSON is the event as one line of JSON, without the end of the line. It is whole however
// much is abnormal.
func (e *Event) JSON() ([]byte, error) {
	var b bytes.Buffer
	err := printable.WriteJSONLine(&b, e)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Stored is the event as an archive keeps it.
func (e *Event) Stored() (fleet.Event, error) {
	text, err := json.Marshal(e)
	return fleet.Event{ID: e.ID, At: e.At, Kind: e.Kind, Text: e.Text, Document: text}, err
}

// Of is what a report says of an incident: the cause that has its component, else the one
// that affects most of what is abnormal by it; nil where there is none.
func (r *Report) Of(i *Incident) *Cause {
	abnormal := map[fleet.Key]bool{}
	for j := range i.Endpoints {
		abnormal[i.Endpoints[j].key()] = true
	}
	var best *Cause
	most := 0
	for j := range r.Causes {
		c := &r.Causes[j]
		n := 0
		for k := range c.Affected {
			if abnormal[c.Affected[k].key()] {
				n++
			}
		}
		if c.Component == i.Component {
			n += len(abnormal) + 1
		}
		if n > most {
			best, most = c, n
		}
	}
	return best
}

// Title names what is at fault and what is wrong with it, without the reasons.
func (c *Cause) Title() string { return strings.TrimSuffix(cmp.Or(c.headline(), c.Text), ".") }

// Told is the finding of the host at fault that tells of the cause; nil where it found
// none.
func (c *Cause) Told() *cause.Finding {
	for i := range c.Findings {
		if f := &c.Findings[i]; !f.Before && (c.Origin == nil || f.Host == c.Origin.Host && near(&f.Finding, c.Origin)) {
			return &f.Finding
		}
	}
	return nil
}
