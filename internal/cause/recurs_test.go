package cause

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/observe"
)

// TestRecurs: slow requests in bursts are reported with when and how often, and those that are
// spread over the window, or all there is, are not.
func TestRecurs(t *testing.T) {
	const second = 1000 * ms
	at := func(starts ...int64) *traffic {
		w := nginxServed().add(600, ms/2, ms/5, 0, quick).add(len(starts), ms/2, ms/5, observe.FlagTimeout, waitedRTO)
		for i, s := range starts {
			w.list[600+i].StartNS = s
		}
		return w
	}
	spread := []int64{}
	for i := range int64(20) {
		spread = append(spread, i*second/2)
	}
	for _, test := range []struct {
		name string
		w    *traffic
		want string
	}{
		{"every two seconds", at(second, second+ms, second+2*ms, 3*second, 3*second+ms, 3*second+5*ms, 5*second, 5*second+ms, 5*second+7*ms), "3 times, for up to 213 ms each, once each 2 s, the first 1 s into the window"},
		{"once", at(4*second, 4*second+ms, 4*second+ms, 4*second+2*ms, 4*second+2*ms, 4*second+2*ms), "within 208 ms only, 4 s into the window"},
		{"all the time", at(spread...), ""},
		{"a few", at(second, second+ms, 4*second, 4*second+ms), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := test.w.endpoint()
			if got := (&ledger{Endpoint: &e}).bursts(0, 10); !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
