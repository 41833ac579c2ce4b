package anomaly

import (
	"slices"

	"github.com/slowray/slowray/internal/fleet"
)

// hardly is the P below which so many endpoints share a component that it is a cause,
// though none of them is abnormal by itself.
const hardly = 1e-4

// drop takes away the components of which no endpoint is abnormal by itself, when there are
// others: what is abnormal in the company of others is no cause next to theirs. Endpoints
// that lack requests are never so by themselves.
func (x *Explanation) drop(anomalies []Anomaly) {
	alarms := map[fleet.Key]bool{}
	for i := range anomalies {
		alarms[anomalies[i].Key] = alarms[anomalies[i].Key] || anomalies[i].Alarm
	}
	alone := func(s Shared) bool {
		return s.Signal != Rate && s.P > hardly && !slices.ContainsFunc(s.Explains, func(k fleet.Key) bool { return alarms[k] })
	}
	if !slices.ContainsFunc(x.Shared, func(s Shared) bool { return !alone(s) }) {
		return
	}
	x.Shared = slices.DeleteFunc(x.Shared, alone)
}

// alarm says whether an endpoint is abnormal by itself.
func (g *graph) alarm(k fleet.Key) bool {
	for i := range g.units {
		if u := &g.units[i]; u.key == k {
			return u.a != nil && u.a.Alarm
		}
	}
	return false
}
