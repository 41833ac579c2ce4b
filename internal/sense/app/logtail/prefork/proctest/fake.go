package proctest

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/slowray/slowray/internal/observe"
)

// PID is that of the process of a Fake.
const PID = 7

// Fake is a server that does not run: a procfs with one process in it, and the root
// directory that it sees.
type Fake struct {
	Proc string
	root string
}

// NewFake makes one without any files, which works in its root directory.
func NewFake(t testing.TB) *Fake {
	t.Helper()
	f := &Fake{Proc: t.TempDir(), root: t.TempDir()}
	dir := filepath.Join(f.Proc, strconv.Itoa(PID))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(f.root, filepath.Join(dir, "root")), os.Symlink("/", filepath.Join(dir, "cwd"))); err != nil {
		t.Fatal(err)
	}
	return f
}

// Process is the process, by its name and command line.
func (f *Fake) Process(t testing.TB, comm, cmdline, environ string) []observe.Process {
	t.Helper()
	f.Procfs(t, "cmdline", cmdline)
	f.Procfs(t, "environ", environ)
	line := strings.ReplaceAll(strings.TrimRight(cmdline, "\x00"), "\x00", " ")
	return []observe.Process{{PID: PID, PPID: 1, State: "S", Threads: 1, Comm: comm, Cmdline: line[:min(len(line), 512)], NetNS: 1}}
}

// Procfs gives the process a file of procfs.
func (f *Fake) Procfs(t testing.TB, name, text string) {
	t.Helper()
	write(t, filepath.Join(f.Proc, strconv.Itoa(PID), name), text)
}

// File gives it a file that it sees.
func (f *Fake) File(t testing.TB, name, text string) {
	t.Helper()
	write(t, filepath.Join(f.root, name), text)
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Check fails the test where a server that was read cannot be one: a port that is
// none, a limit below 0, a reason that a terminal would not show as it is, or what JSON
// has no word for.
func Check(t testing.TB, s observe.AppServer, gaps []observe.Gap) {
	t.Helper()
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
	for _, p := range s.Pools {
		if p.Limit < 0 || p.Threads < 0 || p.Ceiling < 0 {
			t.Errorf("pool %q: limit %d, %d threads, ceiling %d", p.Name, p.Limit, p.Threads, p.Ceiling)
		}
		for _, l := range p.Listens {
			if l.Port < 0 || l.Port > 65535 {
				t.Errorf("pool %q listens on port %d", p.Name, l.Port)
			}
		}
	}
	checkGaps(t, gaps)
}

// CheckDatabase is Check of a database.
func CheckDatabase(t testing.TB, d observe.Database, gaps []observe.Gap) {
	t.Helper()
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
	if d.Reserved < 0 || d.Slow != nil && d.Slow.ThresholdNS < -1 {
		t.Errorf("%d connections are reserved, and what takes %d ns is slow", d.Reserved, d.Slow.ThresholdNS)
	}
	checkGaps(t, gaps)
}

func checkGaps(t testing.TB, gaps []observe.Gap) {
	t.Helper()
	for _, g := range gaps {
		if strings.ContainsFunc(g.Because, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("a gap says %q", g.Because)
		}
	}
}
