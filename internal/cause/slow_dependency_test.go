package cause

import (
	"strings"
	"testing"
)

// TestEstimatedCalls: no ratio is reported of sums of which one is an estimate from some connections.
func TestEstimatedCalls(t *testing.T) {
	for _, c := range []struct {
		name      string
		estimated int // endpoint; -1: none
		told      int
	}{{"exact", -1, 3}, {"the requests", 0, 0}, {"the calls", 1, 0}} {
		o := healthy()
		quiet(nginxServed().add(300, ms, ms, 0, waitsForDB), fpmCalled().add(300, ms, ms, 0, slowDB))(o)
		if c.estimated >= 0 {
			o.Endpoints[c.estimated].SampleError = 0.1
		}
		r := slowDependency.Judge(NewView(o))
		if len(r.Findings) != 1 {
			t.Fatalf("%s: %+v", c.name, r)
		}
		f, told := r.Findings[0], 0
		for _, e := range f.Evidence {
			if e.Fact == "calls" || strings.HasPrefix(e.Fact, "time ") {
				told++
			}
		}
		if told != c.told || strings.Contains(f.Impact.Text, "of them for a request") != (c.told > 0) {
			t.Errorf("%s: %q, and %d sums", c.name, f.Impact.Text, told)
		}
	}
}
