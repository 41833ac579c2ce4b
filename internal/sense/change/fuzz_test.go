package change

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/sense/host"
)

// FuzzPackages reads a log of each package manager, whatever stands in it.
func FuzzPackages(f *testing.F) {
	f.Add("2026-11-22 00:30:40 upgrade nginx:amd64 1.22.1-9 1.22.1-10\n")
	f.Add("2026-11-22T00:30:40+0000 SUBDEBUG Upgrade: nginx-1:1.24.0-1.fc40.x86_64\n9999-12-31T23:59:59-2359 X Erase: \x1b[2J")
	f.Add("Nov 22 00:30:40 Updated: nginx-1.20.1-1.el7.x86_64\nFeb 29 00:00:00 Erased: x")
	f.Add("[2026-11-22T00:30:40+0000] [ALPM] upgraded nginx (1.26-1 -> 1.28-1)\n[] [ALPM] removed ")
	f.Add("2026-11-22 00:30:40 [3] Upgrading nginx (1.26.0-r0 -> 1.26.1-r0)\n2026-11-22 00:30:40Purging ")
	root := f.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/log"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, l := range logs {
			if err := os.WriteFile(filepath.Join(root, l.path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		since := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		budgettest.Within(t, len(logs)*len(text), budgettest.Cost{PerByte: 1024, Fixed: 1 << 20, CPU: budgettest.Usual.CPU}, func() {
			list := packages(budget.New(context.Background(), budget.Limits{}), root, since)
			if most := len(logs) * (strings.Count(text, "\n") + 1); len(list) > most {
				t.Errorf("%d changes in %d lines", len(list), most)
			}
			for _, c := range list {
				if !c.At.After(since) || strings.ContainsFunc(c.What, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%v %q", c.At, c.What)
				}
			}
		})
	})
}

// FuzzService looks for the files of a service that is called, and was started, as it
// likes.
func FuzzService(f *testing.F) {
	f.Add("python3.11", "app.service", "/usr/bin/python3.11", "/srv", "python3\x00app.py\x00--config=/srv/app.yaml\x00app.yaml")
	f.Add("..", "../../etc", "/x (deleted)", "", "\x00\x00.\x00/\x00a.")
	root, proc := f.TempDir(), f.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(proc, "1/ns"), 0o700), os.Symlink("mnt:[4026531841]", filepath.Join(proc, "1/ns/mnt")), os.Symlink(root, filepath.Join(proc, "1/root")),
		os.WriteFile(filepath.Join(proc, "1/mountinfo"), []byte("20 1 8:1 / / rw - ext4 /dev/sda rw\n"), 0o600), os.MkdirAll(filepath.Join(root, "srv"), 0o700),
		os.WriteFile(filepath.Join(root, "srv/app.py"), nil, 0o600), os.WriteFile(filepath.Join(root, "srv/app.yaml"), nil, 0o600)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, comm, unit, exe, cwd, args string) {
		s := Service{PID: 1, Comm: comm, Unit: unit, Program: filepath.Base(exe), Exe: exe, Cwd: cwd, Args: strings.Split(args, "\x00")}
		budgettest.Within(t, len(comm)+len(unit)+len(exe)+len(cwd)+len(args), budgettest.Cost{PerByte: 4096, Fixed: 1 << 20, CPU: budgettest.Usual.CPU}, func() {
			b := budget.New(context.Background(), budget.Limits{})
			k := &looker{fs: host.FS{Proc: proc}, b: b, left: maxStats, seen: map[fileID]bool{}, roots: map[uint64]*view{}}
			k.service(&s)
			if names := s.named(); len(names) > maxBeside {
				t.Errorf("%d files: %q", len(names), names)
			}
			for _, c := range k.out {
				if strings.ContainsFunc(c.Path+c.What, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%q %q", c.Path, c.What)
				}
			}
			if _, err := json.Marshal(k.out); err != nil {
				t.Error(err)
			}
		})
	})
}
