package main

import (
	"slices"
	"testing"
	"time"
)

func TestParseAt(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		zone = time.FixedZone("CET", 3600)
	}
	now := time.Date(2026, 11, 22, 12, 30, 40, 500, zone)
	here := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, zone)
	}
	for text, want := range map[string]time.Time{
		"12:03":                     here(22, 12, 3, 0),
		"12:03:20":                  here(22, 12, 3, 20),
		"0:00":                      here(22, 0, 0, 0),
		"12:31":                     here(21, 12, 31, 0), // has not been today
		"23:59:59":                  here(21, 23, 59, 59),
		"2026-11-22 12:03":          here(22, 12, 3, 0),
		"2026-11-20 23:03:04":       here(20, 23, 3, 4),
		"2026-11-20T23:03":          here(20, 23, 3, 0),
		"2026-11-22T11:03:20Z":      here(22, 12, 3, 20),
		"2026-11-22T16:33:20+05:30": here(22, 12, 3, 20),
		"2026-11-22T11:03:20.25Z":   here(22, 12, 3, 20).Add(250 * time.Millisecond),
		"-10m":                      now.Add(-10 * time.Minute),
		"-1h30m":                    now.Add(-90 * time.Minute),
		"-90s":                      now.Add(-90 * time.Second),
		"-2d":                       now.Add(-48 * time.Hour),
	} {
		got, err := parseAt(text, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "12", "12:60", "25:00", "noon", "10m", "-", "--10m", "-10", "-xd", "2026-11-23 12:00", "2026-13-01 12:00", "2026-11-22T13:03:20Z", "12:03 "} {
		if got, err := parseAt(text, now); err == nil {
			t.Errorf("%q: %s, want an error", text, got)
		}
	}
}

func TestJoinNegative(t *testing.T) {
	for _, c := range [][2][]string{
		{{"why", "--at", "-10m", "--json"}, {"why", "--at=-10m", "--json"}},
		{{"why", "--at", "12:03"}, {"why", "--at", "12:03"}},
		{{"why", "--at", "--json"}, {"why", "--at", "--json"}},
		{{"why", "--at"}, {"why", "--at"}},
		{{"requests", "--", "--at", "-5m"}, {"requests", "--", "--at", "-5m"}},
	} {
		if got := joinNegative(c[0]); !slices.Equal(got, c[1]) {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

// Where clocks are put back an hour comes twice: the latest is meant. One that is
// left out in spring is not nothing.
func TestClocksThatAreChanged(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("SKIP: no time zones on this host: %v", err)
	}
	autumn := time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC) // at 01:00 UTC 03:00 becomes 02:00
	spring := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)  // at 01:00 UTC 02:00 becomes 03:00
	for _, c := range []struct {
		now  time.Time
		text string
		want time.Time
	}{
		{autumn.Add(105 * time.Minute), "02:30", autumn.Add(90 * time.Minute)},
		{autumn.Add(80 * time.Minute), "02:30", autumn.Add(30 * time.Minute)}, // the second is still to come
		{autumn.Add(20 * time.Minute), "02:30", autumn.Add(-24*time.Hour + 30*time.Minute)},
		{autumn.Add(5 * time.Hour), "02:30", autumn.Add(90 * time.Minute)},
		{autumn.Add(5 * time.Hour), "01:30", autumn.Add(-30 * time.Minute)},
		{autumn.Add(24 * time.Hour), "02:30", autumn.Add(90 * time.Minute)},
		{spring.Add(5 * time.Hour), "03:30", spring.Add(90 * time.Minute)},
		{spring.Add(5 * time.Hour), "01:30", spring.Add(30 * time.Minute)},
	} {
		if got, err := parseAt(c.text, c.now.In(berlin)); err != nil || !got.Equal(c.want) {
			t.Errorf("%s at %s: %s, want %s (%v)", c.text, c.now.In(berlin), got, c.want.In(berlin), err)
		}
	}
	if got, err := parseAt("02:30", spring.Add(5*time.Hour).In(berlin)); err != nil || got.After(spring.Add(5*time.Hour)) || got.Before(spring.Add(-48*time.Hour)) {
		t.Errorf("an hour that is left out: %s, %v", got, err)
	}
}
