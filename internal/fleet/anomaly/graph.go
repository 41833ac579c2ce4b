package anomaly

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// unit is an endpoint of a host in the graph of calls.
type unit struct {
	key     fleet.Key
	a       *Anomaly // nil when it is not abnormal
	callee  int      // called: the served endpoint that answers, -1 when it is not known
	to      string   // called: its host, "" when it is not known
	behind  []int    // called: what answers behind an address that no host has, as far as it is known
	follows []int    // abnormal units that make it slow
	weak    bool     // of so few requests that it could be abnormal without being found so
	gone    bool     // explained already
	faint   bool     // not unusual at this moment, where others are: it can follow, and is no cause
}

// graph is who calls whom, as far as addresses tell.
type graph struct {
	units    []unit
	hosts    map[string]*fleet.Host
	byAddr   map[string]string // host by address
	served   map[hostPort]int
	calls    map[hostName][]int // called units, by host and service
	callers  map[int][]int      // called units, by the unit that answers
	toAddr   map[string][]int   // called units, by addr:port
	places   map[fleet.Key]fleet.Place
	groups   map[hostName][]Component // control groups, by host and path
	programs map[hostName][]Component // of what hosts run: see programs
}

type hostPort struct {
	host string
	port int
}

type hostName struct{ host, service string }

// program is the service of a served endpoint as it is called at the calling end:
// without the port.
func program(service string) string {
	if i := strings.LastIndexByte(service, ':'); i > 0 {
		return service[:i]
	}
	return service
}

func addrPort(k *fleet.Key) string {
	if strings.Contains(k.Addr, ":") {
		return "[" + k.Addr + "]:" + strconv.Itoa(k.Port)
	}
	return k.Addr + ":" + strconv.Itoa(k.Port)
}

func newGraph(anomalies []Anomaly, population []fleet.Key, weak map[fleet.Key]bool, f *Facts) *graph {
	hosts := f.Hosts
	g := &graph{
		places: f.Places, groups: map[hostName][]Component{}, programs: programs(f.Hosts),
		hosts: map[string]*fleet.Host{}, byAddr: map[string]string{}, served: map[hostPort]int{},
		calls: map[hostName][]int{}, callers: map[int][]int{}, toAddr: map[string][]int{},
	}
	for i := range hosts {
		g.hosts[hosts[i].Name] = &hosts[i]
		for _, a := range hosts[i].Addresses {
			g.byAddr[a] = hosts[i].Name
		}
	}
	known := map[fleet.Key]bool{}
	for i := range anomalies {
		a := &anomalies[i]
		if !known[a.Key] && a.Host != "" {
			known[a.Key] = true
			g.units = append(g.units, unit{key: a.Key, a: a, callee: -1})
		}
	}
	for _, k := range population {
		if !known[k] {
			known[k] = true
			g.units = append(g.units, unit{key: k, callee: -1, weak: weak[k]})
		}
	}
	g.dim()
	slices.SortFunc(g.units, func(a, b unit) int { return compareKeys(a.key, b.key) })
	index := map[fleet.Key]int{}
	for i := range g.units {
		k := &g.units[i].key
		if len(f.Behind) > 0 {
			index[*k] = i
		}
		if k.Side == observe.Served {
			g.served[hostPort{k.Host, k.Port}] = i
			if addr, err := netip.ParseAddr(k.Addr); err == nil && !addr.IsUnspecified() && !addr.IsLoopback() && g.byAddr[k.Addr] == "" {
				g.byAddr[k.Addr] = k.Host
			}
		}
	}
	for i := range g.units {
		k := &g.units[i].key
		if k.Side != observe.Called {
			continue
		}
		name := hostName{k.Host, k.Service}
		g.calls[name] = append(g.calls[name], i)
		g.toAddr[addrPort(k)] = append(g.toAddr[addrPort(k)], i)
		host := g.byAddr[k.Addr]
		if addr, err := netip.ParseAddr(k.Addr); err == nil && addr.IsLoopback() {
			host = k.Host
		}
		g.units[i].to = host
		if to, ok := g.served[hostPort{host, k.Port}]; ok && host != "" {
			g.units[i].callee = to
			g.callers[to] = append(g.callers[to], i)
		}
		if host == "" {
			for _, k := range f.Behind[*k] {
				if to, ok := index[k]; ok {
					g.units[i].behind = append(g.units[i].behind, to)
				}
			}
			if list := g.units[i].behind; len(list) == 1 { // it is but another name of it
				g.units[i].callee, g.units[i].to = list[0], g.units[list[0]].key.Host
				g.callers[list[0]] = append(g.callers[list[0]], i)
			}
		}
	}
	g.fold()
	return g
}

// dim tells the abnormal units that are not unusual at this moment from the others, when
// there are others: an anomaly lasts for some seconds after its end, and what was
// abnormal by chance, in the company of others, does too.
func (g *graph) dim() {
	clear := func(u unit) bool { return u.a != nil && !u.a.faint }
	if !slices.ContainsFunc(g.units, clear) {
		return
	}
	for i := range g.units {
		u := &g.units[i]
		u.faint = u.a != nil && u.a.faint
	}
}

// callsOf are the endpoints that a served one calls.
func (g *graph) callsOf(i int) []int {
	k := &g.units[i].key
	return g.calls[hostName{k.Host, program(k.Service)}]
}

// servedBy are the abnormal endpoints whose service makes these calls.
func (g *graph) servedBy(call int) (list []int) {
	k := &g.units[call].key
	for i := range g.units {
		u := &g.units[i]
		if u.a != nil && u.key.Side == observe.Served && u.key.Host == k.Host && program(u.key.Service) == k.Service {
			list = append(list, i)
		}
	}
	return list
}

// fold finds of which abnormal endpoints others follow.
func (g *graph) fold() {
	for i := range g.units {
		u := &g.units[i]
		switch {
		case u.a == nil:
		case u.key.Side == observe.Called:
			u.follows = g.calledFollows(i)
		default:
			u.follows = g.servedFollows(i)
		}
	}
	for i := range g.units {
		u := &g.units[i]
		if u.a == nil {
			continue
		}
		u.a.Follows = nil
		for _, f := range u.follows {
			u.a.Follows = append(u.a.Follows, g.units[f].key)
		}
	}
}

// calledFollows: a call is slow because what answers is slow, by its own account. A
// call that is made less often follows from the requests that it is made for.
func (g *graph) calledFollows(i int) (list []int) {
	u := &g.units[i]
	if u.a.Signal == Rate {
		return g.withRate(g.servedBy(i))
	}
	if u.a.Network {
		return nil
	}
	for _, to := range g.answering(i) {
		s := &g.units[to]
		switch {
		case s.a == nil:
			for _, d := range g.deeper(to) {
				if a := g.units[d].a; a.Signal != Rate && (u.a.Signal != Errors || a.failsToo(u.a)) && !slices.Contains(list, d) {
					list = append(list, d)
				}
			}
		case s.a.Signal == Rate, s.a.Network: // the way to it is not its own account
		case u.a.Signal == Errors && s.a.failsToo(u.a), u.a.Signal != Errors && s.a.AddedUS >= u.a.AddedUS/4:
			list = append(list, to)
		}
	}
	return list
}

// answering are the endpoints that answer a call: one, or those behind its address.
func (g *graph) answering(i int) []int {
	if u := &g.units[i]; u.callee < 0 {
		return u.behind
	}
	return []int{g.units[i].callee}
}

// servedFollows: a request is slow because of the calls that it waits for; or because
// of the way to those of its clients that are slow, when most are not.
func (g *graph) servedFollows(i int) (list []int) {
	u := &g.units[i]
	if u.a.Signal == Rate {
		return g.withRate(g.callers[i])
	}
	if u.a.Network {
		if g.fewCallers(i) {
			for _, c := range g.callers[i] {
				if g.onTheWay(c, i) {
					list = append(list, c)
				}
			}
		}
		return list
	}
	unsplit := u.a.Part == Total || u.a.Part == PartSignal(observe.Server) || u.a.Part == SplitSignal(observe.ServerHandoff)
	waits := u.a.waits()
	for _, c := range g.deeper(i) {
		call := &g.units[c]
		switch {
		case call.a.Signal == Rate:
		case u.a.Signal == Errors && call.a.failsToo(u.a),
			u.a.Signal != Errors && waits,
			u.a.Signal != Errors && unsplit && call.a.AddedUS >= u.a.AddedUS/4:
			list = append(list, c)
		}
	}
	return list
}

// failsToo says whether requests fail here so often that those of the other endpoint
// may fail for it.
func (a *Anomaly) failsToo(of *Anomaly) bool {
	return a.Signal == Errors || a.failed > of.failed/4 && of.failed > 0
}

// deeper are the nearest abnormal units that an endpoint's requests wait for, through
// calls and services that are not abnormal themselves: some may be too noisy to tell.
func (g *graph) deeper(i int) (list []int) {
	seen := map[int]bool{i: true}
	todo := []int{i}
	for steps := 0; len(todo) > 0 && steps < 4; steps++ {
		var next []int
		for _, s := range todo {
			for _, c := range g.callsOf(s) {
				if seen[c] {
					continue
				}
				seen[c] = true
				abnormal := g.units[c].a != nil
				if abnormal {
					list = append(list, c)
				}
				for _, to := range g.answering(c) {
					switch {
					case seen[to]:
					case g.units[to].a != nil:
						seen[to] = true
						list = append(list, to)
					case !abnormal:
						seen[to] = true
						next = append(next, to)
					}
				}
			}
		}
		todo = next
	}
	return list
}

func (g *graph) withRate(list []int) (rate []int) {
	for _, i := range list {
		if a := g.units[i].a; a != nil && a.Signal == Rate {
			rate = append(rate, i)
		}
	}
	return rate
}

// fewCallers says whether the way to some of the endpoint's callers is slow, and that
// to most is not: then the way to those is to blame and not the one to the endpoint.
func (g *graph) fewCallers(i int) bool {
	abnormal := 0
	for _, c := range g.callers[i] {
		if g.onTheWay(c, i) {
			abnormal++
		}
	}
	return abnormal > 0 && 2*abnormal < len(g.callers[i])
}

// onTheWay says whether a call loses as much on the way as the endpoint that answers
// it does on average.
func (g *graph) onTheWay(call, to int) bool {
	c, s := g.units[call].a, g.units[to].a
	return c != nil && s != nil && (c.Network || c.wayUS >= s.wayUS/2 && s.wayUS > 0)
}

// after are the abnormal units that follow from any of those in set, in any number of
// steps, with the set itself.
func (g *graph) after(set []int) map[int]bool {
	in := map[int]bool{}
	for _, i := range set {
		in[i] = true
	}
	for more := true; more; {
		more = false
		for i := range g.units {
			if in[i] {
				continue
			}
			for _, f := range g.units[i].follows {
				if in[f] {
					in[i], more = true, true
					break
				}
			}
			if u := &g.units[i]; !in[i] && u.a != nil && u.a.Network && g.nextTo(i, in) {
				in[i], more = true, true
			}
		}
	}
	return in
}

// nextTo says whether an endpoint whose way is slow is the other end of ways that are
// in the set.
func (g *graph) nextTo(i int, in map[int]bool) bool {
	u := &g.units[i]
	if u.key.Side == observe.Called {
		return u.callee >= 0 && in[u.callee] && g.units[u.callee].a != nil && g.units[u.callee].a.Network
	}
	abnormal, explained := 0, 0
	for _, c := range g.callers[i] {
		if g.onTheWay(c, i) {
			abnormal++
			if in[c] {
				explained++
			}
		}
	}
	return explained > 0 && 5*explained >= 4*abnormal
}
