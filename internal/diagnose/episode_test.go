package diagnose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/cause"
)

// TestEpisodes: windows are reported as their findings, cause:port/weight, in order.
func TestEpisodes(t *testing.T) {
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		windows []string // "-": a minute and a half in which nobody looked
		want    string   // cause:port from-to windows/weight
	}{
		"nothing":              {[]string{"", ""}, ""},
		"one":                  {[]string{"", "a:80/3", ""}, "a:80 1-1 1/3"},
		"neighbours are one":   {[]string{"a:80/3", "a:80/5", "a:80/1"}, "a:80 0-2 3/5"},
		"not with one without": {[]string{"a:80/3", "", "a:80/1"}, "a:80 0-0 1/3, a:80 2-2 1/1"},
		"not over a gap":       {[]string{"a:80/3", "-", "a:80/1"}, "a:80 0-0 1/3, a:80 2-2 1/1"},
		"subjects apart":       {[]string{"a:80/3 a:90/4", "a:90/1"}, "a:90 0-1 2/4, a:80 0-0 1/3"},
		"causes apart":         {[]string{"a:80/3", "b:80/2 a:80/1"}, "a:80 0-1 2/3, b:80 1-1 1/2"},
		"twice in one window":  {[]string{"a:80/3 a:80/6", "a:80/1"}, "a:80 0-1 2/6"},
	} {
		var windows []Judged
		var minute []int
		at := start
		for i, text := range c.windows {
			if text == "-" {
				at = at.Add(90 * time.Second)
				continue
			}
			w := Judged{Start: at, End: at.Add(58 * time.Second)}
			for _, one := range strings.Fields(text) {
				var f cause.Finding
				id, rest, _ := strings.Cut(one, ":")
				var weight int
				fmt.Sscanf(rest, "%d/%d", &f.Subject.Port, &weight)
				f.Cause, f.Weight, f.Subject.PID = cause.ID(id), float64(weight), i+1
				w.Findings = append(w.Findings, f)
			}
			windows, minute = append(windows, w), append(minute, i)
			at = at.Add(time.Minute)
		}
		place := func(is func(*Judged) bool) int {
			for i := range windows {
				if is(&windows[i]) {
					return minute[i]
				}
			}
			return -1
		}
		var got []string
		for _, e := range Episodes(windows) {
			got = append(got, fmt.Sprintf("%s:%d %d-%d %d/%g", e.Cause, e.Subject.Port,
				place(func(w *Judged) bool { return w.Start.Equal(e.Onset) }), place(func(w *Judged) bool { return w.End.Equal(e.End) }), e.Windows, e.Weight))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
