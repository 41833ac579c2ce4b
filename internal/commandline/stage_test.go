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

// writes is a writer whose writes can be waited for.
type writes chan string

func (l writes) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
