package commandline

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// Progress is for a terminal: a pipe or a file gets none of it.
func TestStageTellsNothingOffATerminal(t *testing.T) {
	var out bytes.Buffer
	p := NewStage(&out)
	p.Show("judging", 0.5)
	p.Clear()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

func TestStageIsShownAndTakenAway(t *testing.T) {
	shown := make(writes, 100)
	p := &Stage{w: shown, began: time.Now(), what: "asking the archive", stop: make(chan struct{}), ended: make(chan struct{})}
	go p.paint(time.Millisecond)
	if first := <-shown; !strings.Contains(first, "asking the archive [") {
		t.Errorf("%q", first) // before the archive has answered
	}
	p.Show("judging\x1b[31m", 2)
	for line := range shown {
		if strings.Contains(line, "judging") {
			if strings.Contains(line, "\x1b[31m") || !strings.Contains(line, "["+strings.Repeat("=", BarWidth)+"]") {
				t.Errorf("%q", line)
			}
			break
		}
	}
	p.Clear()
	p.Clear()
	close(shown)
	last := ""
	for last = range shown {
	}
	if last != "\r\x1b[K" {
		t.Errorf("at the end %q", last)
	}
}

// A line that is wider than the terminal could not be taken away.
func TestStageFits(t *testing.T) {
	for _, c := range []struct {
		columns int
		want    string
	}{
		{0, "watching this host [=========                     ] 3 of 10 s  (Ctrl-C: end)"},
		{80, "watching this host [=========                     ] 3 of 10 s  (Ctrl-C: end)"},
		{70, "watching this host [===       ] 3 of 10 s  (Ctrl-C: end)"},
		{60, "watching this host [===       ] 3 of 10 s  (Ctrl-C: end)"},
		{50, "watching this host 3 of 10 s  (Ctrl-C: end)"},
		{42, "watching this host [===       ] 3 of 10 s"},
		{41, "watching this host 3 of 10 s"},
		{20, "watching… 3 of 10 s"},
		{5, " 3 of 10 s"},
	} {
		p := &Stage{hint: "Ctrl-C: end", what: "watching this host", total: 10 * time.Second}
		if got := p.line(3*time.Second, c.columns); got != c.want {
			t.Errorf("%d columns: %q, want %q", c.columns, got, c.want)
		}
	}
	// A text that changes takes the hint away no more than an estimate that grows the bar.
	p := &Stage{hint: "Ctrl-C: end", what: "round 2, after undoing it: 3 of 3 measured, 38,729/s good responses", total: 10 * time.Second}
	if got := p.line(8*time.Second, 80); got != "round 2, after undoing it: 3 of 3 measured, 38,729/s … 8 of 10 s  (Ctrl-C: end)" {
		t.Errorf("a long text: %q", got)
	}
	p.what, p.total = "with the change", 20*time.Second
	if got := p.line(9*time.Second, 80); !strings.HasPrefix(got, "with the change ["+strings.Repeat("=", 24)+" ") {
		t.Errorf("an estimate that has grown: %q", got)
	}
	p = &Stage{began: time.Now(), total: time.Hour}
	p.ShowLeft("settling", 10*time.Second)
	if got := p.line(time.Minute, 80); got[:13] != "settling [===" || !strings.Contains(got, "] 10 of 10 s") {
		t.Errorf("longer than it was to take: %q", got)
	}
}

// writes is a writer whose writes can be waited for.
type writes chan string

func (l writes) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
