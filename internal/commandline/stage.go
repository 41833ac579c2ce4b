package commandline

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/slowray/slowray/internal/printable"
)

// BarWidth is how many columns a bar of progress has, shortBar where they are few.
const (
	BarWidth = 30
	shortBar = 10
)

// Redraws says whether w is a terminal on which a line can be drawn anew.
func Redraws(w io.Writer) bool {
	_, terminal := TerminalColumns(w)
	return terminal && !Plain()
}

// Plain says that the terminal understands nothing but text.
func Plain() bool {
	term := os.Getenv("TERM")
	return term == "" || term == "dumb"
}

// Stage shows on a terminal what is being done and how far it is, on one line that is
// drawn anew and taken away at the end; elsewhere nothing, for there it would stand in a
// file.
type Stage struct {
	w     io.Writer
	hint  string // what Ctrl-C does
	began time.Time
	stop  chan struct{} // nil where nothing is reported
	ended chan struct{}

	mu    sync.Mutex
	what  string
	done  float64       // of what, 0 to 1; negative where that is not known
	total time.Duration // when it is over, since began; 0 where only done is known
	most  float64       // that was shown: an estimate that grows takes nothing back
}

// patience is how long nothing is reported of what may be over at once.
const patience = 2 * time.Second

// NewStage is of an archive that is asked: it shows nothing until two seconds have passed.
func NewStage(w io.Writer) *Stage {
	return begin(&Stage{w: w, hint: "Ctrl-C: give up", what: "asking the archive"}, patience)
}

// NewTimedStage is of what takes total; hint says what Ctrl-C does.
func NewTimedStage(w io.Writer, what, hint string, total time.Duration) *Stage {
	return begin(&Stage{w: w, hint: hint, what: what, total: total}, 0)
}

func begin(p *Stage, patience time.Duration) *Stage {
	p.began = time.Now()
	if Redraws(p.w) {
		p.stop, p.ended = make(chan struct{}), make(chan struct{})
		go p.paint(patience)
	}
	return p
}

// Show says what is being done, and the share that is done. It may be called often.
func (p *Stage) Show(what string, done float64) {
	p.mu.Lock()
	p.what, p.done, p.total = what, done, 0
	p.mu.Unlock()
}

// ShowLeft says what is being done, and how long it and all that follows take.
func (p *Stage) ShowLeft(what string, left time.Duration) {
	p.mu.Lock()
	p.what, p.total = what, time.Since(p.began)+left
	p.mu.Unlock()
}

// paint shows what is done until the stage is cleared, also while the archive is silent.
func (p *Stage) paint(patience time.Duration) {
	defer close(p.ended)
	wait := time.NewTimer(patience)
	defer wait.Stop()
	told := false
	for {
		select {
		case <-p.stop:
			if told {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		case <-wait.C:
		}
		told = true
		columns, _ := TerminalColumns(p.w)
		fmt.Fprint(p.w, "\r\x1b[K"+p.line(time.Since(p.began), columns))
		wait.Reset(200 * time.Millisecond)
	}
}

// line is what is shown, as far as it has room: a line that wraps cannot be taken away.
func (p *Stage) line(since time.Duration, columns int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if columns <= 0 {
		columns = 80
	}
	done, took := p.done, fmt.Sprintf(" %.0f s", since.Seconds())
	if p.total > 0 {
		done = since.Seconds() / p.total.Seconds()
		took = fmt.Sprintf(" %.0f of %.0f s", min(since, p.total).Seconds(), p.total.Seconds())
	}
	what, hint := printable.Text(p.what), "  ("+p.hint+")"
	room := columns - 1 - len(took) // the cursor has a column too
	if room-len(hint) >= leastWhat {
		room -= len(hint)
	} else {
		hint = ""
	}
	if room <= 0 {
		return took
	}
	what = printable.Cut(what, room)
	bar := ""
	if done >= 0 {
		p.most = max(p.most, min(done, 1))
		for _, width := range []int{BarWidth, shortBar} {
			if bar == "" && room >= ansi.StringWidth(what)+width+len(" []") {
				bar = fmt.Sprintf(" [%-*s]", width, strings.Repeat("=", int(float64(width)*p.most)))
			}
		}
	}
	return what + bar + took + hint
}

// leastWhat is how many columns what is done has at least; the hint goes before them.
const leastWhat = 18

// Clear takes away what is shown; nothing is shown any more.
func (p *Stage) Clear() {
	if p.stop != nil {
		close(p.stop)
		<-p.ended
		p.stop = nil
	}
}
