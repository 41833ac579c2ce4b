package elffile

import (
	"bytes"
	"compress/zlib"
	"context"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// ample is a budget that no real program uses up.
func ample() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Bytes: 4 << 30, Unpacked: 1 << 30, Nodes: 64 << 20, Wall: time.Minute})
}

// programs are real files of several kinds, as far as they are here.
func programs(t *testing.T) []string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{self}
	for _, pattern := range []string{"/usr/bin/true", "/usr/bin/node", "/usr/sbin/mariadbd", "/lib/*/libc.so.6", "/usr/lib/jvm/*/lib/server/libjvm.so", "/usr/lib/*/libc.a"} {
		found, _ := filepath.Glob(pattern)
		list = append(list, found...)
	}
	return list
}

// TestAgainstTheStandardLibrary compares what is read of real programs with what
// debug/elf reads of them.
func TestAgainstTheStandardLibrary(t *testing.T) {
	for _, path := range programs(t) {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		want, wantErr := elf.NewFile(file)
		got, err := New(ample(), file)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, debug/elf: %v", path, err, wantErr)
		}
		if err != nil {
			continue
		}
		if diff := cmp.Diff(want.FileHeader, got.FileHeader); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		for i, p := range want.Progs {
			if got.Progs[i] != p.ProgHeader {
				t.Errorf("%s: segment %d: %+v, want %+v", path, i, got.Progs[i], p.ProgHeader)
			}
		}
		for i, s := range want.Sections {
			if got.Sections[i].SectionHeader != s.SectionHeader {
				t.Errorf("%s: section %d: %+v, want %+v", path, i, got.Sections[i].SectionHeader, s.SectionHeader)
			}
		}
		for kind, list := range map[elf.SectionType]func() ([]elf.Symbol, error){elf.SHT_SYMTAB: want.Symbols, elf.SHT_DYNSYM: want.DynamicSymbols} {
			symbols, _ := list()
			sameSymbols(t, path, got, kind, symbols)
		}
		libraries, _ := want.ImportedLibraries()
		if !slices.Equal(libraries, got.Libraries()) {
			t.Errorf("%s: needs %v, want %v", path, got.Libraries(), libraries)
		}
	}
}

func sameSymbols(t *testing.T, path string, f *File, kind elf.SectionType, want []elf.Symbol) {
	t.Helper()
	table := f.Symbols(kind)
	if table == nil {
		if len(want) > 0 {
			t.Errorf("%s: no table of symbols, want %d", path, len(want))
		}
		return
	}
	i, wrong := -1, 0 // debug/elf leaves out the first, which is empty
	if err := table.Each(func(s *Symbol) bool {
		if i >= 0 {
			w := &want[i]
			if s.Value != w.Value || s.Size != w.Size || s.Info != w.Info || s.Section != w.Section || table.NameOfMany(s) != w.Name || i%97 == 0 && table.Name(s) != w.Name {
				wrong++
			}
		}
		i++
		return i < len(want) || len(want) == i
	}); err != nil || i != len(want) || wrong > 0 {
		t.Errorf("%s: %v: %d symbols of which %d differ, want %d (%v)", path, kind, i, wrong, len(want), err)
	}
}

func TestBuildID(t *testing.T) {
	for size, want := range map[uint32]int{20: 40, 64: 128, 65: 0, 60 << 10: 0} {
		note := binary.LittleEndian.AppendUint32(nil, 4)
		note = binary.LittleEndian.AppendUint32(note, size)
		note = binary.LittleEndian.AppendUint32(note, 3)
		note = append(append(note, "GNU\x00"...), make([]byte, (size+3)&^3)...)
		f, err := New(ample(), bytes.NewReader(elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".note.gnu.build-id", Type: elf.SHT_NOTE, Data: note})))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(f.BuildID()); got != want {
			t.Errorf("of %d bytes: %d digits, want %d", size, got, want)
		}
	}
	out, err := exec.Command("readelf", "-n", "/usr/bin/true").Output()
	_, want, has := strings.Cut(string(out), "Build ID: ")
	want, _, _ = strings.Cut(want, "\n")
	if err != nil || !has {
		t.Skip("SKIP: no readelf, or no build ID")
	}
	file, err := os.Open("/usr/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := New(ample(), file)
	if err != nil || f.BuildID() != want {
		t.Errorf("%s, want %s (%v)", f.BuildID(), want, err)
	}
}

// packers are what linkers compress sections by.
func packers(t *testing.T, text []byte) map[elf.CompressionType][]byte {
	var z, s bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(text)
	w.Close()
	e, err := zstd.NewWriter(&s)
	if err != nil {
		t.Fatal(err)
	}
	e.Write(text)
	e.Close()
	return map[elf.CompressionType][]byte{elf.COMPRESS_ZLIB: z.Bytes(), elf.COMPRESS_ZSTD: s.Bytes()}
}

func TestPackedSections(t *testing.T) {
	text := []byte(strings.Repeat("what the linker packed, ", 50_000))
	for method, packed := range packers(t, text) {
		data := elfbomb.With(elfbomb.Small(), elfbomb.Packed(".debug_info", method, uint64(len(text)), packed))
		f, err := New(ample(), bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		s := f.Section(".debug_info")
		if got, err := s.Data(); !bytes.Equal(got, text) || err != nil {
			t.Errorf("%v: %d bytes, %v", method, len(got), err)
		}
		if _, err := s.ReadAt(make([]byte, 1), 0); err == nil {
			t.Errorf("%v: it is read as if it were not packed", method)
		}
		// With less, and with more than it says.
		for _, says := range []int{len(text) - 1, len(text) + 1} {
			data := elfbomb.With(elfbomb.Small(), elfbomb.Packed(".debug_info", method, uint64(says), packed))
			f, err := New(ample(), bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.Unpacked(".debug_info"); err == nil && len(got) != says {
				t.Errorf("%v: %d bytes of %d", method, len(got), says)
			}
		}
		small := budget.New(t.Context(), budget.Limits{Unpacked: int64(len(text)) - 1})
		if f, err = New(small, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Unpacked(".debug_info"); !budget.IsExceeded(err) {
			t.Errorf("%v: over the budget: %v", method, err)
		}
	}
	old := binary.BigEndian.AppendUint64([]byte("ZLIB"), uint64(len(text)))
	data := elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".zdebug_str", Type: elf.SHT_PROGBITS, Data: append(old, packers(t, text)[elf.COMPRESS_ZLIB]...)})
	f, err := New(ample(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Unpacked(".debug_str"); !bytes.Equal(got, text) || err != nil {
		t.Errorf("of the older form: %d bytes, %v", len(got), err)
	}
}

// TestMiniDebug packs a file as xz does, in one block and in several.
func TestMiniDebug(t *testing.T) {
	inner := elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".kept", Type: elf.SHT_PROGBITS, Data: bytes.Repeat([]byte("a symbol "), 200_000)})
	for name, config := range map[string]xz.WriterConfig{"one block": {}, "blocks": {BlockSize: 100_000}, "CRC32": {CheckSum: xz.CRC32}, "SHA-256": {CheckSum: xz.SHA256, BlockSize: 300_001}} {
		var packed bytes.Buffer
		w, err := config.NewWriter(&packed)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(inner)
		w.Close()
		f, err := New(ample(), bytes.NewReader(elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Data: packed.Bytes()})))
		if err != nil {
			t.Fatal(err)
		}
		mini, err := f.MiniDebug()
		if err != nil || mini == nil || mini.Section(".kept") == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("SKIP: no xz")
	}
	cmd := exec.Command("xz", "-c", "-6")
	cmd.Stdin = bytes.NewReader(inner)
	packed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(ample(), bytes.NewReader(elfbomb.With(elfbomb.Small(), elfbomb.Section{Name: ".gnu_debugdata", Type: elf.SHT_PROGBITS, Data: packed})))
	if err != nil {
		t.Fatal(err)
	}
	if mini, err := f.MiniDebug(); err != nil || mini == nil || mini.Section(".kept") == nil {
		t.Errorf("xz itself: %v", err)
	}
}

func TestNoELF(t *testing.T) {
	for name, data := range map[string][]byte{"empty": nil, "a script": []byte("#!/bin/sh\necho what is no program\n"), "short": []byte(elf.ELFMAG)} {
		if _, err := New(ample(), bytes.NewReader(data)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
