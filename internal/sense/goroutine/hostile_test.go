package goroutine

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// sleeps makes this test binary a Go program that does nothing.
const sleeps = "GOROUTINE_TEST_SLEEPS"

func TestMain(m *testing.M) {
	if os.Getenv(sleeps) != "" {
		fmt.Println("ready")
		time.Sleep(time.Minute)
		return
	}
	os.Exit(m.Run())
}

// future is this program, as if it were built by a version of Go of which slowray
// does not know how its structures are laid out.
func future(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := elffile.New(ample(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section(".go.buildinfo")
	at := bytes.Index(data[s.Offset:s.Offset+s.FileSize], []byte("go1."))
	if at < 0 {
		t.Skip("SKIP: this program does not say that a release built it")
	}
	copy(data[int(s.Offset)+at:], "go1.99")
	return data
}

// run runs a program and gives its process.
func run(t *testing.T, path string) (pid int) {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), sleeps+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestBombs opens Go programs that run and have hostile files: compressed debugging
// information, names without end, and all else.
func TestBombs(t *testing.T) {
	for _, bomb := range elfbomb.All() {
		t.Run(bomb.Name, func(t *testing.T) {
			used := budgettest.Peak(t, func() []string {
				path := filepath.Join(t.TempDir(), "bomb")
				if err := bomb.Write(path, future(t)); err != nil {
					t.Skip(err)
				}
				return []string{strconv.Itoa(run(t, path))}
			}, func(args []string) {
				pid, _ := strconv.Atoi(args[0])
				for range 3 {
					b := budget.New(context.Background(), budget.Limits{Bytes: 128 << 20, Unpacked: 64 << 20, Nodes: 4 << 20, Wall: time.Second})
					p, err := Open(b, "/proc", pid, readMemory)
					if err == nil {
						p.All(b)
						p.Close()
					} else if strings.Contains(err.Error(), "\n") {
						t.Error(err)
					}
				}
			})
			if used.Peak > 180<<20 || used.CPU > 4*time.Second || used.Wall > 12*time.Second {
				t.Errorf("took %d MB, %v of CPU, %v", used.Peak>>20, used.CPU, used.Wall)
			}
		})
	}
}

// madeDWARF is debugging information while it is made: units, each with a table of
// abbreviations of its own or one that it shares.
type madeDWARF struct{ info, abbreviations []byte }

func uleb(v ...uint64) (b []byte) {
	for _, v := range v {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// unit adds a unit of version 4.
func (d *madeDWARF) unit(abbreviations uint32, entries ...byte) {
	d.info = binary.LittleEndian.AppendUint32(d.info, uint32(7+len(entries)))
	d.info = append(d.info, 4, 0)
	d.info = binary.LittleEndian.AppendUint32(d.info, abbreviations)
	d.info = append(append(d.info, 8), entries...)
}

func (d *madeDWARF) layout(t *testing.T, b *budget.Budget) (layout, error) {
	t.Helper()
	f, err := elffile.New(b, bytes.NewReader(elfbomb.With(elfbomb.Small(),
		elfbomb.Section{Name: ".debug_info", Type: elf.SHT_PROGBITS, Data: d.info},
		elfbomb.Section{Name: ".debug_abbrev", Type: elf.SHT_PROGBITS, Data: d.abbreviations})))
	if err != nil {
		t.Fatal(err)
	}
	return layoutInDWARF(b, f)
}

// Of the abbreviations: tags, attributes and forms (DWARF 5, 7).
const (
	tagUnit, tagStruct, tagMember, tagTypedef = 0x11, 0x13, 0x0d, 0x16
	attrName, attrAt, attrType                = 0x03, 0x38, 0x49
	formText, formNumber, formFlag, formRef   = 0x08, 0x0f, 0x19, 0x13
)

// runtimeDWARF is what Go's linker writes of its runtime, as far as it is read.
func runtimeDWARF(before func(*madeDWARF)) *madeDWARF {
	d := &madeDWARF{abbreviations: uleb(1, tagUnit, 1, attrName, formText, 0, 0, 2, tagStruct, 1, attrName, formText, 0, 0, 3, tagMember, 0, attrName, formText, attrAt, formNumber, 0, 0, 0)}
	if before != nil {
		before(d)
	}
	text := func(s string) []byte { return append([]byte(s), 0) }
	e := append([]byte{1}, text("runtime")...)
	for name, fields := range map[string][]string{"runtime.g": {"syscallsp", "syscallpc", "atomicstatus", "goid", "waitsince", "waitreason", "other"}, "runtime.m": {"procid"}, "runtime.moduledata": {"gofunc"}} {
		e = append(append(e, 2), text(name)...)
		for i, field := range fields {
			e = append(append(append(e, 3), text(field)...), byte(10+i))
		}
		e = append(e, 0)
	}
	d.unit(0, append(e, 0)...)
	return d
}

func TestLayoutInDWARF(t *testing.T) {
	want := layout{syscallSP: 10, syscallPC: 11, status: 12, id: 13, waitSince: 14, reason: 15, procID: 10, inlined: true, goFunc: 10}
	for name, before := range map[string]func(*madeDWARF){
		"alone":              nil,
		"behind other units": func(d *madeDWARF) { d.unit(0, append([]byte{1}, "main\x00\x00"...)...); d.unit(1<<30, 1) },
	} {
		if got, err := runtimeDWARF(before).layout(t, ample()); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v: %v", name, got, want, err)
		}
	}
	for name, d := range map[string]*madeDWARF{"nothing": {}, "no runtime": {info: []byte{8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 0}, abbreviations: []byte{0}}} {
		if _, err := d.layout(t, ample()); err == nil {
			t.Errorf("%s: a layout was found", name)
		}
	}
}

// hostileDWARF is debugging information of some MB that takes GB, or minutes, of
// those who read all of it.
func hostileDWARF() map[string]*madeDWARF {
	out := map[string]*madeDWARF{}
	// A million units, whose tables of abbreviations are one long one: each begins
	// at another place in it.
	d := &madeDWARF{abbreviations: bytes.Repeat([]byte{1, tagUnit, 1, 0, 0}, 1<<20)}
	for i := range uint32(1 << 20) {
		d.unit(5*i%(1<<20), 1)
	}
	out["overlapping tables"] = d
	// Entries with a million attributes that take no bytes.
	d = &madeDWARF{abbreviations: append(uleb(1, tagUnit, 1), bytes.Repeat([]byte{attrName, formFlag}, 1<<20)...)}
	d.abbreviations = append(d.abbreviations, 0, 0, 0)
	d.unit(0, bytes.Repeat([]byte{1}, 1<<20)...)
	out["attributes"] = d
	// A chain of a million types, each of which is the next.
	d = runtimeDWARF(func(d *madeDWARF) {
		d.abbreviations = append(d.abbreviations[:len(d.abbreviations)-1], uleb(4, tagTypedef, 0, attrName, formText, attrType, formRef, 0, 0, 0)...)
	})
	e := append([]byte{1}, "runtime\x00"...)
	e = append(append(e, 2), "runtime.g\x00"...)
	e = append(append(append(e, 3), "goid\x00"...), 10, 0)
	for i := range uint32(1 << 20) {
		e = append(e, 4, 0)
		e = binary.LittleEndian.AppendUint32(e, 11+uint32(len(e))+4+i%2)
	}
	d.info = nil
	d.unit(0, e...)
	out["chain of types"] = d
	// The structure has no end.
	d = runtimeDWARF(nil)
	d.info = nil
	e = append([]byte{1}, "runtime\x00"...)
	e = append(append(e, 2), "runtime.g\x00"...)
	e = append(e, bytes.Repeat([]byte{3, 'x', 0, 1}, 4<<20)...)
	d.unit(0, e...)
	out["members"] = d
	return out
}

func TestHostileDWARF(t *testing.T) {
	for name, d := range hostileDWARF() {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			b := budget.New(t.Context(), budget.Limits{Bytes: 128 << 20, Unpacked: 64 << 20, Nodes: 4 << 20, Wall: 2 * time.Second})
			if _, err := d.layout(t, b); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// FuzzDWARF: whatever debugging information holds, reading it ends in its budget.
func FuzzDWARF(f *testing.F) {
	d := runtimeDWARF(nil)
	f.Add(d.info, d.abbreviations)
	f.Add([]byte{}, []byte{1, 2})
	f.Fuzz(func(t *testing.T, info, abbreviations []byte) {
		budgettest.Within(t, len(info)+len(abbreviations), budgettest.Cost{PerByte: 4096, Fixed: 16 << 20, CPU: 2 * time.Second}, func() {
			d := madeDWARF{info, abbreviations}
			d.layout(t, budget.New(context.Background(), budget.Limits{Bytes: 16 << 20, Unpacked: 16 << 20, Nodes: 1 << 16, Wall: time.Second}))
		})
	})
}

// memoryOf is a process whose memory is a text that a fuzzer made, at base, and at
// every other address the same again.
func memoryOf(data []byte) func(pid int, addr uint64, into []byte) (int, error) {
	return func(_ int, addr uint64, into []byte) (int, error) {
		if len(data) == 0 {
			return 0, os.ErrInvalid
		}
		for i := range into {
			into[i] = data[(addr+uint64(i))%uint64(len(data))]
		}
		return len(into), nil
	}
}

// FuzzMemory reads the goroutines of a process whose memory and tables hold what
// they like.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, []byte("names\x00"), uint16(4))
	f.Add(bytes.Repeat([]byte{0, 0, 1, 0, 0, 0, 0, 0}, 64), bytes.Repeat([]byte{0x7f, 1}, 300), uint16(100))
	f.Fuzz(func(t *testing.T, memory, table []byte, entries uint16) {
		file, err := elffile.New(ample(), bytes.NewReader(elfbomb.With(append(elfbomb.Small(), table...))))
		if err != nil {
			t.Fatal(err)
		}
		budgettest.Within(t, len(memory)+len(table), budgettest.Cost{PerByte: 1 << 20, Fixed: 64 << 20, CPU: 3 * time.Second}, func() {
			b := budget.New(context.Background(), budget.Limits{Bytes: 8 << 20, Unpacked: 1 << 20, Nodes: 1 << 15, Wall: time.Second})
			p := fuzzed(file, memory, table, entries, b)
			module, err := p.findModule()
			if err == nil {
				_ = p.openFunctions(module)
			}
			list, _, _ := p.All(b)
			for i := range list {
				p.Place(&list[i])
				p.Own(&list[i])
				p.Distances(&list[i], list[i].Object, 1024)
			}
		})
	})
}
