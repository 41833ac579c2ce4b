package anomaly

import "math"

// enoughTogether is how many steps must have been learned from before many endpoints that
// are a little unusual at once raise an alarm: ten minutes of seconds.
const enoughTogether = 120

// together says how unusual all endpoints are at once, of the list of those that are
// unusual, which is in the order of how much. A fault that many services have in common
// (a kernel, a configuration, a network) can make each of their endpoints so little slower
// that none is abnormal by itself, though it is hardly by chance that all are at once.
//
// Endpoints of one service are slow together for many reasons that are no fault, and they
// are judged as a whole anyway: so only the worst of each counts.
func (m *Model) together() float64 {
	m.counted = m.counted[:0]
	for range m.group {
		m.counted = append(m.counted, false)
	}
	sum := 0.0
	for _, r := range m.list {
		if !r.e.whole && !m.counted[r.e.group] {
			m.counted[r.e.group] = true
			sum += r.nlp - unusualFrom
		}
	}
	return sum / math.Sqrt(float64(max(len(m.group), 1)))
}

// allAtOnce says whether the endpoints are so unusual together that it is an alarm: what
// they are as a rule is learned, as long as none is abnormal.
func (m *Model) allAtOnce(at int64, abnormal bool) bool {
	z := m.together()
	alarm := m.fleet.n >= enoughTogether && m.fleet.rarity(z) >= m.threshold(1)
	if !abnormal && !alarm && at%learnEvery < int64(m.step) {
		m.fleet.add(z)
	}
	return alarm
}
