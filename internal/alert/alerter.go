package alert

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slowray/slowray/internal/diagnose"
	"github.com/slowray/slowray/internal/record"
	"github.com/slowray/slowray/internal/safefile"
	"github.com/slowray/slowray/internal/store"
)

// Options is what an Alerter needs.
type Options struct {
	Config *Config
	Dir    string        // of what is open and waits, slowray's own
	Host   string        // as messages name it
	Page   string        // address of the page; "" for none
	Window time.Duration // of the recorder's windows
	// Say gets what goes wrong, and that it goes well again.
	Say func(text string)
	// Sent, where given, gets a line for each message that a receiver took.
	Sent func(text string)
	Now  func() time.Time // default: time.Now

	firstWait, lastWait time.Duration // between attempts; shorter in tests
}

const (
	firstWait = time.Second
	lastWait  = 5 * time.Minute
	// seen is how many seconds and windows wait to be taken in: the recorder never waits.
	seen = 256
)

// Alerter follows a host and sends alerts. It is a record.Sink.
type Alerter struct {
	opt    Options
	events chan event

	detector *detector // of the recorder's goroutine

	lost atomic.Uint64 // events that there was no room for

	mu    sync.Mutex // of what follows; held while the disk is waited for
	box   *outbox
	dirty bool
	full  bool // the disk did not take what is open, which was said
	wake  map[string]chan struct{}
}

// event is a second or a window, of a host or of a fleet.
type event struct {
	at     time.Time
	harms  []Harm
	sights []sight
	start  time.Time
	report *diagnose.Report // nil: a second
	fleet  *fleetSecond     // instead of all this
	kept   chan struct{}    // closed when the disk has it, or did not take it: then the next event writes it again; nil where nobody waits
}

// New opens what an earlier run has left. Run sends.
func New(opt Options) (*Alerter, error) {
	if opt.firstWait == 0 {
		opt.firstWait, opt.lastWait = firstWait, lastWait
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	// Two windows have to be without a finding before it is over.
	opt.Config.ResolveAfter = max(opt.Config.ResolveAfter, Duration(2*opt.Window+10*time.Second))
	box, err := openOutbox(opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if box.aside != "" {
		opt.Say("alerts: " + box.aside)
	}
	a := &Alerter{opt: opt, events: make(chan event, seen), detector: newDetector(), box: box, wake: map[string]chan struct{}{}}
	box.Incidents.c, box.Incidents.emit = opt.Config, a.emit
	for _, o := range box.Incidents.Open {
		if o.Watched == "" && o.Fired { // of a fleet the watcher knows what was meanwhile
			o.Seen = opt.Now().UTC() // nobody looked: it is not over for that
		}
	}
	for i := range opt.Config.Receivers {
		a.wake[opt.Config.Receivers[i].Name] = make(chan struct{}, 1)
	}
	if n := box.forget(func(name string) bool { return a.wake[name] != nil }); n > 0 {
		opt.Say(fmt.Sprintf("alerts: %d messages for receivers that the rules name no more are given up", n))
		a.dirty = true
	}
	return a, nil
}

// Second implements record.Sink.
func (a *Alerter) Second(at int64, endpoints []store.Second) {
	harms := a.detector.second(endpoints)
	a.put(event{at: time.Unix(at+1, 0).UTC(), harms: harms, sights: a.detector.sights})
}

// Request implements record.Sink.
func (a *Alerter) Request(*store.Request) {}

// Window implements record.Sink.
func (a *Alerter) Window(w *record.Window) {
	if w.Err != nil || w.Observation == nil {
		return
	}
	start := w.Observation.Window.Start
	a.put(event{at: start.Add(time.Duration(w.Observation.Window.Seconds * float64(time.Second))), start: start, report: &w.Report})
}

func (a *Alerter) put(e event) {
	select {
	case a.events <- e:
	default: // the disk is slow: harm that goes on is seen in the next second
		a.lost.Add(1)
	}
}

// emit queues a message, with the lock held.
func (a *Alerter) emit(kind Kind, o *open, to []string) {
	m := a.message(kind, o)
	m.Delivery = strings.ToLower(rand.Text())
	for _, name := range to {
		a.box.add(name, m)
	}
	a.dirty = true
}

// message is an incident as it is now, with the lock held.
func (a *Alerter) message(kind Kind, o *open) *Message {
	m := &Message{Schema: Schema, Kind: kind, Host: a.opt.Host, At: time.Now().UTC(), Incident: o.Incident, Link: a.link(&o.Incident)}
	m.Services, m.Hosts = slices.Clone(o.Services), slices.Clone(o.Hosts)
	return m
}

// link is the page from before the incident on.
func (a *Alerter) link(i *Incident) string {
	if a.opt.Page == "" {
		return ""
	}
	const around = 5 * time.Minute
	to := time.Now()
	if i.Ended != nil {
		to = i.Ended.Add(around)
	}
	q := url.Values{"from": {unix(i.Began.Add(-around))}, "to": {unix(to)}, "view": {"findings"}}
	return strings.TrimSuffix(a.opt.Page, "/") + "/#/?" + q.Encode()
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// Run takes in what was seen, and sends, until ctx is done. What is not sent then waits
// for the next run.
func (a *Alerter) Run(ctx context.Context) {
	var senders sync.WaitGroup
	for i := range a.opt.Config.Receivers {
		senders.Go(func() { a.sendTo(ctx, &a.opt.Config.Receivers[i]) })
	}
	defer a.box.close() // once nobody has anything to write any more
	defer senders.Wait()
	a.keep(func() {})
	for {
		select {
		case <-ctx.Done():
			for len(a.events) > 0 { // the last window, perhaps
				a.takeIn(<-a.events)
			}
			return
		case e := <-a.events:
			a.takeIn(e)
		}
	}
}

func (a *Alerter) takeIn(e event) {
	a.keep(func() { a.take(e) })
	if e.kept != nil {
		close(e.kept)
	}
}

// take follows an event, with the lock held.
func (a *Alerter) take(e event) {
	switch {
	case e.fleet != nil:
		a.box.Incidents.fleet(e.at, e.fleet)
	case e.report == nil:
		a.box.Incidents.harm(e.at, e.harms)
		a.box.Incidents.look(e.at, e.sights)
	default:
		a.box.Incidents.window(e.start, e.at, e.report)
		a.dirty = true
	}
}

// keep changes what is kept and writes it, under one lock: who sends sees no message that a
// kill could still lose, and after it begin a second time. Then it wakes those who send.
func (a *Alerter) keep(change func()) {
	a.mu.Lock()
	change()
	dirty := a.dirty
	var err error
	if dirty {
		err = a.box.save()
		a.dirty = err != nil
	}
	was := a.full
	if dirty {
		a.full = err != nil
	}
	a.mu.Unlock()
	if lost := a.lost.Swap(0); lost > 0 {
		a.opt.Say(fmt.Sprintf("alerts: %d seconds or windows were left out, for the disk is slow: harm may be reported late", lost))
	}
	switch {
	case err != nil && !was: // once: it is tried again each second
		a.opt.Say("alerts: what is open cannot be kept: " + err.Error())
	case dirty && err == nil && was:
		a.opt.Say("alerts: what is open is kept again")
	}
	if dirty {
		for _, c := range a.wake {
			select {
			case c <- struct{}{}:
			default: // it is awake
			}
		}
	}
}

// sendTo sends what waits for one receiver, in order, for as long as it takes.
func (a *Alerter) sendTo(ctx context.Context, r *Receiver) {
	wait := a.opt.firstWait
	refresh := time.NewTicker(refreshEvery)
	defer refresh.Stop()
	failing := ""
	a.refresh(ctx, r)
	for ctx.Err() == nil {
		a.mu.Lock()
		m := a.box.next(r.Name, time.Now())
		a.mu.Unlock()
		if m == nil {
			select {
			case <-ctx.Done():
			case <-a.wake[r.Name]:
			case <-refresh.C:
				a.refresh(ctx, r)
			}
			continue
		}
		err := r.send(ctx, m)
		if ctx.Err() != nil && err != nil {
			return // it waits for the next run
		}
		a.note(r.Name, m, err)
		switch {
		case err == nil, errors.Is(err, errRefused):
			if err == nil && a.opt.Sent != nil {
				a.opt.Sent(fmt.Sprintf("alerts: %s took: %s", r.Name, m.headline()))
			}
			if err == nil && failing != "" {
				a.opt.Say(fmt.Sprintf("alerts: %s takes messages again", r.Name))
				a.refresh(ctx, r) // a restart made it forget the others
			} else if err != nil {
				a.opt.Say(fmt.Sprintf("alerts: %s: a message is given up: %v", r.Name, err))
			}
			failing, wait = "", a.opt.firstWait
			continue
		case err.Error() != failing:
			failing = err.Error()
			a.opt.Say(fmt.Sprintf("alerts: %s: %v; trying again", r.Name, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + mrand.N(wait)):
		}
		wait = min(2*wait, a.opt.lastWait)
	}
}

// note keeps what became of a message.
func (a *Alerter) note(receiver string, m *Message, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.box.counts(receiver)
	now := time.Now().UTC()
	switch {
	case err == nil:
		c.Sent, c.LastSent, c.LastError = c.Sent+1, &now, ""
		a.box.done(receiver, m.Delivery)
	case errors.Is(err, errRefused):
		c.Refused, c.LastError = c.Refused+1, err.Error()
		a.box.done(receiver, m.Delivery)
	default:
		c.Failed, c.LastError = c.Failed+1, err.Error()
		return // the file still has it
	}
	// At once: until it is written, a kill sends it again.
	if err := a.box.save(); err != nil {
		a.dirty = true
	}
}

// refresh tells Alertmanager what goes on: it takes for over what it hears nothing of.
func (a *Alerter) refresh(ctx context.Context, r *Receiver) {
	if r.Alertmanager == nil {
		return
	}
	a.mu.Lock()
	var list []*Message
	for _, o := range a.box.Incidents.Open {
		if o.Fired && slices.Contains(o.To, r.Name) {
			list = append(list, a.message(Begin, o))
		}
	}
	a.mu.Unlock()
	for _, m := range list {
		if err := r.send(ctx, m); err != nil && !errors.Is(err, errRefused) {
			return // it is away: the next time is a minute away, or when it takes a message
		}
	}
}

// SendTest sends a message to one receiver, past everything else.
func SendTest(ctx context.Context, r *Receiver, host string) error {
	now := time.Now().UTC()
	m := &Message{Schema: Schema, Delivery: strings.ToLower(rand.Text()), Kind: Test, Host: host, At: now,
		Incident: Incident{ID: "test-" + strings.ToLower(rand.Text()[:8]), Severity: Warning, Began: now, Title: "This is a test of slowray's alerts: nothing is wrong"}}
	if err := r.send(ctx, m); err != nil {
		return err
	}
	if r.PagerDuty == nil && r.Alertmanager == nil {
		return nil
	}
	m.Kind, m.Ended = End, &now // they would stay open
	return r.send(ctx, m)
}

// Status is what a directory of alerts holds.
type Status struct {
	Open    []Incident         `json:"open"`
	Waiting map[string]int     `json:"waiting"`
	Counts  map[string]*Counts `json:"receivers"`
	// Damaged are files that could not be read and were moved aside: paths, oldest first.
	Damaged []string `json:"damaged,omitempty"`
}

// ReadStatus reads what a running or ended Alerter has kept.
func ReadStatus(dir string) (*Status, error) {
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	b := &outbox{dir: d}
	defer d.Close()
	if err := b.read(); err != nil {
		return nil, err
	}
	s := &Status{Open: []Incident{}, Waiting: map[string]int{}, Counts: b.Counts}
	aside, err := asideIn(d)
	if err != nil {
		return nil, err
	}
	for _, name := range aside {
		s.Damaged = append(s.Damaged, filepath.Join(d.Path(), name))
	}
	for _, o := range b.Incidents.Open {
		if o.Fired {
			s.Open = append(s.Open, o.Incident)
		}
	}
	for name, list := range b.Waiting {
		s.Waiting[name] = len(list)
	}
	return s, nil
}
