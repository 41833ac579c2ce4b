package tune

import "slices"

// sum sums up the blocks of one phase.
func sum(blocks []Block, phase Phase) Figures {
	var f Figures
	var seconds, good, failed, known float64
	var p50, p99 []float64
	for _, b := range blocks {
		if b.Phase != phase || b.Seconds <= 0 {
			continue
		}
		f.Blocks++
		seconds += b.Seconds
		good += b.Good * b.Seconds
		if b.Errors != nil {
			failed += *b.Errors * b.Seconds
			known += b.Seconds
		}
		if b.P50 != nil {
			p50 = append(p50, *b.P50)
		}
		if b.P99 != nil {
			p99 = append(p99, *b.P99)
		}
	}
	if seconds > 0 {
		f.Good = good / seconds
	}
	if known > 0 {
		rate := failed / known
		f.Errors = &rate
	}
	f.P50, f.P99 = median(p50), median(p99)
	return f
}

// median is the middle value, the mean of the two middle ones of an even
// number, nil of none.
func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	values = slices.Sorted(slices.Values(values))
	m := (values[(len(values)-1)/2] + values[len(values)/2]) / 2
	return &m
}

// errorShare is the part of the attempts that failed, 0 to 1; 0 where errors are
// not known.
func (f Figures) errorShare() float64 {
	if f.Errors == nil || *f.Errors+f.Good <= 0 {
		return 0
	}
	return *f.Errors / (*f.Errors + f.Good)
}

// Harm begins where good responses are fewer than this share of what they were,
// or errors more by that share of the attempts, in every block.
const (
	harmGood   = 0.5
	harmErrors = 0.25
)

// harmed says that the service is clearly worse than it was before.
func harmed(before, now []Block) bool {
	was, is := sum(before, Before), sum(now, After)
	if was.Blocks == 0 || is.Blocks == 0 {
		return false
	}
	if is.errorShare() > was.errorShare()+harmErrors && is.Good < was.Good {
		return true
	}
	return is.Good < harmGood*was.Good && most(now, After) < least(before, Before)
}

func most(blocks []Block, phase Phase) float64 {
	m := 0.0
	for _, b := range blocks {
		if b.Phase == phase {
			m = max(m, b.Good)
		}
	}
	return m
}

func least(blocks []Block, phase Phase) float64 {
	m, found := 0.0, false
	for _, b := range blocks {
		if b.Phase == phase && (!found || b.Good < m) {
			m, found = b.Good, true
		}
	}
	return m
}
