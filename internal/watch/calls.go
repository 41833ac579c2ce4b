package watch

import (
	"sync"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// Watching accept(), and connect() to unix sockets, makes every system call of
// the host dearer. It is done for moments spread over the window, which tell
// who calls whom and how often, and for as long as a queue or the descriptors
// of a server look like running out, which is when such calls fail.
const (
	callsEvery  = 2 * time.Second
	callsMoment = 250 * time.Millisecond
	nearlyFull  = 0.8 // of a server's descriptors
	halfFull    = 0.5 // of a queue
	signLasts   = 2 * time.Second
)

// calls decides when system calls are watched.
type calls struct {
	on      bool
	until   time.Duration // a sign of trouble keeps them watched
	failed  bool          // they cannot be
	resting sync.WaitGroup
}

// sampleCalls begins or ends to watch system calls.
func (s *session) sampleCalls(elapsed time.Duration) {
	c := &s.calls
	if s.connect == nil || c.failed {
		return
	}
	if s.runsShort() {
		c.until = elapsed + signLasts
	}
	on := elapsed%(callsEvery*s.opt.rarely()) < callsMoment || elapsed < c.until
	switch {
	case on == c.on:
		return
	case on:
		if err := s.connect.WatchCalls(); err != nil {
			s.partialGap(observe.KindConnects, 0, "accept() and connect() to unix sockets", err)
			c.failed = true
			return
		}
	default:
		// The kernel takes its time, and the sampling must go on.
		c.resting.Go(s.connect.RestCalls)
	}
	c.on = on
}

// runsShort says whether a queue is half full, or has turned connections away,
// or a server has opened most of the files that it may.
func (s *session) runsShort() bool {
	for _, sp := range s.spaces {
		for _, l := range sp.listeners {
			if l.limit > 0 && float64(l.last.Queue) >= halfFull*float64(l.limit) || l.last.Drops > l.first.Drops {
				return true
			}
		}
	}
	for pid, most := range s.fdPeak {
		if limit := s.fdLimit[pid]; limit > 0 && float64(most) >= nearlyFull*float64(limit) {
			return true
		}
	}
	return false
}
