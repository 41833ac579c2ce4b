package anomaly

// season is what recurs by time of day and day of the week, of one signal of a
// service: how far the signal lies from its mean of the day, in slots of five minutes.
type season struct {
	Days  int // whole days that it was learned from
	Day   [slots]float32
	WeekN [7]int
	Week  [7][slots]float32
	Burst [slots]float32 // the largest deviation of a few seconds, in spreads, on late days

	sum   [slots]float32 // of today
	n     [slots]float32
	burst [slots]float32
}

const (
	slotSeconds = 300
	daySeconds  = 86400
	slots       = daySeconds / slotSeconds
)

// weekday is the day of the week, 0 Sunday: day 0 was a Thursday.
func weekday(day int64) int { return int(((day+4)%7 + 7) % 7) }

// see takes the value of the signal at a moment, and its deviation in spreads.
func (s *season) see(at int64, y, z float64) {
	slot := at % daySeconds / slotSeconds
	s.sum[slot] += float32(y)
	s.n[slot]++
	s.burst[slot] = max(s.burst[slot], float32(z))
}

// end ends a day: what was seen of it is learned if it was nearly all of it.
func (s *season) end(day int64) {
	var mean, n float64
	for i := range s.sum {
		if s.n[i] > 0 {
			s.sum[i] /= s.n[i]
			mean += float64(s.sum[i])
			n++
		}
	}
	if n >= 0.8*slots {
		mean /= n
		s.Days++
		gain := max(1/float32(s.Days), 0.2)
		w := weekday(day)
		s.WeekN[w]++
		weekGain := max(1/float32(s.WeekN[w]), 0.3)
		for i := range s.sum {
			if s.n[i] == 0 {
				continue
			}
			y := s.sum[i] - float32(mean)
			s.Day[i] += gain * (y - s.Day[i])
			s.Week[w][i] += weekGain * (y - s.Week[w][i])
			s.Burst[i] = max(s.burst[i], 0.8*s.Burst[i])
		}
	}
	clear(s.sum[:])
	clear(s.n[:])
	clear(s.burst[:])
}

// expected is how far the signal is expected to lie from its mean now, how much
// worse than that it may be because of what was near this time of day on other days,
// and the deviation in spreads that recurs at this time.
func (s *season) expected(at int64) (mean, worse, burst float64) {
	if s.Days == 0 {
		return 0, 0, 0
	}
	day, second := at/daySeconds, at%daySeconds
	slot := int(second / slotSeconds)
	list := &s.Day
	if w := weekday(day); s.WeekN[w] > 0 {
		list = &s.Week[w]
	}
	before, after := (slot+slots-1)%slots, (slot+1)%slots
	f := float64(second%slotSeconds)/slotSeconds - 0.5 // from the middle of the slot
	if f < 0 {
		mean = float64(list[slot])*(1+f) - float64(list[before])*f
	} else {
		mean = float64(list[slot])*(1-f) + float64(list[after])*f
	}
	high := float32(mean)
	for _, i := range [3]int{before, slot, after} {
		high = max(high, list[i], s.Day[i])
		burst = max(burst, float64(s.Burst[i]))
	}
	return mean, float64(high) - mean, burst
}
