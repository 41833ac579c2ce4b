package alert

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/observe"
)

// open is an incident that is not over.
type open struct {
	Incident
	Key  string    `json:"key,omitempty"` // of its cause and subject; "" while that is not known
	Seen time.Time `json:"seen"`          // the last moment of harm
	// Statuses: its harm was known by the status of requests; then Unclear is the last second in
	// which its services had requests and were not seen to succeed.
	Statuses bool      `json:"statuses,omitempty"`
	Unclear  time.Time `json:"unclear,omitzero"`
	Hold     Duration  `json:"hold"`         // how long harm has to be away
	Fired    bool      `json:"fired"`        // its begin was sent
	To       []string  `json:"to,omitempty"` // receivers of its begin, who hear all that follows
	followed
}

// flap is an incident that was over: should it come again soon, that takes longer.
type flap struct {
	Key   string    `json:"key"`
	Over  time.Time `json:"over"`
	Times int       `json:"times"`
}

const (
	// flapTime is how long it is remembered that an incident was there.
	flapTime = time.Hour
	// longestHold is how long harm has to be away at most.
	longestHold = 30 * time.Minute
	// together is how long after one service another suffers from the same.
	together  = 10 * time.Second
	mostOpen  = 256
	mostFlaps = 1024
)

// MarshalJSON writes it as it is read.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(strconv.Quote(time.Duration(d).String())), nil
}

// incidents follows harm and findings. It is for one goroutine.
type incidents struct {
	c     *Config
	Open  []*open `json:"open"`
	Flaps []flap  `json:"flaps,omitempty"`
	emit  func(kind Kind, o *open, to []string)
}

// harm takes in who suffers in a second.
func (x *incidents) harm(now time.Time, harms []Harm) {
	x.setBack(now)
	x.expire(now)
	for _, h := range harms {
		o := x.of(h.Service, now)
		if o == nil {
			continue
		}
		o.Seen = now
		o.note(Service{Name: h.Service, Share: h.Share, Text: h.Text})
		if o.Cause == "" && o.Title == "" {
			o.Title = h.Service + ": " + h.Text
		}
		x.weigh(o)
	}
	x.fire(now)
}

// look takes in what statuses say in a second, after its harm: who began with errors is not over
// in seconds in which no success was seen, as a recorder started anew cannot read the status of
// requests on connections older than it.
func (x *incidents) look(now time.Time, sights []sight) {
	for _, o := range x.Open {
		for _, s := range sights {
			if !slices.ContainsFunc(o.Services, func(have Service) bool { return have.Name == s.service }) {
				continue
			}
			o.Statuses = o.Statuses || s.errors
			if o.Statuses && s.unclear {
				o.Unclear = now
			}
		}
	}
}

// away is for how long it was not there, nor unclear.
func (o *open) away(now time.Time) time.Duration {
	if o.Unclear.After(o.Seen) {
		return now.Sub(o.Unclear)
	}
	return now.Sub(o.Seen)
}

// of is the incident that a service's harm belongs to: one that it is part of, else one
// that has just begun, as what calls a service that hangs suffers a moment later; else a
// new one.
func (x *incidents) of(service string, now time.Time) *open {
	for _, o := range x.Open {
		if slices.ContainsFunc(o.Services, func(s Service) bool { return s.Name == service }) {
			return o
		}
	}
	for _, o := range x.Open {
		if now.Sub(o.Began) < together {
			return o
		}
	}
	return x.begin("", now)
}

func (x *incidents) begin(key string, at time.Time) *open {
	if len(x.Open) >= mostOpen {
		return nil
	}
	o := &open{Incident: Incident{ID: strings.ToLower(rand.Text()[:16]), Severity: Warning, Began: at}, Key: key, Seen: at, Hold: x.c.ResolveAfter}
	x.hold(o)
	x.Open = append(x.Open, o)
	return o
}

// hold has an incident that came again within the hour take longer to be over.
func (x *incidents) hold(o *open) {
	for _, f := range x.Flaps {
		if f.Key == o.Key && o.Key != "" && o.Began.Sub(f.Over) < flapTime {
			o.Hold = Duration(min(time.Duration(x.c.ResolveAfter)<<min(f.Times, 8), longestHold))
		}
	}
}

func (o *open) note(s Service) {
	i := slices.IndexFunc(o.Services, func(have Service) bool { return have.Name == s.Name })
	if i < 0 {
		const most = 16
		if len(o.Services) < most {
			o.Services = append(o.Services, s)
		}
		return
	}
	have := &o.Services[i]
	have.Share, have.Lost = max(have.Share, s.Share), max(have.Lost, s.Lost)
	have.Text = cmp.Or(s.Text, have.Text)
}

// window takes in what was found in a window.
func (x *incidents) window(start, end time.Time, r *diagnose.Report) {
	x.setBack(end)
	x.expire(start)
	minutes := max(end.Sub(start).Minutes(), 1.0/60)
	var met []*open
	var learned []bool
	var ports []int
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Role != cause.RoleCause {
			continue // folded into what it follows from
		}
		key := keyOf(f)
		o := cmp.Or(x.known(key), x.adopt(key, f, r, len(met) == 0))
		if o == nil {
			onset, _ := diagnose.Onset(f, start)
			o = x.begin(key, onset)
		}
		if o == nil {
			continue // too many at once
		}
		met, learned, ports = append(met, o), append(learned, o.Cause == ""), append(ports, f.Subject.Port)
		o.Seen = end
		o.describe(f, r)
	}
	// Who suffers is part of the cause on its port, else of the first.
	for i := range r.Account.Victims {
		if v := &r.Account.Victims[i]; len(met) > 0 {
			x.suffer(met[max(slices.Index(ports, v.Port), 0)], v, r, minutes)
		}
	}
	for i, o := range met {
		if told := x.weigh(o); !told && learned[i] && o.Fired {
			x.update(o)
		}
	}
	x.expire(end)
	x.fire(end)
}

// keyOf says which findings are one incident: the same program may be another process
// by now.
func keyOf(f *cause.Finding) string {
	s := f.Subject
	if s.Comm != "" || s.Port != 0 {
		s.PID = 0
	}
	return fmt.Sprint(f.Cause, s)
}

// suffer notes a service of which the account of a window tells.
func (x *incidents) suffer(o *open, v *cause.Victim, r *diagnose.Report, minutes float64) {
	var bad uint64
	for _, h := range v.Harms {
		bad += h.Requests
	}
	s := Service{Name: victimName(v, r), Lost: v.Lost / minutes}
	if e := endpointOf(v, r); e != nil && e.Requests != nil && *e.Requests > 0 {
		s.Share = min(1, float64(bad)/float64(*e.Requests))
	}
	o.note(s)
}

// endpointOf is the row of a victim; nil where it has none.
func endpointOf(v *cause.Victim, r *diagnose.Report) *diagnose.Endpoint {
	for i := range r.Endpoints {
		if e := &r.Endpoints[i]; e.Side == v.Side && e.NetNS == v.NetNS && e.Port == v.Port {
			return e
		}
	}
	return nil
}

// victimName names a victim as serviceName does.
func victimName(v *cause.Victim, r *diagnose.Report) string {
	if e := endpointOf(v, r); e != nil && e.Process != nil && v.Side == observe.Served.String() {
		return serviceName(e.Process.Workload, v.Comm, v.Addr, v.Port)
	}
	return serviceName(nil, v.Comm, v.Addr, v.Port)
}

// mostSigns is how many of what was ruled out are named: who is called at night wonders about these first.
const mostSigns = 8

// describe says what it is.
func (o *open) describe(f *cause.Finding, r *diagnose.Report) {
	o.Cause, o.Title, o.Confidence, o.Impact = string(f.Cause), f.Title, f.Confidence, f.Impact.Text
	o.RuledOut, o.NotChecked, o.Signs = len(r.RuledOut), r.Unchecked(), nil
	for _, e := range r.RuledOut {
		if len(o.Signs) < mostSigns && !e.Nothing() {
			o.Signs = append(o.Signs, e.Cause+": "+e.Because)
		}
	}
	o.Fix, o.Commands, o.Prove = f.Fix.Text, nil, ""
	for _, c := range f.Fix.Commands {
		o.Commands = append(o.Commands, c.String())
	}
	if f.Prove != nil {
		o.Prove = f.Prove.Command.String()
	}
	if r.Account.Lost > 0 {
		o.Explained = min(1, r.Account.Explained/r.Account.Lost)
	}
}

func (x *incidents) known(key string) *open {
	for _, o := range x.Open {
		if o.Key == key {
			return o
		}
	}
	return nil
}

// adopt gives harm whose cause was not known its cause: on the service that it is about, or,
// of what explains most, on any that suffers.
func (x *incidents) adopt(key string, f *cause.Finding, r *diagnose.Report, first bool) *open {
	about := func(s Service) bool {
		if strings.HasSuffix(s.Name, ":"+strconv.Itoa(f.Subject.Port)) {
			return true
		}
		return first && slices.ContainsFunc(r.Account.Victims, func(v cause.Victim) bool { return s.Name == victimName(&v, r) })
	}
	for _, o := range x.Open {
		if o.Key == "" && slices.ContainsFunc(o.Services, about) {
			o.Key = key
			x.hold(o)
			return o
		}
	}
	return nil
}

// weigh finds how bad it is, which never becomes less, and tells where it became worse.
func (x *incidents) weigh(o *open) (told bool) {
	slices.SortStableFunc(o.Services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name))
	})
	if o.Severity == Critical {
		return false
	}
	for _, s := range o.Services {
		if l := x.c.Critical; l.Share > 0 && s.Share >= l.Share || l.LostSeconds > 0 && s.Lost >= l.LostSeconds {
			o.Severity = Critical
			if o.Fired {
				x.update(o)
			}
			return o.Fired
		}
	}
	return false
}

// update says what is new of an incident, and begins it for those whom the routes name only
// now that it is worse, or its cause known.
func (x *incidents) update(o *open) {
	var more []string
	for _, name := range x.c.to(&o.Incident) {
		if !slices.Contains(o.To, name) {
			more = append(more, name)
		}
	}
	x.emit(Update, o, o.To)
	if len(more) > 0 {
		o.To = append(slices.Clip(o.To), more...)
		x.emit(Begin, o, more)
	}
}

// clockStep is by how much what has been seen may be ahead of what is taken in: seconds come
// before the window that they are in is judged.
const clockStep = 2 * time.Minute

// setBack follows a clock that was set back: what was seen in its future would not end, and
// keep all that is new from beginning, for as long.
func (x *incidents) setBack(now time.Time) {
	for _, o := range x.Open {
		if o.Seen.Sub(now) > clockStep {
			o.Seen = now
		}
		if o.Unclear.Sub(now) > clockStep {
			o.Unclear = now
		}
		if o.Began.Sub(now) > clockStep {
			o.Began = now
		}
	}
}

// expire ends what has been away: before anything new is taken for a part of it.
func (x *incidents) expire(now time.Time) {
	x.Open = slices.DeleteFunc(x.Open, func(o *open) bool {
		if away := o.away(now); away < time.Duration(o.Hold) || o.deaf && away < longestHold {
			return false
		}
		over := o.Seen
		o.Ended = &over
		if o.Fired {
			x.emit(End, o, o.To)
			x.remember(o, now)
		}
		return true
	})
	x.Flaps = slices.DeleteFunc(x.Flaps, func(f flap) bool { return now.Sub(f.Over) > flapTime })
}

// fire begins what has lasted.
func (x *incidents) fire(now time.Time) {
	for _, o := range x.Open {
		if !o.Fired && o.Seen.Sub(o.Began) >= time.Duration(x.c.For) && !x.c.silent(now.Local(), o.Severity) {
			o.Fired, o.To, o.Said, o.Told = true, x.c.to(&o.Incident), o.Component, now
			o.Labels = labelsOf(&o.Incident)
			x.emit(Begin, o, o.To)
		}
	}
}

func (x *incidents) remember(o *open, now time.Time) {
	if o.Key == "" {
		return
	}
	for i := range x.Flaps {
		if f := &x.Flaps[i]; f.Key == o.Key {
			f.Over, f.Times = now, f.Times+1
			return
		}
	}
	if len(x.Flaps) < mostFlaps {
		x.Flaps = append(x.Flaps, flap{o.Key, now, 1})
	}
}
