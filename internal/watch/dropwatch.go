package watch

import (
	"context"
	"errors"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/drop"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/sense/socket"
)

// Drops watches only what throws packets away, for slowray drops: the rest of
// an Observation stays empty. It fails where dropped packets cannot be seen.
func Drops(ctx context.Context, opt Options) (*observe.Observation, error) {
	s := &session{
		opt: opt, fs: host.Default(),
		out:    &observe.Observation{Schema: observe.SchemaObservation, Version: opt.Version, Filter: opt.Filter},
		states: map[int]*observe.ThreadStates{}, fdPeak: map[int]int{}, fdLimit: map[int]int{},
	}
	var cancel context.CancelFunc
	s.ctx, cancel = budget.Grace(ctx, Grace)
	defer cancel()
	defer s.leave(ctx)
	var err error
	if s.out.Host, err = s.fs.Host(); err != nil {
		return nil, err
	}
	var gaps []observe.Gap
	s.procs, gaps = s.fs.Processes()
	s.addProcessGaps(gaps)
	if len(s.procs) == 0 {
		return nil, errors.New("no process can be seen in /proc")
	}
	if it, err := socket.Open(); err == nil {
		s.sockets = it
	}
	s.openSpaces()
	if err := s.checkPort(); err != nil {
		return nil, err
	}
	s.findServers()
	for _, sp := range s.spaces {
		sp.begin(s)
	}
	s.use, gaps = s.fs.Use()
	s.out.Gaps = append(s.out.Gaps, gaps...)
	// The counters of devices and protocols alone do not say that nothing was dropped.
	if s.drops, err = drop.Start(); err != nil {
		return nil, err
	}
	s.out.Window.Start = time.Now().UTC()
	s.dropLoop(ctx)
	s.endDropWatch()
	return s.out, nil
}

// dropLoop looks at queues and sockets until the window is over.
func (s *session) dropLoop(ctx context.Context) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.opt.For)
	defer cancel()
	ticker := time.NewTicker(listenersEvery)
	defer ticker.Stop()
	var snapshots schedule
	for {
		elapsed := time.Since(start)
		s.sampleListeners()
		snapshots.do(elapsed, s.opt.For, s.sampleSockets)
		if s.opt.Progress != nil {
			s.opt.Progress(elapsed)
		}
		select {
		case <-ctx.Done():
			s.sampleSockets()
			s.out.Window.Seconds = time.Since(start).Seconds()
			return
		case <-ticker.C:
		}
	}
}

// endDropWatch takes the last readings.
func (s *session) endDropWatch() {
	s.endDrops()
	use, gaps := s.fs.Use()
	s.out.Gaps = append(s.out.Gaps, gaps...)
	s.out.Use = host.UseBetween(s.use, use)
	procs, gaps := s.fs.Processes()
	s.addProcessGaps(gaps)
	s.out.Processes = host.ProcessesBetween(s.procs, procs)
	owners, _ := s.socketOwners(procs)
	for inode, pids := range s.owners {
		if len(owners[inode]) == 0 {
			owners[inode] = pids // closed, or its process ended, during the window
		}
	}
	for _, sp := range s.spaces {
		if sp.used() {
			s.out.Namespaces = append(s.out.Namespaces, sp.finish(s, owners))
		}
	}
	s.joinListeners(owners)
	s.joinLinks()
	s.endProcesses()
	if fresh := s.newNamespaces(procs); fresh > 0 {
		s.lose("network namespaces that appeared during the window and were not watched", int64(fresh))
	}
}
