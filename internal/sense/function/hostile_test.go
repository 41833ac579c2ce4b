package function

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// TestBombs asks for functions of each kind of hostile file.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	for _, bomb := range elfbomb.All() {
		t.Run(bomb.Name, func(t *testing.T) {
			used := budgettest.Peak(t, func() []string {
				path := filepath.Join(t.TempDir(), "bomb")
				if err := bomb.Write(path, elfbomb.Small()); err != nil {
					t.Skip(err)
				}
				return []string{path}
			}, func(args []string) {
				// A file of trial is no less hostile for taking longer than it may here.
				limits.Wall = 4 * time.Second
				for _, name := range []string{"main", "a*b", "usdt:*:x"} {
					p, err := Prepare(context.Background(), Options{Target: args[0], Symbols: []string{name}})
					if err == nil {
						p.Close()
					} else if strings.Contains(err.Error(), "\n") {
						t.Error(err)
					}
				}
			})
			if used.Peak > 300<<20 || used.CPU > 15*time.Second || used.Wall > 40*time.Second {
				t.Errorf("took %d MB, %v of CPU, %v", used.Peak>>20, used.CPU, used.Wall)
			}
		})
	}
}

// TestNamesThatRepeatThemselves: names that a demangler makes a gigabyte of.
func TestNamesThatRepeatThemselves(t *testing.T) {
	// Each S_ is all that came before it.
	name := "_Z1fI" + strings.Repeat("St4pairI", 30) + "ii" + strings.Repeat("ES0_", 30) + "Evv"
	for i := range 12 {
		name += strings.Repeat("S"+string(rune('0'+i%10))+"_", 3)
	}
	s := elfFunc{name: name}
	began := time.Now()
	if text := s.shown(); len(text) > 1<<16 {
		t.Errorf("a name of %d bytes", len(text))
	}
	s.called("a*b*c")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
}

// FuzzImage: a file ends up as functions, or as an error in one line.
func FuzzImage(f *testing.F) {
	f.Add(elfbomb.Small())
	f.Add(elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".note.stapsdt", Type: 7, Data: note(1, 2, 3, "a\x00b\x008@%rax\x00")}))
	path := filepath.Join(f.TempDir(), "fuzzed")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 1 << 10, Fixed: 256 << 20, CPU: 5 * time.Second}, func() {
			im, err := openImage(ample(), file{name: path, open: path})
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Error(err)
				}
				return
			}
			defer im.close()
			im.walksStacks()
			im.staticProbes()
			_ = im.all("*", func(s *elfFunc) bool {
				im.exits(s, im.code(s))
				return true
			})
		})
	})
}
