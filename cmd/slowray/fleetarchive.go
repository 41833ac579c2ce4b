package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
)

// fleetFlags say where the fleet's archive is.
type fleetFlags struct {
	From string `env:"SLOWRAY_FLEET" placeholder:"URL" help:"Where the hosts ship to: clickhouse://[user@]host[,host]/database."`
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
