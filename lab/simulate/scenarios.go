package simulate

import (
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Scenarios are all that can be injected.
var Scenarios = []Scenario{
	{Name: "slow-host", Summary: "a host computes slowly: all that it answers takes longer", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		begin, end := each(p.f.on(e.host), func(e *served) { e.fault.factor = 3 * p.size })
		return plan{causes: []Cause{hostCause(p.f, e)}, begin: begin, end: end}
	}},
	{Name: "noisy-neighbour", Summary: "threads of a host wait for a CPU", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		begin, end := each(p.f.on(e.host), func(e *served) { e.fault.us[observe.ServerRunq] = 2 * p.size * e.svc.shape.OwnUS })
		return plan{causes: []Cause{hostCause(p.f, e)}, begin: begin, end: end}
	}},
	{Name: "slow-dependency", Summary: "one database computes slowly", inject: func(p *injecting) plan {
		e := p.called(p.f.named("mariadb"))
		begin, end := each([]*served{e}, func(e *served) { e.fault.us[observe.ServerCPU] = 15_000 * p.size })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "fsync-slow", Summary: "a third of a database's statements wait for its disk", inject: func(p *injecting) plan {
		e := p.called(p.f.named("mariadb"))
		begin, end := each([]*served{e}, func(e *served) { e.fault.us[observe.ServerDisk], e.fault.share = 60_000*p.size, 0.3 })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "zone-cache", Summary: "the cache of one zone is slow", inject: func(p *injecting) plan {
		e := p.called(p.f.named("redis"))
		begin, end := each([]*served{e}, func(e *served) { e.fault.us[observe.ServerCPU] = 8_000 * p.size })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "slow-directory", Summary: "a directory that several services ask for names is slow", inject: func(p *injecting) plan {
		e := p.f.named("slapd").hosts[0]
		if len(p.f.callersOf(e)) == 0 {
			e = p.called(p.f.named("redis"))
		}
		begin, end := each([]*served{e}, func(e *served) { e.fault.us[observe.ServerLock] = 80_000 * p.size })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "client-loss", Summary: "a network of clients loses packets", inject: func(p *injecting) plan {
		web := p.f.named("nginx")
		begin, end := each(web.hosts, func(e *served) { e.fault.way.loss = 0.02 * p.size })
		c := web.cause()
		c.Same = append(c.Same, "service:"+web.name)
		c.Kind, c.Value = "clients", badClients
		return plan{causes: []Cause{c}, begin: begin, end: end}
	}},
	{Name: "bad-config", Summary: "a third of the hosts got a configuration that makes them slow", inject: func(p *injecting) plan {
		var hit []*served
		for _, h := range p.f.Hosts {
			if p.r.IntN(3) == 0 {
				h.Labels["config"] = "42"
				hit = append(hit, p.f.on(h)...)
			}
		}
		begin, end := each(hit, func(e *served) { e.fault.factor = 2 * p.size })
		return plan{causes: []Cause{{Kind: "label", Value: "config=42"}}, begin: begin, end: end}
	}},
	{Name: "bad-config-service", Summary: "a configuration on half of the hosts makes one service slow", inject: func(p *injecting) plan {
		s := p.app(4)
		var hit []*served
		for i, h := range p.f.Hosts {
			if i%2 == 0 {
				h.Labels["config"] = "42"
			}
		}
		for i, e := range s.hosts {
			e.host.Labels["config"] = strconv.Itoa(41 + i%2)
			if i%2 == 1 {
				hit = append(hit, e)
			}
		}
		begin, end := each(hit, func(e *served) { e.fault.us[observe.ServerLock] = 2 * p.size * e.svc.shape.OwnUS })
		c := Cause{Kind: "label", Value: "config=42"}
		if len(hit) == 1 {
			c.Same = append(hit[0].dependency().Same, "dependency:"+hit[0].dependency().Value)
		}
		return plan{causes: []Cause{c}, begin: begin, end: end}
	}},
	{Name: "bad-kernel", Summary: "hosts with a new kernel are slow", inject: func(p *injecting) plan {
		var hit []*served
		for i, h := range p.f.Hosts {
			if i == 0 || p.r.IntN(5) == 0 {
				h.Kernel = "6.18.1-amd64"
				hit = append(hit, p.f.on(h)...)
			}
		}
		begin, end := each(hit, func(e *served) { e.fault.us[observe.ServerRunq] = 2 * p.size * e.svc.shape.OwnUS })
		return plan{causes: []Cause{{Kind: "kernel", Value: "6.18.1-amd64"}}, begin: begin, end: end}
	}},
	{Name: "rack-network", Summary: "the switch of a rack loses packets", inject: func(p *injecting) plan {
		rack := p.f.Hosts[p.r.IntN(len(p.f.Hosts))].rack
		return plan{causes: []Cause{{Kind: "label", Value: "rack=" + rack}}, during: ways(p.f, func(h *Host) bool { return h.rack == rack }, way{loss: 0.02 * p.size}), end: ways0(p.f)}
	}},
	{Name: "zone-latency", Summary: "all ways of a zone take longer", inject: func(p *injecting) plan {
		zone := p.f.Hosts[p.r.IntN(len(p.f.Hosts))].zone
		return plan{causes: []Cause{{Kind: "label", Value: "zone=" + zone}}, during: ways(p.f, func(h *Host) bool { return h.zone == zone }, way{us: 8_000 * p.size}), end: ways0(p.f)}
	}},
	{Name: "host-network", Summary: "one host's network card loses packets", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		return plan{causes: []Cause{hostCause(p.f, e)}, during: ways(p.f, func(h *Host) bool { return h == e.host }, way{loss: 0.03 * p.size}), end: ways0(p.f)}
	}},
	{Name: "error-burst", Summary: "a service fails", inject: func(p *injecting) plan {
		s := p.app(2)
		begin, end := each(s.hosts, func(e *served) { e.fault.errors = min(0.15*p.size, 0.9) })
		return plan{causes: []Cause{s.cause()}, begin: begin, end: end}
	}},
	{Name: "lock-contention", Summary: "threads of one service on one host wait for each other", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		begin, end := each([]*served{e}, func(e *served) { e.fault.us[observe.ServerLock] = 3 * p.size * e.svc.shape.OwnUS })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "cold-cache", Summary: "a service is restarted everywhere, and begins with nothing in its cache", inject: func(p *injecting) plan {
		s := p.app(2)
		return plan{causes: []Cause{s.cause()}, begin: func(at int64) {
			for i, e := range s.hosts {
				e.restart(at + int64(i%4))
				e.fault.cold = true
			}
		}, end: func(int64) {
			for _, e := range s.hosts {
				e.fault = fault{}
			}
		}}
	}},
	{Name: "disk-third", Summary: "the hosts with one kind of disk are slow", inject: func(p *injecting) plan {
		var hit []*served
		for _, h := range p.f.Hosts {
			if h.Labels["disk"] == "sata" {
				hit = append(hit, p.f.on(h)...)
			}
		}
		begin, end := each(hit, func(e *served) { e.fault.us[observe.ServerDisk] = 2 * p.size * e.svc.shape.OwnUS })
		return plan{causes: []Cause{{Kind: "label", Value: "disk=sata"}}, begin: begin, end: end}
	}},
	{Name: "memory-leak", Slow: true, Lasts: 1500, Summary: "a service becomes slower and slower", inject: func(p *injecting) plan {
		s := p.app(2)
		return plan{causes: []Cause{s.cause()}, during: func(_, since int64) {
			for _, e := range s.hosts {
				e.fault.factor = 3 * p.size * float64(since) / 1800
			}
		}}
	}},
	{Name: "throughput-collapse", Summary: "most clients do not get through to the web servers", inject: func(p *injecting) plan {
		web := p.f.named("nginx")
		begin, end := each(web.hosts, func(e *served) { e.fault.lost = min(0.5+0.2*p.size, 0.95) })
		return plan{causes: []Cause{web.cause()}, begin: begin, end: end}
	}},
	{Name: "deploy-slow", Summary: "a new version of a service is slower, on all its hosts", inject: func(p *injecting) plan {
		s := p.app(2)
		begin, end := each(s.hosts, func(e *served) { e.fault.factor = 1.5 * p.size })
		return plan{causes: []Cause{s.cause()}, begin: begin, end: end}
	}},
	{Name: "tail-only", Summary: "one of fifty requests of a service takes very long", inject: func(p *injecting) plan {
		s := p.app(2)
		begin, end := each(s.hosts, func(e *served) { e.fault.share, e.fault.us[observe.ServerLock] = 0.02, 30*p.size*e.svc.shape.OwnUS })
		return plan{causes: []Cause{s.cause()}, begin: begin, end: end}
	}},
	{Name: "two-faults", Summary: "a database is slow, and another service fails", inject: func(p *injecting) plan {
		db := p.called(p.f.named("mariadb"))
		s := p.app(2)
		list := append([]*served{db}, s.hosts...)
		begin, end := each(list, func(e *served) {
			if e == db {
				e.fault.us[observe.ServerDisk] = 20_000 * p.size
			} else {
				e.fault.errors = min(0.2*p.size, 0.9)
			}
		})
		return plan{causes: []Cause{db.dependency(), s.cause()}, begin: begin, end: end}
	}},
	{Name: "daily-peak", Control: true, Days: 9, Summary: "each day at this time three times the traffic comes, and all is a little slower", inject: func(p *injecting) plan {
		p.rush(func(int64) bool { return true })
		return plan{}
	}},
	{Name: "traffic-doubled", Control: true, Summary: "twice the traffic comes, and nothing becomes slower", inject: func(p *injecting) plan {
		return plan{begin: func(int64) {
			p.f.factor = 2
			for _, s := range p.f.services {
				s.load = 0
			}
		}, end: func(int64) { p.f.factor = 1 }}
	}},
	{Name: "rolling-deploy", Control: true, Summary: "two services are deployed on one host after the other", inject: func(p *injecting) plan {
		list := []*service{p.app(3), p.f.named("nginx")}
		return plan{during: func(at, since int64) {
			for _, s := range list {
				batch := int64(max(len(s.hosts)/20, 1))
				for i := range batch {
					if n := since/(downFor+2)*batch + i; len(s.hosts) >= 3 && since%(downFor+2) == 0 && n < int64(len(s.hosts)) {
						s.hosts[n].restart(at)
					}
				}
			}
		}}
	}},
	{Name: "host-removed", Control: true, Summary: "a host is taken away, and others do its work", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		return plan{begin: func(int64) { e.host.removed = true }, end: func(int64) { e.host.removed = false }}
	}},
	{Name: "flapping", Summary: "one database is slow for 20 seconds of each 40", inject: func(p *injecting) plan {
		e := p.called(p.f.named("mariadb"))
		return plan{causes: []Cause{e.dependency()}, during: func(_, since int64) {
			e.fault = fault{}
			if since/20%2 == 0 {
				e.fault.us[observe.ServerDisk] = 15_000 * p.size
			}
		}, end: func(int64) { e.fault = fault{} }}
	}},
	{Name: "zone-one-way", Summary: "a zone loses packets on the way out of it, and none on the way in", inject: func(p *injecting) plan {
		zone := p.f.Hosts[p.r.IntN(len(p.f.Hosts))].zone
		return plan{causes: []Cause{{Kind: "label", Value: "zone=" + zone}}, during: ways(p.f, func(h *Host) bool { return h.zone == zone }, way{out: 0.03 * p.size}), end: ways0(p.f)}
	}},
	{Name: "kernel-tenth", Summary: "a kernel that a tenth of the hosts run loses packets", inject: func(p *injecting) plan {
		var hit []*Host
		for _, i := range p.r.Perm(len(p.f.Hosts))[:max(len(p.f.Hosts)/10, 3)] {
			h := p.f.Hosts[i]
			h.Kernel = "6.18.1-amd64"
			hit = append(hit, h)
		}
		return plan{causes: []Cause{{Kind: "kernel", Value: "6.18.1-amd64"}}, during: ways(p.f, func(h *Host) bool { return slices.Contains(hit, h) }, way{loss: 0.03 * p.size}), end: ways0(p.f)}
	}},
	{Name: "retry-storm", Summary: "a service fails, is asked again and again for that, and becomes slow", inject: func(p *injecting) plan {
		s := p.app(2)
		begin, end := each(s.hosts, func(e *served) { e.fault.errors, e.fault.again = min(0.3*p.size, 0.9), 6 })
		c := s.cause()
		c.Both = true
		return plan{causes: []Cause{c}, begin: begin, end: end}
	}},
	{Name: "balanced-host", Balanced: true, Summary: "one of the hosts behind a balancer, which nobody watches, fails", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		begin, end := each([]*served{e}, func(e *served) { e.fault.errors = min(0.4*p.size, 0.9) })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "host-dies", Summary: "a host is gone without notice, and what calls it waits in vain", inject: func(p *injecting) plan {
		e := p.called(p.app(3))
		return plan{causes: []Cause{e.dependency()}, begin: func(int64) { e.host.dead = true }, end: func(int64) { e.host.dead = false }}
	}},
	{Name: "two-services", Summary: "two applications become slow at once, for reasons of their own", inject: func(p *injecting) plan {
		a := p.app(2)
		b := a
		for _, s := range p.f.services {
			if s != a && (s.tier == 1 || s.tier == 2) && (b == a || len(s.hosts) > len(b.hosts)) {
				b = s
			}
		}
		begin, end := each(append(slices.Clone(a.hosts), b.hosts...), func(e *served) {
			e.fault.us[observe.ServerLock] = 2 * p.size * e.svc.shape.OwnUS
		})
		return plan{causes: []Cause{a.cause(), b.cause()}, begin: begin, end: end}
	}},
	{Name: "night-database", Days: 9, Summary: "a database is slow at a time of the day at which a tenth of the traffic comes", inject: func(p *injecting) plan {
		p.f.rush = func(at int64) float64 {
			if since := (at%day - p.onset%day + day) % day; since < 2*hour || since > 22*hour {
				return 0.1
			}
			return 1
		}
		e := p.called(p.f.named("mariadb"))
		begin, end := each([]*served{e}, func(e *served) { e.fault.us[observe.ServerDisk] = 15_000 * p.size })
		return plan{causes: []Cause{e.dependency()}, begin: begin, end: end}
	}},
	{Name: "slow-growth", Slow: true, Lasts: 3600, Summary: "a database becomes slower over an hour", inject: func(p *injecting) plan {
		e := p.called(p.f.named("mariadb"))
		return plan{causes: []Cause{e.dependency()}, during: func(_, since int64) {
			e.fault.us[observe.ServerDisk] = 10_000 * p.size * float64(since) / 3600
		}, end: func(int64) { e.fault = fault{} }}
	}},
	{Name: "deploy-faster", Control: true, Summary: "a new version of a service takes half the time, on all its hosts", inject: func(p *injecting) plan {
		begin, end := each(p.app(2).hosts, func(e *served) { e.fault.factor = -0.5 })
		return plan{begin: begin, end: end}
	}},
	{Name: "weekly-peak", Control: true, Days: 15, Summary: "on this day of the week, at this time, three times the traffic comes, and all is a little slower", inject: func(p *injecting) plan {
		p.rush(func(at int64) bool { return (at/day)%7 == (p.onset/day)%7 })
		return plan{}
	}},
}

// rush brings more traffic, from the onset on for less than an hour, on certain days.
func (p *injecting) rush(on func(at int64) bool) {
	length := int64(1200 + p.r.IntN(2400))
	more := 0.5 + p.size
	p.f.rush = func(at int64) float64 {
		since := (at%day - p.onset%day + day) % day
		if since > length || !on(at-since) {
			return 1
		}
		return 1 + more*float64(min(since, length-since, 120))/120
	}
}

// badClients is the network of clients that loses packets in client-loss.
const badClients = "198.51.100.0/24"

func hostCause(f *Fleet, e *served) Cause {
	c := Cause{Kind: "host", Value: e.host.Name}
	if len(f.on(e.host)) == 1 {
		d := e.dependency()
		c.Same = append(d.Same, "dependency:"+d.Value)
	}
	return c
}

func (f *Fleet) callersOf(e *served) (list []*call) {
	for _, c := range f.calls {
		if c.to == e {
			list = append(list, c)
		}
	}
	return list
}

func ways(f *Fleet, which func(*Host) bool, w way) func(at, since int64) {
	return func(int64, int64) {
		for _, h := range f.Hosts {
			if which(h) {
				h.way = w
			}
		}
	}
}

func ways0(f *Fleet) func(int64) {
	return func(int64) {
		for _, h := range f.Hosts {
			h.way = way{}
		}
	}
}
