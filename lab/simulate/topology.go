package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// Options choose a fleet.
type Options struct {
	Hosts     int    // at least 8
	Endpoints int    // of each host, about: at least 4; default 10
	Seed      uint64 // another fleet, and other seconds
	Shapes    []Shape
	// Balanced puts a balancer, which nobody watches, before each application: it is called
	// at one address, and all its hosts answer there.
	Balanced bool
	// Quiet leaves out deploys, scheduled jobs and garbage collection.
	Quiet bool
}

// Shape is what the requests of a service are like, as recorded elsewhere.
type Shape struct {
	OwnUS  float64                         // mean request latency without the calls it waits for, µs
	Sigma  float64                         // of the logarithm of single requests' times
	Split  [observe.NumServerParts]float64 // shares of OwnUS
	Rate   float64                         // requests per second of a host
	Errors float64                         // share
}

// Host is one of the fleet.
type Host struct {
	fleet.Host
	zone, rack string
	speed      float64 // factor of all own times
	way        way     // of all its traffic
	removed    bool
	dead       bool // it went without notice: it ships nothing, and what calls it waits in vain
}

// way is what the network adds, of a host or of an endpoint's clients.
type way struct {
	loss float64 // share of segments
	us   float64 // to each round trip
	out  float64 // share of the segments that a host sends to other zones
}

// service is the same on all its hosts.
type service struct {
	name   string // "app:8080"
	comm   string
	port   int
	tier   int // 0 asks nobody
	shape  Shape
	calls  []dependency
	hosts  []*served
	wander walk
	gc     float64 // seconds between pauses, 0 for none
	pause  float64 // µs
	backup int64   // second of the day at which a job of ten minutes begins, 0 for none
	deploy deploys
	load   float64 // its share of time that grows with the traffic
	flat   bool    // its traffic has no day
}

type dependency struct {
	to     *service
	perReq float64
	fan    int // addresses that one caller calls
}

// served is an endpoint that answers.
type served struct {
	host   *Host
	svc    *service
	key    fleet.Key
	hidden bool // its host ships nothing
	weight float64
	wander walk
	calls  []*call
	fault  fault
	down   int64 // until this second
	fresh  int64 // it was started at this second
	job    int64 // second of the hour at which a job of the host begins

	// Of the present second:
	n, errors          float64
	own, waits, stalls float64 // µs per request
	split              [observe.NumServerParts]float64
	paused             float64 // share of the requests that met a pause
	pauseUS            float64

	// What the ways to its callers add, on average of its requests.
	callersLoss, callersUS float64
}

// call is an address that an endpoint's service calls.
type call struct {
	from *served
	to   *served
	key  fleet.Key
	dep  *dependency
	part float64 // of the requests that wait for the dependency, those that wait for this call
	n    float64
	us   float64 // of the present second, as its caller sees it
	way  way
}

// walk is a value that wanders around 0.
type walk struct{ x, sd, keep float64 }

func (w *walk) step(rng *rand.Rand) float64 {
	w.x = w.x*w.keep + w.sd*math.Sqrt(1-w.keep*w.keep)*rng.NormFloat64()
	return w.x
}

// Fleet is a simulated fleet.
type Fleet struct {
	Hosts    []*Host
	opt      Options
	rng      *rand.Rand
	services []*service // deepest first
	all      []*served  // deepest first
	calls    []*call
	scenario *Injected
	demand   walk
	// Factor is of all traffic, for scenarios.
	factor float64
	peak   int64 // second of the day of the busiest moment
	rush   func(at int64) float64
}

var appNames = []string{"orders", "search", "users", "billing", "stock", "mail", "media", "prices", "carts", "reviews", "ads", "auth"}

// New builds a fleet.
func New(o Options) *Fleet {
	o.Hosts = max(o.Hosts, 8)
	if o.Endpoints <= 0 {
		o.Endpoints = 10
	}
	o.Endpoints = max(o.Endpoints, 4)
	f := &Fleet{opt: o, rng: rand.New(rand.NewPCG(o.Seed, 0x51)), factor: 1, demand: walk{sd: 0.05, keep: 0.98}}
	r := f.rng
	f.peak = int64(12*3600 + r.IntN(8*3600))
	f.makeHosts()
	apps := min(max(o.Hosts/10, 2), len(appNames))
	webs := max(o.Hosts/4, 2)
	data := max(o.Hosts/8, 2) // databases and caches
	appHosts := o.Hosts - webs - data
	hosts := f.Hosts
	take := func(n int) []*Host {
		n = max(min(n, len(hosts)), 1)
		list := hosts[:n]
		if len(hosts) > n {
			hosts = hosts[n:]
		}
		return list
	}
	db := f.service("mariadb", 3306, 0, f.shape(600, 3000, 300, observe.ServerDisk, observe.ServerCPU))
	cache := f.service("redis", 6379, 0, f.shape(60, 200, 800, observe.ServerCPU, observe.ServerRunq))
	dir := f.service("slapd", 389, 0, f.shape(300, 1500, 200, observe.ServerCPU, observe.ServerDisk))
	db.backup = int64(2*3600 + r.IntN(3*3600))
	for i, h := range take(data) {
		switch {
		case i%3 == 2:
			f.serve(h, cache)
		default:
			f.serve(h, db)
		}
	}
	if len(cache.hosts) == 0 {
		f.serve(f.Hosts[0], cache)
	}
	// One time in two the directory's host tells nothing of it: only its callers do.
	f.serve(f.Hosts[r.IntN(data)], dir).hidden = r.IntN(2) == 0
	var list []*service
	for i := range apps {
		s := f.service(appNames[i], 8080, 1+i%2, f.shape(3000, 30000, 60, observe.ServerCPU, observe.ServerLock, observe.ServerRunq))
		s.calls = append(s.calls, dependency{db, 0.5 + 2*r.Float64(), 1 + r.IntN(2)}, dependency{cache, 1 + 2*r.Float64(), 1})
		if r.IntN(3) == 0 {
			s.calls = append(s.calls, dependency{dir, 0.3, 1})
		}
		if i%2 == 1 {
			s.calls = append(s.calls, dependency{list[i-1], 0.5, 2})
		}
		if r.IntN(2) == 0 {
			s.gc, s.pause = 30+90*r.Float64(), 20_000+100_000*r.Float64()
		}
		share := appHosts / apps
		if i < appHosts%apps {
			share++
		}
		for _, h := range take(share) {
			f.serve(h, s)
		}
		list = append(list, s)
	}
	web := f.service("nginx", 80, 3, f.shape(500, 3000, 80, observe.ServerCPU, observe.ServerRunq))
	for _, s := range list {
		web.calls = append(web.calls, dependency{s, 0.2 + 0.8*r.Float64(), 2})
	}
	for _, h := range take(webs) {
		f.serve(h, web)
	}
	f.sideServices()
	f.connect()
	return f
}

func (f *Fleet) makeHosts() {
	r := f.rng
	zones := 2 + r.IntN(2)
	perRack := 5 + r.IntN(10)
	kernels := []string{"6.1.0-28-amd64", "6.12.9-amd64"}
	for i := range f.opt.Hosts {
		h := &Host{speed: math.Exp(0.15 * r.NormFloat64())}
		h.Name = fmt.Sprintf("host-%04d", i)
		h.ID = fmt.Sprintf("sim-%d-%d", f.opt.Seed, i)
		h.Addresses = []string{addr(i)}
		h.CPUs = 8
		h.Version = "1.0"
		h.Kernel = kernels[min(r.IntN(4), 1)]
		f.Hosts = append(f.Hosts, h)
	}
	// Hosts were not bought in the order of what they do.
	for n, i := range r.Perm(len(f.Hosts)) {
		h := f.Hosts[i]
		h.zone, h.rack = string(rune('a'+n%zones)), fmt.Sprintf("r%d", n/perRack)
		h.Labels = map[string]string{"zone": h.zone, "rack": h.rack, "disk": []string{"nvme", "sata", "nvme"}[r.IntN(3)], "config": "41"}
	}
}

func addr(i int) string { return fmt.Sprintf("10.%d.%d.%d", 1+i/62500, i/250%250, 1+i%250) }

// shape draws a shape: own time between low and high µs, around a rate.
func (f *Fleet) shape(low, high, rate float64, parts ...observe.ServerPart) Shape {
	r := f.rng
	s := Shape{
		OwnUS: low * math.Pow(high/low, r.Float64()), Sigma: 0.5 + 0.7*r.Float64(),
		Rate: rate * math.Exp(0.5*r.NormFloat64()), Errors: math.Pow(10, -5+2*r.Float64()),
	}
	rest := 1.0
	for i, p := range parts {
		share := rest
		if i < len(parts)-1 {
			share = rest * (0.6 + 0.3*r.Float64())
		}
		s.Split[p] += share
		rest -= share
	}
	return s
}

func (f *Fleet) service(comm string, port, tier int, s Shape) *service {
	if n := len(f.opt.Shapes); n > 0 {
		s = f.opt.Shapes[len(f.services)%n]
	}
	r := f.rng
	v := &service{
		name: fmt.Sprintf("%s:%d", comm, port), comm: comm, port: port, tier: tier, shape: s,
		wander: walk{sd: 0.02 + 0.02*r.Float64(), keep: 0.99}, load: 0.1 + 0.3*r.Float64(),
	}
	v.deploy = deploys{seed: r.Uint64(), tier: tier}
	f.services = append(f.services, v)
	return v
}

func (f *Fleet) serve(h *Host, s *service) *served {
	r := f.rng
	e := &served{
		host: h, svc: s, weight: math.Exp(0.1 * r.NormFloat64()), job: int64(r.IntN(3600)),
		key:    fleet.Key{Host: h.Name, Service: s.name, Side: observe.Served, Addr: "0.0.0.0", Port: s.port},
		wander: walk{sd: 0.02 + 0.04*r.Float64(), keep: 1 - 1/(20+300*r.Float64())},
	}
	s.hosts = append(s.hosts, e)
	return e
}

// Behind tells which endpoints answer at the address of each balancer, by the endpoint
// that calls, as requests that are seen at both ends tell it.
func (f *Fleet) Behind() map[fleet.Key][]fleet.Key {
	all := map[fleet.Key][]fleet.Key{}
	for _, c := range f.calls {
		if c.key.Addr != c.to.host.Addresses[0] {
			all[c.key] = append(all[c.key], c.to.key)
		}
	}
	return all
}

// sideServices give each host small services of its own until it has as many
// endpoints as asked for: few requests, or bursts.
func (f *Fleet) sideServices() {
	r := f.rng
	names := []string{"health", "metrics", "admin", "agent", "sidecar", "files", "tasks", "sync"}
	side := make([]*service, 0, len(names))
	for i, name := range names {
		s := f.service(name, 9000+i, 0, f.shape(200, 20000, []float64{1, 3, 20, 60}[r.IntN(4)], observe.ServerCPU, observe.ServerDisk))
		s.flat = r.IntN(2) == 0
		side = append(side, s)
	}
	calls := map[*Host]int{}
	for _, s := range f.services {
		for _, e := range s.hosts {
			for _, d := range s.calls {
				calls[e.host] += min(d.fan, len(d.to.hosts))
			}
			calls[e.host]++
		}
	}
	for _, h := range f.Hosts {
		for i := 0; i < len(side) && (i < 2 || calls[h] < f.opt.Endpoints); i++ {
			f.serve(h, side[(i+len(h.Name))%len(side)])
			calls[h]++
		}
	}
}

// connect draws who calls which addresses, and orders the endpoints so that what is
// called comes before what calls.
func (f *Fleet) connect() {
	r := f.rng
	for tier := range 4 {
		for _, s := range f.services {
			if s.tier != tier {
				continue
			}
			for _, e := range s.hosts {
				f.all = append(f.all, e)
				for i := range s.calls {
					f.wire(r, e, &s.calls[i])
				}
			}
		}
	}
}

func (f *Fleet) wire(r *rand.Rand, e *served, d *dependency) {
	targets := d.to.hosts
	start := r.IntN(len(targets))
	if d.to.tier == 0 {
		// Each service has its own databases and caches: those of its zone, if any.
		start = int(e.svc.deploy.seed % uint64(len(targets)))
		for i := range targets {
			if t := targets[(start+i)%len(targets)]; d.to.comm == "redis" && t.host.zone == e.host.zone {
				start = (start + i) % len(targets)
				break
			}
		}
	}
	fan := d.fan
	if f.opt.Balanced && d.to.tier > 0 {
		fan = len(targets)
	}
	for i := range min(fan, len(targets)) {
		t := targets[(start+i)%len(targets)]
		c := &call{from: e, to: t, dep: d, part: min(d.perReq, 1) * float64(min(d.fan, fan)) / float64(fan), key: fleet.Key{
			Host: e.host.Name, Service: e.svc.comm, Side: observe.Called, Addr: t.host.Addresses[0], Port: t.svc.port,
		}}
		if f.opt.Balanced && d.to.tier > 0 {
			c.key.Addr = fmt.Sprintf("10.255.0.%d", 1+slices.Index(f.services, d.to))
		}
		e.calls = append(e.calls, c)
		f.calls = append(f.calls, c)
	}
}
