package meter

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/prove/experiment"
	"github.com/slowray/slowray/internal/sense/request"
)

// Scope says whose requests are measured.
type Scope struct {
	Port  int    // that serves them
	NetNS uint64 // inode; 0: any
	// Counters, if set, reads counters that belong to the finding, by name: their
	// increase per second is reported for each block.
	Counters func() (map[string]uint64, error)
}

const (
	glanceEvery = 500 * time.Millisecond
	// quiet is what the load takes to be there, and to be gone: no glance then.
	quiet = time.Second
)

// Traffic measures the requests that a service answers. It is an
// experiment.Meter and an experiment.Glancer.
type Traffic struct {
	scope  Scope
	stream *request.Stream
	glance func(experiment.Block)

	block, recent tally // changed by the stream, and in its moments
}

// tally is what was recorded since a moment.
type tally struct {
	began  time.Time
	before request.Counters
	start  map[string]uint64
	open   map[requestKey]uint64 // requests that are still going on
	good   observe.Histogram     // total of requests that were answered well
	parts  [observe.NumParts]observe.Histogram
}

// requestKey is a request on its connection.
type requestKey struct {
	netns       uint64
	local, peer netip.AddrPort
	seq         uint32
}

// budget is none: sums that are compared are to be those of all connections.
const budget = -1

// maxOpen bounds the requests in progress that are remembered.
const maxOpen = 100_000

// Start begins to record, which needs root.
func Start(scope Scope) (*Traffic, error) {
	stream, err := request.StartStream(request.Options{Ports: []int{scope.Port}, Side: observe.Served, Budget: budget})
	if err != nil {
		return nil, err
	}
	return newTraffic(scope, stream), nil
}

func newTraffic(scope Scope, stream *request.Stream) *Traffic {
	t := &Traffic{scope: scope, stream: stream}
	t.block.open = map[requestKey]uint64{}
	stream.Subscribe(t.add)
	return t
}

// Close ends the recording. It may not be called during Block.
func (t *Traffic) Close() error {
	t.stream.Close()
	return nil
}

// OnGlance sets what is called with how things are, twice a second during a Block.
func (t *Traffic) OnGlance(f func(experiment.Block)) { t.glance = f }

// add counts a request.
func (t *Traffic) add(r *observe.Request) {
	if r.Side != observe.Served || int(r.Local.Port()) != t.scope.Port || t.scope.NetNS != 0 && r.NetNS != t.scope.NetNS {
		return
	}
	of := requestKey{r.NetNS, r.Local, r.Peer, r.Seq}
	if r.Flags&observe.FlagUnfinished != 0 {
		if len(t.block.open) < maxOpen {
			t.block.open[of] = uint64(max(r.Requests, 1))
		}
		return
	}
	delete(t.block.open, of)
	if r.Flags&(observe.FlagAmended|observe.FlagUnanswered) != 0 || r.Status == observe.StatusError {
		return
	}
	weight, total := uint64(max(r.Weight, 1)), r.Ledger.Total()
	for _, into := range []*tally{&t.block, &t.recent} {
		into.good.AddN(total, weight)
	}
	for p := range observe.AckDelay {
		t.block.parts[p].AddN(r.Ledger[p], weight)
	}
}

// sum is what the exact counters of the service stand at.
func (t *Traffic) sum(sums []request.Counters) request.Counters {
	var all request.Counters
	for _, c := range sums {
		if c.Side != observe.Served || int(c.Port) != t.scope.Port || t.scope.NetNS != 0 && c.NetNS != t.scope.NetNS {
			continue
		}
		all.Requests += c.Requests
		all.Errors += c.Errors
		all.Unanswered += c.Unanswered
		all.Connections += c.Connections
		all.SynRetrans += c.SynRetrans
	}
	return all
}

// begin begins a tally anew.
func (into *tally) begin(now request.Counters) {
	into.began, into.before = time.Now(), now
	into.open = map[requestKey]uint64{}
	into.good.Reset()
	for p := range into.parts {
		into.parts[p].Reset()
	}
}

// end tells what was counted since begin.
func (of *tally) end(now request.Counters) experiment.Block {
	b := experiment.Block{Start: of.began, Seconds: time.Since(of.began).Seconds()}
	// An address that was forgotten meanwhile would make a sum go back.
	grown := func(now, before uint64) uint64 { return max(now, before) - before }
	all := grown(now.Requests, of.before.Requests)
	b.Errors = grown(now.Errors, of.before.Errors)
	b.Unanswered = grown(now.Unanswered, of.before.Unanswered)
	b.Requests = max(all, b.Unanswered) - b.Unanswered
	b.Good = max(b.Requests, b.Errors) - b.Errors
	b.Tried = grown(now.Connections, of.before.Connections) + grown(now.SynRetrans, of.before.SynRetrans)
	for _, n := range of.open {
		b.Tried += n
	}
	b.Timed = of.good.Count()
	b.P50, b.P99 = float64(of.good.Quantile(0.5)), float64(of.good.Quantile(0.99))
	return b
}

// open begins a block.
func (t *Traffic) open() (err error) {
	err = t.stream.Complete(func(sums []request.Counters) {
		t.block.begin(t.sum(sums))
		t.recent.begin(t.sum(sums))
	})
	if t.scope.Counters != nil && err == nil {
		t.block.start, err = t.scope.Counters()
	}
	return err
}

// shut ends a block.
func (t *Traffic) shut() (b experiment.Block, err error) {
	err = t.stream.Complete(func(sums []request.Counters) {
		b = t.block.end(t.sum(sums))
		b.Parts = map[string]float64{}
		for p := range observe.AckDelay {
			if v := t.block.parts[p].Quantile(0.99); v > 0 {
				b.Parts[p.String()] = float64(v)
			}
		}
	})
	if t.scope.Counters != nil && err == nil {
		b.Counters, err = t.counted(b.Seconds)
	}
	return b, err
}

// counted is the increase of the finding's counters, per second.
func (t *Traffic) counted(seconds float64) (map[string]float64, error) {
	now, err := t.scope.Counters()
	if err != nil {
		return nil, fmt.Errorf("counters of the finding: %w", err)
	}
	rates := map[string]float64{}
	for name, v := range now {
		if was := t.block.start[name]; v >= was && seconds > 0 {
			rates[name] = float64(v-was) / seconds
		}
	}
	return rates, nil
}

// look tells what happened since the last look. What is complete counts at once: on a
// connection that rests it would count with the next request only, and after a look that
// counted it so, as at the beginning of a block, a service would seem to answer nobody.
func (t *Traffic) look() (b experiment.Block) {
	_ = t.stream.Complete(func(sums []request.Counters) { // else what is known; shut says why
		b = t.recent.end(t.sum(sums))
		t.recent.begin(t.sum(sums))
	})
	return b
}

// Block measures for d.
func (t *Traffic) Block(ctx context.Context, d time.Duration) (experiment.Block, error) {
	if err := t.open(); err != nil {
		return experiment.Block{}, err
	}
	over, ticker := time.NewTimer(d), time.NewTicker(glanceEvery)
	defer over.Stop()
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return experiment.Block{}, ctx.Err()
		case <-over.C:
			return t.shut()
		case <-ticker.C:
			if t.glance != nil {
				t.glance(t.look())
			}
		}
	}
}
