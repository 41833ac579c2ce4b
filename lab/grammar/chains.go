package grammar

import (
	"fmt"
	"time"

	"github.com/slowray/slowray/lab/incident"
	"github.com/slowray/slowray/lab/server"
)

// kinds are all kinds of faults. A new one goes to the end: the order is part of
// what a seed means.
var kinds = append(append(chains(), stacks()...), paths()...)

// on is a fault of the hop that was drawn.
func (d *drawing) on(cause, text string, inject func(*server.Hop)) *incident.Fault {
	at := d.where.Hop
	return d.fault(cause, text, func(s *server.Setup) { inject(&s.Hops[at]) })
}

// second adds a sleep on another hop, now and then.
func (d *drawing) second() {
	if len(d.setup.Hops) < 2 || !d.chance(0.15) {
		return
	}
	at := d.rng.IntN(len(d.setup.Hops))
	h := &d.setup.Hops[at]
	if at == d.where.Hop || h.Language == "nginx" || h.Language == "node" {
		return
	}
	pause := d.ms(120, 300)
	shape := d.shape
	d.fault("application-sleep", fmt.Sprintf("hop %d sleeps for %v", at+1, pause), func(s *server.Setup) { s.Hops[at].Sleep = pause })
	d.faults[len(d.faults)-1].Name = "second"
	shape.Second = d.shape.Strength
	d.shape = shape
}

// chains are faults of one of a chain of small services.
func chains() []kind {
	return []kind{
		{"sleep", func(d *drawing) {
			d.chain(1, 4, threaded...)
			pause, every := d.ms(180, 700), pick(d, 1, 1, 1, 3, 5)
			d.on("application-sleep", fmt.Sprintf("one of %d requests sleeps for %v", every, pause), func(h *server.Hop) { h.Sleep, h.Every = pause, every })
			d.clients(5, 14)
			d.second()
		}},
		{"lock", func(d *drawing) {
			d.chain(1, 4, threaded...)
			held := d.ms(12, 40)
			d.on("lock-convoy", fmt.Sprintf("a request has a lock for %v", held), func(h *server.Hop) { h.Lock = held })
			d.clients(14, 24)
			d.second()
		}},
		{"compute", func(d *drawing) {
			h := d.chain(1, 3, programs...)
			spin := d.ms(60, 250)
			f := d.on("cpu-hot-function", fmt.Sprintf("a request computes for %v in one function", spin), func(h *server.Hop) { h.Spin = spin })
			switch h.Language { // as true of one thread that computes while others wait for it
			case "python":
				f.Or = []string{"gil-contention"}
			case "node":
				f.Or = []string{"event-loop-blocked", "single-thread-saturated"}
			}
			f.Alongside = []string{"cpu-saturated", "run-queue-wait"}
			d.clients(2, 6)
			d.load.Rate = min(d.load.Rate, 12)
		}},
		{"file-lock", func(d *drawing) {
			h := d.chain(1, 4, threaded...)
			held := d.ms(250, 800)
			h.Ticket = true
			d.on("blocked-on-file-lock", fmt.Sprintf("another program has the lock of a file for %v, again and again", held), func(h *server.Hop) { h.Held = held })
			d.where.Comms = []string{"stocktaking"}
			d.clients(6, 16)
		}},
		{"pipe", func(d *drawing) {
			h := d.chain(1, 3, "c", "go", "python")
			h.Log = d.count(1500, 6000)
			h.Boxed = false
			pause := d.ms(300, 900)
			d.on("blocked-on-pipe", fmt.Sprintf("what reads the log empties the pipe once in %v", pause), func(h *server.Hop) { h.LogPause = pause })
			d.where.Comms = []string{"ship-" + h.Name}
			d.clients(8, 20)
		}},
		{"stopped", func(d *drawing) {
			d.chain(2, 4, threaded...)
			d.on("process-stopped", "the process is stopped by a signal", func(h *server.Hop) { h.Stopped = true })
			d.clients(6, 16)
			d.load.GiveUp = d.ms(1200, 2500)
		}},
		{"stops", func(d *drawing) {
			d.chain(1, 4, programs...)
			stop := d.ms(400, 1200)
			d.on("process-stopped", fmt.Sprintf("the process is stopped for %v, again and again", stop), func(h *server.Hop) { h.Stopped, h.Stops = true, stop })
			d.clients(6, 16)
		}},
		{"gone", func(d *drawing) {
			d.chain(2, 4, programs...)
			if d.where.Hop == 0 {
				d.where.Hop, d.shape.At = 1, 2
			}
			d.on("upstream-refused", "nothing listens there", func(h *server.Hop) { h.Gone = true })
			if at := d.where.Hop; d.setup.Hops[at].Language == "nginx" {
				d.setup.Hops[at].Language = "c"
			}
			d.clients(4, 12)
		}},
		{"quota", func(d *drawing) {
			h := d.chain(1, 3, programs...)
			h.Spin = d.ms(3, 6)
			quota := d.between(0.05, 0.15)
			f := d.on("cpu-quota-throttled", fmt.Sprintf("a quota of %.2f CPUs", quota), func(h *server.Hop) { h.Quota = quota })
			f.Or = []string{"slow-start-on-quota"}
			d.clients(4, 10)
			d.load.Rate = min(d.load.Rate, 60)
		}},
		{"files", func(d *drawing) {
			h := d.chain(1, 3, "c", "python", "java")
			h.Boxed = false
			limit := uint64(d.count(18, 30))
			if h.Language == "java" {
				limit += 20
			}
			d.on("fd-limit", fmt.Sprintf("a limit of %d open files", limit), func(h *server.Hop) { h.NoFile = limit })
			d.clients(50, 70)
			d.load.Think = d.ms(60, 120)
		}},
		{"tasks", func(d *drawing) {
			h := d.chain(1, 3, "c", "python")
			h.Boxed = d.chance(0.5)
			limit := d.count(5, 9)
			d.on("pids-limit", fmt.Sprintf("at most %d tasks in its control group", limit), func(h *server.Hop) { h.Tasks = limit })
			d.clients(24, 36)
			h.Sleep = 10 * time.Millisecond
		}},
		{"affinity", func(d *drawing) {
			h := d.chain(1, 2, "c", "go", "java")
			h.Spin = d.ms(15, 25)
			f := d.on("affinity-too-narrow", "pinned to CPU 0", func(h *server.Hop) { h.CPUs = "0" })
			f.Alongside = []string{"run-queue-wait", "cpu-hot-function"}
			d.load.Conns, d.load.Own, d.shape.Load, d.busy = d.count(6, 12), true, "closed", true
			d.whole = true
		}},
	}
}
