package journal

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/stalltest"
)

// What putting back two changes has to wait for on the disk: each write of the entry is
// two files and twice their directory.
const (
	toPutBack = 2 * 4         // before each change
	toClose   = toPutBack + 7 // the last state, and the move to the history
)

// inTime fails unless a lease that ended with why was ended within silence and two ticks
// of what happened at start, and the work was done at end, with so many fsyncs. What the
// machine and its disk took meanwhile is not the journal's.
func (h *host) inTime(m *stalltest.Meter, why string, start time.Time, silence time.Duration, end time.Time, fsyncs int) {
	h.t.Helper()
	list, err := h.open().History()
	if err != nil || len(list) != 1 {
		h.t.Fatalf("history: %+v, %v", list, err)
	}
	for _, e := range list[0].Events {
		if text, ok := strings.CutPrefix(e.Text, "undo: "); !ok || !strings.Contains(text, why) {
			continue
		}
		away, _ := m.Between(start, e.Time)
		if took, most := e.Time.Sub(start), silence+2*watchdogTick+away; took > most {
			h.t.Errorf("%q was decided after %s, want at most %s, of which the CPU was away for %s", why, took, most, away)
		}
		away, slowest := m.Between(e.Time, end)
		if took, most := end.Sub(e.Time), time.Duration(fsyncs)*slowest+200*time.Millisecond+away; took > most {
			h.t.Errorf("%q: done after %s, want at most %s, of which the CPU was away for %s; an fsync took %s", why, took, most, away, slowest)
		}
		h.t.Logf("%q: decided after %s, done after %s", why, e.Time.Sub(start), end.Sub(start))
		return
	}
	h.t.Errorf("no %q in the history: %+v", why, list[0].Events)
}

// Killed with -9 at any moment, with or without its watchdog, a run leaves
// nothing behind, at the latest after `slowray undo`.
func TestKilledAtRandomMoments(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for _, both := range []bool{false, true} {
		name := map[bool]string{false: "owner", true: "owner and watchdog"}[both]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A block takes as long as the disk needs: the moments are in the first one
			// and a half.
			h := newHost(t, 2)
			p := h.start("blocks", "")
			began := time.Now()
			p.says(t, "done")
			p.says(t, "done")
			block := time.Since(began)
			p.Process.Kill()
			p.Wait()
			h.free()
			changed := 0
			for range 20 {
				h := newHost(t, 2)
				p := h.start("blocks", "")
				time.Sleep(rand.N(block * 3 / 2))
				if both {
					syscall.Kill(p.watchdog, syscall.SIGKILL)
				}
				p.Process.Kill()
				p.Wait()
				j := h.free()
				if both {
					if !h.all(before) {
						changed++
					}
					if list, err := j.List(); err != nil || len(list) > 0 && Notice(h.dir) == "" {
						t.Errorf("no notice of %+v (%v)", list, err)
					}
					outcomes, err := j.Undo()
					if err := joined(outcomes); err != nil {
						t.Error(err)
					}
					if err != nil {
						t.Error(err)
					}
				}
				h.are(before)
				h.listed()
				if t.Failed() {
					return
				}
			}
			if both && changed == 0 {
				t.Error("of twenty kills, none found anything changed: this test tests nothing")
			}
			t.Logf("a block took %s", block)
		})
	}
}

// A kill at each step of the journal's and the changes' writes, of the owner, of
// the watchdog, and of both, leaves enough to put everything back.
func TestKilledAtEveryStep(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 8
	}
	for _, role := range []string{"owner", "guardian", "both"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			n := 1
			for ; n < 200; n += stride {
				h := newHost(t, 1)
				p := h.start("once", fmt.Sprintf("%s %d", role, n))
				rest := new(strings.Builder)
				p.out.WriteTo(rest)
				p.Wait()
				j := h.free()
				outcomes, err := j.Undo()
				if err != nil || joined(outcomes) != nil {
					t.Errorf("step %d: %v, %v", n, err, joined(outcomes))
				}
				h.are(before)
				h.listed()
				if t.Failed() {
					t.Fatalf("step %d of the %s; the owner said %q", n, role, rest)
				}
				if strings.Contains(rest.String(), "closed: <nil>") && role != "owner" || p.ProcessState.Success() && role == "owner" {
					break // there are no more steps
				}
				if n%10 == 1 || stride > 1 { // the next run can change something again
					if err := h.begin().Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if least := map[string]int{"owner": 6, "guardian": 30, "both": 30}[role]; n <= least || n >= 200 {
				t.Errorf("%d steps: the hook is not called any more", n)
			}
			t.Logf("%s: at most %d steps", role, n-1)
		})
	}
}

// An owner that ends, or stops, has its changes taken back in time.
func TestWatchdogTakesOver(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := stalltest.Start(t)
			h := newHost(t, 2)
			p := h.start("hold", "")
			p.says(t, "applied: <nil>")
			h.are(with)
			start := time.Now()
			p.Process.Signal(signal)
			if !wait(time.Minute, func() bool { return h.all(before) }) {
				t.Fatal("not taken back")
			}
			end := time.Now()
			if signal == syscall.SIGSTOP {
				p.Process.Signal(syscall.SIGCONT)
				p.says(t, "ended: slowray (pid ")
			}
			p.Wait()
			h.free()
			h.listed()
			if list, err := h.open().History(); err != nil || len(list) != 1 || list[0].State != Undone ||
				!strings.Contains(list[0].Events[len(list[0].Events)-3].Text, "undo: slowray") {
				t.Errorf("history: %+v, %v", list, err)
			}
			if signal == syscall.SIGSTOP {
				h.inTime(m, "has said nothing", start, maxSilence, end, toPutBack)
			} else {
				h.inTime(m, "ended without putting it back", start, 0, end, toPutBack)
			}
		})
	}
}

// A service that gets worse has the changes undone at once.
func TestWorse(t *testing.T) {
	t.Parallel()
	m := stalltest.Start(t)
	h := newHost(t, 2)
	l := h.begin()
	if err := l.Apply(); err != nil {
		t.Fatal(err)
	}
	l.Beat(Health{})
	start := time.Now()
	l.Beat(Health{Worse: true, Why: "errors 0 % → 12 %"})
	l.Beat(Health{}) // must not hide the one before
	if why := <-l.Ended(); why != "the service got worse: errors 0 % → 12 %" {
		t.Errorf("ended: %s", why)
	}
	h.inTime(m, "the service got worse", start, 0, time.Now(), toClose)
	h.are(before)
	if err := l.Apply(); err == nil || !strings.Contains(err.Error(), "the lease has ended: the service got worse") {
		t.Errorf("applied again: %v", err)
	}
	h.are(before)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Without its watchdog an owner puts everything back itself, at once.
func TestWatchdogKilled(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := stalltest.Start(t)
			h := newHost(t, 2)
			l := h.begin()
			if err := l.Apply(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			syscall.Kill(l.cmd.Process.Pid, signal)
			if why := <-l.Ended(); !strings.Contains(why, "was killed: its changes are put back") {
				t.Errorf("ended: %s", why)
			}
			silence := time.Duration(0)
			if signal == syscall.SIGSTOP {
				silence = maxDead + maxDead/10 // counted in tenths
			}
			h.inTime(m, "the watchdog was killed", start, silence, time.Now(), toClose)
			h.are(before)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			h.listed()
		})
	}
}
