package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	profilespb "go.opentelemetry.io/proto/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/store"
)

// PushOptions say where OpenTelemetry data goes. Zero values are the defaults.
type PushOptions struct {
	// URL of a collector: http:// or https://, under which /v1/metrics and so on
	// are, as OTEL_EXPORTER_OTLP_ENDPOINT has it; or grpc:// or grpcs://.
	URL     string
	Headers string        // as of OTEL_EXPORTER_OTLP_HEADERS: key=value,key=value, percent-encoded
	Every   time.Duration // how often metrics are sent; default 15 s
	// Profiles sends what uses the CPU and what waits, too: a signal in development.
	Profiles bool
	// Say, if set, is called when sending begins to fail and when it works again.
	Say func(message string)

	soon, firstWait, lastWait, timeout time.Duration // shorter in tests
}

const (
	defaultPush = 15 * time.Second
	// soonPush is how long requests and findings wait for others to be sent with.
	soonPush      = 2 * time.Second
	firstPushWait = time.Second // after the first failure; twice that after the next
	lastPushWait  = time.Minute
	pushTimeout   = 10 * time.Second
	// Of what waits to be sent: a batch at once, and no more than so many. The
	// oldest give way.
	requestBatch, requestQueue = 256, 2048
	findingBatch, findingQueue = 128, 512
	profileQueue               = 4 // windows
)

// signal is a kind of data that is sent.
type signal int

// The signals, in the order in which they are sent.
const (
	requestSignal signal = iota // slow and failed requests, as spans
	findingSignal               // beginnings and ends of findings, as log records
	metricSignal
	profileSignal // in development
	numSignals
)

func (s signal) String() string { return [...]string{"requests", "findings", "metrics", "profiles"}[s] }

// PushStats is what was sent, and what was not.
type PushStats struct {
	Sent    [numSignals]uint64 // requests, findings, points of metrics and profiles that were taken
	Dropped [numSignals]uint64 // of those: no room in the queue, or refused
	Failed  uint64             // attempts to send
	Last    string             // error, "" when the last attempts were well
}

// pusher sends what an Exporter sees. What it cannot get rid of it drops.
type pusher struct {
	opt  PushOptions
	x    *Exporter
	wire *wire
	self int // this process

	mu       sync.Mutex
	requests ring[store.Request]
	findings ring[foundAt]
	profiles ring[windowProfile]
	stats    PushStats
	failing  [numSignals]string // why the last attempt failed, by signal
}

// foundAt is the beginning or the end of a finding.
type foundAt struct {
	cause.Finding
	at      time.Time
	ended   bool
	windows int
}

// windowProfile is the profiles of a window.
type windowProfile struct {
	data  *profilespb.ProfilesData
	count int
}

// CheckURL says what is wrong with the URL of a collector, before anything begins.
func CheckURL(url string) error {
	if _, err := newWire(url, ""); err != nil {
		return fmt.Errorf("otlp: %w", err)
	}
	return nil
}

// Push makes the exporter send, until ctx ends, all it sees from now on. It
// returns when it has made a last attempt. What is wrong with opt is said at once;
// a collector that cannot be reached is no error.
func (x *Exporter) Push(opt PushOptions) (run func(context.Context), err error) {
	w, err := newWire(opt.URL, opt.Headers)
	if err != nil {
		return nil, fmt.Errorf("otlp: %w", err)
	}
	opt.Every, opt.soon = cmp.Or(opt.Every, defaultPush), cmp.Or(opt.soon, soonPush)
	opt.firstWait, opt.lastWait = cmp.Or(opt.firstWait, firstPushWait), cmp.Or(opt.lastWait, lastPushWait)
	opt.timeout = cmp.Or(opt.timeout, pushTimeout)
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	p := &pusher{opt: opt, x: x, wire: w, self: os.Getpid()}
	p.requests.limit, p.findings.limit, p.profiles.limit = requestQueue, findingQueue, profileQueue
	if !x.push.CompareAndSwap(nil, p) {
		return nil, fmt.Errorf("otlp: %s: something is sent elsewhere already", w)
	}
	return p.run, nil
}

// PushStats tells what was sent; false when nothing is to be sent.
func (x *Exporter) PushStats() (PushStats, bool) {
	p := x.push.Load()
	if p == nil {
		return PushStats{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats, true
}

// request queues a request that was slow or failed, or is part of a trace that others send.
func (p *pusher) request(r *store.Request) {
	if r.Why == store.Sampled && r.Trace.Flags&observe.TraceSampled == 0 || r.PID == p.self { // what is sent must not be reported, or it never ends
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Dropped[requestSignal] += p.requests.put(*r)
}

// window queues the findings that begin or end with a window, and its profiles.
func (p *pusher) window(w *record.Window) {
	var profile windowProfile
	if o := w.Observation; p.opt.Profiles && o != nil {
		names, who := map[string]string{}, map[int]observe.Identity{}
		for i := range o.Containers {
			names[o.Containers[i].ID] = o.Containers[i].Name
		}
		for i := range o.Processes {
			q := &o.Processes[i]
			id := observe.Identity{Container: q.Container, ContainerName: names[q.Container], Unit: q.Unit}
			if w := o.Kubernetes.WorkloadOf(q.Container, q.Cgroup); w != nil {
				id.Workload = *w
			}
			who[q.PID] = id
		}
		profile.data, profile.count = p.x.profiles([]*observe.Stacks{flame.FromProfile(o.Profile, o.Window), flame.FromWaits(o.Waits, o.Window)}, who)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if profile.data != nil {
		if p.profiles.n == p.profiles.limit {
			p.stats.Dropped[profileSignal] += uint64(p.profiles.first(1)[0].count)
		}
		p.profiles.put(profile)
	}
	for i := range w.Findings {
		f := &w.Findings[i]
		switch {
		case !f.End.IsZero():
			p.stats.Dropped[findingSignal] += p.findings.put(foundAt{f.Finding, f.End, true, f.Windows})
		case f.New:
			p.stats.Dropped[findingSignal] += p.findings.put(foundAt{f.Finding, f.Onset, false, f.Windows})
		}
	}
}

// run sends until ctx ends.
func (p *pusher) run(ctx context.Context) {
	metrics := time.Now().Add(p.opt.Every)
	wait := time.Duration(0) // after failures
	for {
		pause := p.opt.soon
		if wait > 0 {
			pause = wait/2 + rand.N(wait/2+1)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opt.timeout/2)
			p.send(last, true)
			cancel()
			return
		case <-time.After(pause):
		}
		due := !time.Now().Before(metrics)
		told, after, err := p.send(ctx, due)
		switch {
		case err != nil && ctx.Err() == nil:
			wait = max(min(max(2*wait, p.opt.firstWait), p.opt.lastWait), min(after, p.opt.lastWait))
		case err == nil:
			wait = 0
		}
		if told {
			metrics = time.Now().Add(p.opt.Every)
		}
	}
}

// send sends all that waits by now, and metrics if they are due. A signal ends with its
// first failure that is worth another attempt, and what it tried stays in its queue; the
// others get their turn, unless nobody answers: a collector may be without a backend for one.
// Metrics never wait: the next ones say all that the last ones would have said.
// The error is the first one, and retryAfter the longest; told says that metrics are sent.
func (p *pusher) send(ctx context.Context, due bool) (told bool, retryAfter time.Duration, err error) {
	for _, signal := range []func() (time.Duration, error){
		func() (time.Duration, error) {
			return drain(p, &p.requests, requestBatch, func(batch []store.Request) (time.Duration, error) {
				return p.deliver(ctx, requestSignal, p.x.spans(batch), len(batch))
			})
		},
		func() (time.Duration, error) {
			return drain(p, &p.findings, findingBatch, func(batch []foundAt) (time.Duration, error) {
				return p.deliver(ctx, findingSignal, p.x.logs(batch), len(batch))
			})
		},
		func() (time.Duration, error) {
			if !due {
				return 0, nil
			}
			for message, points := range p.x.metrics() {
				if after, err := p.deliver(ctx, metricSignal, message, points); err != nil {
					return after, err
				}
			}
			told = true
			return 0, nil
		},
		func() (time.Duration, error) {
			return drain(p, &p.profiles, 1, func(batch []windowProfile) (time.Duration, error) {
				return p.deliver(ctx, profileSignal, batch[0].data, batch[0].count)
			})
		},
	} {
		after, why := signal()
		retryAfter, err = max(retryAfter, after), cmp.Or(err, why)
		if errors.Is(why, errAway) || ctx.Err() != nil {
			break
		}
	}
	return told, retryAfter, err
}

// errAway is that nobody answers.
var errAway = errors.New("nobody answers")

// drain delivers what is in a queue now, most at a time. What comes meanwhile waits for the
// next time: else a queue that fills as fast as the collector takes it keeps it from all others.
func drain[T any](p *pusher, r *ring[T], most int, deliver func([]T) (time.Duration, error)) (time.Duration, error) {
	p.mu.Lock()
	end := r.gone + uint64(r.n)
	p.mu.Unlock()
	for {
		p.mu.Lock()
		batch := r.first(int(min(uint64(most), end-min(end, r.gone))))
		until := r.gone + uint64(len(batch))
		p.mu.Unlock()
		if len(batch) == 0 {
			return 0, nil
		}
		if after, err := deliver(batch); err != nil {
			return after, err
		}
		// Those that gave way to newer ones meanwhile are gone, and counted, already.
		p.mu.Lock()
		r.drop(until)
		p.mu.Unlock()
	}
}

// deliver sends a message with n items of a signal. It is an error only when
// another attempt may go better.
func (p *pusher) deliver(ctx context.Context, s signal, m proto.Message, n int) (time.Duration, error) {
	body, err := proto.Marshal(m)
	if err != nil { // a text that is no text: a bug, and no reason to stop
		p.count(s, 0, n, err)
		return 0, nil
	}
	limited, cancel := context.WithTimeout(ctx, p.opt.timeout)
	defer cancel()
	answer := p.wire.send(limited, s, body)
	switch {
	case answer.err != nil && ctx.Err() != nil: // asked to end: the collector is not to blame
		return 0, ctx.Err()
	case answer.err == nil:
		refused := min(max(answer.rejected, 0), int64(n))
		p.count(s, n-int(refused), int(refused), nil)
		return 0, nil
	case answer.again:
		p.count(s, 0, 0, answer.err)
		if answer.away {
			return answer.after, errAway
		}
		return answer.after, answer.err
	}
	p.count(s, 0, n, answer.err)
	return 0, nil
}

// count notes how an attempt went, and says so when that is news.
func (p *pusher) count(s signal, sent, dropped int, err error) {
	p.mu.Lock()
	p.stats.Sent[s] += uint64(sent)
	p.stats.Dropped[s] += uint64(dropped)
	before := p.failing[s]
	p.failing[s] = ""
	if err != nil {
		p.stats.Failed++
		p.failing[s] = bounded(err.Error(), 4*maxLabel)
	}
	now := p.failing[s]
	p.stats.Last = cmp.Or(p.failing[:]...)
	p.mu.Unlock()
	switch {
	case now != "" && before == "":
		p.opt.Say(fmt.Sprintf("otlp: %s: %s: %s", p.wire, s, now))
	case now == "" && before != "":
		p.opt.Say(fmt.Sprintf("otlp: %s: %s: works again", p.wire, s))
	}
}

// ring is a queue of limited length.
type ring[T any] struct {
	limit int
	items []T // oldest at from, once the limit is reached
	from  int
	n     int
	gone  uint64 // removed in all
}

// put appends an item; it is 1 when the oldest gave way to it.
func (r *ring[T]) put(v T) uint64 {
	if r.n == r.limit {
		r.items[r.from] = v
		r.from = (r.from + 1) % r.limit
		r.gone++
		return 1
	}
	if at := (r.from + r.n) % r.limit; at < len(r.items) {
		r.items[at] = v
	} else {
		r.items = append(r.items, v)
	}
	r.n++
	return 0
}

// first copies the oldest ones.
func (r *ring[T]) first(most int) []T {
	out := make([]T, 0, min(most, r.n))
	for i := range min(most, r.n) {
		out = append(out, r.items[(r.from+i)%r.limit])
	}
	return out
}

// drop removes all until so many are gone.
func (r *ring[T]) drop(until uint64) {
	var none T
	for r.gone < until && r.n > 0 {
		r.items[r.from] = none
		r.from = (r.from + 1) % r.limit
		r.n--
		r.gone++
	}
}
