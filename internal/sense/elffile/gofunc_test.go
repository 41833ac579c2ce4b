package elffile

import (
	"debug/elf"
	"debug/gosym"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// TestGoFunctions compares what is read of this program's table with what
// debug/gosym reads.
func TestGoFunctions(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stripped := filepath.Join(t.TempDir(), "stripped")
	paths := []string{self}
	if exec.Command("strip", "-o", stripped, self).Run() == nil {
		paths = append(paths, stripped)
	}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		e, err := elf.NewFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data, err := e.Section(".gopclntab").Data()
		if err != nil {
			t.Fatal(err)
		}
		want, err := gosym.NewTable(nil, gosym.NewLineTable(data, e.Section(".text").Addr))
		if err != nil {
			t.Fatal(err)
		}
		f, err := New(ample(), file)
		if err != nil {
			t.Fatal(err)
		}
		if !f.IsGo() || f.GoVersion() == "" {
			t.Errorf("%s is a program of Go %q", path, f.GoVersion())
		}
		g, err := f.GoFunctions()
		if err != nil || g == nil {
			t.Fatal(err)
		}
		i := 0
		if err := g.Each(func(got GoFunction) bool {
			w := &want.Funcs[i]
			if got.Name != w.Name || got.Entry != w.Entry || got.End != w.End {
				t.Errorf("%s: function %d is %+v, want %s from %#x to %#x", path, i, got, w.Name, w.Entry, w.End)
			}
			if i++; i%50 != 0 {
				return !t.Failed()
			}
			file, line, _ := want.PCToLine(w.Entry)
			at, gotFile, gotLine, ok := g.At((w.Entry + w.End) / 2)
			if !ok || at != got || gotFile != file || gotLine != line {
				t.Errorf("%s: %s is at %s:%d, want %s:%d (%v)", path, w.Name, gotFile, gotLine, file, line, at)
			}
			return !t.Failed()
		}); err != nil || i != len(want.Funcs) {
			t.Errorf("%s: %d functions, want %d: %v", path, i, len(want.Funcs), err)
		}
		for _, addr := range []uint64{0, want.Funcs[0].Entry - 1, want.Funcs[len(want.Funcs)-1].End, 1 << 63} {
			if fn, _, _, ok := g.At(addr); ok {
				t.Errorf("%#x is in %+v", addr, fn)
			}
		}
	}
}

// TestGoVersion reads the version of programs that are older, or of none.
func TestGoVersion(t *testing.T) {
	const magic = "\xff Go buildinf:"
	inline := append([]byte(magic), 8, 2)
	inline = append(inline, make([]byte, 16)...)
	for text, want := range map[string]string{"go1.22.3": "go1.22.3", "devel go1.27-abc Mon": "devel go1.27-abc Mon", "": "", "go\x1b[2J": ""} {
		data := append(append([]byte{}, inline...), byte(len(text)))
		f, err := New(ample(), readerOf(elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".go.buildinfo", Type: elf.SHT_PROGBITS, Data: append(data, text...)})))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.GoVersion(); got != want || !f.IsGo() {
			t.Errorf("%q is read as %q", text, got)
		}
	}
	for _, data := range [][]byte{nil, []byte("x"), append([]byte(magic), 8, 0, 1, 2, 3), append(append([]byte{}, inline...), 0xff, 0xff, 0xff, 0xff, 0x7f)} {
		f, err := New(ample(), readerOf(elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".go.buildinfo", Type: elf.SHT_PROGBITS, Data: append(data, 0)})))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.GoVersion(); got != "" {
			t.Errorf("%q is read as %q", data, got)
		}
	}
}
