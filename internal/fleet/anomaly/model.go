package anomaly

import (
	"math"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/observe"
)

// The windows.
const (
	fast = iota // five seconds
	mid         // 40 seconds
	slow        // the same, against the usual value of the last days
	windows
)

// midPiece is how many seconds a piece of the middle window is: it holds five.
const midPiece = 8

// Learning happens every so many seconds, which makes what is learned from nearly
// independent.
const learnEvery = 5

// young is how long an endpoint that has begun anew is compared with others that
// have: 30 s.
const young = 30

// track is the usual value of a signal and its usual spread.
type track struct {
	Base   float32          // usual value of y (of counts: their share), without what recurs by time of day
	Anchor float32          // the same of the last days
	A      [2]float32       // variance of y that a request contributes, by window: A/n
	B      [windows]float32 // variance that a window contributes
	limit  float32          // of parts: exp(Base), below which nothing can be wrong
}

// endpoint is what is known of a fleet.Key, or of all of a service together.
type endpoint struct {
	Key     fleet.Key
	Known   float64 // seconds that were learned from
	Seen    float64 // of these, seconds in detail
	Track   [NumSignals]track
	group   int32
	whole   bool // it is the sum of its group
	has     bool // a point in this step
	start   int64
	last    int64
	cur     sums
	piece   sums // of the middle window, as long as it is not complete
	win     [2]window
	nlp     float64  // of this second: -ln P
	quick   float64  // the same of the fast window alone
	now     mixtures // of the fast window
	minute  mixtures // of the other windows, when a piece was last complete
	bestMid Signal   // that says most in them
	rareMid float64
	best    Signal // that says most of it
	unusual int64  // since when that is above unusualFrom without a break, 0 when it is not
	episode *episode
}

type groupKey struct {
	Service string
	Side    observe.Side
	Port    int // of what is called
}

// seasonal are the signals that have a season.
var seasonal = [...]Signal{Rate, Total, P50, P99}

// group is the same endpoint on all hosts.
type group struct {
	key      groupKey
	whole    int32 // endpoint that is the sum of all
	members  int
	Seasons  [len(seasonal)]season
	expected [len(seasonal)]struct{ mean, worse, burst float64 }

	present  int     // members whose host is there in this step
	should   float64 // requests of them to be expected in this step
	missing  float64 // requests that are missing in the fast window, per second
	abnormal int     // members with an episode
	changed  int64   // when a member last began anew, or was silent
}

// Model is what is known of a fleet. It is for one goroutine.
type Model struct {
	opt     Options
	index   map[fleet.Key]int32
	groups  map[groupKey]int32
	ends    []*endpoint
	group   []*group
	hosts   map[string]int64 // when there last was a point of the host
	tails   [3][NumSignals][windows]tail
	day     int64
	at      int64 // the last step that was judged
	step    int   // seconds
	warmAt  int64
	warm    int // seconds of the history's points that are collected, 0 when there are none
	list    []ranked
	fleet   tail        // of how unusual all endpoints are together
	counted []bool      // groups, in a step
	active  []*endpoint // with an episode
	cut     float64     // -ln P from which on an endpoint is abnormal in the company of an alarm, of the last step
	judged  int         // endpoints at the last step
}

// New makes a model that knows nothing.
func New(o Options) *Model {
	return &Model{opt: o.withDefaults(), index: map[fleet.Key]int32{}, groups: map[groupKey]int32{}, hosts: map[string]int64{}, day: math.MinInt64}
}

// Endpoints is how many endpoints are known.
func (m *Model) Endpoints() int { return len(m.index) }

// Known says how many endpoints of a host there are, of all hosts where host is empty,
// and of how many of them enough was seen to judge them.
func (m *Model) Known(host string) (enough, all int) {
	for _, e := range m.ends {
		if e.whole || host != "" && e.Key.Host != host {
			continue
		}
		all++
		if e.Seen >= enoughSeen {
			enough++
		}
	}
	return enough, all
}

// newTrack knows nothing: wide.
func newTrack(sig Signal) track {
	t := track{A: [2]float32{1, 1}, B: [windows]float32{0.09, 0.09, 0.09}}
	switch {
	case sig == Errors || sig == Again || sig == Loss:
		t.B = [windows]float32{1, 1, 1}
	case sig.isPart():
		t.A = [2]float32{0.3, 0.3}
		t.limit = 1
	}
	return t
}

// groupOf finds the group of an endpoint, or makes it.
func (m *Model) groupOf(key fleet.Key, at int64) int32 {
	gk := groupKey{Service: key.Service, Side: key.Side}
	if key.Side == observe.Called {
		gk.Port = key.Port
	}
	gi, ok := m.groups[gk]
	if !ok {
		gi = int32(len(m.group))
		m.groups[gk] = gi
		whole := &endpoint{Key: fleet.Key{Service: key.Service, Side: key.Side, Port: key.Port}, group: gi, whole: true, start: at}
		for i := range whole.Track {
			whole.Track[i] = newTrack(Signal(i))
		}
		m.group = append(m.group, &group{key: gk, whole: int32(len(m.ends))})
		m.ends = append(m.ends, whole)
	}
	return gi
}

func (m *Model) endpoint(key fleet.Key, at int64) *endpoint {
	if i, ok := m.index[key]; ok {
		return m.ends[i]
	}
	gi := m.groupOf(key, at)
	g := m.group[gi]
	e := &endpoint{Key: key, group: gi, start: at}
	whole := m.ends[g.whole]
	for i := range e.Track {
		e.Track[i] = newTrack(Signal(i))
		if whole.Known > 60 {
			// What others of the service do is the best guess.
			e.Track[i].Base, e.Track[i].Anchor, e.Track[i].limit = whole.Track[i].Base, whole.Track[i].Anchor, whole.Track[i].limit
		}
	}
	g.members++
	m.index[key] = int32(len(m.ends))
	m.ends = append(m.ends, e)
	return e
}

// Add takes what an endpoint did in the step that Judge is called for next. Points
// of an endpoint for the same step add up; those of another time than Judge is then
// called for are taken as of its.
func (m *Model) Add(p *fleet.Point) {
	if p.Seconds <= 0 || p.Host == "" {
		return
	}
	if m.warm > 0 {
		m.endWarm()
	}
	e := m.endpoint(p.Key, p.At)
	m.hosts[p.Host] = p.At
	m.take(e, p)
	m.step = max(m.step, p.Seconds)
}

func (m *Model) take(e *endpoint, p *fleet.Point) {
	if !e.has {
		e.cur.set(p)
		e.has = true
		return
	}
	var more sums
	more.set(p)
	e.cur.add(&more)
}

// expect works out what the groups' seasons expect at a moment.
func (m *Model) expect(at int64) {
	day := at / daySeconds
	if day != m.day && m.day != math.MinInt64 {
		m.endDay(at)
	}
	m.day = day
	for _, g := range m.group {
		for i := range g.Seasons {
			x := &g.expected[i]
			x.mean, x.worse, x.burst = g.Seasons[i].expected(at)
		}
	}
}

// endDay learns a day. The usual values are moved so that what is expected now is
// the same as before.
func (m *Model) endDay(at int64) {
	for gi, g := range m.group {
		var jump [len(seasonal)]float64
		for i := range g.Seasons {
			before, _, _ := g.Seasons[i].expected(at)
			g.Seasons[i].end(m.day)
			after, _, _ := g.Seasons[i].expected(at)
			jump[i] = after - before
		}
		for _, e := range m.ends {
			if e.group != int32(gi) {
				continue
			}
			for i, sig := range seasonal {
				if e.whole && sig == Rate {
					continue
				}
				e.Track[sig].Base -= float32(jump[i])
				e.Track[sig].Anchor -= float32(jump[i])
			}
		}
	}
}

// mean is what recurs at this time of the day and week.
func (g *group) mean(sig Signal) float64 {
	switch sig {
	case Rate:
		return g.expected[0].mean
	case Total:
		return g.expected[1].mean
	case P50:
		return g.expected[2].mean
	case P99:
		return g.expected[3].mean
	}
	return 0
}

// usual is the time that a request usually takes at this time, µs.
func (e *endpoint) usual(g *group) float64 {
	return math.Exp(float64(e.Track[Total].Base) + g.mean(Total))
}

// rate is how many requests a second are usual at this time.
func (e *endpoint) rate(g *group) float64 {
	return max(math.Exp(-float64(e.Track[Rate].Base)-g.mean(Rate))-0.1, 0)
}
