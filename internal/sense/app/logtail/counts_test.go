package logtail

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/slowray/slowray/internal/observe"
)

func TestCounts(t *testing.T) {
	var c Counts
	c.Add("b", []byte("1:1"), 10, 5, []byte("first\x1b"))
	c.Add("b", []byte("1:1"), 11, 6, []byte("second"))
	c.Add("b", []byte("1:1"), 10, 0, nil)
	c.Settle(1)
	c.Add("b", []byte("1:1"), 12, 0, nil)
	c.Add("a", nil, 0, 0, []byte("x"))
	c.Settle(2.5)
	want := []observe.LogKind{
		{Kind: "a", Count: 3, Estimated: true, Example: "x"},
		{Kind: "b", Upstream: "1:1", Count: 6, Estimated: true, Seconds: 3, Number: 5, Example: `first\x1b`},
	}
	if d := cmp.Diff(want, c.Kinds()); d != "" {
		t.Error(d)
	}
}

func TestCountsBound(t *testing.T) {
	var c Counts
	for i := range 1000 {
		c.Add("k", fmt.Appendf(nil, "10.0.0.%d", i), 1, 0, nil)
	}
	c.Settle(1)
	if k := c.Kinds(); len(k) != 65 || k[0].Upstream != "" || k[0].Count != 936 || c.Folded != 936 {
		t.Errorf("%d kinds, first %+v, folded %d", len(k), k[0], c.Folded)
	}
}

func TestClock(t *testing.T) {
	start := time.Unix(1_000_000_000, 0)
	type step struct {
		second int64
		at     int64
		in     bool
	}
	for name, steps := range map[string][]step{
		"same zone":         {{0, 0, true}, {-1, -1, true}, {-2, -2, false}, {11, 11, true}, {12, 12, false}, {7200, 7200, false}},
		"two hours ahead":   {{7200, 0, true}, {7205, 5, true}, {7300, 100, false}},
		"nepal":             {{20703, 3, true}},
		"old, then ours":    {{-400, -400, false}, {3, 3, true}, {-897, -897, false}},
		"guessed too early": {{-895, 5, true}, {3, 3, true}, {4, 4, true}},
		"a month":           {{-30 * 86400, -30 * 86400, false}, {1, 1, true}},
	} {
		c := NewClock(observe.Window{Start: start, Seconds: 10})
		for _, s := range steps {
			at, in := c.In(start.Unix() + s.second)
			if at -= start.Unix(); at != s.at || in != s.in {
				t.Errorf("%s: %d: got %d %v, want %d %v", name, s.second, at, in, s.at, s.in)
			}
		}
	}
}
