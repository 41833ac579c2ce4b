package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
)

// sample is one figure, measured several times.
type sample []float64

func (s sample) sorted() sample { return slices.Sorted(slices.Values(s)) }

// median is the middle value, NaN when there is none.
func (s sample) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	o := s.sorted()
	return (o[(len(o)-1)/2] + o[len(o)/2]) / 2
}

// interval is where the true median lies with at least 95 % probability,
// whatever the distribution: from the k-th smallest to the k-th greatest value
// with k from the binomial distribution. Less than six values cannot tell: ok
// is false and the interval is their range.
func (s sample) interval() (low, high float64, ok bool) {
	if len(s) == 0 {
		return math.NaN(), math.NaN(), false
	}
	o := s.sorted()
	n := len(o)
	below, term := 0.0, math.Pow(0.5, float64(n)) // P(X < k), P(X = k)
	k := 0
	for ; 2*(below+term) <= 0.05; k++ {
		below += term
		term *= float64(n-k) / float64(k+1)
	}
	if k == 0 {
		return o[0], o[n-1], false
	}
	return o[k-1], o[n-k], true
}

// verdict compares a figure with its target.
type verdict string

const (
	met      verdict = "met"
	notShown verdict = "not shown" // missed by less than the spread
	missed   verdict = "MISSED"    // missed beyond the spread
	tooFew   verdict = "too few runs"
	noTarget verdict = ""
)

// target is a bound for the median.
type target struct {
	bound   float64
	atLeast bool
}

func atLeast(bound float64) *target { return &target{bound, true} }
func atMost(bound float64) *target  { return &target{bound, false} }

func (t *target) judge(s sample) verdict {
	if t == nil {
		return noTarget
	}
	low, high, enough := s.interval()
	middle, best := s.median(), low
	if t.atLeast {
		middle, best = -middle, -high
	}
	bound := t.bound
	if t.atLeast {
		bound = -bound
	}
	switch {
	case middle <= bound:
		return met
	case !enough:
		return tooFew
	case best <= bound:
		return notShown
	}
	return missed
}

// single is the target of a figure that noise does not move, such as a count
// or a size: one value is enough to judge it.
type figure struct {
	name   string
	format string // of one value
	sample sample
	target *target
	exact  bool // judge a single value too
	note   string
}

func (f *figure) verdict() verdict {
	v := f.target.judge(f.sample)
	if v == tooFew && f.exact {
		return missed
	}
	return v
}

// summary collects the figures of all benchmarks for the table at the end.
var summary struct {
	sync.Mutex
	groups []group
}

type group struct {
	title   string
	figures []figure
}

// report adds figures to the summary, and fails the benchmark for those that
// clearly miss their target.
func reportFigures(b *testing.B, title string, figures ...figure) {
	b.Helper()
	summary.Lock()
	defer summary.Unlock()
	summary.groups = append(summary.groups, group{title, figures})
	for i := range figures {
		f := &figures[i]
		if f.verdict() == missed {
			b.Errorf("%s: %s: "+f.format+" misses the target", title, f.name, f.sample.median())
		}
	}
}

// printSummary writes one line for each figure: the median, how far the values
// are apart, the target and the verdict.
func printSummary(out io.Writer) {
	if len(summary.groups) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfigure\tmedian\tmin … max\tn\ttarget\tverdict\t")
	for _, g := range summary.groups {
		fmt.Fprintf(w, "\n%s\t\t\t\t\t\t\n", g.title)
		for i := range g.figures {
			f := &g.figures[i]
			if len(f.sample) == 0 {
				continue
			}
			bound := ""
			if f.target != nil {
				sign := "≤ "
				if f.target.atLeast {
					sign = "≥ "
				}
				bound = sign + fmt.Sprintf(f.format, f.target.bound)
			}
			o := f.sample.sorted()
			spread := ""
			if len(o) > 1 {
				spread = fmt.Sprintf(f.format+" … "+f.format, o[0], o[len(o)-1])
			}
			fmt.Fprintf(w, "  %s\t"+f.format+"\t%s\t%d\t%s\t%s\t%s\n",
				f.name, f.sample.median(), spread, len(o), bound, f.verdict(), f.note)
		}
	}
	w.Flush()
	fmt.Fprintln(out, "\nnot shown: the median misses the target by less than the spread (95 % interval of the median) of this machine.")
}

func TestInterval(t *testing.T) {
	values := func(n int) sample {
		var s sample
		for i := range n {
			s = append(s, float64(i+1))
		}
		return s
	}
	for _, c := range []struct {
		n         int
		low, high float64
		ok        bool
	}{
		{1, 1, 1, false},
		{5, 1, 5, false},
		{6, 1, 6, true},  // 96.9 %
		{8, 1, 8, true},  // 99.2 %; 2 … 7 would be 93.0 %
		{9, 2, 8, true},  // 96.1 %
		{10, 2, 9, true}, // 97.9 %
		{12, 3, 10, true},
	} {
		low, high, ok := values(c.n).interval()
		if low != c.low || high != c.high || ok != c.ok {
			t.Errorf("%d values: %v … %v, %v; want %v … %v, %v", c.n, low, high, ok, c.low, c.high, c.ok)
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		values sample
		target *target
		want   verdict
	}{
		{sample{1, 1, 1, 1, 1, 1}, nil, noTarget},
		{sample{.98, .97, .99, .96, .98, .98}, atLeast(.97), met},
		{sample{.95, .94, .98, .96, .95, .96}, atLeast(.97), notShown},
		{sample{.95, .94, .93, .96, .95, .96}, atLeast(.97), missed},
		{sample{.95, .94}, atLeast(.97), tooFew},
		{sample{.98, .97}, atLeast(.97), met},
		{sample{100, 300, 190}, atMost(200), met},
		{sample{210, 300, 220, 250, 230, 240}, atMost(200), missed},
		{sample{210, 300, 190, 250, 230, 240}, atMost(200), notShown},
	} {
		if got := c.target.judge(c.values); got != c.want {
			t.Errorf("%v against %+v: %q, want %q", c.values, c.target, got, c.want)
		}
	}
}
