package simulate

import (
	"math"
	"math/rand/v2"
)

const (
	hour = 3600
	day  = 24 * hour
)

// demandAt is the traffic at a moment, 1 on average of a weekday: the busiest hour has
// about three times that of the quietest one, weekends are quieter.
func (f *Fleet) demandAt(at int64) float64 {
	second := at % day
	d := math.Exp(0.6 * math.Cos(2*math.Pi*float64(second-f.peak)/day))
	switch (at/day + 4) % 7 {
	case 0, 6:
		d *= 0.7
	}
	if f.rush != nil {
		d *= f.rush(at)
	}
	return d * f.factor
}

// poisson draws a number of requests.
func poisson(r *rand.Rand, mean float64) float64 {
	switch {
	case mean <= 0:
		return 0
	case mean > 20:
		return math.Max(math.Round(mean+math.Sqrt(mean)*r.NormFloat64()), 0)
	}
	limit, p, k := math.Exp(-mean), r.Float64(), 0.0
	for p > limit {
		p *= r.Float64()
		k++
	}
	return k
}

// deploys are when a service is deployed: on about every second weekday, in working
// hours, on one host after the other.
type deploys struct {
	seed uint64
	tier int
}

// downFor is how long a host does not answer while it is deployed, warmFor how long it
// is slower after that.
const (
	downFor = 6
	warmFor = 12
)

// begins is the second of the deploy of that day, 0 when there is none.
func (d *deploys) begins(at int64) int64 {
	date := at / day
	h := (d.seed + uint64(date)) * 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 32
	weekday := (date + 4) % 7
	if d.tier == 0 || h%2 == 0 || weekday == 0 || weekday == 6 {
		return 0
	}
	return date*day + 9*hour + int64(h>>8%(8*hour))%(8*hour)
}

// roll takes hosts out while their service is deployed, at most a quarter of them at
// once; databases and services of few hosts are left alone.
func (s *service) roll(at int64) {
	if len(s.hosts) < 3 {
		return
	}
	begin := s.deploy.begins(at)
	if begin == 0 || at < begin {
		return
	}
	batch := int64(max(len(s.hosts)/20, 1))
	first := (at - begin) / (downFor + 2) * batch
	if first >= int64(len(s.hosts)) || (at-begin)%(downFor+2) != 0 {
		return
	}
	for i := first; i < min(first+batch, int64(len(s.hosts))); i++ {
		s.hosts[i].restart(at)
	}
}

func (e *served) restart(at int64) {
	e.down, e.fresh = at+downFor, at+downFor
}
