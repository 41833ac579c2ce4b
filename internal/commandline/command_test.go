package commandline

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"why", "requests", "conntrack-full", "conntrack-forgot", "nginx-throughput", "conntrack-moved", "conntrack-emptied"}
	for word, want := range map[string]string{
		"wyh":           `, did you mean "why"?`,
		"reqeusts":      `, did you mean "requests"?`,
		"nginx-thruput": `, did you mean "nginx-throughput"?`,
		"nginx":         `, did you mean "nginx-throughput"?`,
		"conntrack":     `, did you mean "conntrack-full" or "conntrack-forgot" or "conntrack-moved"?`,
		"x":             "", "status": "", "re": "", "": "",
	} {
		if got := DidYouMean(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
