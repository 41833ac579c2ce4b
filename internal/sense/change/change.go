package change

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// lately is how far back changes are of interest.
const lately = 7 * 24 * time.Hour

// maxChanges bounds what Read returns, of each kind.
const maxChanges = 12

// Service is a process that answers requests, the topmost of its family.
type Service struct {
	PID       int
	Comm      string
	Unit      string
	Container string
	Started   time.Time
	Config    []string // files that it is known to be configured by

	Program string   // base name of Exe
	Exe     string   // what it executes, as /proc/PID/exe shows it
	Cwd     string   // its working directory
	Args    []string // its command line
}

// fill completes a service from /proc.
func (s *Service) fill(fs host.FS) {
	dir := fmt.Sprintf("%s/%d", fs.Proc, s.PID)
	s.Exe, _ = os.Readlink(filepath.Join(dir, "exe"))
	s.Cwd, _ = os.Readlink(filepath.Join(dir, "cwd"))
	s.Program = filepath.Base(strings.TrimSuffix(s.Exe, " (deleted)"))
	if b, err := budget.Head(filepath.Join(dir, "cmdline"), 64<<10); err == nil {
		s.Args = strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	}
}

// Read finds what has been changed lately, newest first, and how many changes
// there was no room for. It reads a bounded number of files, and none of a file
// system that may not answer. What it may not look at is left out. The error is that of
// a budget: there may be changes that were not found.
func Read(b *budget.Budget, fs host.FS, services []Service, now time.Time) (list []observe.Change, left int, err error) {
	since := now.Add(-lately)
	all := packages(b.Share(4), "/", since)
	if boot, err := fs.BootTime(); err == nil && boot.After(since) {
		all = append(all, observe.Change{Kind: observe.ChangeBoot, At: boot, What: "the kernel was started"})
	}
	k := &looker{fs: fs, since: since, left: maxStats, seen: map[fileID]bool{}, roots: map[uint64]*view{}}
	services = services[:min(len(services), maxService)]
	for i := range services {
		s := &services[i]
		k.b = b.Share(len(services) + 1 - i) // and one for the host
		s.fill(fs)
		if s.Started.After(since) {
			what := "started"
			switch {
			case s.Unit != "":
				what = "started (" + s.Unit + ")"
			case s.Container != "":
				what = "started (container " + s.Container + ")"
			}
			all = append(all, observe.Change{Kind: observe.ChangeStart, At: s.Started, What: printable(what, 160), PID: s.PID, Comm: s.Comm})
		}
		k.service(s)
		if over := k.b.Err(); over != nil {
			err = over
		}
	}
	k.b = b
	if v := k.of(os.Getpid()); v != nil {
		for _, name := range hostFiles {
			k.note(v, observe.Change{Kind: observe.ChangeConfig}, name)
		}
	}
	all = append(all, k.out...)
	slices.SortStableFunc(all, func(a, b observe.Change) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.What, b.What), strings.Compare(a.Path, b.Path))
	})
	kept := map[observe.ChangeKind]int{}
	for _, c := range all {
		if kept[c.Kind] == maxChanges || c.At.After(now.Add(24*time.Hour)) {
			left++ // a clock that was wrong makes files of the future
			continue
		}
		kept[c.Kind]++
		c.At = c.At.UTC()
		list = append(list, c)
	}
	return list, left, cmp.Or(b.Err(), err)
}

// printable replaces what a terminal would not print, and shortens.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
