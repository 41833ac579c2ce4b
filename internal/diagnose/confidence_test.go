package diagnose

import (
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

// TestFeatures: they are as many as have names, and within 0 and 1 whatever a report holds.
func TestFeatures(t *testing.T) {
	cost := 4.0
	r := Report{Findings: []cause.Finding{
		{Cause: "firewall-drop", Role: cause.RoleCause, Impact: cause.Impact{Share: 0.4, Cost: &cost}, Evidence: []cause.Evidence{{Source: "nft"}, {Source: "nft"}, {Source: "tcp"}}},
		{Cause: cause.Unexplained, Role: cause.RoleCause, Impact: cause.Impact{Share: 7}},
		{Cause: "no such cause", Role: cause.RoleConsequence},
	}}
	for _, a := range []cause.Account{{}, {Lost: 10, Explained: 8}} {
		r.Account = a
		for at := range r.Findings {
			list := Features(&r, at)
			if len(list) != len(FeatureNames) {
				t.Fatalf("%d features, %d names", len(list), len(FeatureNames))
			}
			for i, x := range list {
				if !(x >= 0 && x <= 1) {
					t.Errorf("finding %d: %s is %v", at, FeatureNames[i], x)
				}
			}
		}
	}
	at := func(finding int, name string) float64 {
		for i, n := range FeatureNames {
			if n == name {
				return Features(&r, finding)[i]
			}
		}
		t.Fatalf("no feature %q", name)
		return 0
	}
	for _, c := range []struct {
		finding int
		name    string
		want    float64
	}{{0, "of what was lost", 0.4}, {0, "explained", 0.8}, {0, "first", 1}, {1, "first", 0}, {0, "rival", 0}, {1, "rival", 1}, {0, "witnesses", 0.4}, {0, "drop", 1}, {1, "unexplained", 1}, {0, "alone", 0.5}} {
		if got := at(c.finding, c.name); got != c.want {
			t.Errorf("finding %d: %s is %v, want %v", c.finding, c.name, got, c.want)
		}
	}
}

// TestFittedModel: the committed table fits the features, never falls, and is a share.
func TestFittedModel(t *testing.T) {
	if len(fitted.Weights) != len(FeatureNames)+1 || len(fitted.Steps) == 0 {
		t.Fatalf("%d weights for %d features, %d steps", len(fitted.Weights), len(FeatureNames), len(fitted.Steps))
	}
	for i, s := range fitted.Steps {
		if s.Y < 0 || s.Y > 1 || i > 0 && (s.X < fitted.Steps[i-1].X || s.Y < fitted.Steps[i-1].Y) {
			t.Errorf("step %d, %+v, after %+v", i, s, fitted.Steps[max(i-1, 0)])
		}
	}
}
