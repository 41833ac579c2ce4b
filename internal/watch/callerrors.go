package watch

import (
	"sync"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/callerror"
)

// callErrors decides when it is watched which system calls fail: at the moments
// at which system calls are watched anyhow (calls.go). A service that lacks
// something lacks it at all times.
type callErrors struct {
	watcher *callerror.Watcher // nil after it failed
	on      bool
	resting sync.WaitGroup
}

func (c *callErrors) close(*session) {
	c.resting.Wait()
	if c.watcher != nil {
		c.watcher.Close()
	}
}

func (c *callErrors) begin(s *session) (err error) {
	c.watcher, err = callerror.Load(s.fs.Proc)
	return err
}

// sample begins or ends to watch for failing calls.
func (c *callErrors) sample(s *session) {
	on := s.elapsed()%(callsEvery*s.opt.sampleInterval()) < callsMoment
	switch {
	case c.watcher == nil || on == c.on:
		return
	case on:
		if err := c.watcher.Watch(); err != nil {
			s.gap(observe.KindErrors, "", err)
			c.watcher.Close()
			c.watcher = nil
			return
		}
	default:
		// The kernel takes its time, and the sampling must go on.
		c.resting.Go(c.watcher.Rest)
	}
	c.on = on
}

func (c *callErrors) stop(s *session) {
	if c.watcher == nil {
		return
	}
	c.resting.Wait()
	list, watched, losses, err := c.watcher.Read()
	if err != nil {
		s.gap(observe.KindErrors, "", err)
		return
	}
	s.out.CallErrors, s.out.ErrorSeconds = list, watched.Seconds()
	s.out.Losses = append(s.out.Losses, losses...)
}
