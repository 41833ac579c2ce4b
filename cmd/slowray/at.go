package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// atForms are those of a moment, in local time where they have no zone; without
// a date it is the latest such moment.
var atForms = []struct {
	layout string
	dated  bool
}{
	{"15:04", false},
	{"15:04:05", false},
	{"2006-01-02 15:04", true},
	{"2006-01-02 15:04:05", true},
	{"2006-01-02T15:04", true},
	{"2006-01-02T15:04:05", true},
	{time.RFC3339, true}, // with or without a fraction
}

// parseAt reads a moment of --at, as seen from now.
func parseAt(text string, now time.Time) (time.Time, error) {
	if back, ok := strings.CutPrefix(text, "-"); ok {
		d, err := backwards(back)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is no time: give -10m, -90s or -2h", text)
		}
		return now.Add(-d), nil
	}
	for _, form := range atForms {
		t, err := time.ParseInLocation(form.layout, text, now.Location())
		if err != nil {
			continue
		}
		if form.dated {
			if t.After(now) {
				return time.Time{}, fmt.Errorf("%q is still to come", text)
			}
			return t, nil
		}
		return latestAt(t, now), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: give 12:03, 12:03:20, \"2026-11-22 12:03\", 2026-11-22T12:03:00Z or -10m", text)
}

// latestAt is the latest moment, not after now, at which clocks show what t says.
// When they are put back they show an hour twice; one that they leave out is the
// same hour counted on.
func latestAt(t, now time.Time) time.Time {
	on := func(daysAgo int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()-daysAgo, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
	}
	const most, step = 2 * time.Hour, 30 * time.Minute // by which clocks are put back
	for daysAgo := range 2 {
		first := on(daysAgo)
		for more := most; more >= -most; more -= step {
			m := first.Add(more)
			if m.Hour() == t.Hour() && m.Minute() == t.Minute() && m.Day() == first.Day() && !m.After(now) {
				return m
			}
		}
	}
	return on(1)
}

// backwards reads a duration, also of days.
func backwards(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		return 0, errors.New("negative")
	}
	return d, err
}

// joinNegative makes one argument of "--at" "-10m", which the parser takes for
// flags.
func joinNegative(args []string) []string {
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		if args[i] == "--at" && i+1 < len(args) && len(args[i+1]) > 1 && args[i+1][0] == '-' && args[i+1][1] >= '0' && args[i+1][1] <= '9' {
			out = append(out, args[i]+"="+args[i+1])
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// clockText is a moment as people say it here.
func clockText(t time.Time) string {
	t = t.Local()
	if now := time.Now(); t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format(clock)
	}
	return t.Format("2006-01-02 " + clock)
}
