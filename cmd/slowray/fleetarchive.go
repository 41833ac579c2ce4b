package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
	"github.com/slowray/slowray/internal/report"
)

// fleetFlags say where the fleet's archive is.
type fleetFlags struct {
	From string `env:"SLOWRAY_FLEET" placeholder:"URL" help:"Where the hosts ship to: clickhouse://[user@]host[,host]/database. Without it: $$SLOWRAY_FLEET."`
}

// archives opens archives, by the scheme of their URL.
var archives = map[string]func(url string) (fleet.Archive, error){
	strings.TrimSuffix(clickhouse.Scheme, "://"): func(url string) (fleet.Archive, error) { return clickhouse.Open(url) },
}

// open opens the archive; what it returns may be an io.Closer too.
func (f *fleetFlags) open() (fleet.Archive, error) {
	if f.From == "" {
		return nil, errors.New("fleet: where do the hosts ship to? Give --from clickhouse://host/database, or set SLOWRAY_FLEET")
	}
	scheme, _, ok := strings.Cut(f.From, "://")
	if !ok {
		return nil, fmt.Errorf("fleet: --from %s is no URL: give clickhouse://host/database", withoutPassword(f.From))
	}
	open := archives[scheme]
	if open == nil {
		return nil, fmt.Errorf("fleet: %s can only be shipped to, not asked: give clickhouse://host/database", withoutPassword(f.From))
	}
	return open(f.From)
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

// withoutPassword is a URL as it may be shown.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	return u.Redacted()
}

// stage tells of work that takes longer than two seconds: on a terminal what is being
// done and how far it is, elsewhere once that it takes a while.
type stage struct {
	w        io.Writer
	terminal bool
	began    time.Time
	shown    time.Time
	told     bool
	quiet    bool // tell nothing any more
}

// patience is how long nothing is told.
const patience = 2 * time.Second

func newStage(w io.Writer) *stage {
	_, terminal := terminalColumns(w)
	return &stage{w: w, terminal: terminal, began: time.Now()}
}

func (p *stage) show(what string, done float64) {
	now := time.Now()
	if p.quiet || now.Sub(p.began) < patience || now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = now
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\x1b[K%s [%-*s] %.0f s  (Ctrl-C: give up) ", report.Clean(what), barWidth, strings.Repeat("=", int(float64(barWidth)*done)), now.Sub(p.began).Seconds())
	case !p.told:
		fmt.Fprintf(p.w, "slowray: %s\n", report.Clean(what))
	}
	p.told = true
}

func (p *stage) clear() {
	if p.terminal && p.told {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
