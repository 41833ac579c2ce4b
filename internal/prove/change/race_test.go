package change

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/safefile/safefiletest"
)

// TestGroupOfUserIsSwapped: a user to whom a control group is delegated takes the
// group away, and puts another in its place, between and during all steps. Nothing is
// set but in the group that was looked at, and nothing outside of what is his.
func TestGroupOfUserIsSwapped(t *testing.T) {
	dir := newGroup(t, "pids.max")
	a := safefiletest.NewAttacker(t)
	his, other := filepath.Join(dir, "his"), filepath.Join(dir, "other")
	for _, d := range []string{his, other} {
		must(t, os.Mkdir(d, 0o755))
		defer os.Remove(d)
	}
	must(t, os.Chown(his, safefiletest.UID, safefiletest.UID))
	svc, next := filepath.Join(his, "svc"), filepath.Join(his, "next")
	defer func() { _, _ = os.Remove(svc), os.Remove(next) }()
	limit := func(group string) string {
		b, _ := os.ReadFile(filepath.Join(group, "pids.max"))
		return strings.TrimSpace(string(b))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			a.Do(func() {
				switch rand.IntN(4) {
				case 0:
					_ = os.Remove(svc)
				case 1:
					_ = os.Mkdir(svc, 0o755)
				case 2:
					_ = os.Rename(svc, next) // version 1 lets a group be renamed
				default:
					_ = errors.Join(os.Rename(next, svc), os.Remove(next))
				}
			})
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	c := &cause.Change{Kind: cause.ChangeCgroup, Path: svc, Name: "pids.max", Value: "33", Text: "pids.max of svc"}
	d, _ := For(c.Kind)
	made := 0
	for range 300 {
		was, err := d.Prepare(c)
		if err == nil {
			if err = d.Apply(c, was); err == nil {
				made++
			}
			_, _, _, err2 := d.Holds(c, was)
			err = errors.Join(err, err2)
			if err2 := d.Undo(c, was); err == nil {
				err = err2
			}
		}
		if err != nil && strings.Contains(err.Error(), "panic") {
			t.Fatal(err)
		}
		for _, group := range []string{dir, his, other} {
			if got := limit(group); got != "max" {
				t.Fatalf("pids.max of %s is %s", group, got)
			}
		}
	}
	t.Logf("%d of 300 changes were made", made)
}

// TestGroupInItsPlaceIsLeftAlone is the same without chance: one that has the name by
// then is another group.
func TestGroupInItsPlaceIsLeftAlone(t *testing.T) {
	dir := newGroup(t, "pids.max")
	svc := filepath.Join(dir, "svc")
	must(t, os.Mkdir(svc, 0o755))
	defer os.Remove(svc)
	c := &cause.Change{Kind: cause.ChangeCgroup, Path: svc, Name: "pids.max", Value: "33", Text: "pids.max of svc"}
	d, _ := For(c.Kind)
	was, err := d.Prepare(c)
	must(t, err)
	again := func() {
		must(t, os.Remove(svc))
		must(t, os.Mkdir(svc, 0o755))
	}
	again()
	if err := d.Apply(c, was); err == nil || !strings.Contains(err.Error(), "has gone") {
		t.Errorf("applied to another group: %v", err)
	}
	was, err = d.Prepare(c)
	must(t, err)
	must(t, d.Apply(c, was))
	again()
	must(t, os.WriteFile(filepath.Join(svc, "pids.max"), []byte("44"), 0))
	isGone(t, c, was)
	if b, _ := os.ReadFile(filepath.Join(svc, "pids.max")); string(b) != "44\n" {
		t.Errorf("another group was set: %q", b)
	}
}

// TestSignalReachesNoOther: a process that has the number of one that has ended gets
// no signal that was meant for that.
func TestSignalReachesNoOther(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	must(t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	p, err := ProcessOf(cmd.Process.Pid)
	must(t, err)
	must(t, p.Signal(0))
	before := Process{PID: p.PID, Start: p.Start - 1}
	if err := before.Signal(unix.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signalled: %v", err)
	}
	if err := p.Check(); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}
