package lab

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/lab/sandbox"
	"github.com/slowray/slowray/lab/snapshot"
)

// killsEnv is how many times a proof is killed; ten in each incident are the
// twenty of a release.
const killsEnv = "LAB_KILLS"

// TestProveKilled: slowray prove, killed with -9 at random moments of a proof, with
// its watchdog every other time, leaves settings, limits and files as before: by
// itself, or after slowray undo where the watchdog was killed too.
func TestProveKilled(t *testing.T) {
	needLab(t)
	kills, err := strconv.Atoi(os.Getenv(killsEnv))
	if err != nil {
		t.Skipf("SKIPPED: takes minutes: set %s to how often each proof is killed", killsEnv)
	}
	slowray := buildSlowray(t)
	for _, incident := range []struct{ name, cause string }{
		{"accept-queue-somaxconn", "accept-queue-overflow"}, // a sysctl and a backlog
		{"nginx-limit-req", "nginx-limit-req"},              // a file of configuration, and a reload
	} {
		t.Run(incident.name, func(t *testing.T) {
			p := newKilledProof(t, slowray, incident.name, incident.cause)
			for n := range kills {
				p.kill(n%2 == 1, n%4 > 1)
				if t.Failed() {
					return
				}
			}
			t.Logf("%d kills, %d of them while something was changed", kills, p.changed)
		})
	}
}

// killedProof is an incident under load, in which a proof is killed.
type killedProof struct {
	t       *testing.T
	args    []string
	state   string // directory of the journal
	scope   snapshot.Scope
	before  *snapshot.Snapshot
	changed int // kills after which something was to be put back
}

func newKilledProof(t *testing.T, slowray, name, cause string) *killedProof {
	t.Helper()
	ctx := t.Context()
	r, err := open(ctx, name, Options{Slowray: []string{slowray}, Out: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.lock.Release() })
	in, err := r.inject(ctx, 15*time.Minute) // the load must not end meanwhile: it writes a file then
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.box.Close() })
	p := &killedProof{t: t, state: filepath.Join(t.TempDir(), "journal")}
	p.args = []string{slowray, "prove", cause, "--apply", "--json", "--for", "1s", "--block", "1s",
		"--port", strconv.Itoa(r.plan.FrontPort), "--state", p.state}
	time.Sleep(max(3*time.Second, r.Lead))
	p.settle(in.box)
	return p
}

// settle takes the state to compare with, but for what does not hold by itself.
func (p *killedProof) settle(box *sandbox.Box) {
	p.t.Helper()
	p.scope = snapshot.Scope{Namespaces: []int{box.PID()}, PIDs: pidsIn(box.PID()), Paths: []string{box.Dir}}
	p.before = p.take()
	time.Sleep(3 * time.Second)
	p.before.Settle(p.take())
}

// pidsIn are the processes of the sandbox with this init, by their IDs on the host.
func pidsIn(init int) (pids []int) {
	inside, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(init), "ns/pid"))
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if ns, err := os.Readlink(filepath.Join(dir, "ns/pid")); err == nil && ns == inside {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (p *killedProof) take() *snapshot.Snapshot {
	p.t.Helper()
	s, err := snapshot.Take(context.Background(), p.scope)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// The time in which a proof is killed: from when it is on record, or from when
// something is changed for the first time, which is later.
const (
	wholeProof  = 12 * time.Second
	withChanges = 5 * time.Second
)

// start starts slowray; ended is closed when it has ended, and out may be read then.
func (p *killedProof) start() (cmd *exec.Cmd, ended <-chan struct{}, out *bytes.Buffer) {
	p.t.Helper()
	cmd, out = exec.Command(p.args[0], p.args[1:]...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait()
		close(done)
	}()
	return cmd, done, out
}

// kill runs a proof and kills it at a random moment: of all of it, or of the part
// with changes; alone, or with its watchdog.
func (p *killedProof) kill(both, all bool) {
	p.t.Helper()
	cmd, ended, out := p.start()
	defer func() { cmd.Process.Kill(); <-ended }()
	var e journal.Entry
	begun := time.Now()
	for e.ID == "" {
		select {
		case <-ended:
			p.t.Fatalf("slowray prove ended before it had changed anything: %s", out)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begun) > 30*time.Second {
			p.t.Fatal("slowray prove has put nothing on record in 30 s")
		}
		if list := p.open(); len(list) > 0 && list[0].Watchdog.PID != 0 {
			e = list[0]
		}
	}
	state := func() journal.State {
		if list := p.open(); len(list) > 0 {
			return list[0].State
		}
		return journal.Undone
	}
	limit := wholeProof
	if !all {
		limit = withChanges
		eventuallyIn(p.t, 40*time.Second, "something is changed", func() bool { return state() != journal.Prepared })
	}
	moment := time.Duration(rand.Int64N(int64(limit)))
	time.Sleep(moment)
	was := state()
	if both && e.Watchdog.Lives() {
		syscall.Kill(e.Watchdog.PID, syscall.SIGKILL)
	}
	cmd.Process.Kill()
	<-ended
	eventually(p.t, "the watchdog has ended", func() bool { return !e.Watchdog.Lives() })
	if list := p.open(); len(list) > 0 && !both {
		p.t.Errorf("left by its watchdog: %+v", list)
	}
	if was != journal.Prepared && was != journal.Undone {
		p.changed++
	}
	p.undo(fmt.Sprintf("killed after %s, %s, with its watchdog: %v", moment.Round(time.Millisecond), was, both))
}

// undo takes back what is on record, and fails the test where anything is not as
// before. when says when slowray was killed.
func (p *killedProof) undo(when string) {
	p.t.Helper()
	undo := exec.Command(p.args[0], "undo", "--state", p.state)
	said, err := undo.CombinedOutput()
	if err != nil {
		p.t.Errorf("slowray undo: %v: %s", err, said)
	}
	for _, line := range snapshot.Diff(p.before, p.take()) {
		if !notSlowrays(line) {
			p.t.Errorf("%s: %s", when, line)
		}
	}
	p.t.Logf("%s; undo: %s", when, bytes.TrimSpace(said))
}

// eventuallyIn fails unless ok within a time.
func eventuallyIn(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func (p *killedProof) open() []journal.Entry {
	j, err := journal.Existing(p.state)
	if err != nil {
		return nil // not yet there
	}
	defer j.Close()
	list, err := j.List()
	if err != nil {
		p.t.Error(err)
	}
	return list
}

// device is a device in the name of a sysctl.
var device = regexp.MustCompile(`^host (sysctl net/ipv[46]/(conf|neigh)/|link|qdisc|class|filter)`)

// notSlowrays says that a difference is not a change of slowray: listeners and
// devices of other programs on the host, processes that a server starts anew
// when it reads its configuration, and logs.
func notSlowrays(line string) bool {
	comesOrGoes := strings.Contains(line, ": is new: ") || strings.HasSuffix(line, ", is gone")
	key, _, _ := strings.Cut(line, ": ")
	return strings.HasPrefix(line, "host backlog ") || device.MatchString(line) && comesOrGoes ||
		strings.HasPrefix(line, "process ") && comesOrGoes || strings.HasPrefix(line, "file ") && strings.HasSuffix(key, ".log")
}
