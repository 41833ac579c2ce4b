package anomaly

import "math"

// tail tells how rare a deviation is, from all that were seen: a histogram of
// deviations, in units of their usual spread.
type tail struct {
	n      float64 // deviations seen, small ones and negative ones too
	counts [tailBins]float64
	// nlp is -ln P(deviation > 2^(i/8-3)), made from the counts by fit; beyond 1024 it
	// does not fall any more.
	nlp   [tailBins + 1]float64
	since float64 // n when it was fitted
}

const (
	tailBins    = 104 // eighths of powers of two: from 1/8 up to 1024
	perOctave   = 8
	firstBin    = -24 // of deviation 1 is bin 0
	tailPrior   = 50  // deviations that the prior counts for
	tailDecided = 30  // counts from which on a frequency is taken for what it is
	steepest    = 40.0
	usualBend   = 0.7 // of a tail whose bend is not known
	bendPrior   = 100 // counts that this stands for
)

// least is the smallest deviation that is counted.
const least = 0.125

// priorTail is taken for P(deviation > z), as long as nothing was seen: that
// of a normal distribution at 1, and from there on an exponential one, far heavier.
func priorTail(z float64) float64 { return 0.16 * math.Exp(1.5*(1-z)) }

// add counts a deviation.
func (t *tail) add(z float64) {
	t.n++
	if z >= least {
		t.counts[min(int(math.Log2(z)*perOctave-firstBin), tailBins-1)]++
	}
	if t.n > 2*t.since+1000 || t.n > t.since+2e6 {
		t.fit()
	}
}

// fit makes the table. Beyond the last deviation of which enough were seen the tail
// goes on as exp(-c·z^bend): as steep as it was there, and bent as it was before. A
// bend of 0 is a power of z, the heaviest tail; one of 1 an exponential tail, which is
// the lightest that is believed.
func (t *tail) fit() {
	t.since = t.n
	var above [tailBins + 1]float64 // how many lie above the bin's lower edge
	for i := tailBins - 1; i >= 0; i-- {
		above[i] = above[i+1] + t.counts[i]
	}
	last := reach(&above, max(tailDecided, math.Sqrt(t.n)/4))
	power, bend := 4.0, usualBend
	if last > 0 {
		middle := reach(&above, 5*above[last])
		first := reach(&above, 5*above[max(middle, 0)])
		if middle >= 0 && middle < last {
			power = steepness(&above, middle, last)
			if first >= 0 && first < middle {
				seen := math.Log(power/steepness(&above, first, middle)) / ((edge(last) - edge(first)) / 2)
				bend = (usualBend*bendPrior + seen*above[last]) / (bendPrior + above[last])
			}
		}
	}
	power = min(max(power, 1), steepest)
	bend = min(max(bend, 0), 1)
	for i := range t.nlp {
		p := tailPrior * priorTail(math.Exp(edge(i)))
		switch {
		case i <= last:
			p += above[i]
		case last >= 0:
			x := edge(i) - edge(last) // ln of how much farther
			if bend > 0.01 {
				x = math.Expm1(bend*x) / bend
			}
			p += above[last] * math.Exp(-power*x)
		}
		t.nlp[i] = -math.Log(max(p/(tailPrior+t.n), 1e-300))
	}
}

// edge is ln of the lower edge of a bin.
func edge(i int) float64 { return float64(i+firstBin) / perOctave * math.Ln2 }

// reach is the last bin above whose edge there are so many, -1 when there is none.
func reach(above *[tailBins + 1]float64, n float64) int {
	for i := tailBins; i >= 0; i-- {
		if above[i] >= n {
			return i
		}
	}
	return -1
}

// steepness is the power of z with which the counts fall between two bins.
func steepness(above *[tailBins + 1]float64, from, to int) float64 {
	return math.Log(above[from]/above[to]) / (edge(to) - edge(from))
}

// rarity is -ln P(deviation > z).
func (t *tail) rarity(z float64) float64 {
	if z < least {
		return 0
	}
	if t.nlp[tailBins] == 0 {
		t.fit()
	}
	x := math.Log2(z)*perOctave - firstBin
	if x >= tailBins {
		return t.nlp[tailBins]
	}
	i := int(x)
	f := x - float64(i)
	return t.nlp[i]*(1-f) + t.nlp[i+1]*f
}

// mixture is the Cauchy combination of P values, in its truncated form: those above
// a half count as a half, for the signals of an endpoint that are as good as can be
// must not hide the one that is not. See Liu and Xie, Cauchy combination test (2020).
type mixture struct{ sum float64 }

// add takes a P value, as -ln P, with a weight; the weights add up to 1.
func (m *mixture) add(weight, nlp float64) {
	if nlp <= math.Ln2 {
		return
	}
	p := math.Exp(-min(nlp, 600))
	if p > 1e-4 {
		m.sum += weight * math.Tan((0.5-p)*math.Pi)
		return
	}
	m.sum += weight / (math.Pi * p)
}

// nlp is -ln of the combined P.
func (m *mixture) nlp() float64 {
	if m.sum > 1e4 {
		return math.Log(math.Pi * m.sum)
	}
	return -math.Log(0.5 - math.Atan(m.sum)/math.Pi)
}
