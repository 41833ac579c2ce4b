package anomaly

import "math"

// chance is the probability that of k or more of marked ones are among drawn ones,
// when `drawn` of `all` are taken at random of which `marked` are marked: the upper
// tail of the hypergeometric distribution, which is Fisher's exact test.
func chance(k, drawn, marked, all int) float64 {
	if k <= 0 {
		return 1
	}
	last := min(drawn, marked)
	sum := 0.0
	for i := max(k, drawn+marked-all); i <= last; i++ {
		term := math.Exp(choose(marked, i) + choose(all-marked, drawn-i) - choose(all, drawn))
		sum += term
		if term < sum*1e-12 {
			break
		}
	}
	return min(sum, 1)
}

// choose is the logarithm of the binomial coefficient.
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// likelihood is the logarithm of the likelihood of k of n, at its best.
func likelihood(k, n int) float64 {
	if k <= 0 || k >= n {
		return 0
	}
	p := float64(k) / float64(n)
	return float64(k)*math.Log(p) + float64(n-k)*math.Log(1-p)
}

// gain is how much better it is to know that k of the m that have a component are
// abnormal, than that all are abnormal at the same ratio, of which there are `of` in
// `all`: the logarithm of the likelihood ratio. It is 0 when those that have the
// component are abnormal less often than the others.
func gain(k, m, of, all int) float64 {
	if m == 0 || m == all || float64(k)*float64(all-m) <= float64(of-k)*float64(m) {
		return 0
	}
	return likelihood(k, m) + likelihood(of-k, all-m) - likelihood(of, all)
}
