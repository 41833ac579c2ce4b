package incident

import "testing"

// Two faults at once, each of which is one.
func TestPairs(t *testing.T) {
	for _, p := range Pairs() {
		if p.Both != nil {
			if len(p.Both.Faults) != 2 || p.Both.Faults[0].Cause == p.Both.Faults[1].Cause || !p.Both.Quick {
				t.Errorf("%s: not two faults, of different causes, at once", p.Name)
			}
			continue
		}
		causes := map[string]bool{}
		for _, name := range []string{p.First, p.Second} {
			i, err := Find(name)
			if err != nil {
				t.Errorf("%s: %v", p.Name, err)
				continue
			}
			// Host-wide settings, and floods, would be of both.
			if s := i.Injected(i.Faults); len(i.Faults) != 1 || i.Control || s.Track || s.Flood || s.Burners > 0 {
				t.Errorf("%s: %s cannot be one of two", p.Name, name)
			}
			causes[i.Faults[0].Cause] = true
		}
		if len(causes) != 2 {
			t.Errorf("%s: the same cause twice", p.Name)
		}
		if got, ok := FindPair(p.Name); !ok || got != p {
			t.Errorf("%s: is not found by its name", p.Name)
		}
	}
}

// Nothing is injected in a healthy machine.
func TestHealthy(t *testing.T) {
	for _, i := range Healthy() {
		if !i.Control || len(i.Faults) > 0 {
			t.Errorf("%s: something is injected", i.Name)
		}
		if got, err := Find(i.Name); err != nil || got.Summary != i.Summary {
			t.Errorf("%s: is not found by its name: %v", i.Name, err)
		}
	}
}
