package answer

import (
	"context"
	"slices"

	"github.com/slowray/slowray/internal/fleet"
)

// inPart has read ask an archive as far as it can answer, and tells it which parts of it
// are away. Where one goes while it is read, what was read is of two kinds: then read is
// called once more.
func inPart(ctx context.Context, a fleet.Archive, read func(absent []string) error) error {
	p, ok := a.(fleet.Partly)
	if !ok {
		return read(nil)
	}
	p.InPart()
	// A question that costs little finds out who is there.
	if _, err := a.Hosts(ctx); err != nil {
		return err
	}
	absent := p.Absent()
	err := read(absent)
	if now := p.Absent(); err == nil && !slices.Equal(now, absent) {
		return read(now)
	}
	return err
}

// absentUnchecked says what is not known for lack of parts of the archive.
func (s *seen) absentUnchecked() (all []Unchecked) {
	for _, name := range s.absent {
		all = append(all, Unchecked{"the hosts of " + name, "no server of it answers: what these hosts did and found is missing here"})
	}
	return all
}
