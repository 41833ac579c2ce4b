package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// refooted is a Parquet file with another footer.
func refooted(t testing.TB, file []byte, change func(*format.FileMetaData)) []byte {
	t.Helper()
	end := len(file) - 8
	begin := end - int(binary.LittleEndian.Uint32(file[end:]))
	var meta format.FileMetaData
	must(t, thrift.Unmarshal(new(thrift.CompactProtocol), file[begin:end], &meta))
	change(&meta)
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
	must(t, err)
	b := append(bytes.Clone(file[:begin]), footer...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
}

// damages are ways in which a file cannot be merged.
func damages(t testing.TB) map[string]func([]byte) []byte {
	foot := func(change func(*format.FileMetaData)) func([]byte) []byte {
		return func(b []byte) []byte { return refooted(t, b, change) }
	}
	ends := func(end string) func([]byte) []byte {
		return func(b []byte) []byte { return append(bytes.Clone(b[:len(b)-8]), end...) }
	}
	all := map[string]func([]byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"of some bytes":     func(b []byte) []byte { return b[len(b)-6:] },
		"cut off":           func(b []byte) []byte { return b[:len(b)/2] },
		"a footer of 4 GB":  ends("\xff\xff\xff\xffPAR1"),
		"a footer of 16 MB": func(b []byte) []byte { return ends("\x00\x00\x00\x01PAR1")(append(make([]byte, 16<<20), b...)) },
		"a footer of zeros": func(b []byte) []byte {
			b = bytes.Clone(b)
			clear(b[len(b)-500 : len(b)-8])
			return b
		},
		"rows past counting": foot(func(m *format.FileMetaData) { m.NumRows, m.RowGroups[0].NumRows = 1<<50, 1<<50 }),
		"huge row groups": foot(func(m *format.FileMetaData) {
			g := &m.RowGroups[0]
			m.NumRows += maxRowsPerGroup - g.NumRows
			g.NumRows = maxRowsPerGroup
			for i := range g.Columns {
				g.Columns[i].MetaData.NumValues = maxRowsPerGroup
			}
		}),
		"a million row groups": foot(func(m *format.FileMetaData) {
			g := m.RowGroups[0]
			g.Columns = nil
			m.RowGroups = make([]format.RowGroup, 1<<20)
			for i := range m.RowGroups {
				m.RowGroups[i] = g
			}
		}),
		// Rows that are in the file, and would be gone.
		"a row group is lost": foot(func(m *format.FileMetaData) { m.RowGroups = nil }),
		"rows are lost":       foot(func(m *format.FileMetaData) { m.RowGroups[0].NumRows -= 10 }),
		"rows are lost everywhere": foot(func(m *format.FileMetaData) {
			m.NumRows -= 10
			m.RowGroups[0].NumRows -= 10
		}),
		"columns beyond the file": foot(func(m *format.FileMetaData) {
			for i := range m.RowGroups[0].Columns {
				m.RowGroups[0].Columns[i].MetaData.TotalCompressedSize = 1 << 50
			}
		}),
	}
	if testing.Short() {
		for name := range all {
			if name != "a footer of 4 GB" && name != "a row group is lost" {
				delete(all, name)
			}
		}
	}
	return all
}

// What cannot be read stays as it is, and is reported; what was written before and
// after it in the same hour is merged at once, and nothing of it is lost.
func TestDamagedFilesAreLeftOut(t *testing.T) {
	for name, damage := range damages(t) {
		t.Run(name, func(t *testing.T) {
			var dir string
			var bad []string
			var content [][]byte
			var want []Request
			used := budgettest.Peak(t, func() []string {
				dir = t.TempDir()
				c := &clock{t: noon}
				s := openAt(t, dir, Options{}, c)
				fill(t, s, c, newTraffic(2), noon, 60, 1)
				must(t, s.Close())
				list, err := segmentsIn(t, dir, kindRequests)
				if must(t, err); len(list) != 11 {
					t.Fatalf("%d files, want 11", len(list))
				}
				// The first two begin in the hour before, and are one.
				for _, seg := range []segment{list[4], list[7]} {
					whole, err := os.ReadFile(seg.path)
					must(t, err)
					content = append(content, damage(whole))
					bad = append(bad, seg.path)
					must(t, os.WriteFile(seg.path, content[len(content)-1], 0o600))
				}
				want = readAll2(t, dir, true)
				return []string{dir}
			}, func(args []string) {
				debug.SetMemoryLimit(200 << 20) // as the command does
				c := &clock{t: noon.Add(2 * time.Hour)}
				s := openAt(t, args[0], Options{}, c)
				fmt.Println(oneLineOf(t, s.keep()))
				must(t, s.keep()) // it was reported
				must(t, s.Close())
			})
			if used.Peak > 300<<20 {
				t.Errorf("it takes %d MB", used.Peak>>20)
			}
			if !strings.Contains(used.Output, bad[0]+": ") || !strings.Contains(used.Output, "(and 1 more)") {
				t.Errorf("it is not told which file is bad: %s", used.Output)
			}
			for i, path := range bad {
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content[i]) {
					t.Errorf("%s is not as it was: %v", path, err)
				}
			}
			// That, and three, two and three after it: each group is a file.
			if n := count(t, dir, kindRequests); n != 4+len(bad) {
				t.Errorf("%d files, want %d", n, 4+len(bad))
			}
			sameRequests(t, readAll2(t, dir, true), want)
		})
	}
}

// A merged file that cannot be read is set aside, and what it was made from stays.
func TestDamagedMergedFile(t *testing.T) {
	for name, damage := range damages(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := &clock{t: noon}
			s := openAt(t, dir, Options{}, c)
			want := fill(t, s, c, newTraffic(2), noon, 20, 1)
			must(t, s.Close())
			list, err := segmentsIn(t, dir, kindRequests)
			must(t, err)
			whole, err := os.ReadFile(list[0].path)
			must(t, err)
			merged := segment{kind: kindRequests, first: list[0].first, last: list[0].last, low: 0, high: 1000}
			path := filepath.Join(dir, merged.name())
			must(t, os.WriteFile(path, damage(whole), 0o600))
			c.set(noon.Add(2 * time.Hour))
			s = openAt(t, dir, Options{}, c)
			if text := oneLineOf(t, s.keep()); !strings.Contains(text, path+": ") || !strings.Contains(text, "it is left as "+filepath.Base(path)+damagedSuffix) {
				t.Error(text)
			}
			must(t, s.Close())
			if got, err := os.ReadFile(path + damagedSuffix); err != nil || !bytes.Equal(got, damage(whole)) {
				t.Errorf("it is not left as it was: %v", err)
			}
			sameRequests(t, readAll(t, dir, Query{}), want)
		})
	}
}
