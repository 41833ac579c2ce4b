package main

import (
	"context"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/fleet"
	"github.com/slowray/slowray/internal/fleet/answer"
	"github.com/slowray/slowray/internal/fleet/clickhouse"
)

// watch does what slowray fleet watch does, to know when enough is known, and when
// what was injected is found: no time would do for every machine.
type watch struct {
	s       *stage
	archive *clickhouse.DB
	watcher *answer.Watcher
}

func newWatch(s *stage, url string) (*watch, error) {
	db, err := clickhouse.Open(url)
	if err != nil {
		return nil, err
	}
	return &watch{s: s, archive: db, watcher: answer.NewWatcher(db, nil)}, nil
}

func (w *watch) close() { w.archive.Close() }

// condition says whether something is so, or else what is missing, and which share of it is
// there; negative where that is not known.
type condition func(context.Context) (ok bool, missing string, share float64, err error)

// until watches until a condition holds, and for atLeast; it fails when it does not
// within patience, with what it waits for.
func (w *watch) until(ctx context.Context, atLeast, patience time.Duration, holds condition) error {
	began := time.Now()
	for {
		if err := w.step(ctx); err != nil {
			return err
		}
		ok, missing, share, err := holds(ctx)
		switch lasted := time.Since(began); {
		case err != nil:
			return err
		case ok && lasted >= atLeast:
			return nil
		case !ok && lasted > atLeast+patience:
			return fmt.Errorf("after %s: %s", patience, missing)
		case !ok:
			w.s.waits(missing, share)
		}
		if err := w.s.wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// step judges the seconds that have passed, and tells what begins and ends in them.
func (w *watch) step(ctx context.Context) error {
	events, err := w.watcher.Step(ctx, time.Now())
	for i := range events {
		w.s.say("  fleet watch: " + events[i].Line())
	}
	return err
}

// known says that the real hosts, and most endpoints of the others, can be judged,
// and that nothing is abnormal.
func (w *watch) known(context.Context) (bool, string, float64, error) {
	enough, all := w.watcher.Known("")
	share := float64(enough) / float64(max(all, 1))
	for _, host := range []string{hostApp, hostDB} {
		if enough, all := w.watcher.Known(host); enough < max(all, realEndpoints[host]) {
			return false, fmt.Sprintf("%s: %d of %d endpoints are known", host, enough, max(all, realEndpoints[host])), share, nil
		}
	}
	if enough < all*3/4 {
		return false, fmt.Sprintf("%d of %d endpoints are known", enough, all), share, nil
	}
	if len(w.watcher.Open()) > 0 {
		return false, "something is abnormal before anything was injected", -1, nil
	}
	return true, "", 1, nil
}

// realEndpoints is how many endpoints the real hosts have at least.
var realEndpoints = map[string]int{hostApp: 2, hostDB: 1}

// found says that something is abnormal, and that db-1's own windows since then have
// findings.
func (w *watch) found(ctx context.Context, since time.Time) (bool, string, float64, error) {
	if len(w.watcher.Open()) == 0 {
		return false, "nothing is abnormal yet", -1, nil
	}
	findings, err := w.archive.Findings(ctx, fleet.Question{From: since, To: time.Now(), Host: hostDB})
	if err != nil {
		return false, "", -1, err
	}
	for i := range findings {
		if f := &findings[i]; f.Start.After(since) {
			return true, "", 1, nil
		}
	}
	return false, "db-1 itself has found nothing yet: it judges 15 s at a time", -1, nil
}
