package cause

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// HarmKind is how requests suffered.
type HarmKind string

// The kinds of harm.
const (
	HarmSlow       HarmKind = "slow"       // longer than most at the same endpoint, or held up by what is no work
	HarmFailed     HarmKind = "failed"     // answered with an error of the server
	HarmUnanswered HarmKind = "unanswered" // the connection ended before the first byte of an answer
	// HarmUnfinished: no answer, or not all of it, when the window or the connection ended,
	// and something holds up who should give it, or the network what was sent.
	HarmUnfinished HarmKind = "unfinished"
	HarmHandshake  HarmKind = "handshake" // its connection waited in a handshake of TLS before it could begin
	// HarmNotConnected counts connections of clients, for which nobody answers requests:
	// those of a service are among its own.
	HarmNotConnected HarmKind = "not_connected"
)

// Harm is what the requests of one endpoint lost in one way.
type Harm struct {
	Kind     HarmKind `json:"kind"`
	Requests uint64   `json:"requests"`
	Seconds  float64  `json:"lost_s"`
}

// Victim is an endpoint whose requests were harmed, or one that clients cannot connect
// to.
type Victim struct {
	Side      string  `json:"side"`
	NetNS     uint64  `json:"netns"`
	Addr      string  `json:"addr"`
	Port      int     `json:"port"`
	PID       int     `json:"pid,omitempty"`
	Comm      string  `json:"comm,omitempty"`
	Harms     []Harm  `json:"harms"`
	Lost      float64 `json:"lost_s"`
	Explained float64 `json:"explained_s"` // as much as findings account for

	l *ledger   // nil where no connection came about
	o *outcomes // of connections, for HarmNotConnected
}

// Account is who was harmed in the window, and by how much.
type Account struct {
	Lost      float64  `json:"lost_s"`
	Explained float64  `json:"explained_s"`
	Victims   []Victim `json:"victims"` // most harmed first
}

// Account adds up, for each endpoint that no other service of this host calls (the
// time of the others lies within theirs), the seconds that its requests lost. It asks
// no cause.
func (v *View) Account() Account {
	a := Account{Victims: []Victim{}}
	for _, l := range v.fronts {
		v.Step()
		if harms := v.harmsOf(l); len(harms) > 0 {
			a.Victims = append(a.Victims, v.victim(l, harms...))
		}
	}
	for _, o := range v.outcomes().all {
		bad := o.vain()
		if h, ok := v.harmedBy(o, bad); !o.client || !ok || h.share < noiseShare {
			continue
		}
		lost := round(failedCost * float64(bad))
		a.Victims = append(a.Victims, Victim{Side: observe.Called.String(), NetNS: o.netns, Addr: o.addr, Port: o.port, PID: o.pid, Comm: o.comm,
			Harms: []Harm{{HarmNotConnected, bad, lost}}, Lost: lost, o: o})
	}
	a.sort()
	return a
}

// Add takes in the account of another window.
func (a *Account) Add(b *Account) {
	for _, x := range b.Victims {
		at := slices.IndexFunc(a.Victims, func(y Victim) bool {
			return y.Side == x.Side && y.NetNS == x.NetNS && y.Addr == x.Addr && y.Port == x.Port
		})
		if at < 0 {
			x.Harms = slices.Clone(x.Harms)
			a.Victims = append(a.Victims, x)
			continue
		}
		y := &a.Victims[at]
		y.Lost, y.Explained = round(y.Lost+x.Lost), round(y.Explained+x.Explained)
		for _, h := range x.Harms {
			if same := slices.IndexFunc(y.Harms, func(g Harm) bool { return g.Kind == h.Kind }); same < 0 {
				y.Harms = append(y.Harms, h)
			} else {
				y.Harms[same].Requests += h.Requests
				y.Harms[same].Seconds = round(y.Harms[same].Seconds + h.Seconds)
			}
		}
	}
	a.Lost, a.Explained = round(a.Lost+b.Lost), round(a.Explained+b.Explained)
	a.sort()
}

func (a *Account) sort() {
	slices.SortStableFunc(a.Victims, func(x, y Victim) int { return cmp.Compare(y.Lost, x.Lost) })
}

// Explain lets the findings, in the order in which they are reported, account for
// what was lost, each for its share of it, and no second twice.
func (v *View) Explain(a *Account, findings []Finding) {
	a.Lost, a.Explained = 0, 0
	kept := make([]float64, len(findings)) // of what was lost, by connections that it kept off
	for i := range a.Victims {
		x := &a.Victims[i]
		var behind []*ledger
		if x.l != nil {
			behind = v.behind(x.l)
		}
		share := 0.0
		for j := range findings {
			v.Step()
			if x.l == nil {
				claim := v.keptOff(&findings[j], x.o)
				share += claim
				kept[j] += x.Lost * min(claim, 1)
			} else {
				claim := v.claim(&findings[j], x, behind)
				if share += claim; claim > 0 {
					findings[j].spoils = append(findings[j].spoils, end{x.NetNS, x.Port, ""})
				}
			}
		}
		x.Explained = round(x.Lost * min(share, 1))
	}
	a.Victims = append(a.Victims, v.byCause(a.Victims, findings)...)
	a.sort()
	for j, lost := range kept {
		if f := &findings[j]; f.Impact.Cost == nil && !f.uncounted && lost > 0 {
			cost := round(lost)
			f.Impact.Cost = &cost // no request tells, and it ranks among those of which requests do
		}
	}
	for i := range a.Victims {
		a.Lost += a.Victims[i].Lost
		a.Explained += a.Victims[i].Explained
	}
	a.Lost, a.Explained = round(a.Lost), round(a.Explained)
}

// Spoils says that a finding accounts for what requests of a service lost, by its port.
func (f *Finding) Spoils(s *Subject) bool { return slices.Contains(f.spoils, end{s.NetNS, s.Port, ""}) }

// byCause is the endpoints that lost what a cause costs, and of which nothing but the
// cause tells that it is lost: all of their requests are slow alike, by what may be their
// work, or are answered with what a client may have asked for (a page for errors that is
// not found itself).
func (v *View) byCause(victims []Victim, findings []Finding) []Victim {
	type bill struct {
		f     *Finding
		stake []*ledger
		left  float64 // of what it costs, s
	}
	var bills []bill
	for i := range findings {
		if f := &findings[i]; f.Role == RoleCause && f.Impact.Cost != nil && *f.Impact.Cost > 0 {
			bills = append(bills, bill{f, v.stake(f), *f.Impact.Cost})
		}
	}
	var more []Victim
	for _, l := range v.fronts {
		v.Step()
		if len(bills) == 0 || slices.ContainsFunc(victims, func(x Victim) bool { return x.l == l }) {
			continue
		}
		behind := v.behind(l)
		for i := range bills {
			b := &bills[i]
			if !slices.ContainsFunc(behind, func(o *ledger) bool { return slices.Contains(b.stake, o) }) {
				continue
			}
			h := v.harmBy(b.f, l)
			h.Seconds = round(min(b.left, h.Seconds))
			if h.Requests > 0 && h.Seconds > 0 {
				b.left -= h.Seconds
				x := v.victim(l, h)
				x.Explained = x.Lost
				more = append(more, x)
				break
			}
		}
	}
	return more
}

// harmBy is what a cause may have done to all requests of an endpoint, at most.
func (v *View) harmBy(f *Finding, l *ledger) Harm {
	switch {
	case f.Impact.OfTime && l.Requests > 0:
		return Harm{HarmSlow, l.Requests, l.TimeNS() / 1e9}
	case f.Impact.OfTime:
		return Harm{HarmUnfinished, l.waiting(), v.Window.Seconds * float64(l.waiting())}
	case l.failedRequests() >= harmedLeast:
		return Harm{HarmFailed, l.failedRequests(), failedCost * float64(l.failedRequests())}
	}
	return Harm{}
}

// victim is an endpoint with what its requests lost.
func (v *View) victim(l *ledger, harms ...Harm) Victim {
	x := Victim{Side: l.Side, NetNS: l.NetNS, Addr: l.Addr, Port: l.Port, PID: l.pid, Comm: v.commOf(l), Harms: harms, l: l}
	for _, h := range harms {
		x.Lost += h.Seconds
	}
	x.Lost = round(x.Lost)
	return x
}

// claim is the share of what a victim lost that a finding accounts for, 0 to 1: the
// finding is about the endpoint, or about one that its requests may wait for, and costs
// so much of the time that its slow requests lost, or of its attempts that failed.
// Clients that give up are part of the same event: what explains the slow requests of
// an endpoint explains those that were never answered in proportion, and the other way
// round.
func (v *View) claim(f *Finding, x *Victim, behind []*ledger) float64 {
	stake := v.stake(f)
	at := slices.DeleteFunc(slices.Clone(behind), func(l *ledger) bool {
		return !slices.Contains(stake, l) && !slices.Contains(f.Holds, l.pid) &&
			!slices.ContainsFunc(l.sameEnds(), func(o *ledger) bool { return slices.Contains(stake, o) })
	})
	if len(at) == 0 && !f.hurts[x.l] {
		return 0
	}
	var slow, failed float64
	for _, h := range x.Harms {
		if h.Kind == HarmSlow || h.Kind == HarmUnfinished || h.Kind == HarmHandshake {
			slow += h.Seconds
		} else {
			failed += float64(h.Requests)
		}
	}
	share := f.Weight
	if f.Impact.Cost != nil && slow > 0 {
		share = max(share, ratio(*f.Impact.Cost, slow))
	}
	if f.is(ClassWait) {
		// Threads are looked at now and then: what the looks tell stands for the rest.
		for _, l := range at {
			if seen := v.seenWaiting(l.pid); seen >= seenLeast {
				share = max(share, ratio(share, seen))
			}
		}
	}
	if failed > 0 && !f.Impact.OfTime {
		share = max(share, ratio(f.Weight*float64(x.l.Requests+x.l.waiting()), failed))
	}
	return share
}

// keptOff is the share of the connections in vain to one destination that a finding
// accounts for, 0 to 1.
func (v *View) keptOff(f *Finding, o *outcomes) float64 {
	if f.keepsOff != nil && !f.keepsOff[o.destination] || f.keepsOff == nil && !v.follows(o.destination)(f) {
		return 0
	}
	share := f.Weight
	if f.Impact.Of == "new connections" {
		share = max(share, f.Impact.Share)
	}
	return ratio(share*float64(o.all()), float64(o.vain()))
}

// seenWaiting is the share of the slow requests' time of a master in which looks at
// its threads tell what they waited for, 0 to 1.
func (v *View) seenWaiting(pid int) float64 {
	if v.Waits == nil {
		return 0
	}
	var slow, seen float64
	for _, s := range v.slowOf[pid] {
		slow += float64(s.NS)
	}
	for i := range v.Waits.Shares {
		if s := &v.Waits.Shares[i]; s.PID == pid {
			seen += float64(s.SlowNS)
		}
	}
	return ratio(seen, slow)
}

func (l *ledger) harmText(harms []Harm) string {
	text := ""
	for i, h := range harms {
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s of %s requests on %s %s, %s lost", count(h.Requests), count(l.Requests+l.waiting()), l.name(), harmWords[h.Kind], seconds(h.Seconds))
	}
	return text
}

var harmWords = map[HarmKind]string{
	HarmSlow: "slow", HarmHandshake: "behind a slow handshake of TLS", HarmFailed: "failed", HarmUnanswered: "never answered", HarmUnfinished: "without an answer, or all of it, at the end",
}
