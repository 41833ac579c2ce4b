package alert

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/store"
)

// Harm is that a service suffers in this second, compared with what is usual for it.
type Harm struct {
	Service string  // "nginx:8080"
	Share   float64 // of its requests that fail, or that take long; 0 to 1
	Text    string  // "31 % of requests fail", "p50 2.1 s instead of 12 ms"
}

const (
	// fewRequests is what a second needs to tell anything.
	fewRequests = 5
	// learning is how many such seconds a service is watched before it is judged.
	learning = 30
	// pace is the weight of one second in what is usual: half of it is of the last half
	// minute.
	pace = 0.02
	// A second is bad when more requests than leastFailing fail, and three times as many as usual, or
	// when the median is three times the usual one and leastSlower more.
	leastFailing = 0.05
	timesFailing = 3
	timesSlower  = 3
	hanging      = time.Second // requests that wait for longer are counted as unfinished
	leastSlower  = 20e6        // ns
	// badFor and goodFor are how many seconds in a row begin and end it.
	badFor, goodFor = 2, 5
	// forgotten is after how many seconds without a request a service is.
	forgotten = 600
	mostUsual = 4096 // services
)

// usual is what a service does as a rule.
type usual struct {
	seconds         int     // that told something
	failing         float64 // share
	median          float64 // ln ns
	bad, good, idle int     // seconds in a row
	harmed          bool
	errors          bool // the harm was known by the status of requests
	harm            Harm
}

// sight is what the statuses of a service's requests say in a second, apart from what is usual.
type sight struct {
	service string
	errors  bool // it is harmed, and requests were answered with an error
	unclear bool // it had requests, and no success of them was seen, or most of what was seen failed
}

// detector compares each second of each service with what is usual for it. It is for
// one goroutine.
type detector struct {
	services map[serviceKey]*usual
	sights   []sight // of the last second: those that say something
}

// serviceKey is an address of a service: what is usual differs by who asks there.
type serviceKey struct {
	netns uint64
	addr  string
	port  int
	comm  string
}

func newDetector() *detector { return &detector{services: map[serviceKey]*usual{}} }

// serviceName names a service as alerts do: by its workload in Kubernetes, else by its
// process, else by its address.
func serviceName(w *observe.Workload, comm, addr string, port int) string {
	name := comm
	if w != nil && *w != (observe.Workload{}) {
		name = w.Controller()
	}
	if name == "" {
		return net.JoinHostPort(addr, strconv.Itoa(port))
	}
	return name + ":" + strconv.Itoa(port)
}

// second takes in what each endpoint did in a second, and gives who suffers.
func (d *detector) second(endpoints []store.Second) (harms []Harm) {
	d.sights = nil // the alerter has the last ones
	seconds := map[serviceKey]*serviceSecond{}
	for i := range endpoints {
		e := &endpoints[i].Endpoint
		if e.Side != observe.Served.String() {
			continue
		}
		key := serviceKey{e.NetNS, e.Addr, e.Port, e.Comm}
		s := seconds[key]
		if s == nil {
			s = &serviceSecond{name: serviceName(&endpoints[i].Process.Workload, e.Comm, e.Addr, e.Port)}
			seconds[key] = s
		}
		s.add(e)
	}
	for key, s := range seconds {
		u := d.services[key]
		if u == nil {
			if len(d.services) >= mostUsual {
				continue
			}
			u = &usual{}
			d.services[key] = u
		}
		u.take(s)
		if seen := (sight{s.name, u.harmed && s.errors > 0, s.unclear(u.seconds >= learning)}); seen.errors || seen.unclear {
			d.sights = append(d.sights, seen)
		}
	}
	for key, u := range d.services {
		if seconds[key] == nil { // nobody asks it: its clients may have gone
			u.idle++
			u.follow(Harm{})
		}
		switch {
		case u.harmed:
			harms = append(harms, u.harm)
		case u.idle > forgotten:
			delete(d.services, key)
		}
	}
	return harms
}

// serviceSecond is what all processes of a service did in a second at one address.
type serviceSecond struct {
	name                         string
	requests, failed, unfinished uint64
	ok, errors                   uint64 // by their status
	total                        observe.Histogram
}

func (s *serviceSecond) add(e *observe.Endpoint) {
	s.requests += e.Requests
	s.failed += e.Errors + e.Unanswered
	s.unfinished += e.Unfinished
	s.ok += e.OK
	s.errors += e.Errors
	s.total.Merge(&e.Total)
}

// unclear says that the second does not show that requests succeed again. A share of failures
// that is more than harm can start from is never usual; while that is not known, no failures are.
func (s *serviceSecond) unclear(known bool) bool {
	if s.requests == 0 {
		return s.unfinished > 0
	}
	most := 1.0 / timesFailing
	if !known {
		most = leastFailing
	}
	return s.ok == 0 || float64(s.failed) > most*float64(s.ok+s.failed)
}

func (u *usual) take(s *serviceSecond) {
	u.idle = 0
	n := float64(s.requests)
	known := u.seconds >= learning
	before := math.Exp(u.median)
	if hang := float64(s.unfinished); known && hang >= fewRequests && hang > n && before < float64(hanging) {
		u.follow(Harm{s.name, hang / (hang + n), figure.Count(s.unfinished) + " requests wait for more than a second"})
		return
	}
	switch {
	case n < fewRequests && !u.harmed:
		return // too few to tell that harm begins; that it is over they do
	case n == 0:
		u.follow(Harm{})
		return
	case u.harmed && u.errors && s.ok+s.failed == 0:
		return // no status was read: the second shows neither harm nor success
	}
	failing := float64(s.failed) / n
	median := math.Log(float64(max(s.total.Quantile(0.5), 1)))
	var h Harm
	if now := math.Exp(median); known {
		switch {
		case failing > max(leastFailing, timesFailing*u.failing):
			h = Harm{s.name, failing, figure.Percent(failing) + " of its requests fail"}
		case now > timesSlower*before && now > before+leastSlower:
			h = Harm{s.name, 0.5, fmt.Sprintf("p50 %s instead of %s", figure.Seconds(now/1e9), figure.Seconds(before/1e9))}
		}
	}
	u.follow(h)
	u.errors = u.harmed && (u.errors || h.Share > 0 && s.errors > 0)
	if h.Share > 0 || n < fewRequests {
		return // harm is not to become usual
	}
	u.seconds++
	gain := max(pace, 1/float64(u.seconds))
	u.failing += gain * (failing - u.failing)
	u.median += gain * (median - u.median)
}

// follow begins and ends harm after some seconds alike.
func (u *usual) follow(h Harm) {
	if h.Share > 0 {
		u.bad, u.good, u.harm = u.bad+1, 0, h
	} else {
		u.good, u.bad = u.good+1, 0
	}
	switch {
	case u.bad >= badFor:
		u.harmed = true
	case u.good >= goodFor:
		u.harmed = false
	}
}
