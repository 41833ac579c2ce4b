package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/journal"
	"github.com/slowray/slowray/internal/prove/loadgen"
	"github.com/slowray/slowray/internal/prove/proof"
)

// A proof says one thing of how it leaves the host, and it is true: whether the
// change is undone, somebody else has set the same meanwhile, or it is gone.
func TestProveSaysHowItLeavesTheHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, to put a nice value back")
	}
	const value = 7 // that the proof sets
	for name, c := range map[string]struct {
		meanwhile func(pid int) // while the change is in force
		undone    bool
		text      string // on standard output
		err       string
	}{
		"undone": {func(int) {}, true, "The change is undone.\n", ""},
		"set by somebody else": {func(pid int) { unix.Setpriority(unix.PRIO_PROCESS, pid, 11) }, false,
			"Nothing of the change is in force, but not all is as it was: nice: somebody else has changed it meanwhile, it is left as it is: now nice 11\n",
			"not all is as it was: nice: somebody else has changed it meanwhile, it is left as it is: now nice 11"},
		"gone": {func(pid int) { syscall.Kill(pid, syscall.SIGKILL) }, false,
			"Nothing of the change is in force, but not all is as it was: nice: gone: ", "not all is as it was: nice: gone: "},
	} {
		for _, asJSON := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, JSON %v", name, asJSON), func(t *testing.T) {
				t.Parallel()
				service := exec.Command("sleep", "300")
				if err := service.Start(); err != nil {
					t.Fatal(err)
				}
				pid := service.Process.Pid
				ended := make(chan struct{})
				go func() { service.Wait(); close(ended) }()
				t.Cleanup(func() { service.Process.Kill(); <-ended })
				stop := make(chan struct{})
				defer close(stop)
				go func() {
					for n, err := 0, error(nil); n != 20-value && err == nil; time.Sleep(time.Millisecond) { // 20 - nice, getpriority(2)
						n, err = unix.Getpriority(unix.PRIO_PROCESS, pid)
						select {
						case <-stop:
							return
						default:
						}
					}
					// Once it is on record that the change is made: half a second later.
					time.Sleep(500 * time.Millisecond)
					c.meanwhile(pid)
				}()
				out, stderr, err := prove(t, asJSON, cause.Change{Kind: cause.ChangeNice, Text: "nice", Value: fmt.Sprint(value), PID: pid})
				switch {
				case c.err == "" && !errors.Is(err, exit(exitFindings)):
					t.Errorf("ended with %v (%s)", err, stderr)
				case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n")):
					t.Errorf("ended with %v, want %q", err, c.err)
				case c.err != "" && strings.Contains(strings.Replace(err.Error(), c.err, "", 1), "nice"):
					t.Errorf("says it twice: %v", err)
				}
				if asJSON {
					var doc proof.Document
					if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Result == nil || doc.Result.Undone != c.undone || doc.Result.InForce ||
						(doc.Result.Left == "") != c.undone {
						t.Errorf("%v: %s", err, out)
					}
					return
				}
				if !strings.Contains(out, "\n"+c.text) {
					t.Errorf("%q is not in:\n%s", c.text, out)
				}
				said := 0
				for _, line := range []string{"The change is undone.", "NOT UNDONE", "not undone", "not all is as it was"} {
					said += strings.Count(out, line)
				}
				if said != 1 {
					t.Errorf("says %d things:\n%s", said, out)
				}
			})
		}
	}
}

// prove makes an experiment with one change, under a load that is played from a
// file.
func prove(t *testing.T, asJSON bool, change cause.Change) (stdout, stderr string, err error) {
	t.Helper()
	dir := t.TempDir()
	played, err := filepath.Abs("../../internal/prove/loadgen/testdata/wrk-plain.txt")
	if err != nil {
		t.Fatal(err)
	}
	wrk := filepath.Join(dir, "wrk")
	if err := os.WriteFile(wrk, []byte("#!/bin/sh\nsleep 0.3\ncat "+played+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	load, err := loadgen.Parse(wrk + " -d 1s http://127.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	changes := []cause.Change{change}
	steps, err := proof.Steps(changes)
	if err != nil {
		t.Fatal(err)
	}
	c := &proveCmd{Cause: "low-cpu-weight", Apply: true, JSON: asJSON, Blocks: 3, Block: time.Second, State: filepath.Join(dir, "journal")}
	for {
		doc := &proof.Document{Schema: proof.SchemaProve, Cause: c.Cause, Title: "a title", Steps: steps}
		var out, errs bytes.Buffer
		err := c.prove(t.Context(), &streams{&out, &errs}, doc, changes, &load)
		if errors.Is(err, journal.ErrBusy) { // one at a time on a host, also of tests
			time.Sleep(100 * time.Millisecond)
			continue
		}
		return out.String(), errs.String(), err
	}
}
