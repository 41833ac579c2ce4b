package ship

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/store"
)

// Destination is a target, and what it is called.
type Destination struct {
	Target fleet.Target
	// History, if set, is the same target once more, opened for itself: by it is sent what was
	// recorded before the target was first given. It has to be given until all of that was sent.
	History fleet.Target
	Name    string // of its directory below DIR/ship: letters, digits, "-", "_" and "."
	Title   string // for people: its URL without a password
	// Advice, if set, says in one line what to do about an error of the target; empty where
	// that is not known.
	Advice func(error) string

	past bool // it gets what was recorded before
}

// Options say what is shipped. Zero values are the defaults.
type Options struct {
	Targets []Destination
	// Buffer bounds what waits for each target on disk, bytes; default 1 GiB. The
	// oldest goes first.
	Buffer int64
	// Host tells what is known of this host; its ID is set by the Shipper. It is
	// asked each minute.
	Host func() fleet.Host
	// Say, if set, is called with what begins and ends to go wrong.
	Say func(message string)

	linger  map[fleet.Stream]time.Duration // how long records wait for others, or longer where the target is a fleet.Lingerer
	timeout time.Duration                  // of Send and Mark
	// Waits after failures, shorter in tests.
	firstWait, lastWait time.Duration
	hello, bound, again time.Duration
	share               float64 // of one CPU, while there is much to send
	pastShare           float64 // the same of what was recorded before
}

const (
	defaultBuffer = 1 << 30
	// requestLinger is how long requests wait: the sums of a second go at once, unless
	// small batches are expensive for the target.
	requestLinger  = 2 * time.Second
	defaultTimeout = 30 * time.Second
	firstWait      = 250 * time.Millisecond
	lastWait       = 15 * time.Second
	helloEvery     = time.Minute
	boundEvery     = 5 * time.Second
	sayAgain       = time.Minute
	// catchUpShare is how much of one CPU this process takes at most while it sends
	// what has piled up.
	catchUpShare = 0.25

	shipDir = "ship"
	idName  = "id"
)

// Streams are the streams that are shipped.
var Streams = []fleet.Stream{fleet.Seconds, fleet.Requests, fleet.Findings}

// Store is the history that is shipped; store.Store is one.
type Store interface {
	Durable(stream string) store.Durable
	Follow(stream string) <-chan struct{}
}

// Shipper ships one history.
type Shipper struct {
	opt   Options
	id    string
	dir   folder                // of all targets
	store atomic.Pointer[Store] // nil before Run
	to    []*destination
	past  *Shipper // of what was recorded before; nil: none
}

// Prepare makes what is needed in the directory of a store that is not open yet.
// The store is to be opened with these Links.
func Prepare(dir string, opt Options) (*Shipper, []store.Link, error) {
	opt.Buffer = cmp.Or(opt.Buffer, defaultBuffer)
	opt.timeout = cmp.Or(opt.timeout, defaultTimeout)
	opt.firstWait, opt.lastWait = cmp.Or(opt.firstWait, firstWait), cmp.Or(opt.lastWait, lastWait)
	opt.hello, opt.bound = cmp.Or(opt.hello, helloEvery), cmp.Or(opt.bound, boundEvery)
	opt.again, opt.share = cmp.Or(opt.again, sayAgain), cmp.Or(opt.share, catchUpShare)
	opt.pastShare = cmp.Or(opt.pastShare, pastShare)
	if opt.linger == nil {
		opt.linger = map[fleet.Stream]time.Duration{fleet.Requests: requestLinger}
	}
	if opt.Say == nil {
		opt.Say = func(string) {}
	}
	made, err := safefile.MakeDir(dir, 0o700)
	if err != nil {
		return nil, nil, fmt.Errorf("ship: %w", err)
	}
	made.Close()
	id, err := historyID(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("ship: %w", err)
	}
	s := &Shipper{opt: opt, id: id, dir: folder(filepath.Join(dir, shipDir))}
	var links []store.Link
	names := map[string]bool{}
	for _, to := range opt.Targets {
		if names[to.Name] {
			s.close()
			return nil, nil, fmt.Errorf("ship: %s: is given twice", to.Title)
		}
		names[to.Name] = true
		d, link, err := s.destination(filepath.Join(dir, shipDir, to.Name), to)
		if err != nil {
			s.close()
			return nil, nil, fmt.Errorf("ship: %s: %w", to.Title, err)
		}
		s.to = append(s.to, d)
		if err := s.planPast(d, &link); err != nil {
			s.close()
			return nil, nil, fmt.Errorf("ship: %s: %w", to.Title, err)
		}
		links = append(links, link)
	}
	s.sayForgotten(filepath.Join(dir, shipDir), names)
	return s, links, nil
}

// historyID is the ID of a history, made when there is none.
func historyID(dir string) (string, error) {
	text, err := folder(dir).read(idName)
	if err == nil {
		id := strings.TrimSpace(string(text))
		if len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "" {
			return "", fmt.Errorf("%s: is not the ID of a history (remove it to get another one)", filepath.Join(dir, idName))
		}
		return id, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // RFC 9562, version 4
	id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return id, folder(dir).write(idName, []byte(id+"\n"))
}

// sayForgotten tells of what waits for targets that are not given any more.
func (s *Shipper) sayForgotten(dir string, given map[string]bool) {
	list, _ := os.ReadDir(dir)
	for _, entry := range list {
		if given[entry.Name()] || !entry.IsDir() {
			continue
		}
		var bytes int64
		for _, f := range waiting(folder(filepath.Join(dir, entry.Name()))) {
			bytes += f.bytes
		}
		if bytes > 0 {
			s.opt.Say(fmt.Sprintf("%s: up to %s wait for a target that --to does not name any more (remove the directory to forget them)",
				filepath.Join(dir, entry.Name()), figure.Bytes(bytes)))
		}
	}
}

// durable is how far a stream is on disk.
func (s *Shipper) durable(stream fleet.Stream) store.Durable {
	return (*s.store.Load()).Durable(string(stream))
}

// ID is the ID of the history.
func (s *Shipper) ID() string { return s.id }

// Run ships what the store has, until ctx ends, and then what is left, for half a
// second. It closes the targets.
func (s *Shipper) Run(ctx context.Context, st Store) {
	s.store.Store(&st)
	var all sync.WaitGroup
	for _, d := range s.to {
		all.Go(func() { d.run(ctx) })
	}
	if s.past != nil {
		var none Store = ended{}
		s.past.store.Store(&none)
		for _, d := range s.past.to {
			all.Go(func() { d.run(ctx) })
		}
	}
	all.Go(func() { s.report(ctx) })
	all.Wait()
	s.leave(true)
	s.close()
}

func (s *Shipper) close() {
	if s.past != nil {
		s.past.close()
	}
	for _, d := range s.to {
		d.close()
	}
}

// host is what is known of this host now.
func (s *Shipper) host() *fleet.Host {
	var h fleet.Host
	if s.opt.Host != nil {
		h = s.opt.Host()
	}
	h.ID = s.id
	return &h
}
