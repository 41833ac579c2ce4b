package ship

import (
	"context"
	"errors"
	"fmt"

	"github.com/slowray/slowray/internal/fleet"
)

// settle asks the target what it has; false when it does not answer.
func (s *stream) settle(ctx context.Context) bool {
	try, cancel := s.attempt(ctx)
	mark, err := s.to.Target.Mark(try, s.to.host.Load(), s.name)
	cancel()
	if errors.Is(err, fleet.ErrNoMark) {
		s.doubt, s.asked, s.blind = false, true, true
		return true
	}
	if err == nil {
		err = s.agree(mark)
	}
	if err != nil {
		s.failed(ctx, err)
		return false
	}
	s.doubt, s.asked = false, true
	return true
}

// agree goes on from what the target has.
func (s *stream) agree(mark fleet.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	durable := s.to.shipper.durable(s.name)
	if logOf(mark) > durable.Log {
		return fleet.Permanent(fmt.Errorf("has %s of this history that are not here: was the directory put back from a copy? Remove its file %s to begin a history anew", s.name, idName))
	}
	if !s.asked && mark < s.state.Sent {
		s.to.reporter.note(fmt.Sprintf("some %s that it had taken before are not there any more (the last one that it has is %d of log %d)", s.name, numberOf(mark), logOf(mark)))
	}
	if d := &s.dropped; d.Last != 0 && mark >= d.Last {
		s.state.GaveUp -= min(s.state.GaveUp, uint64(d.Last-d.First)+1)
		*d = state{}
		s.note(false)
	}
	if mark > s.state.Done {
		s.taken(mark) // of a batch of which there is a part, the rest follows
	}
	return nil
}
