package alert

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/cause"
)

// FleetHarm is one incident of a fleet, as who watches it follows it.
type FleetHarm struct {
	ID        string    // within one run of the watcher
	Component string    // what those that suffer have in common
	Title     string    // what it is
	Since     time.Time // its first second
	Seen      time.Time // its last one until now
	Services  []Service // each over all its hosts: "app:8080"
	Endpoints []string  // that suffer now: "app:8080 on web-34"
	Hosts     []string  // that they are on
	// Finding is what the host at fault found itself; nil while that is not known.
	Finding              *cause.Finding
	RuledOut, NotChecked int
	Next                 []string // commands by which to go on
}

// fleetSecond is what is wrong in a fleet at a moment.
type fleetSecond struct {
	harms []FleetHarm
	heard map[string]time.Time // hosts: when they were last heard of
}

const (
	// mostMembers is how many endpoints of an incident are remembered, and mostHosts how
	// many hosts: by them it is known again after a restart.
	mostMembers = 512
	mostHosts   = 64
	// changesEvery is how often at most it is said that an incident is another one than
	// was thought.
	changesEvery = time.Minute
)

// followed is what is kept of an incident of a fleet.
type followed struct {
	Watched string          `json:"watched,omitempty"` // its FleetHarm.ID
	Members map[string]bool `json:"members,omitempty"` // endpoints that ever suffered by it
	Said    string          `json:"said,omitempty"`    // the component that was reported last
	Told    time.Time       `json:"told,omitzero"`
	deaf    bool            // none of its hosts was heard of since it was seen
}

// Fleet takes in all that is wrong in a fleet by the second at, instead of the seconds
// and windows of a host. It returns when that is kept, or could not be and
// Say has said so: who watches a fleet can wait for a slow disk, and its archive has what
// comes meanwhile. Run has to run until ctx is done.
func (a *Alerter) Fleet(ctx context.Context, at time.Time, harms []FleetHarm, heard map[string]time.Time) {
	e := event{at: at.UTC(), fleet: &fleetSecond{harms, heard}, kept: make(chan struct{})}
	select {
	case a.events <- e:
	case <-ctx.Done():
		return
	}
	select {
	case <-e.kept:
	case <-ctx.Done():
	}
}

// fleet follows what is wrong now. What is there still is seen before anything ends, for
// an archive that was away left out minutes in which nobody could look.
func (x *incidents) fleet(now time.Time, f *fleetSecond) {
	x.setBack(now)
	met := map[*open]bool{}
	of := make([]*open, len(f.harms))
	for _, same := range []func(*open, *FleetHarm) int{
		func(o *open, h *FleetHarm) int { return one(o.Watched == h.ID) },
		func(o *open, h *FleetHarm) int { return one(o.Key == h.Component)*(mostMembers+1) + o.shares(h) },
	} {
		for i := range f.harms {
			if of[i] != nil {
				continue
			}
			most := 0
			for _, o := range x.Open {
				if n := same(o, &f.harms[i]); n > most && !met[o] {
					of[i], most = o, n
				}
			}
			if of[i] != nil {
				met[of[i]] = true
			}
		}
	}
	for i := range f.harms {
		h := &f.harms[i]
		if of[i] == nil {
			if of[i] = x.begin(h.Component, h.Since); of[i] == nil {
				continue // too many at once
			}
			met[of[i]] = true
		}
		o := of[i]
		news := o.take(h)
		if told := x.weigh(o); told || !o.Fired || !news && (o.Said == o.Component || now.Sub(o.Told) < changesEvery) {
			continue
		}
		o.Said, o.Told = o.Component, now
		x.update(o)
	}
	x.fold(now, met)
	for _, o := range x.Open {
		o.deaf = !met[o] && len(o.Hosts) > 0 && !slices.ContainsFunc(o.Hosts, func(host string) bool { return f.heard[host].After(o.Seen) })
	}
	x.expire(now)
	x.fire(now)
}

// Since is when the oldest incident of a fleet began that is open; false when none is.
func (a *Alerter) Since() (since time.Time, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.box.Incidents.Open {
		if o.Watched != "" && (!any || o.Began.Before(since)) {
			since, any = o.Began, true
		}
	}
	return since, any
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// shares is how many endpoints of a harm an incident has.
func (o *open) shares(h *FleetHarm) (n int) {
	for _, name := range h.Endpoints {
		n += one(o.Members[name])
	}
	return n
}

// take notes what is known of an incident by now, and says that its cause is new.
func (o *open) take(h *FleetHarm) (news bool) {
	if o.Members == nil {
		o.Members = map[string]bool{}
	}
	o.Watched, o.Key, o.Component, o.Seen = h.ID, h.Component, h.Component, h.Seen
	for _, s := range h.Services {
		o.note(s)
	}
	for _, name := range h.Endpoints {
		if len(o.Members) < mostMembers {
			o.Members[name] = true
		}
	}
	for _, host := range h.Hosts {
		if len(o.Hosts) < mostHosts && !slices.Contains(o.Hosts, host) {
			o.Hosts = append(o.Hosts, host)
		}
	}
	slices.Sort(o.Hosts)
	o.HostCount = max(o.HostCount, len(h.Hosts), len(o.Hosts))
	f := h.Finding
	if f == nil {
		if o.Cause == "" {
			o.Title = h.Title
		}
		return false
	}
	news = o.Cause != string(f.Cause)
	o.Cause, o.Confidence, o.Impact, o.Fix = string(f.Cause), f.Confidence, f.Impact.Text, f.Fix.Text
	o.Title, o.RuledOut, o.NotChecked, o.Next = h.Title, h.RuledOut, h.NotChecked, h.Next
	return news
}

// fold ends incidents of which all that suffered suffers by another one, as it turned out.
func (x *incidents) fold(now time.Time, met map[*open]bool) {
	all := map[string]bool{}
	for o := range met {
		maps.Copy(all, o.Members)
	}
	x.Open = slices.DeleteFunc(x.Open, func(o *open) bool {
		if met[o] || len(o.Members) == 0 {
			return false
		}
		for name := range o.Members {
			if !all[name] {
				return false
			}
		}
		if o.Fired {
			o.Ended = &now
			x.emit(End, o, o.To)
		}
		return true
	})
}
