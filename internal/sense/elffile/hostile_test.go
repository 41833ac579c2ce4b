package elffile

import (
	"bytes"
	"context"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

func readerOf(data []byte) io.ReaderAt { return bytes.NewReader(data) }

// everything reads all that is ever read of a file.
func everything(b *budget.Budget, r io.ReaderAt) error {
	f, err := New(b, r)
	if err != nil {
		return err
	}
	for i := range f.Sections {
		f.Sections[i].Data()
	}
	f.Unpacked(".debug_info")
	f.BuildID()
	f.Libraries()
	f.GoVersion()
	f.Loaded(0x1000, 1<<40)
	for _, kind := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		f.Lookup(kind, "a name that none has")
	}
	if g, _ := f.GoFunctions(); g != nil {
		g.At(0x1234)
		g.Each(func(GoFunction) bool { return true })
	}
	if mini, _ := f.MiniDebug(); mini != nil {
		mini.BuildID()
	}
	return b.Err()
}

// TestBombs reads all of each kind of hostile file, in a process of its own.
func TestBombs(t *testing.T) {
	for _, bomb := range elfbomb.All() {
		t.Run(bomb.Name, func(t *testing.T) {
			used := budgettest.Peak(t, func() []string {
				path := filepath.Join(t.TempDir(), "bomb")
				if err := bomb.Write(path, elfbomb.Small()); err != nil {
					t.Skip(err)
				}
				return []string{path}
			}, func(args []string) {
				f, err := os.Open(args[0])
				if err != nil {
					t.Fatal(err)
				}
				err = everything(budget.New(context.Background(), budget.Limits{Bytes: 256 << 20, Unpacked: 32 << 20, Nodes: 1 << 20, Wall: time.Second}), f)
				t.Log(err)
			})
			if used.Peak > 110<<20 || used.Wall > 8*time.Second || used.CPU > 3*time.Second {
				t.Errorf("took %d MB, %v of CPU, %v", used.Peak>>20, used.CPU, used.Wall)
			}
		})
	}
}

// FuzzFile: whatever a file holds, reading it ends within its budget.
func FuzzFile(f *testing.F) {
	f.Add(elfbomb.Small())
	f.Add(elfbomb.With(elfbomb.Small(),
		elfbomb.Packed(".debug_info", elf.COMPRESS_ZSTD, 100, elfbomb.Zstd(100)),
		elfbomb.Packed(".debug_str", elf.COMPRESS_ZLIB, 1000, elfbomb.Zlib(1000)),
		elfbomb.Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Data: elfbomb.XZ(1<<10, 0x10)},
		elfbomb.Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Link: 5, Data: make([]byte, 96)},
		elfbomb.Section{Name: ".strtab", Type: elf.SHT_STRTAB, Data: []byte("\x00main\x00")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 256, Fixed: 48 << 20, CPU: 3 * time.Second}, func() {
			everything(budget.New(context.Background(), budget.Limits{Bytes: 8 << 20, Unpacked: 4 << 20, Nodes: 1 << 16, Wall: time.Second}), readerOf(data))
		})
	})
}
