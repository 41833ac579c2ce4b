package cause

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// HAProxyServerQueue: a server with maxconn gets so many requests at a time, and
// the others wait inside HAProxy, connected and read, for their turn.
const HAProxyServerQueue ID = "haproxy-server-queue"

var haproxyServerQueue = Cause{
	ID:    HAProxyServerQueue,
	Title: "HAProxy queues: a server is at maxconn",
	Layer: LayerCall,
	Class: ClassPool,
	Needs: []observe.Kind{observe.KindHAProxy, observe.KindRequests},
	ConsequenceOf: []Parent{ApacheWorkersExhausted, UWSGIWorkersBusy, GunicornWorkersBusy, TomcatThreadsExhausted, PHPFPMChildrenExhausted,
		SlowDependency, ClassMachine, ClassWait},
	Folds: true,
	Check: checkHAProxyQueue,
	Try:   tryServerMaxconn,
}

// HAProxyNoServer: with no server of a backend up, HAProxy answers 503.
const HAProxyNoServer ID = "haproxy-no-server"

var haproxyNoServer = Cause{
	ID:    HAProxyNoServer,
	Title: "HAProxy has no server up",
	Layer: LayerCall,
	Needs: []observe.Kind{observe.KindHAProxy, observe.KindRequests, observe.KindConnects},
	// What keeps its connections from being made, as far as that is found.
	ConsequenceOf: []Parent{UpstreamRefused, ConnectTimeout, ConntrackFull, AcceptQueueOverflow, FDLimit, EphemeralPortsExhausted,
		NetworkLoss, SYNRetransmits},
	Folds: true,
	Check: checkHAProxyNoServer,
}

// proxied is a backend of an HAProxy in view with its servers, and the
// endpoints whose requests may be passed to it.
type proxied struct {
	app     *observe.AppServer
	name    string
	servers []*observe.ProxyBackend
	fronts  []*ledger
}

func (v *View) proxied() []*proxied {
	var out []*proxied
	for i := range v.AppServers {
		a := &v.AppServers[i]
		if a.Kind != observe.KindHAProxy {
			continue
		}
		byName := map[string]*proxied{}
		byFronts := memo[string, []*ledger]{}
		for j := range a.Backends {
			b := &a.Backends[j]
			p := byName[b.Backend]
			if p == nil {
				fronts := byFronts.of(strings.Join(b.Frontends, "\x00"), func() []*ledger { return v.frontsOf(a, b.Frontends) })
				if len(fronts) == 0 {
					continue
				}
				p = &proxied{app: a, name: b.Backend, fronts: fronts}
				byName[b.Backend] = p
				out = append(out, p)
			}
			p.servers = append(p.servers, b)
		}
	}
	return out
}

// frontsOf lists the endpoints that the named frontends answer.
func (v *View) frontsOf(a *observe.AppServer, names []string) []*ledger {
	var out []*ledger
	for i := range a.Pools {
		if !slices.Contains(names, a.Pools[i].Name) {
			continue
		}
		var fronts []*ledger
		for _, s := range v.servicesOfApp(a) {
			if s.NS.Inode != a.NetNS || !poolListens(&a.Pools[i], s, false) {
				continue
			}
			for _, l := range v.ledgersAt(s.NS.Inode, s.Port()) {
				if !l.called() {
					fronts = append(fronts, l)
				}
			}
		}
		out = append(out, inOrder(fronts)...)
	}
	return unique(out)
}

// addressOf splits "10.0.0.1:80" as it is written for a server; a name is no
// address, and only its port is reported.
func addressOf(text string) (addr netip.Addr, port int) {
	for _, prefix := range []string{"ipv4@", "ipv6@"} {
		text = strings.TrimPrefix(text, prefix)
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return addr, 0
	}
	port, _ = strconv.Atoi(text[i+1:])
	return address(strings.Trim(text[:i], "[]")), port
}

// callTo is where calls go, and from whom; the zero address is any.
type callTo struct {
	caller
	addr netip.Addr
}

// proxyCalls are the requests and connections of HAProxy.
type proxyCalls struct {
	calls    map[callTo][]*ledger
	connects map[callTo][]*observe.Connect
}

func (v *View) findProxyCalls() *proxyCalls {
	p := &proxyCalls{map[callTo][]*ledger{}, map[callTo][]*observe.Connect{}}
	for _, l := range v.ledgers {
		if l.called() && v.proxies[l.pid] {
			for _, addr := range [...]netip.Addr{l.address, {}} {
				to := callTo{caller{l.NetNS, l.pid, l.Port}, addr}
				p.calls[to] = append(p.calls[to], l)
			}
		}
	}
	for i := range v.Connects {
		c := &v.Connects[i]
		master, at := v.Master(c.PID), address(c.Addr)
		if c.Port == 0 || !v.proxies[master] {
			continue
		}
		to := callTo{caller: caller{c.NetNS, master, c.Port}}
		p.connects[to] = append(p.connects[to], c)
		if to.addr = at; at.IsValid() {
			p.connects[to] = append(p.connects[to], c)
		}
	}
	return p
}

// callsTo are the calls of HAProxy to a server.
func (v *View) callsTo(a *observe.AppServer, b *observe.ProxyBackend) *ledger {
	addr, port := addressOf(b.Addr)
	if calls := v.proxyCalls().calls[callTo{caller{a.NetNS, v.Master(a.PID), port}, addr}]; len(calls) > 0 {
		return calls[0]
	}
	return nil
}

func checkHAProxyQueue(v *View) Result {
	r := ruledOut("no HAProxy with traffic")
	for _, p := range v.proxied() {
		limit, passed, queue, samples := 0, 0.0, 0.0, 0
		var worst *observe.ProxyBackend
		var calls *ledger
		for _, b := range p.servers {
			n, _ := strconv.Atoi(b.MaxConn.Value)
			if n <= 0 {
				continue
			}
			limit += n
			if l := v.callsTo(p.app, b); l != nil {
				passed += v.inFlight(l)
				if calls == nil || l.Requests > calls.Requests {
					calls, worst = l, b
				}
			}
			if b.Status != nil {
				queue += b.Status.QueueMean
				samples += b.Status.Samples
			}
		}
		if limit == 0 || calls == nil {
			r.RuledOut = fmt.Sprintf("HAProxy passes requests to %s without a limit", p.name)
			continue
		}
		var inside, requests float64
		var front *ledger
		for _, l := range p.fronts {
			inside += v.workingAt(l)
			requests += float64(l.Requests)
			if front == nil || l.Requests > front.Requests {
				front = l
			}
		}
		// What waits for any server of a backend is in no server's own queue.
		source := "HAProxy's statistics, qcur"
		if between := inside - passed; samples == 0 || between > queue {
			queue, source = max(0, between), recorded
		}
		share := queue / max(inside, queue, 1)
		wait := share * front.MeanNS(observe.Server)
		if passed < takenShare*float64(limit) || share < dominantShare || wait < threadFloor.mean {
			r.RuledOut = fmt.Sprintf("backend %s of HAProxy: %.1f requests at its servers of %d allowed, %.1f in the queue", p.name, passed, limit, queue)
			continue
		}
		r.Findings = append(r.Findings, v.serverQueueFinding(p, worst, calls, front, limit, passed, queue, share, source))
	}
	return r
}

func (v *View) serverQueueFinding(p *proxied, b *observe.ProxyBackend, calls, front *ledger, limit int, passed, queue, share float64, source string) Finding {
	setting := fromHost(p.app.Root, b.MaxConn)
	f := supported(Subject{Kind: "destination", NetNS: p.app.NetNS, PID: p.app.PID, Comm: v.Comm(p.app.PID), Addr: calls.Addr, Port: calls.Port,
		Path: fmt.Sprintf("%s:%d", setting.File, setting.Line)})
	f.Weight = share * front.Share(observe.Server)
	wait := share * front.MeanNS(observe.Server)
	f.Impact = Impact{Share: round(f.Weight), Of: "the requests' time", OfTime: true,
		Text: fmt.Sprintf("%.0f requests wait in HAProxy while %.0f of %d are at the servers of %s; %s waits about %s for its turn", queue, passed, limit, p.name, front.one(), nanoseconds(wait))}
	f.Evidence = []Evidence{
		{Fact: "requests at the servers of the backend, mean", Value: round(passed), Limit: limit, Unit: "requests", Source: recorded + "; limit: maxconn in " + f.Subject.Path},
		{Fact: "requests in HAProxy's queue, mean", Value: round(queue), Unit: "requests", Source: source},
		{Fact: "request latency at HAProxy, mean", Value: round(front.MeanNS(observe.Server) / 1e6), Unit: "ms", Source: recorded},
		{Fact: "time of its call to the server, median", Value: nanoseconds(float64(calls.Total.Quantile(0.5))), Source: recorded},
	}
	want := limit + int(queue) + 1
	f.Fix.Text = fmt.Sprintf("Raise maxconn of the servers of %s (%d in all) towards %d if they can take it: they answer in %s; otherwise add servers, or make them answer faster.",
		p.name, limit, want, nanoseconds(float64(calls.Total.Quantile(0.5))))
	n, _ := strconv.Atoi(setting.Value)
	for i := range p.app.Backends {
		if o := &p.app.Backends[i]; o.Backend == b.Backend {
			m, _ := strconv.Atoi(o.MaxConn.Value)
			f.Fix.Changes = append(f.Fix.Changes, serverMaxconn(p.app, o, max(2*m, (want*m+limit-1)/limit))...)
		}
	}
	f.Fix.Commands = []shell.Command{shell.Line("# in %s: maxconn %s", f.Subject.Path, max(2*n, (want*n+limit-1)/limit)), v.reloadHAProxy(p.app)}
	here := calls.here
	// What makes the servers late: on another host no lack of CPUs here.
	late := func(parent *Finding) bool { return !parent.is(ClassCPU) }
	if here != nil {
		late = v.lateBy(here)
	}
	f.MayFollow = mayFollow(late, v.heldUpBy(calls), func(parent *Finding) bool {
		s := &parent.Subject
		if parent.Cause == SlowDependency {
			return here != nil && s.PID == here.pid || s.PID == calls.pid && s.Port == calls.Port && s.Addr == calls.Addr
		}
		return here != nil && s.NetNS == here.NetNS && s.Port == here.Port
	})
	return f
}

func checkHAProxyNoServer(v *View) Result {
	r := ruledOut("no HAProxy with traffic")
	for _, p := range v.proxied() {
		var requests, errors uint64
		front := p.fronts[0]
		for _, l := range p.fronts {
			requests += l.Requests
			errors += l.Statuses["5xx"]
			if l.Requests > front.Requests {
				front = l
			}
		}
		down, failed, reached := 0, uint64(0), uint64(0)
		for _, b := range p.servers {
			fails, established := v.connectsTo(p.app, b)
			failed += fails
			reached += established
			if b.Status != nil && b.Status.Samples > 0 && b.Status.DownSamples == b.Status.Samples || fails > 0 && established == 0 {
				down++
			}
		}
		share := ratio(errors, requests)
		if down < len(p.servers) || errors < fewAffected || share < noiseShare {
			r.RuledOut = fmt.Sprintf("backend %s of HAProxy: %d of %d servers cannot be reached, %s of %s answers are errors", p.name, down, len(p.servers), count(errors), count(requests))
			continue
		}
		b := p.servers[0]
		addr, port := addressOf(b.Addr)
		f := supported(Subject{Kind: "destination", NetNS: p.app.NetNS, PID: p.app.PID, Comm: v.Comm(p.app.PID), Port: port, Path: p.app.Root + p.app.Config})
		if addr.IsValid() {
			f.Subject.Addr = addr.String()
		}
		f.Weight = share
		f.Impact = Impact{Share: round(share), Of: "answers", Text: fmt.Sprintf("%s of %s requests on %s got an error: none of the %d servers of %s can be reached", count(errors), count(requests), front.name(), len(p.servers), p.name)}
		f.Evidence = []Evidence{
			{Fact: "answers 5xx", Value: errors, Limit: requests, Unit: "answers", Source: recorded},
			{Fact: "connections to its servers that failed", Value: failed, Limit: failed + reached, Unit: "connections", Source: "connect() results"},
		}
		if b.Status != nil {
			f.Evidence = append(f.Evidence, Evidence{Fact: "state of server " + b.Server, Value: b.Status.State, Source: "HAProxy's statistics"})
		}
		if n, example := logCount(p.app.Log, "no-server", "server-down"); n > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "log lines that say so", Value: n, Unit: "lines", Source: "haproxy log"}, firstLine(example))
		}
		f.Fix.Text = fmt.Sprintf("Start what should listen at %s, or correct the address of server %s in backend %s.", b.Addr, b.Server, p.name)
		f.Fix.Commands = []shell.Command{v.in(v.place(p.app.NetNS), shell.Line("ss -ltn 'sport = :%s'   # on the host of the server: does anything listen?", port))}
		r.Findings = append(r.Findings, f)
	}
	return r
}

// connectsTo adds up what became of HAProxy's connections to a server.
func (v *View) connectsTo(a *observe.AppServer, b *observe.ProxyBackend) (failed, established uint64) {
	addr, port := addressOf(b.Addr)
	for _, c := range v.proxyCalls().connects[callTo{caller{a.NetNS, v.Master(a.PID), port}, addr}] {
		failed += c.Failed
		established += c.Established
	}
	return failed, established
}
