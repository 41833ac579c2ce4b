package figure

import (
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{
		0: "0 %", -1: "0 %", 0.0002: "under 0.1 %", 0.004: "0.4 %", 0.0996: "10 %", 0.5: "50 %",
		0.994: "99.4 %", 0.9985: "99.8 %", 0.99999: "over 99.9 %", 1: "100 %", 7: "100 %",
	} {
		if got := Percent(share); got != want {
			t.Errorf("Percent(%v) = %q, want %q", share, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 290566: "290,566", -1234567: "-1,234,567"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for s, want := range map[float64]string{0: "0 s", 0.0000153: "15.3 µs", 0.0438: "43.8 ms", 1.04: "1.04 s", 90: "90 s", 3600: "3,600 s"} {
		if got := Seconds(s); got != want {
			t.Errorf("Seconds(%v) = %q, want %q", s, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", -1: "0 B", 999: "999 B", 1000: "0.977 KB", 1 << 30: "1 GB", 1300 << 20: "1.27 GB", 5 << 50: "5.12e+03 TB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestMomentSaysItsZone(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("", -(3*3600 + 1800))
	t.Cleanup(func() { time.Local = local })
	at := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	for _, c := range [][2]string{
		{Moment(at), "2026-11-21 22:30:00 -03:30"},
		{Until(at.Add(time.Minute), at), "22:31:00"},
		{Until(at.Add(2*time.Hour), at), "2026-11-22 00:30:00 -03:30"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}
