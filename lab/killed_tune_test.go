package lab

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/server"
)

// TestTuneKilled: slowray tune, killed with -9 at random moments while it fixes
// two faults, with its watchdogs every other time: what it was trying is put back
// at once, and what it had kept by slowray undo. Settings, limits and files are
// then as before.
func TestTuneKilled(t *testing.T) {
	needLab(t)
	kills, err := strconv.Atoi(os.Getenv(killsEnv))
	if err != nil {
		t.Skipf("SKIPPED: takes minutes: set %s to how often it is killed", killsEnv)
	}
	p := newKilledTune(t, buildSlowray(t))
	kept := 0
	for n := range kills {
		kept += p.killTune(n%2 == 1)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d of them while something was changed, %d after something was kept", kills, p.changed, kept)
}

// newKilledTune injects the two faults and gives slowray tune's command. The load
// is slowray's own.
func newKilledTune(t *testing.T, slowray string) *killedProof {
	t.Helper()
	ctx := t.Context()
	r, err := prepare(twoFaults(t), Options{Slowray: []string{slowray}, Out: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.acquire(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.lock.Release() })
	const lifetime = 40 * time.Minute
	box, err := sandbox.Open(ctx, r.lock, r.boxOptions(r.Faults, lifetime))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { box.Close() })
	if _, err := server.Start(ctx, box, r.exe, r.Injected(r.Faults), r.plan); err != nil {
		t.Fatal(err)
	}
	p := &killedProof{t: t, state: filepath.Join(t.TempDir(), "journal")}
	load, err := (&tuning{r, TuneOptions{Block: time.Second}, box, p.state}).loadCommand(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p.args = []string{slowray, "tune", "--apply", "--json", "--load", load, "--for", "2m", "--look", "3s", "--block", "1s",
		"--port", strconv.Itoa(r.plan.FrontPort), "--state", p.state}
	p.settle(box)
	return p
}

// tuneWithChanges is the time in which slowray tune is killed, from when something
// is changed for the first time: about as long as it takes for two faults.
const tuneWithChanges = 45 * time.Second

// killTune runs slowray tune, kills it, and gives 1 where it had kept a change.
func (p *killedProof) killTune(both bool) (kept int) {
	p.t.Helper()
	cmd, ended, _ := p.start()
	defer func() { cmd.Process.Kill(); <-ended }()
	eventuallyIn(p.t, time.Minute, "something is changed", func() bool {
		list := p.open()
		return len(list) > 0 && list[0].State != journal.Prepared
	})
	moment := time.Duration(rand.Int64N(int64(tuneWithChanges)))
	select {
	case <-ended: // sooner than usual: what it kept is still to be undone
	case <-time.After(moment):
	}
	list := p.open()
	var states []journal.State
	for _, e := range list {
		states = append(states, e.State)
		if e.State == journal.Kept {
			kept = 1
		}
		if both && e.Watchdog.Lives() {
			syscall.Kill(e.Watchdog.PID, syscall.SIGKILL)
		}
	}
	cmd.Process.Kill()
	<-ended
	for _, e := range list {
		eventually(p.t, "the watchdog has ended", func() bool { return !e.Watchdog.Lives() })
	}
	if len(list) > 0 {
		p.changed++
	}
	if !both {
		for _, e := range p.open() {
			if e.State != journal.Kept {
				p.t.Errorf("left by its watchdog: %+v", e)
			}
		}
	}
	p.undo(fmt.Sprintf("killed after %s, %v, with its watchdogs: %v", moment.Round(time.Millisecond), states, both))
	return kept
}
