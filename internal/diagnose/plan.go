package diagnose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// plan adds to a finding what it can be proved by.
func plan(v *cause.View, f *cause.Finding, known declarations) {
	c := known[f.Cause]
	if c == nil {
		return
	}
	t := cause.Target{Finding: f, Service: v.ServiceAt(f.Subject.NetNS, f.Subject.Port, f.Subject.Path)}
	f.Fix.Changes = c.Changes(v, t)
	if len(f.Fix.Changes) == 0 {
		return
	}
	command := shell.Line("slowray prove %s", f.Cause)
	if port := servedPort(v, f, t.Service); port != 0 {
		command = command.Then(shell.Line("--port %s", port))
	}
	f.Prove = &cause.Prove{Command: command.Then(shell.Line("--apply")), Hot: true}
	for i := range f.Fix.Changes {
		f.Prove.Hot = f.Prove.Hot && f.Fix.Changes[i].Hot()
	}
}

// servedPort is the port of the service that a finding is about, to look at it
// alone: of calls to another one, it is the caller's.
func servedPort(v *cause.View, f *cause.Finding, s *cause.Service) int {
	if f.Subject.Kind == "destination" && s == nil {
		if s = v.ServiceOf(f.Subject.PID); s != nil {
			return s.Port()
		}
		return 0
	}
	return f.Subject.Port
}

// Plan gives the changes to try a cause with on what was seen in o: those of its
// first finding, which is given too, or, where it was not found, those for the
// service that o is about. The error says why there are none.
func Plan(ctx context.Context, o *observe.Observation, id cause.ID, b Bound) ([]cause.Change, *cause.Finding, error) {
	c, err := provable(declared(cause.Catalogue()), id)
	if err != nil {
		return nil, nil, err
	}
	r := Diagnose(ctx, o, b)
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Cause == id && len(f.Fix.Changes) > 0 {
			return f.Fix.Changes, f, nil
		}
	}
	if r.CutShort != "" {
		return nil, nil, fmt.Errorf("%s: was not found, and not all was judged: %s", id, r.CutShort)
	}
	v := cause.NewView(o)
	var names []string
	var changes []cause.Change
	for i := range v.Services {
		s := v.Services[i]
		made := c.Changes(v, cause.Target{Service: s})
		switch {
		case len(made) == 0 || slices.EqualFunc(made, changes, sameChange):
			continue
		case s.Port() != 0 && s.Port() == o.Filter.Port:
			// What was asked for, and not what it calls.
			return made, nil, nil
		}
		names, changes = append(names, s.Name()), made
	}
	served := len(names) // else on what they call
	for i := range v.Databases {
		d := &v.Databases[i]
		if served > 0 {
			break
		}
		if made := c.Changes(v, cause.Target{Database: d}); slices.ContainsFunc(made, func(c cause.Change) bool { return c.PID == d.PID }) {
			names, changes = append(names, fmt.Sprintf("%s (pid %d)", d.Kind, d.PID)), made
		}
	}
	switch len(names) {
	case 0:
		return nil, nil, fmt.Errorf("%s: was not found, and there is nothing here to try it on", id)
	case 1:
		return changes, nil, nil
	}
	return nil, nil, fmt.Errorf("%s: was not found, and could be tried on %s: say which with --port or --pid", id, strings.Join(names, ", "))
}

func sameChange(a, b cause.Change) bool { return a.Kind == b.Kind && a.Text == b.Text }

// ErrNoCause says that there is no cause of that name.
var ErrNoCause = errors.New("no such cause")

// Provable says why a cause can be proved by no change, wherever it is; nil if it
// can.
func Provable(id cause.ID) error {
	_, err := provable(declared(cause.Catalogue()), id)
	return err
}

func provable(known declarations, id cause.ID) (*cause.Cause, error) {
	c := known[id]
	switch {
	case c == nil:
		return nil, fmt.Errorf("%s: %w; slowray causes lists them", id, ErrNoCause)
	case c.Try == nil:
		return nil, fmt.Errorf("%s: nothing can be changed and undone to prove it by; slowray causes %s says how to fix it", id, id)
	}
	return c, nil
}

// Title is what a cause is called for people.
func Title(id cause.ID) string {
	if c := declared(cause.Catalogue())[id]; c != nil {
		return c.Title
	}
	return string(id)
}
