package grammar

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// Draw is one incident that was drawn. Its first fault is the one that is asked for.
type Draw struct {
	incident.Incident
	Seed   int64
	Number int
	Shape  Shape
	// Where is what the finding has to be about.
	Where Where
}

// Shape is what was drawn, in words.
type Shape struct {
	Kind     string `json:"kind"`   // of fault
	Cause    string `json:"cause"`  // empty on a healthy machine
	Server   string `json:"server"` // whose part the fault is
	Layout   string `json:"layout"` // where that runs
	Renamed  bool   `json:"renamed"`
	Hops     int    `json:"hops"` // small services before it, and behind
	At       int    `json:"at"`   // on which of them the fault is, from 1; 0 = on none
	Chain    string `json:"chain"`
	Load     string `json:"load"`
	Strength string `json:"strength"`
	Second   string `json:"second,omitempty"` // another fault
	Noise    string `json:"noise,omitempty"`
}

// Key is the same for two draws of the same shape: all but the figures.
func (s Shape) Key() string {
	shape, _, _ := strings.Cut(s.Load, ":")
	return fmt.Sprint(s.Kind, s.Server, s.Layout, s.Renamed, s.Hops, s.At, shape, s.Second, s.Noise)
}

// Where is the subject that is right.
type Where struct {
	Hop   int      // whose process it may be, from 0; -1 = none
	Comms []string // of other processes that it may be; with Hop -1, none says that any will do
}

// New draws number n of a seed, from 1. A healthy one has no fault.
func New(seed int64, n int, healthy bool) Draw {
	round := uint64((n - 1) / len(kinds))
	order := rand.New(rand.NewPCG(uint64(seed), 1<<40+round)).Perm(len(kinds))
	k := kinds[order[(n-1)%len(kinds)]]
	return draw(seed, n, k, healthy)
}

// Kinds are the kinds of faults there are.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// NewOf is New for one kind of fault.
func NewOf(name string, seed int64, n int, healthy bool) (Draw, error) {
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if at < 0 {
		return Draw{}, fmt.Errorf("kind %q: not known (there are %s)", name, strings.Join(Kinds(), ", "))
	}
	return draw(seed, n, kinds[at], healthy), nil
}

func draw(seed int64, n int, k kind, healthy bool) Draw {
	d := &drawing{rng: rand.New(rand.NewPCG(uint64(seed), uint64(n))), setup: server.Healthy(server.Chain)}
	d.shape.Kind = k.name
	d.where.Hop = -1
	k.draw(d)
	d.finish(healthy)
	setup := d.setup
	name := fmt.Sprintf("draw-%d-%d", seed, n)
	out := Draw{Seed: seed, Number: n, Shape: d.shape, Where: d.where, Incident: incident.Incident{
		Name: name, Summary: d.shape.Kind + " " + d.shape.Chain,
		Setup: func() server.Setup {
			s := setup
			s.Hops = slices.Clone(setup.Hops) // faults are injected there
			return s
		},
		Faults: d.faults, Load: d.load, Quick: true, Lead: d.lead,
	}}
	if healthy {
		out.Faults, out.Control, out.Shape.Cause = nil, true, ""
	}
	return out
}

// kind is one kind of fault: how its servers, load and strength are drawn.
type kind struct {
	name string
	draw func(*drawing)
}

// drawing is a draw under way.
type drawing struct {
	rng    *rand.Rand
	setup  server.Setup
	faults []incident.Fault
	load   load.Load
	lead   time.Duration
	shape  Shape
	where  Where
	// busy says that the load is to fill the servers: it is no healthy machine.
	busy bool
	// whole says that what is there stays as it is: no hop before it, no other load.
	whole bool
}

func (d *drawing) chance(p float64) bool { return d.rng.Float64() < p }

// between draws a number, each magnitude as likely as the others.
func (d *drawing) between(low, high float64) float64 {
	return low * math.Exp(d.rng.Float64()*math.Log(high/low))
}

func (d *drawing) count(low, high int) int { return low + d.rng.IntN(high-low+1) }

func (d *drawing) ms(low, high float64) time.Duration {
	return time.Duration(d.between(low, high) * float64(time.Millisecond)).Round(100 * time.Microsecond)
}

func pick[T any](d *drawing, of ...T) T { return of[d.rng.IntN(len(of))] }

// fault adds a fault.
func (d *drawing) fault(cause, text string, inject func(*server.Setup)) *incident.Fault {
	d.faults = append(d.faults, incident.Fault{Name: d.shape.Kind, Cause: cause, Text: text, Inject: inject})
	d.shape.Cause, d.shape.Strength = cause, text
	return &d.faults[len(d.faults)-1]
}

// chain draws one to most hops and gives the one that is to have the fault, which is
// in one of these languages.
func (d *drawing) chain(least, most int, languages ...string) *server.Hop {
	n := d.count(least, most)
	at := d.rng.IntN(n)
	d.shape.At, d.where.Hop = at+1, at
	for i := range n {
		of := everyLanguage
		if i == at {
			of = languages
		} else if i == n-1 {
			of = programs // a proxy has somebody behind it
		}
		d.setup.Hops = append(d.setup.Hops, d.hop(i, pick(d, of...)))
	}
	// What is in another namespace cannot reach 127.0.0.1.
	for i := 1; i < n; i++ {
		if d.setup.Hops[i-1].Apart || d.setup.Hops[i].Apart {
			d.setup.Hops[i].Loopback = false
		}
	}
	return &d.setup.Hops[at]
}

var (
	everyLanguage = []string{"c", "go", "java", "node", "python", "nginx"}
	programs      = []string{"c", "go", "java", "node", "python"}
	threaded      = []string{"c", "go", "java", "python"}
)

// names of programs: none says what it is to anybody.
var names = []string{"checkout", "ledgerd", "basket", "quoter", "stocksvc", "fares", "loyalty", "mapper", "pricing-engine", "tickets", "courier", "vouch",
	"rota", "catalog", "sorter", "invoices", "gatehouse", "search-front", "profiled", "relay7"}

func (d *drawing) hop(i int, language string) server.Hop {
	h := server.Hop{Language: language, Port: 9200 + 40*i + d.rng.IntN(40)}
	for h.Name == "" || slices.ContainsFunc(d.setup.Hops, func(o server.Hop) bool { return o.Name == h.Name }) {
		h.Name = names[d.rng.IntN(len(names))]
	}
	h.Renamed = d.chance(0.5)
	if i > 0 {
		h.Apart = d.chance(0.4)
		h.Unnamed = d.chance(0.5)
		h.Loopback = d.chance(0.5)
	}
	h.Boxed = language != "nginx" && d.chance(0.25)
	return h
}

// before puts up to most hops before the servers there are.
func (d *drawing) before(most int) {
	n := d.rng.IntN(most + 1)
	for i := range n {
		h := d.hop(i, pick(d, everyLanguage...))
		h.Loopback = h.Loopback && !d.apartBefore(i)
		d.setup.Hops = append(d.setup.Hops, h)
	}
}

func (d *drawing) apartBefore(i int) bool {
	return d.setup.Hops[i-1].Apart
}

// shapes of load for a service that is to have so many requests under way.
func (d *drawing) clients(low, high int) {
	n := d.count(low, high)
	switch shape := pick(d, "closed", "closed", "open", "bursts", "short"); shape {
	case "open":
		d.load = load.Load{Conns: 2 * n, Rate: d.between(40, 150)}
		d.shape.Load = shape
	case "bursts":
		d.load = load.Load{Conns: n, Burst: d.ms(300, 1000)}
		d.shape.Load = shape
	case "short":
		d.load = load.Load{Conns: n, Close: true, Think: d.ms(10, 50)}
		d.shape.Load = shape
	default:
		d.load = load.Load{Conns: n, Think: d.ms(8, 50)}
		d.shape.Load = shape
	}
	if d.chance(0.3) {
		d.load.GiveUp = d.ms(1200, 2500)
	}
	d.load.Own = true
}

// finish draws what has nothing to do with the fault.
func (d *drawing) finish(healthy bool) {
	if healthy && (d.busy || d.chance(0.3)) {
		d.load = load.Load{Conns: d.count(1, 6), Think: d.ms(30, 400), Own: true}
		d.shape.Load = "idle"
	}
	if healthy && d.load.Rate > 60 {
		d.load.Rate = 60
	}
	d.noise()
	shape, _, _ := strings.Cut(d.shape.Load, ":")
	d.shape.Load = shape + ": " + d.load.Describe()
	d.shape.Hops = len(d.setup.Hops)
	var chain []string
	for _, h := range d.setup.Hops {
		chain = append(chain, describe(&h))
	}
	if d.setup.Kind != server.Chain {
		chain = append(chain, d.shape.Server)
	}
	d.shape.Chain = strings.Join(chain, " → ")
	if at := d.where.Hop; at >= 0 {
		h := &d.setup.Hops[at]
		d.shape.Server, d.shape.Renamed, d.shape.Layout = h.Language, h.Renamed, layout(h)
	}
	if d.shape.Layout == "" {
		d.shape.Layout = "same"
	}
}

func layout(h *server.Hop) string {
	at := "same"
	switch {
	case h.Apart && h.Unnamed:
		at = "own, without a name"
	case h.Apart:
		at = "own"
	}
	if h.Boxed {
		at += ", container"
	}
	return at
}

func describe(h *server.Hop) string {
	text := h.Language
	if h.Renamed {
		text += " as " + h.Name
	}
	if l := layout(h); l != "same" {
		text += " (" + l + ")"
	}
	return text
}

// noise draws what is there and harms nobody.
func (d *drawing) noise() {
	if d.whole {
		return
	}
	switch pick(d, "", "", "", "neighbour", "sysctl", "pool", "cron", "idle connections") {
	case "neighbour":
		d.setup.Burners, d.setup.BurnerNice = 1, 19
		d.shape.Noise = "a busy loop, nice 19"
	case "sysctl":
		d.setup.FinTimeout = 3600
		d.shape.Noise = "tcp_fin_timeout 3600"
	case "pool":
		d.setup.IdlePool = d.count(30, 120)
		d.shape.Noise = "an idle pool of threads"
	case "cron":
		d.setup.Chores.Cron = true
		d.shape.Noise = "cron jobs"
	case "idle connections":
		if d.setup.Kind == server.Chain && d.load.Conns > 0 {
			d.load.Idle = d.count(5, 20)
			d.shape.Noise = "idle connections"
		}
	}
}
