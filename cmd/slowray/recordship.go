package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/ship"
	"github.com/slowray/slowray/internal/fleet/target"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/sense/host"
	"github.com/slowray/slowray/internal/store"
)

// shipFlags are those of record that are about many hosts.
type shipFlags struct {
	To           []string          `placeholder:"URL" sep:"none" help:"Send what is recorded to where many hosts send it: clickhouse://host:8123/slowray, victorialogs://host:9428, otlp+http://host:4318; may be repeated. What the target does not take waits on disk."`
	ToHistory    bool              `help:"Also send what was recorded before a target was first given, next to what is recorded now. Give it until all of that was sent."`
	ToBuffer     string            `default:"1G" placeholder:"N" help:"How much may wait for each target on disk, as 500M or 2G: the oldest goes first (${default})."`
	Host         string            `placeholder:"NAME" help:"What this host is called where it is sent to; otherwise its own name."`
	Label        map[string]string `placeholder:"KEY=VALUE" mapsep:"none" help:"What is known of this host, as rack=r12; may be repeated. Hosts that are slow are compared by it."`
	OwnNamespace bool              `help:"Record only TCP connections of the network namespace that slowray runs in."`
}

var labelKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,62}$`)

// Bounds of what a host may say of itself.
const (
	mostLabels    = 32
	longestLabel  = 200
	longestHost   = 253
	shipPatience  = 500 * time.Millisecond
	behindIsWorse = 10 * time.Second // then a line tells of it
)

func (f *shipFlags) validate() error {
	if _, err := byteSize(f.ToBuffer); err != nil {
		return fmt.Errorf("--to-buffer %s: %w", f.ToBuffer, err)
	}
	if err := plainText(f.Host, longestHost); err != nil {
		return fmt.Errorf("--host: %w", err)
	}
	if len(f.Label) > mostLabels {
		return fmt.Errorf("--label: %d are more than %d", len(f.Label), mostLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Label)) {
		if !labelKey.MatchString(key) {
			return fmt.Errorf("--label %q: a key begins with a letter, and has letters, digits, \"_\", \"-\" and \".\", 63 at most", key)
		}
		if err := plainText(f.Label[key], longestLabel); err != nil || f.Label[key] == "" {
			return fmt.Errorf("--label %s: %w", key, cmpError(err, errors.New("has no value")))
		}
	}
	if len(f.To) == 0 && f.ToHistory {
		return errors.New("--to-history: is for --to, which is missing")
	}
	if len(f.To) == 0 && (f.Host != "" || len(f.Label) > 0) {
		return errors.New("--host and --label: are for --to, which is missing")
	}
	return nil
}

func cmpError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// plainText says what is wrong with a text that a user gives for others to read.
func plainText(s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("is longer than %d bytes", most)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("has something that cannot be printed")
	case strings.TrimSpace(s) != s:
		return errors.New("begins or ends with a space")
	}
	return nil
}

// shipping is what is sent elsewhere; all of it is nothing without --to.
type shipping struct {
	shipper *ship.Shipper
	links   []store.Link
	runs    programs
	cancel  context.CancelFunc
	done    chan struct{}
}

// ship prepares what --to names, in the directory of a history that is not open yet.
func (c *recordCmd) ship(say func(string)) (*shipping, error) {
	if len(c.To) == 0 {
		return &shipping{}, nil
	}
	size, _ := byteSize(c.ToBuffer)
	out := &shipping{}
	opt := ship.Options{Buffer: size, Say: say, Host: func() fleet.Host {
		h := c.hostFacts()
		h.Programs = out.runs.now()
		return h
	}}
	for _, url := range c.To {
		d, err := target.Open(url)
		if err != nil {
			return nil, fmt.Errorf("--to: %w", err)
		}
		if c.ToHistory {
			again, err := target.Open(url)
			if err != nil {
				return nil, fmt.Errorf("--to: %w", err)
			}
			d.History = again.Target
		}
		opt.Targets = append(opt.Targets, d)
	}
	s, links, err := ship.Prepare(c.Dir, opt)
	if err != nil {
		return nil, stateHint(err)
	}
	out.shipper, out.links = s, links
	return out, nil
}

// programs are what this host runs, as the last window shows it: a record.Sink.
type programs struct {
	last atomic.Pointer[map[string]fleet.Program]
}

func (p *programs) now() map[string]fleet.Program {
	if m := p.last.Load(); m != nil {
		return *m
	}
	return nil
}

// Second implements record.Sink.
func (p *programs) Second(int64, []store.Second) {}

// Request implements record.Sink.
func (p *programs) Request(*store.Request) {}

// Window implements record.Sink.
func (p *programs) Window(w *record.Window) {
	if w.Observation != nil {
		m := fleet.ProgramsOf(w.Observation)
		p.last.Store(&m)
	}
}

// begin begins to send what a history gets.
func (s *shipping) begin(history *store.Store) {
	if s.shipper == nil {
		return
	}
	// It goes on until what is recorded last was written.
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.shipper.Run(ctx, history)
	}()
}

// end sends what is left, for a moment.
func (s *shipping) end() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(shipPatience):
	}
}

// status is how far each target is.
func (s *shipping) status() []ship.Status {
	if s.shipper == nil {
		return nil
	}
	return s.shipper.Status()
}

// hostFacts is what is known of this host.
func (c *recordCmd) hostFacts() fleet.Host {
	h := fleet.Host{Name: cmp.Or(c.Host, c.NodeName), Labels: maps.Clone(c.Label), Version: version()}
	if zone := c.pods.Zone(); zone != "" && h.Labels["zone"] == "" && len(h.Labels) < mostLabels {
		if h.Labels == nil {
			h.Labels = map[string]string{}
		}
		h.Labels["zone"] = printable.Name(zone, longestLabel)
	}
	if facts, err := host.Default().Host(); err == nil {
		h.Kernel, h.CPUs = facts.Kernel, facts.CPUs
		if h.Name == "" {
			h.Name = facts.Name
		}
	}
	if h.Name == "" {
		h.Name, _ = os.Hostname()
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			h.Addresses = append(h.Addresses, ip.IP.String())
		}
	}
	return h
}

// shipLine is how far a target is, as a part of a line; empty where all is well.
func shipLine(s *ship.Status) string {
	if s.Error == "" && s.Behind < behindIsWorse {
		return ""
	}
	text := fmt.Sprintf("%s is %s behind (%s)", printable.Text(s.Title), figure.Seconds(s.Behind.Round(time.Second).Seconds()), figure.Bytes(s.Bytes))
	if s.Error != "" {
		text += ": " + printable.Text(s.Error)
	}
	return text
}
