package proof

import (
	"errors"
	"fmt"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/change"
	"github.com/slowray/slowray/internal/shell"
)

// Step is one of the changes, as it would be made here and now.
type Step struct {
	Change cause.Change    `json:"change"`
	Was    string          `json:"was"` // as it is at present
	Do     []shell.Command `json:"do"`  // what a person would type
	Undo   []shell.Command `json:"undo"`
}

// Steps looks at what each change would find, and changes nothing.
func Steps(changes []cause.Change) ([]Step, error) {
	var steps []Step
	for i := range changes {
		c := &changes[i]
		d, err := change.For(c.Kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Text, err)
		}
		was, err := d.Prepare(c)
		if i > 0 && errors.Is(err, change.ErrFirst) { // by an earlier one of them
			steps = append(steps, Step{Change: *c, Was: c.Was, Do: []shell.Command{shell.Line("# then: %s", shell.Text(c.Text))}, Undo: []shell.Command{}})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Text, err)
		}
		s := Step{Change: *c, Was: was.Was, Do: []shell.Command{}, Undo: []shell.Command{}}
		do, undo := d.Commands(c, was)
		s.Do, s.Undo = append(s.Do, do...), append(s.Undo, undo...)
		steps = append(steps, s)
	}
	return steps, nil
}
