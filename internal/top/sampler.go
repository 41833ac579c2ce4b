package top

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// Options say what is shown.
type Options struct {
	Every     time.Duration                                             // a new picture; at least 100 ms
	Master    func(pid int) (master int, comm string)                   // folds processes into programs; nil: none
	ProcessOf func(pid int, at int64) (observe.Identity, bool)          // names them in JSON; nil: pid and name only
	Workload  func(pid int, addr netip.Addr, at int64) observe.Workload // who has an address that a process calls; nil: nobody knows
	PID       int                                                       // only endpoints of the program with this master; 0 = all
	Of        func(pid int, at int64) bool                              // only endpoints of these processes; nil: all
	Ports     []int                                                     // only the services at these ports, and what they call; empty = all
	Side      observe.Side                                              // only this side; 0 = both
	NoColor   bool
}

const (
	averageOver = 10 * time.Second
	minEvery    = 100 * time.Millisecond
)

// Snapshot is what was seen in the last seconds.
type Snapshot struct {
	Start     time.Time
	Seconds   float64
	Endpoints []observe.Endpoint
	Lost      uint64  // records lost in this time
	Sampled   uint64  // requests only counted in this time
	Weight    uint32  // how many requests a record stands for now
	Follow    uint32  // one of so many connections is followed now
	CPU       float64 // slowray's own, a share of all of the host's, 0 to 1
	Missing   []string
}

// sampler turns a stream into snapshots. It is for one goroutine.
type sampler struct {
	stream  *request.Stream
	opt     Options
	rolling *request.Rolling // of the stream, but for Moment and Complete
	before  []reading        // at the beginning of every interval that is kept
	keep    int
}

// reading is what the stream's counters stood at.
type reading struct {
	at       time.Time
	counters []request.Counters
	stats    request.Stats
}

func newSampler(stream *request.Stream, opt Options, now time.Time) *sampler {
	stream.LowPower()
	keep := int(max((averageOver+opt.Every-1)/opt.Every, 1))
	s := &sampler{stream: stream, opt: opt, keep: keep, rolling: request.NewRolling(keep, now, opt.Master)}
	counters, stats := stream.Subscribe(s.rolling.Add).Before()
	s.before = append(s.before, reading{now, counters, stats})
	return s
}

// take is the picture at a moment. last says that none follows: then nothing is
// left to a later one.
func (s *sampler) take(now time.Time, last bool) (Snapshot, error) {
	look := func(do func([]request.Counters)) error {
		s.stream.Moment(do)
		return s.stream.Err()
	}
	if last {
		look = s.stream.Complete
	}
	var endpoints []observe.Endpoint
	present, first := reading{at: now}, s.before[0]
	err := look(func(counters []request.Counters) {
		present.counters = counters
		endpoints = s.rolling.Endpoints(now, request.Since(first.counters, counters))
		s.rolling.Next(now)
	})
	if err != nil {
		return Snapshot{}, err
	}
	present.stats = s.stream.Stats()
	wall := now.Sub(first.at)
	snap := Snapshot{
		Start:     first.at,
		Seconds:   wall.Seconds(),
		Endpoints: endpoints,
		Lost:      present.stats.Lost - first.stats.Lost,
		Sampled:   present.stats.Sampled - first.stats.Sampled,
		Weight:    present.stats.Weight,
		Follow:    present.stats.Follow,
		Missing:   present.stats.Missing,
	}
	if wall > 0 {
		snap.CPU = float64(present.stats.CPU-first.stats.CPU) / float64(wall) / float64(runtime.NumCPU())
	}
	snap.Endpoints = active(snap.Endpoints)
	if len(s.opt.Ports) > 0 {
		snap.Endpoints = ofPorts(snap.Endpoints, s.opt.Ports)
	}
	if s.opt.PID != 0 {
		snap.Endpoints = ofProcess(snap.Endpoints, s.opt.PID)
	}
	if s.opt.Of != nil {
		snap.Endpoints = slices.DeleteFunc(snap.Endpoints, func(e observe.Endpoint) bool { return !s.opt.Of(e.PID, now.UnixNano()) })
	}
	if s.opt.Side != 0 {
		snap.Endpoints = ofSide(snap.Endpoints, s.opt.Side)
	}

	for i := range snap.Endpoints {
		e := &snap.Endpoints[i]
		addr, err := netip.ParseAddr(e.Addr)
		if s.opt.Workload == nil || err != nil || e.Side != observe.Called.String() {
			continue
		}
		if w := s.opt.Workload(e.PID, addr, now.UnixNano()); w != (observe.Workload{}) {
			e.Workload = &w
		}
	}

	s.before = append(s.before, present)
	if len(s.before) > s.keep {
		s.before = s.before[1:]
	}
	return snap, nil
}

func ofProcess(all []observe.Endpoint, pid int) []observe.Endpoint {
	var own []observe.Endpoint
	for _, e := range all {
		if e.PID == pid {
			own = append(own, e)
		}
	}
	return own
}

// active leaves out addresses where nothing happened.
func active(all []observe.Endpoint) []observe.Endpoint {
	var busy []observe.Endpoint
	for _, e := range all {
		if e.Requests+e.Unfinished+e.Connections+e.Segments+e.SynRetrans > 0 {
			busy = append(busy, e)
		}
	}
	return busy
}

// run hands out a snapshot every so often until ctx is done.
func (s *sampler) run(ctx context.Context, every time.Duration, show func(Snapshot)) error {
	picture := time.NewTicker(every)
	defer picture.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-picture.C:
			snap, err := s.take(time.Now(), false)
			if err != nil {
				return err
			}
			show(snap)
		}
	}
}
