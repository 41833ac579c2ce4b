package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/prove/journal"
)

// A journal that lost the last bytes of a file still says what may be in force, at
// every command, keeps anything else from being changed, and undo puts it back.
func TestUndoOfDamagedJournal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, to put a nice value back")
	}
	for name, damage := range map[string]func([]byte) []byte{
		"lost 7 bytes": func(b []byte) []byte { return b[:len(b)-7] },
		"lost all":     func([]byte) []byte { return nil },
		"has zeros":    func(b []byte) []byte { clear(b[len(b)/2:]); return b },
		"has an error": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "journal")
			service := exec.Command("sleep", "300")
			if err := service.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { service.Process.Kill(); service.Wait() }()
			changes := []cause.Change{{Kind: cause.ChangeNice, Text: "nice 0 → 7", Value: "7", PID: service.Process.Pid}}
			before := nice(t, service.Process.Pid)
			j, err := journal.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			l, err := j.Begin(changes, journal.Options{Cause: "low-cpu-weight", Why: "a test"})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(l.Apply(), l.Keep(), l.Close()); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "1.json")
			data, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, damage(data), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func(old string) { noticeDir = old }(noticeDir)
			noticeDir = dir
			says := func(command string, status int, want ...string) {
				t.Helper()
				var out, stderr bytes.Buffer
				if got := run(strings.Fields(command), &out, &stderr); got != status {
					t.Errorf("%s: exit status %d, want %d: %s%s", command, got, status, &out, &stderr)
				}
				for _, w := range want {
					if !strings.Contains(out.String()+stderr.String(), w) {
						t.Errorf("%s: %q is not in: %s%s", command, w, &out, &stderr)
					}
				}
			}
			says("undo --list --state "+dir, exitNothing, "damaged", file, "1  nice 0 → 7\n   may be in force: was nice "+fmt.Sprint(before)+", is 7")
			says("causes", exitNothing, "slowray: a change may be in force (nice 0 → 7), and its entry in the journal is damaged: ", ": put it back first: slowray undo 1\n")
			if _, err := j.Begin(changes, journal.Options{}); err == nil || !strings.Contains(err.Error(), "put it back first: slowray undo 1") {
				t.Errorf("the next change: %v", err)
			}
			says("undo --state "+dir, exitNothing, "nice 0 → 7: put back (nice "+fmt.Sprint(before)+")")
			if now := nice(t, service.Process.Pid); now != before {
				t.Errorf("nice is %d, was %d", now, before)
			}
			says("undo --list --state "+dir, exitNothing, "No changes: nothing to undo.")
			says("causes", exitNothing)
		})
	}
}

// A file of which nothing is known stays on the list, however often undo is called,
// until somebody says that they have seen to it.
func TestUndoOfLostEntry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "3.json"), []byte(`{"schema":"slowray.journal/1","id":"3","sta`), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string
		status  int
		want    string
	}{
		{"undo --list", exitNothing, "may be in force: look for it by hand"},
		{"undo", exitFindings, "not put back: look for it by hand, then: slowray undo --forget 3"},
		{"undo --list", exitNothing, "3  a change of which nothing is known"},
		{"undo", exitFindings, "slowray undo --forget 3"},
		{"undo --list --json", exitNothing, `"state": "failed"`},
		{"undo --forget 3", exitNothing, "No changes: nothing to undo."},
	} {
		var out, stderr bytes.Buffer
		if status := run(append(strings.Fields(c.command), "--state", dir), &out, &stderr); status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit status %d, %q is not in: %s%s", c.command, status, c.want, &out, &stderr)
		}
	}
}

// nice is the nice value of a process.
func nice(t *testing.T, pid int) int {
	t.Helper()
	n, err := unix.Getpriority(unix.PRIO_PROCESS, pid) // 20 - nice, getpriority(2)
	if err != nil {
		t.Fatal(err)
	}
	return 20 - n
}
