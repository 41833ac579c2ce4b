package watch

import (
	"sync"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/flow"
)

// Looking at packets costs something for each of them. It is done for moments,
// when they take a good part of a CPU.
const (
	flowsFrom   = 0.3 // of a CPU, in softirqs
	flowsMoment = 100 * time.Millisecond
	flowsLooks  = 3 // in a window
)

// packets are the looks at packets.
type packets struct {
	sampler *flow.Sampler
	err     error
	looks   int
	looking sync.WaitGroup
	busy    chan struct{} // closed when the last look is over; until then err is its own
}

// look looks at what comes in when softirqs took that share of
// a CPU lately.
func (f *packets) look(s *session, share float64) {
	if share < flowsFrom || f.looks >= flowsLooks {
		return
	}
	if f.busy != nil {
		select {
		case <-f.busy:
		default:
			return
		}
	}
	if f.err != nil {
		return
	}
	if f.sampler == nil {
		if f.sampler, f.err = flow.Load(); f.err != nil {
			s.partialGap(observe.KindCPU, 0, "packets that come in", f.err)
			return
		}
	}
	f.looks++
	done := make(chan struct{})
	f.busy = done
	// The kernel takes its time to detach, and the sampling must go on.
	f.looking.Go(func() {
		defer close(done)
		if err := f.sampler.Look(flowsMoment); err != nil {
			f.err = err
		}
	})
}

// stop puts what was seen into the Observation.
func (f *packets) stop(s *session) {
	f.looking.Wait()
	if f.sampler == nil {
		return
	}
	list, losses, err := f.sampler.Read()
	if f.err != nil {
		err = f.err
	}
	if err != nil {
		s.partialGap(observe.KindCPU, 0, "packets that come in", err)
	}
	s.out.Use.Flows = list
	s.out.Losses = append(s.out.Losses, losses...)
}

// close ends the looks.
func (f *packets) close(*session) {
	f.looking.Wait()
	if f.sampler != nil {
		f.sampler.Close()
	}
}
