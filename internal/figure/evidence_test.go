package figure

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// TestEvidence reads the table that the page's test in a browser reads too: both
// write an evidence alike.
func TestEvidence(t *testing.T) {
	b, err := os.ReadFile("testdata/evidence.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Value, Limit any
		Unit, Want   string
	}
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if got := Evidence(r.Value, r.Limit, r.Unit); got != r.Want {
			t.Errorf("%v of %v %q is %q, want %q", r.Value, r.Limit, r.Unit, got, r.Want)
		}
	}
}

func TestValue(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{{uint64(262144), "262,144"}, {-3, "-3"}, {int64(1e6), "1,000,000"}, {math.NaN(), "NaN"}, {1e300, "1e+300"}, {json.Number("1030.5"), "1,031"}, {nil, "<nil>"}, {"a", "a"}} {
		if got := Value(c.value); got != c.want {
			t.Errorf("%v is %q, want %q", c.value, got, c.want)
		}
	}
}
