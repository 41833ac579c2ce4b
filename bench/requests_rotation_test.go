package bench

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plan is how much is measured. The environment changes it:
//
//	SLOWRAY_BENCH_QUICK=1          two rounds, to try something out
//	SLOWRAY_BENCH_ROUNDS=n         rounds of each rotation
//	SLOWRAY_BENCH_SECONDS=s        length of one run, whole seconds
//	SLOWRAY_BENCH_SEED=n           the order of another run again
//	SLOWRAY_BENCH_VARIANTS=a,b     only these variants, see variants()
//	SLOWRAY_BENCH_LOCK=file        hold a lock on this file during each round
type plan struct {
	rounds int
	length time.Duration
	seed   uint64
	only   []string
	lock   string
}

func newPlan(b *testing.B, rounds int) plan {
	b.Helper()
	p := plan{rounds: rounds, length: time.Second, seed: rand.Uint64() % 1e6, lock: os.Getenv("SLOWRAY_BENCH_LOCK")}
	if os.Getenv("SLOWRAY_BENCH_QUICK") == "1" {
		p.rounds = 2
	}
	number := func(name string, set func(float64)) {
		text := os.Getenv(name)
		if text == "" {
			return
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n <= 0 {
			b.Fatalf("%s: %q is not a positive number", name, text)
		}
		set(n)
	}
	number("SLOWRAY_BENCH_ROUNDS", func(n float64) { p.rounds = int(n) })
	number("SLOWRAY_BENCH_SECONDS", func(n float64) { p.length = time.Duration(n * float64(time.Second)) })
	number("SLOWRAY_BENCH_SEED", func(n float64) { p.seed = uint64(n) })
	if text := os.Getenv("SLOWRAY_BENCH_VARIANTS"); text != "" {
		p.only = strings.Split(text, ",")
	}
	return p
}

// variant is what runs next to the load.
type variant struct {
	name string
	// start begins it and gives what ends it. What it saw and used is of the
	// time between the two.
	start func() (stop func() (alongside, error), err error)
}

// alongside is what a variant saw and used.
type alongside struct {
	cpu      time.Duration
	recorder *recorderReport // nil when there is none
	note     string
}

// outcome is what one run of a load did.
type outcome struct {
	perSecond float64       // answers that the client got
	requests  uint64        // requests that the server counted itself
	cpu       time.Duration // of client and server
}

// service is a server and the load for it.
type service interface {
	run(d time.Duration) (outcome, error)
}

// trial is one run next to one variant.
type trial struct {
	outcome
	alongside alongside
	// kept and cost compare with the bare runs before and after: throughput, and
	// CPU time per request of everything that took part.
	kept, cost float64
	others     float64 // share of the CPUs that went to anybody else, at worst
	drift      float64 // how far the two bare runs are from their mean
}

func (t *trial) cpuPerRequest() float64 {
	return float64((t.cpu + t.alongside.cpu).Nanoseconds()) / float64(max(t.requests, 1))
}

// bare is the load alone, and again is that as a variant: it shows what this
// machine makes of no difference at all.
var (
	bare  = variant{"bare", alone}
	again = variant{againName, alone}
)

const againName = "nothing"

func alone() (func() (alongside, error), error) {
	return func() (alongside, error) { return alongside{}, nil }, nil
}

// choose gives the variants that the environment asks for: those of the usual
// rotation, or the named ones out of all. Nothing is always one of them.
func (p *plan) choose(b *testing.B, usual []string, all []variant) []variant {
	b.Helper()
	names := usual
	if p.only != nil {
		names = p.only
	}
	chosen := []variant{again}
	for _, name := range names {
		i := slices.IndexFunc(all, func(v variant) bool { return v.name == name })
		if i < 0 {
			known := []string{}
			for _, v := range all {
				known = append(known, v.name)
			}
			b.Fatalf("variant %q: there are %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen
}

// rotate runs the load next to each variant in every round, each round in an
// order of its own, with a bare run before and after each: the comparison is
// with these two, so that what the machine does to all of them cancels out. Many
// short runs tell more than few long ones: a virtual machine's speed moves by a
// quarter from one moment to another.
func (p *plan) rotate(b *testing.B, s service, variants []variant) map[string][]trial {
	b.Helper()
	progress(b, fmt.Sprintf("%d rounds of %s alongside each of %d variants; SLOWRAY_BENCH_SEED=%d", p.rounds, p.length, len(variants), p.seed))
	order := rand.New(rand.NewPCG(p.seed, 0))
	if _, err := s.run(p.length / 2); err != nil { // warm
		b.Fatal(err)
	}
	trials := map[string][]trial{}
	for i := range p.rounds {
		round, err := p.round(s, variants, order)
		if err != nil {
			b.Fatal(err)
		}
		line := fmt.Sprintf("%d/%d", i+1, p.rounds)
		for _, v := range variants {
			t := round[v.name]
			trials[v.name] = append(trials[v.name], *t)
			line += fmt.Sprintf("  %s %.3f of %.0f/s (±%.1f %%, others %.1f %%)", v.name, t.kept, t.perSecond/t.kept, 100*t.drift, 100*t.others)
		}
		progress(b, line)
	}
	return trials
}

func (p *plan) round(s service, variants []variant, order *rand.Rand) (map[string]*trial, error) {
	unlock, err := p.hold()
	if err != nil {
		return nil, err
	}
	defer unlock()
	before, err := attempt(s, bare, p.length)
	if err != nil {
		return nil, err
	}
	round := map[string]*trial{}
	for _, i := range order.Perm(len(variants)) {
		if round[variants[i].name], before, err = pair(s, variants[i], before, p.length); err != nil {
			return nil, fmt.Errorf("%s: %w", variants[i].name, err)
		}
	}
	return round, nil
}

// A pair is disturbed when others, or the hypervisor, took more than a share of
// the CPUs, or when the machine's speed changed: the two bare runs differ. It is
// taken again, but not for ever; so is a run that failed: a machine that stands
// still for seconds fails the best of clients. Neither depends on how the
// variant did.
const (
	maxOthers = 0.04
	maxDrift  = 0.04
	attempts  = 4
)

// pair runs the load next to a variant and then bare, and compares with that
// bare run and the one before.
func pair(s service, v variant, before *trial, d time.Duration) (best, after *trial, err error) {
	after = before
	for range attempts {
		before = after
		t, failed := attempt(s, v, d)
		next, bareFailed := attempt(s, bare, d)
		if bareFailed != nil {
			err = bareFailed
			continue
		}
		after = next
		if failed != nil {
			err = failed
			continue
		}
		t.kept = 2 * t.perSecond / (before.perSecond + after.perSecond)
		t.cost = 2 * t.cpuPerRequest() / (before.cpuPerRequest() + after.cpuPerRequest())
		t.drift = math.Abs(after.perSecond-before.perSecond) / (before.perSecond + after.perSecond)
		t.others = max(t.others, before.others, after.others)
		if best == nil || t.drift+t.others < best.drift+best.others {
			best = t
		}
		if best.others <= maxOthers && best.drift <= maxDrift {
			break
		}
	}
	if best == nil {
		return nil, nil, err
	}
	return best, after, nil
}

// attempt is one run of the load next to one variant.
func attempt(s service, v variant, d time.Duration) (*trial, error) {
	stop, err := v.start()
	if err != nil {
		return nil, err
	}
	before := hostCPU()
	out, err := s.run(d)
	host := hostCPU().since(before)
	if err == nil && out.requests == 0 {
		err = errors.New("the server counted no request")
	}
	saw, stopErr := stop()
	t := &trial{outcome: out, alongside: saw}
	t.others = max(0, (host.busy-t.cpu-t.alongside.cpu).Seconds()) / host.all.Seconds()
	return t, errors.Join(err, stopErr)
}

// progress is printed at once: a benchmark's log comes when it is over, minutes
// later.
func progress(b *testing.B, line string) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", b.Name(), line)
}

// hold takes the lock, for machines where several measure.
func (p *plan) hold() (release func(), err error) {
	if p.lock == "" {
		return func() {}, nil
	}
	f, err := os.OpenFile(p.lock, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", p.lock, err)
	}
	return func() { f.Close() }, nil
}

// hostTime is CPU time of all CPUs together.
type hostTime struct{ busy, all time.Duration }

func (h hostTime) since(before hostTime) hostTime {
	return hostTime{h.busy - before.busy, h.all - before.all}
}

// hostCPU reads what the host's CPUs did: busy is everything but idle time,
// also what the hypervisor gave to others. Interrupts belong to it because they
// are part of the CPU time of whoever they interrupt, the load itself.
func hostCPU() (h hostTime) {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(first)[1:] {
		n, _ := strconv.ParseInt(f, 10, 64)
		t := time.Duration(n) * 10 * time.Millisecond // USER_HZ
		switch i {
		case 0, 1, 2, 5, 6, 7: // user, nice, system, irq, softirq, steal
			h.busy, h.all = h.busy+t, h.all+t
		case 3, 4: // idle, iowait
			h.all += t
		}
	}
	return h
}

// column picks one figure of every trial.
func column(trials []trial, pick func(*trial) float64) []float64 {
	var out []float64
	for i := range trials {
		out = append(out, pick(&trials[i]))
	}
	return out
}

func kept(t *trial) float64 { return t.kept }
func cost(t *trial) float64 { return t.cost }

// othersShare is what processes that have no part in a rotation took of the
// CPUs, in each run that counts.
func othersShare(trials map[string][]trial) (all sample) {
	for _, list := range trials {
		all = append(all, column(list, func(t *trial) float64 { return 100 * t.others })...)
	}
	return all
}
