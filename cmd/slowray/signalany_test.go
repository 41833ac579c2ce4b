package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/observe/observetest"
	"github.com/slowray/slowray/internal/stalltest"
)

// endWithin is in how much time a command that was asked to end is gone. CPUs that go
// away meanwhile are not its own time, nor is one fsync: it ends itself amid what it has
// to store, but the kernel waits for what is under way on the disk.
const endWithin = time.Second

// TestEndsAtAnyMoment sends SIGTERM to commands at random moments of their lives: as
// they start, load programs into the kernel, watch, read, judge and write.
func TestEndsAtAnyMoment(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to watch a host: how soon commands end is NOT tested")
	}
	if testing.Short() {
		t.Skip("SKIP: takes a minute: NOT tested with -short")
	}
	const tries = 22 // two moments of each command; they are others in each run
	dir := t.TempDir()
	// A host that takes seconds to read and to judge.
	crowded := filepath.Join(dir, "crowded.obs")
	h := observetest.Host{Called: 6000, Services: 3000, Processes: 3000, Namespaces: 300, Sockets: 6000, Waits: 1500, Drops: 800, Pools: 100, Ill: 1}
	if err := writePrivate(crowded, func(w io.Writer) error { return observe.Write(w, h.Observation()) }); err != nil {
		t.Fatal(err)
	}
	runLoad(t) // there are requests to see
	stalls := stalltest.Start(t)
	self := strconv.Itoa(os.Getpid())
	commands := []struct {
		lives time.Duration // about, on a machine that is at work
		args  []string
	}{
		{4 * time.Second, []string{"why", "--for", "1s", "--save", filepath.Join(dir, "why.obs")}},
		{8 * time.Second, []string{"replay", crowded}},
		{8 * time.Second, []string{"record", "--listen", "off", "--window", "5s", "--dir", filepath.Join(dir, "history")}},
		{8 * time.Second, []string{"compare", crowded, crowded}},
		{3 * time.Second, []string{"requests", "--for", "1s"}},
		{2 * time.Second, []string{"top", "--once"}},
		{1 * time.Second, []string{"wait", self}},
		{3 * time.Second, []string{"flame", "--for", "1s", "-o", filepath.Join(dir, "flame.svg")}},
		{3 * time.Second, []string{"drops", "--for", "1s"}},
		{4 * time.Second, []string{"prove", "accept-queue-overflow", "--for", "1s", "--state", filepath.Join(dir, "journal")}},
		{6 * time.Second, []string{"doctor"}},
	}
	var slowest time.Duration
	var what string
	done := 0
	for n := 0; done < tries && n < 4*tries; n++ {
		c := commands[n%len(commands)]
		at := rand.N(c.lives)
		told, took, running, said := endOf(t, at, c.args)
		if !running {
			continue // it was faster than that
		}
		done++
		line := fmt.Sprintf("slowray %s, after %s: gone in %s: %s", strings.Join(c.args[:1], " "), at.Round(time.Millisecond), took.Round(time.Millisecond), said)
		t.Log(line)
		if took > slowest {
			slowest, what = took, line
		}
		away, fsync := stalls.Between(told, told.Add(took))
		if took > endWithin+away+2*fsync { // one for the requests, one for the seconds
			t.Errorf("%s; want at most %s, %s that a CPU was away, and twice %s of an fsync", line, endWithin, away, fsync)
		}
	}
	if done < tries {
		t.Errorf("only %d of %d commands ran when they were asked to end", done, tries)
	}
	t.Logf("%d commands ended; the slowest: %s", done, what)
	if left, _ := filepath.Glob(filepath.Join(dir, "why.obs?*")); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

// endOf runs slowray, tells it to end after a time, and gives when, and how long that
// took, unless it ran no more.
func endOf(t *testing.T, after time.Duration, args []string) (told time.Time, took time.Duration, running bool, said string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beSlowray+"=1")
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan time.Time, 1)
	go func() {
		_ = cmd.Wait() // its status depends on what it was doing
		ended <- time.Now()
	}()
	select {
	case <-ended:
		return told, 0, false, ""
	case <-time.After(after):
	}
	told = time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		<-ended
		return told, 0, false, ""
	}
	select {
	case at := <-ended:
		lines := strings.Split(strings.TrimSpace(wrong.String()), "\n")
		return told, at.Sub(told), true, cmd.ProcessState.String() + ", " + lines[len(lines)-1]
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		return told, time.Minute, true, "killed"
	}
}
