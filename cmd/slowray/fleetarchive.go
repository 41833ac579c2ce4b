package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/printable"
)

// fleetFlags say where the fleet's archive is.
type fleetFlags struct {
	From string `env:"SLOWRAY_FLEET" placeholder:"URL" help:"Where the hosts ship to: clickhouse://[user@]host[,host]/database. Without it: $$SLOWRAY_FLEET."`
}

// archives opens archives, by the scheme of their URL.
var archives = map[string]func(url string) (fleet.Archive, error){
	strings.TrimSuffix(clickhouse.Scheme, "://"): func(url string) (fleet.Archive, error) { return clickhouse.Open(url) },
}

// fleetHeap is largeHeap of commands that keep what thousands of hosts did.
const fleetHeap = 2 << 30

// open opens the archive; what it returns may be an io.Closer too.
func (f *fleetFlags) open() (fleet.Archive, error) {
	debug.SetMemoryLimit(fleetHeap)
	if f.From == "" {
		return nil, errors.New("fleet: where do the hosts ship to? Give --from clickhouse://host/database, or set SLOWRAY_FLEET")
	}
	scheme, _, ok := strings.Cut(f.From, "://")
	if !ok {
		return nil, fmt.Errorf("fleet: --from %q is no URL: give clickhouse://host/database", shortened(f.From))
	}
	open := archives[scheme]
	if open == nil {
		return nil, fmt.Errorf("fleet: --from %s: only ClickHouse can be asked: give clickhouse://host/database", withoutPassword(f.From))
	}
	return open(f.From)
}

// shortened is a text as an error may show it: what comes after an @ only, for a password may be before.
func shortened(text string) string {
	text = text[strings.LastIndexByte(text, '@')+1:]
	const most = 60
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// advised adds to an error what to do about it, as far as that is known.
func advised(err error) error {
	if advice := clickhouse.Advice(err); advice != "" {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return err
}

// closeArchive closes an archive that holds connections.
func closeArchive(a fleet.Archive) {
	if c, ok := a.(io.Closer); ok {
		c.Close()
	}
}

// withoutPassword is a URL as an error may show it: its scheme, and what comes after an @.
func withoutPassword(text string) string {
	if _, err := url.Parse(text); err != nil {
		return "(a URL that cannot be read)"
	}
	scheme, rest, _ := strings.Cut(text, "://")
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	return shortened(scheme) + "://" + shortened(rest)
}

// stage tells on a terminal, of work that takes longer than two seconds, what is being
// done and how far it is; elsewhere nothing, for there it would stand in a file.
type stage struct {
	w     io.Writer
	began time.Time
	stop  chan struct{} // nil where nothing is told
	ended chan struct{}

	mu   sync.Mutex
	what string
	done float64 // of what, 0 to 1
}

// patience is how long nothing is told.
const patience = 2 * time.Second

func newStage(w io.Writer) *stage {
	p := &stage{w: w, began: time.Now(), what: "asking the archive"}
	if _, terminal := terminalColumns(w); terminal {
		p.stop, p.ended = make(chan struct{}), make(chan struct{})
		go p.paint(patience)
	}
	return p
}

// show says what is being done. It may be called often.
func (p *stage) show(what string, done float64) {
	p.mu.Lock()
	p.what, p.done = what, done
	p.mu.Unlock()
}

// paint shows what is done until the stage is cleared, also while the archive is silent.
func (p *stage) paint(patience time.Duration) {
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

func (p *stage) line(since time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := strings.Repeat("=", int(float64(barWidth)*min(max(p.done, 0), 1)))
	return fmt.Sprintf("%s [%-*s] %.0f s  (Ctrl-C: give up) ", printable.Text(p.what), barWidth, done, since.Seconds())
}

// clear takes away what is shown; nothing is shown any more.
func (p *stage) clear() {
	if p.stop != nil {
		close(p.stop)
		<-p.ended
		p.stop = nil
	}
}
