package commandline

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/printable"
)

// BarWidth is how many columns a bar of progress has.
const BarWidth = 30

// TerminalColumns is the width of the terminal behind w, if it is one.
func TerminalColumns(w io.Writer) (int, bool) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}

// Stage tells on a terminal, of work that takes longer than two seconds, what is being
// done and how far it is; elsewhere nothing, for there it would stand in a file.
type Stage struct {
	w     io.Writer
	began time.Time
	stop  chan struct{} // nil where nothing is reported
	ended chan struct{}

	mu   sync.Mutex
	what string
	done float64 // of what, 0 to 1
}

// patience is how long nothing is reported.
const patience = 2 * time.Second

// NewStage tells nothing until two seconds have passed.
func NewStage(w io.Writer) *Stage {
	p := &Stage{w: w, began: time.Now(), what: "asking the archive"}
	if _, terminal := TerminalColumns(w); terminal {
		p.stop, p.ended = make(chan struct{}), make(chan struct{})
		go p.paint(patience)
	}
	return p
}

// Show says what is being done. It may be called often.
func (p *Stage) Show(what string, done float64) {
	p.mu.Lock()
	p.what, p.done = what, done
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
		fmt.Fprint(p.w, "\r\x1b[K"+p.line(time.Since(p.began)))
		wait.Reset(200 * time.Millisecond)
	}
}

func (p *Stage) line(since time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := strings.Repeat("=", int(float64(BarWidth)*min(max(p.done, 0), 1)))
	return fmt.Sprintf("%s [%-*s] %.0f s  (Ctrl-C: give up) ", printable.Text(p.what), BarWidth, done, since.Seconds())
}

// Clear takes away what is shown; nothing is shown any more.
func (p *Stage) Clear() {
	if p.stop != nil {
		close(p.stop)
		<-p.ended
		p.stop = nil
	}
}
