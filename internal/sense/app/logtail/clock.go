package logtail

import (
	"math"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// Clock tells whether the time written in a log line lies in the window. Logs
// carry local time without a zone, and a container's zone need not be the
// host's: when the first time outside the window would lie inside it in
// another zone, that zone is taken for the whole log. Use one Clock per log.
type Clock struct {
	from, to int64 // Unix seconds, both inclusive
	shift    int64 // seconds to add to a time of this log
	settled  bool
}

// slack is the tolerance at both ends: log times are whole seconds, and
// nginx and php-fpm use a cached clock.
const slack = 1

// Zones lie between UTC-12 and UTC+14, in steps of a quarter of an hour.
const (
	zoneStep = 15 * 60
	zoneMax  = 26 * 3600
)

// NewClock is a Clock for a window.
func NewClock(w observe.Window) *Clock {
	end := w.Start.Add(time.Duration(w.Seconds * float64(time.Second)))
	return &Clock{from: w.Start.Unix() - slack, to: end.Unix() + slack}
}

// In returns the second, corrected for the log's zone, and whether it lies in
// the window.
func (c *Clock) In(second int64) (int64, bool) {
	if s := second + c.shift; s >= c.from && s <= c.to {
		c.settled = true
		return s, true
	}
	if c.settled {
		if c.shift != 0 && second >= c.from && second <= c.to {
			c.shift = 0 // the zone was guessed from a line older than the window
			return second, true
		}
		return second + c.shift, false
	}
	middle := c.from + (c.to-c.from)/2
	shift := int64(math.Round(float64(middle-second)/zoneStep)) * zoneStep
	if s := second + shift; shift >= -zoneMax && shift <= zoneMax && s >= c.from && s <= c.to {
		c.shift, c.settled = shift, true
		return s, true
	}
	return second, false
}
