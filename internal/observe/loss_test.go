package observe

import "testing"

func TestLossLabel(t *testing.T) {
	for what, want := range map[string]string{
		LossSampled:    "Sampled",
		LossEstimated:  "Sampled",
		LossOldChanges: "Left out",
		"requests counted without a record of their own, because the ring was full": "Lost events",
		"kernel log lines overwritten before they were read":                        "Lost events",
		"stacks of CPU samples there was no room for":                               "Lost events",
		"application servers beyond 64":                                             "Left out",
		"services of which not all files were looked at for changes":                "Left out",
	} {
		if got := (&Loss{What: what}).Label(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
}
