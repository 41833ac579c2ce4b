package symbol

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// look names some addresses of binaries in one look, as at the end of a window.
func look(t *testing.T, b *budget.Budget, paths ...string) (frames []observe.Frame, missing []Missing) {
	t.Helper()
	s := NewSpace("/proc")
	defer s.Close()
	var at []Location
	for _, path := range paths {
		for i := range uint64(20) {
			at = append(at, s.Binary(path, path, 0x1000+i*7000, func() *os.File { f, _ := os.Open(path); return f }))
		}
	}
	return s.Frames(b, at)
}

func limited() *budget.Budget { return budget.New(context.Background(), Limits) }

// within says whether naming stayed within what a look may take; on a host
// that is busy with other things the clock says little.
func within(t *testing.T, used budgettest.Used) {
	t.Helper()
	if used.Peak > 130<<20 || used.CPU > 3*time.Second || used.Wall > 10*time.Second {
		t.Errorf("took %d MB, %v of CPU, %v", used.Peak>>20, used.CPU, used.Wall)
	}
}

// TestBombs names addresses of each kind of hostile binary.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for _, bomb := range elfbomb.All() {
		t.Run(bomb.Name, func(t *testing.T) {
			within(t, budgettest.Peak(t, func() []string {
				path := filepath.Join(t.TempDir(), "bomb")
				if err := bomb.Write(path, elfbomb.Small()); err != nil {
					t.Skip(err)
				}
				return []string{path}
			}, func(args []string) {
				for range 3 { // as a recorder does, in each window
					_, missing := look(t, limited(), args...)
					if len(missing) > 1 || strings.Contains(fmt.Sprint(missing), "\n") {
						t.Error(missing)
					}
				}
			}))
		})
	}
}

// TestManyBombs has a hundred of them in one look, and a program with names that
// comes last.
func TestManyBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	used := budgettest.Peak(t, func() []string {
		dir := t.TempDir()
		var paths []string
		bombs := elfbomb.All()
		for i := range 100 {
			path := filepath.Join(dir, fmt.Sprint(i))
			if err := bombs[i%len(bombs)].Write(path, elfbomb.Small()); err != nil {
				continue
			}
			paths = append(paths, path)
		}
		return paths
	}, func(paths []string) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		// A host that is busy with other things has no time for any of them: here
		// they share everything else.
		shared := Limits
		shared.Wall = time.Minute
		b := budget.New(context.Background(), shared)
		s := NewSpace("/proc")
		defer s.Close()
		var at []Location
		for _, path := range paths {
			at = append(at, s.Binary(path, path, 0x1234, func() *os.File { f, _ := os.Open(path); return f }))
		}
		at = append(at, s.Binary(self, self, uint64(reflect.ValueOf(TestManyBombs).Pointer()), func() *os.File { f, _ := os.Open(self); return f }))
		frames, missing := s.Frames(b, at)
		if last := frames[len(frames)-1]; !strings.HasSuffix(last.Name, ".TestManyBombs") {
			t.Errorf("the program behind them is in %+v", last)
		}
		if why := Unread(missing); why == nil || strings.Contains(why.Error(), "\n") || !strings.Contains(why.Error(), "budget") {
			t.Errorf("it is reported as %v", why)
		}
	})
	if used.Peak > 130<<20 || used.CPU > 6*time.Second {
		t.Errorf("took %d MB, %v of CPU, %v", used.Peak>>20, used.CPU, used.Wall)
	}
	t.Logf("%d MB, %v of CPU", used.Peak>>20, used.CPU)
}

// TestFailuresAreKept: a binary that takes too much is read once in a while, not in
// each window; and one that is replaced is read again.
func TestFailuresAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb")
	var bomb elfbomb.Bomb
	for _, b := range elfbomb.All() {
		if b.Name == "symbols" {
			bomb = b
		}
	}
	if err := bomb.Write(path, elfbomb.Small()); err != nil {
		t.Fatal(err)
	}
	tight := func() *budget.Budget {
		return budget.New(t.Context(), budget.Limits{Bytes: 64 << 20, Nodes: 10_000, Wall: time.Minute})
	}
	first := tight()
	if _, missing := look(t, first, path); Unread(missing) == nil {
		t.Fatalf("%+v", missing)
	}
	again := tight()
	if _, missing := look(t, again, path); Unread(missing) == nil {
		t.Errorf("the second time: %+v", missing)
	}
	if left, before := again.Left(), first.Left(); left <= before || left < 64<<20-1 {
		t.Errorf("%d bytes are left the second time, %d the first: it was read again", left, before)
	}
	plain := elfbomb.With(elfbomb.Small())
	if err := os.WriteFile(path+".new", plain, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if _, missing := look(t, tight(), path); Unread(missing) != nil || len(missing) != 1 || missing[0].Why != errStripped.Error() {
		t.Errorf("once it is another file: %+v", missing)
	}
}

// TestNamesAreKept: what was found is not looked for again.
func TestNamesAreKept(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := look(t, ample(), self)
	b := budget.New(t.Context(), budget.Limits{Bytes: 1, Nodes: 1, Wall: time.Minute})
	got, _ := look(t, b, self)
	if fmt.Sprint(got) != fmt.Sprint(want) || b.Err() != nil {
		t.Errorf("%v, want %v (%v)", got, want, b.Err())
	}
}

// TestLongPerfMaps: a map of a compiler that is longer than can be read ends with
// what was read of it.
func TestLongPerfMaps(t *testing.T) {
	dir := t.TempDir()
	hole := filepath.Join(dir, "hole")
	if err := os.WriteFile(hole, []byte("1000 100 JS:*named /a.js:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(hole, 10<<30); err != nil {
		t.Skip(err)
	}
	lines := filepath.Join(dir, "lines")
	text := strings.Repeat("1 7fffffffffffffff "+strings.Repeat("x", 40)+"\n", 1<<20)
	if err := os.WriteFile(lines, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := make([]uint64, 5000)
	for i := range addresses {
		addresses[i] = 0x1000 + uint64(i)
	}
	for _, path := range []string{hole, lines} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := budget.New(t.Context(), budget.Limits{Bytes: 512 << 20, Nodes: 8 << 20, Wall: 700 * time.Millisecond})
		began := time.Now()
		names, err := parsePerfMap(b, f, addresses)
		if !budget.IsExceeded(err) || len(names) == 0 {
			t.Errorf("%s: %d names, %v", path, len(names), err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("%s: took %v", path, took)
		}
	}
}

// TestLongMemoryMap: a process whose memory map has no end is read as far as its
// share goes, however often it is asked for.
func TestLongMemoryMap(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "7", "maps")
	line := "%012x-%012x r-xp 00000000 fd:01 11 /tmp/" + strings.Repeat("x", 4000) + "\n"
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		fmt.Fprintf(f, line, 0x1000+i*0x1000, 0x2000+i*0x1000)
	}
	f.Close()
	used := budgettest.Peak(t, func() []string { return []string{dir} }, func(args []string) {
		s := NewSpace(args[0])
		defer s.Close()
		p := s.Process(7)
		for i := range uint64(200) {
			p.reread = 0
			p.Location(1<<40 + i)
		}
		if l := p.Location(0x1800); l.in.kind != imageFile {
			t.Errorf("what was read of it is not known: %+v", l)
		}
		if left := s.maps.Left(); left < 200<<20 {
			t.Errorf("%d bytes are left for others", left)
		}
	})
	within(t, used)
}
