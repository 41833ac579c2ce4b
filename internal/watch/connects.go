package watch

import (
	"sync"
	"time"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/connect"
)

// Watching accept(), and connect() to unix sockets, makes every system call of
// the host more expensive. It is done for moments spread over the window, which tell
// who calls whom and how often, and for as long as a queue or the descriptors
// of a server look like running out, which is when such calls fail.
const (
	callsEvery  = 2 * time.Second
	callsMoment = 250 * time.Millisecond
	nearlyFull  = 0.8 // of a server's descriptors
	halfFull    = 0.5 // of a queue
	signLasts   = 2 * time.Second
)

// connects counts connect() and accept(), and decides when system calls are
// watched for them.
type connects struct {
	descriptors *descriptors
	requests    *requests
	watcher     *connect.Watcher
	opened      map[connect.PassiveKey]uint64 // handshakes completed; known at the end

	on      bool
	until   time.Duration // a sign of trouble keeps them watched
	failed  bool          // they cannot be
	resting sync.WaitGroup
}

func (c *connects) begin(*session) (err error) {
	var slot *bpf.Slot
	if stream := c.requests.begun.Load(); stream != nil {
		slot = stream.OnConnect()
	}
	c.watcher, err = connect.Start(slot)
	return err
}

// sample begins or ends to watch system calls.
func (c *connects) sample(s *session) {
	if c.failed {
		return
	}
	elapsed := s.elapsed()
	if c.descriptors.short() || s.queuesFill() {
		c.until = elapsed + signLasts
	}
	on := elapsed%(callsEvery*s.opt.sampleInterval()) < callsMoment || elapsed < c.until
	switch {
	case on == c.on:
		return
	case on:
		if err := c.watcher.WatchCalls(); err != nil {
			s.partialGap(observe.KindConnects, 0, "accept() and connect() to unix sockets", err)
			c.failed = true
			return
		}
	default:
		// The kernel takes its time, and the sampling must go on.
		c.resting.Go(c.watcher.RestCalls)
	}
	c.on = on
}

func (c *connects) stop(s *session) {
	r, err := c.watcher.Read(c.requests.handshakes())
	if err != nil {
		s.gap(observe.KindConnects, "", err)
	}
	s.out.Connects, s.out.Accepts, s.out.CallSeconds = r.Connects, r.Accepts, r.Watched.Seconds()
	s.out.Losses = append(s.out.Losses, r.Losses...)
	c.opened = r.Opened
}

func (c *connects) close(*session) {
	c.resting.Wait()
	c.watcher.Close()
}

// queuesFill says whether a queue is half full, or has turned connections away.
func (s *session) queuesFill() bool {
	for _, sp := range s.spaces {
		for _, l := range sp.listeners {
			if l.limit > 0 && float64(l.last.Queue) >= halfFull*float64(l.limit) || l.last.Drops > l.first.Drops {
				return true
			}
		}
	}
	return false
}
