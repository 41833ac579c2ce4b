package lab

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/slowray/slowray/lab/incident"
)

// TestProofsAreOfIncidents: what is to be proved is injected where it is to be
// proved, and at least twenty causes are.
func TestProofsAreOfIncidents(t *testing.T) {
	proved := map[string]bool{}
	harmless := 0
	for _, p := range Proofs() {
		i, err := incident.Find(p.Incident)
		if err != nil {
			t.Error(err)
			continue
		}
		injected := slices.ContainsFunc(i.Faults, func(f incident.Fault) bool {
			return !f.Decoy && !i.Control && (f.Cause == p.Cause || slices.Contains(f.Or, p.Cause) || slices.Contains(f.Alongside, p.Cause))
		})
		if injected == p.Harmless {
			t.Errorf("%s: %s is injected there: %v, harmless: %v", p.Incident, p.Cause, injected, p.Harmless)
		}
		if p.Harmless {
			harmless++
		} else {
			proved[p.Cause] = true
		}
	}
	if len(proved) < 20 || harmless < 10 {
		t.Errorf("%d causes are to be proved, %d look-alikes are harmless: want 20 and 10", len(proved), harmless)
	}
	for _, name := range quickProofs {
		if _, err := proofsOf(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := proofsOf("no-such-thing"); err == nil {
		t.Error("no such incident, and no error")
	}
}

// TestProofs has slowray prove a handful for real; slowray lab run --prove --all
// makes all of them. A verdict is about traffic on a machine that others use: one
// that is wrong has one more try.
func TestProofs(t *testing.T) {
	needLab(t)
	slowray := buildSlowray(t)
	for _, name := range quickProofs {
		t.Run(name, func(t *testing.T) {
			var results []ProofResult
			for range 2 {
				var out bytes.Buffer
				var err error
				if results, err = Prove(context.Background(), name, Options{Slowray: []string{slowray}, Brief: true, Out: &out}); err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				t.Log(out.String())
				if !slices.ContainsFunc(results, func(r ProofResult) bool { return !r.OK }) {
					return
				}
			}
			for _, r := range results {
				if !r.OK {
					t.Errorf("%s: %q, want %q; left: %q %s", r.Cause, r.Verdict, r.Want(), r.Left, r.Problem)
				}
			}
		})
	}
}
