package tune

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/cause"
)

// history is what was tried, by what was set, whatever the value.
type history struct {
	tried map[string]*trials
	kept  []string // the causes that were fixed, in order
	skip  []string // causes that are not to be tried
	// failed are the findings whose changes did not help alone, in their order;
	// joined the sets of them that were tried together.
	failed []failure
	joined []string
}

// failure is a finding whose changes did not help; moved says that they moved
// something.
type failure struct {
	cause.Finding
	moved bool
}

// trials are those of one thing that can be set.
type trials struct {
	failed  int      // how often it did not help
	last    Verdict  // of the last failure
	keptAt  int      // how many causes were fixed by then
	holding []string // the values that were kept
}

func newHistory(skip []string) *history { return &history{tried: map[string]*trials{}, skip: skip} }

// target names what a change sets, without the value: the same thing, changed to
// another value, is not a new idea. A server that was restarted meanwhile has
// another process, and the same configuration.
func target(c *cause.Change) string {
	id := []string{string(c.Kind), c.Name, c.Path, c.Addr, c.Interface, c.Server, c.Side, fmt.Sprint(c.NetNS, c.Port)}
	if c.Rule != nil {
		id = append(id, c.Rule.Tool, c.Rule.Table, c.Rule.Chain, c.Rule.Text)
	}
	if c.NetNS == 0 && c.Path == "" && c.Kind != cause.ChangeSysctl {
		id = append(id, fmt.Sprint(c.PID, c.FD))
	}
	return strings.Join(id, "|")
}

// targets names what several changes, made together, set.
func targets(changes []cause.Change) string {
	var ids []string
	for i := range changes {
		ids = append(ids, target(&changes[i]))
	}
	slices.Sort(ids)
	return strings.Join(ids, "\n")
}

func values(changes []cause.Change) string {
	var list []string
	for i := range changes {
		list = append(list, target(&changes[i])+"="+changes[i].Value)
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// next is the first finding with changes that are worth a trial, and why once
// more if they were tried before. Findings come in the order of their weight;
// second trials wait until nothing new is left, for there is no third.
func (h *history) next(findings []cause.Finding) (f *cause.Finding, again string) {
	for i := range findings {
		more, because := h.may(&findings[i])
		switch {
		case because != "":
		case more == "":
			return &findings[i], ""
		case f == nil:
			f, again = &findings[i], more
		}
	}
	return f, again
}

// may says why the changes of f are not to be tried, or, where they are and were
// before, why once more.
func (h *history) may(f *cause.Finding) (again, because string) {
	if len(f.Fix.Changes) == 0 {
		return "", "nothing can be changed and undone to fix it"
	}
	if slices.Contains(h.skip, string(f.Cause)) {
		return "", "it was not to be tried (--skip)"
	}
	t := h.tried[targets(f.Fix.Changes)]
	switch {
	case t == nil:
		return "", ""
	case slices.Contains(t.holding, values(f.Fix.Changes)):
		return "", "its change was kept, and it is still found"
	case t.failed == 0:
		return "", ""
	case t.failed > 1:
		return "", "its change was tried twice: " + t.last.words()
	case t.last == NotMade: // nothing was changed: what was in the way may be gone
		return "could not be made the first time", ""
	case len(h.kept) == t.keptAt:
		return "", "its change was tried: " + t.last.words()
	}
	return fmt.Sprintf("tried before (%s); since then %s was fixed, which may have hidden its effect",
		t.last.words(), list(h.kept[t.keptAt:])), ""
}

// note remembers what came of a trial.
func (h *history) note(s *Step) {
	key := targets(s.Changes)
	t := h.tried[key]
	if t == nil {
		t = &trials{}
		h.tried[key] = t
	}
	if s.Kept {
		t.holding = append(t.holding, values(s.Changes))
		h.kept = append(append(h.kept, s.Cause), s.Also...)
		h.failed = slices.DeleteFunc(h.failed, func(f failure) bool {
			return len(s.Also) > 0 || targets(f.Fix.Changes) == key
		})
		return
	}
	t.failed++
	t.last, t.keptAt = s.Verdict, len(h.kept)
	if len(s.Also) == 0 && (s.Verdict == Worse || s.Verdict == Unclear || s.Verdict == NoEffect) {
		h.failed = slices.DeleteFunc(h.failed, func(f failure) bool { return targets(f.Fix.Changes) == key })
		h.failed = append(h.failed, failure{moved: s.Verdict != NoEffect, Finding: cause.Finding{
			Cause: cause.ID(s.Cause), Title: s.Title, Subject: s.Subject, Impact: cause.Impact{Text: s.Seen}, Fix: cause.Fix{Changes: s.Changes}}})
	}
}

// together is changes that did not help alone, as one, and the causes that they are
// of next to the first; nil where there are not two of them, or all were tried so.
// Faults may hold each other up: a longer queue lets clients in for whom there are no
// connections, which is worse, and more connections are of no use to clients that
// the queue keeps out, which has no effect. First come all that moved something,
// then these with each one that did not: what is of no use is not kept along.
func (h *history) together() (*cause.Finding, []string) {
	var moved []cause.Finding
	for i := range h.failed {
		if h.failed[i].moved {
			moved = append(moved, h.failed[i].Finding)
		}
	}
	if len(moved) == 0 {
		return nil, nil
	}
	if f, also := h.joint(moved); f != nil {
		return f, also
	}
	for i := range h.failed {
		if h.failed[i].moved {
			continue
		}
		if f, also := h.joint(append(slices.Clone(moved), h.failed[i].Finding)); f != nil {
			return f, also
		}
	}
	return nil, nil
}

// joint is the changes of several findings as one, unless they set the same, or were
// tried so.
func (h *history) joint(findings []cause.Finding) (*cause.Finding, []string) {
	f := findings[0]
	f.Fix.Changes = nil
	var also, set []string
	for i := range findings {
		one := &findings[i]
		if one.Cause != f.Cause && !slices.Contains(also, string(one.Cause)) {
			also = append(also, string(one.Cause))
		}
		for _, c := range one.Fix.Changes {
			if id := target(&c); !slices.Contains(set, id) {
				set, f.Fix.Changes = append(set, id), append(f.Fix.Changes, c)
			}
		}
	}
	slices.Sort(set)
	key := strings.Join(set, "\n")
	if slices.Contains(h.joined, key) || len(set) < 2 || len(findings) < 2 {
		return nil, nil
	}
	h.joined = append(h.joined, key)
	return &f, also
}

// words are the verdict for people.
func (v Verdict) words() string {
	switch v {
	case Proved:
		return "proved"
	case NoEffect:
		return "no effect"
	case Worse:
		return "made it worse"
	case Unclear:
		return "not clear"
	case NotMade:
		return "could not be made"
	}
	return "not tried"
}

// list is names as people say them, each once.
func list(names []string) string {
	var once []string
	for _, n := range names {
		if !slices.Contains(once, n) {
			once = append(once, n)
		}
	}
	if len(once) < 2 {
		return strings.Join(once, "")
	}
	return strings.Join(once[:len(once)-1], ", ") + " and " + once[len(once)-1]
}
