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
	said    string
}

func newWatch(s *stage, url string) (*watch, error) {
	db, err := clickhouse.Open(url)
	if err != nil {
		return nil, err
	}
	return &watch{s: s, archive: db, watcher: answer.NewWatcher(db, nil)}, nil
}

func (w *watch) close() { w.archive.Close() }

// until watches until a condition holds, and for atLeast; it fails when it does not
// within patience, with what it waits for.
func (w *watch) until(ctx context.Context, atLeast, patience time.Duration, holds func(context.Context) (ok bool, missing string, err error)) error {
	began := time.Now()
	for {
		if err := w.step(ctx); err != nil {
			return err
		}
		ok, missing, err := holds(ctx)
		switch lasted := time.Since(began); {
		case err != nil:
			return err
		case ok && lasted >= atLeast:
			return nil
		case !ok && lasted > atLeast+patience:
			return fmt.Errorf("after %s: %s", patience, missing)
		case !ok && missing != w.said && lasted > 10*time.Second:
			w.said = missing
			w.s.say("  " + missing)
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
func (w *watch) known(context.Context) (bool, string, error) {
	for host, expect := range map[string]int{hostApp: 2, hostDB: 1} {
		if enough, all := w.watcher.Known(host); enough < max(all, expect) {
			return false, "the real hosts are not known yet", nil
		}
	}
	enough, all := w.watcher.Known("")
	if enough < all*3/4 {
		return false, "most of the simulated hosts are not known yet", nil
	}
	if len(w.watcher.Open()) > 0 {
		return false, "something is abnormal before anything was injected", nil
	}
	return true, "", nil
}

// found says that something is abnormal, and that db-1's own windows since then have
// findings.
func (w *watch) found(ctx context.Context, since time.Time) (bool, string, error) {
	if len(w.watcher.Open()) == 0 {
		return false, "nothing is found to be abnormal", nil
	}
	findings, err := w.archive.Findings(ctx, fleet.Question{From: since, To: time.Now(), Host: hostDB})
	if err != nil {
		return false, "", err
	}
	for i := range findings {
		if f := &findings[i]; f.Start.After(since) {
			return true, "", nil
		}
	}
	return false, "db-1 itself has found nothing", nil
}
