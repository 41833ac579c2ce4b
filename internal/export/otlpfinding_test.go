package export

import (
	"testing"

	"github.com/slowray/slowray/internal/cause"
)

// An evidence is reported as the report tells it: with what it is measured against.
func TestEvidenceOfAFinding(t *testing.T) {
	f := foundAt{}
	f.Finding = findingOf("slow-dependency", "nginx", 80)
	f.Evidence = []cause.Evidence{
		{Fact: "time of all calls", Value: 5.571, Limit: 6.465, Unit: "s in which nginx was busy", Source: "request records"},
		{Fact: "time of a call", Value: "149 ms", Source: "request records"},
	}
	var got []string
	for _, a := range findingAttributes(&f) {
		if a.Key == "slowray.evidence" {
			for _, v := range a.Value.GetArrayValue().Values {
				got = append(got, v.GetStringValue())
			}
		}
	}
	want := []string{"time of all calls: 5.571 of 6.465 s in which nginx was busy (request records)", "time of a call: 149 ms (request records)"}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("evidence %q, want %q", got, want)
	}
}
