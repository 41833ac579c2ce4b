package experiment

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// world is a simulated service under load, in time of its own: it implements
// Subject and Meter.
type world struct {
	rnd *rand.Rand
	now float64 // s

	rate   float64 // good responses per second
	users  float64 // closed loop: they wait in the median time
	noise  float64 // standard deviation of the logarithm, of each tick
	memory float64 // 0 to 1: how much of the noise is left after a second
	drift  float64 // of the logarithm, per minute
	bursts float64 // per second; the service is slower by slow for some seconds
	slow   float64
	tail   float64 // the heavier the 99th percentile
	flips  float64 // per second: the service goes from one state to the other, which is worse by slow
	errors float64 // share

	effect      float64 // factor on the rate while applied
	refused     float64 // clients turned away, per second, as the change has not come about
	crowded     float64 // factor on the times while applied, if not 0
	errorsWith  float64 // share while applied, if not 0
	comes, goes float64 // time constants of the effect, s
	stopped     bool    // but for the change
	backOff     float64 // s after the change before anybody asks
	failsAfter  float64 // the change kills the service after so long
	leaves      float64 // with the change, so long after it, the clients end

	on        bool
	since     float64
	state     float64 // 0 to 1: how far the effect is there
	x         float64 // the noise
	burstEnds float64
	flipped   bool
	glance    func(Block)
	applies   int
	undone    float64
}

const tick = 0.5

// refusedClients is the counter of clients that a world turns away.
const refusedClients = "refused"

func (w *world) Apply() error                { w.on, w.since = true, w.now; w.applies++; return nil }
func (w *world) Undo() error                 { w.on, w.undone = false, w.now; return nil }
func (w *world) OnGlance(f func(Block))      { w.glance = f }
func (w *world) lasting(tau float64) float64 { return math.Exp(-tick / max(tau, 1e-3)) }

func (w *world) Block(ctx context.Context, d time.Duration) (Block, error) {
	total := Block{Seconds: d.Seconds()}
	var worst, times, ticks, refused float64
	for left := d.Seconds(); left > 1e-9; left -= tick {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		b := w.tick()
		total.Good += b.Good
		total.Requests += b.Requests
		total.Errors += b.Errors
		worst = max(worst, b.P99)
		times += b.P50
		refused += b.Counters[refusedClients]
		ticks++
		if w.glance != nil {
			w.glance(b)
		}
	}
	total.Timed = total.Good
	total.P50, total.P99 = times/ticks, worst
	total.Counters = map[string]float64{refusedClients: refused / ticks}
	return total, ctx.Err()
}

func (w *world) tick() Block {
	w.now += tick
	if w.on {
		w.state = 1 - (1-w.state)*w.lasting(w.comes)
	} else {
		w.state *= w.lasting(w.goes)
	}
	keep := math.Pow(w.memory, tick)
	w.x = keep*w.x + math.Sqrt(1-keep*keep)*w.noise*w.rnd.NormFloat64()
	level := w.x + w.drift*w.now/60 + w.state*math.Log(max(w.effect, 1e-9))
	if w.now > w.burstEnds && w.rnd.Float64() < w.bursts*tick {
		w.burstEnds = w.now + w.rnd.ExpFloat64()*4
	}
	if w.now <= w.burstEnds {
		level -= math.Log(w.slow)
	}
	if w.flips > 0 && w.rnd.Float64() < w.flips*tick {
		w.flipped = !w.flipped
	}
	if w.flipped {
		level -= math.Log(w.slow)
	}
	rate := w.rate * math.Exp(level)
	if w.on && w.failsAfter > 0 && w.now-w.since > w.failsAfter {
		rate = 0
	}
	if w.leaves > 0 && w.applies > 0 && w.now-w.since > w.leaves {
		rate = 0
	}
	if w.stopped && (!w.on || w.now-w.since < w.backOff) {
		rate = 0
	}
	n := w.poisson(rate * tick)
	share := w.errors
	if w.errorsWith > 0 {
		share += (w.errorsWith - w.errors) * w.state
	}
	bad := w.poisson(rate * tick * share)
	p50 := w.users / max(rate, 1) * 1e9
	if w.crowded > 0 {
		p50 *= math.Exp(w.state * math.Log(w.crowded))
	}
	heavy := 2 + w.tail*(math.Pow(1-w.rnd.Float64(), -0.7)-1)
	return Block{Seconds: tick, Good: n, Requests: n + bad, Errors: bad, Timed: n, P50: p50, P99: p50 * heavy,
		Counters: map[string]float64{refusedClients: float64(w.poisson(w.refused*(1-w.state)*tick)) / tick}}
}

func (w *world) poisson(mean float64) uint64 {
	return uint64(max(0, math.Round(mean+math.Sqrt(mean)*w.rnd.NormFloat64())))
}

// noises are the kinds of nothing that an experiment must not take for something.
var noises = map[string]func(*world){
	"calm":        func(w *world) { w.noise, w.memory, w.tail = 0.03, 0.2, 0.3 },
	"rough":       func(w *world) { w.noise, w.memory, w.tail = 0.15, 0.3, 1 },
	"wandering":   func(w *world) { w.noise, w.memory, w.tail = 0.15, 0.9, 0.5 },
	"slow tides":  func(w *world) { w.noise, w.memory, w.tail = 0.20, 0.97, 0.5 },
	"drift up":    func(w *world) { w.noise, w.memory, w.drift, w.tail = 0.05, 0.3, 0.4, 0.3 },
	"drift down":  func(w *world) { w.noise, w.memory, w.drift, w.tail = 0.05, 0.3, -0.4, 0.3 },
	"bursts":      func(w *world) { w.noise, w.memory, w.bursts, w.slow, w.tail = 0.05, 0.3, 0.06, 3, 0.5 },
	"rare bursts": func(w *world) { w.noise, w.memory, w.bursts, w.slow, w.tail = 0.05, 0.3, 0.01, 4, 0.5 },
	"heavy tail":  func(w *world) { w.noise, w.memory, w.tail = 0.05, 0.3, 5 },
	"few":         func(w *world) { w.rate, w.users, w.noise, w.memory, w.tail = 15, 1, 0.05, 0.3, 1 },
	"two states":  func(w *world) { w.noise, w.memory, w.flips, w.slow, w.tail = 0.1, 0.3, 0.1, 2.5, 1 },
	"errors":      func(w *world) { w.errors, w.noise, w.memory, w.tail = 0.02, 0.1, 0.5, 1 },
}

func newWorld(seed uint64, noise string) *world {
	w := &world{rnd: rand.New(rand.NewPCG(seed, 7)), rate: 5000, users: 100, effect: 1}
	noises[noise](w)
	return w
}
