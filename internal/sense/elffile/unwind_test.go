package elffile

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/sense/elffile/elfbomb"
)

// TestLeftByCall compares where return addresses are said to be, in each row of the tables
// of binaries for both architectures, with what readelf reads there: of C in .eh_frame, of
// Go in the .debug_frame that its linker makes of other tables than those that are read here.
func TestLeftByCall(t *testing.T) {
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("SKIP: no readelf: where return addresses are is NOT tested")
	}
	source := "../callstack/interpreter/testdata/planted"
	for _, c := range []struct {
		name string
		file string   // one that is there
		make []string // the command that makes one
		arch string   // of Go
		rows int      // there are at least
	}{
		{name: "C, amd64", make: []string{"gcc", "-O2", "-m64", source + ".c"}, rows: 20},
		{name: "C, arm64", make: []string{"aarch64-linux-gnu-gcc", "-O2", "-fomit-frame-pointer", source + ".c"}, rows: 15},
		{name: "C, arm64, signed", make: []string{"aarch64-linux-gnu-gcc", "-O2", "-mbranch-protection=pac-ret", source + ".c"}, rows: 20},
		{name: "libc, amd64", file: "/lib/x86_64-linux-gnu/libc.so.6", rows: 20_000},
		{name: "libc, arm64", file: "/usr/aarch64-linux-gnu/lib/libc.so.6", rows: 10_000},
		{name: "Go, amd64", arch: "amd64", rows: 4000},
		{name: "Go, arm64", arch: "arm64", rows: 4000},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := c.file
			if path == "" {
				path = filepath.Join(t.TempDir(), "planted")
				command := append(slices.Clone(c.make), "-o", path)
				if c.arch != "" {
					command = []string{"go", "build", "-o", path, "./" + source}
				}
				if _, err := exec.LookPath(command[0]); err != nil {
					t.Skipf("SKIP: no %s: its tables are NOT tested", command[0])
				}
				cmd := exec.Command(command[0], command[1:]...)
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+c.arch)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			file, err := os.Open(path)
			if err != nil {
				t.Skipf("SKIP: %v: its tables are NOT tested", err)
			}
			defer file.Close()
			f, err := New(ample(), file)
			if err != nil {
				t.Fatal(err)
			}
			left, section := f.UnwindTable().LeftByCall, ".eh_frame"
			if c.arch != "" {
				g, err := f.GoFunctions()
				if err != nil || g == nil {
					t.Fatal(g, err)
				}
				section = ".debug_frame"
				left = func(addr uint64) bool { yes, _ := g.LeftByCall(addr); return yes }
			}
			rows, wrong := 0, 0
			eachRow(t, path, section, f.Machine, func(fn uint64, from, to uint64, want bool) {
				rows++
				for _, addr := range []uint64{from, to - 1} {
					if got := left(addr); got != want && wrong < 10 {
						t.Errorf("%#x, in the function at %#x: %v, readelf says %v", addr, fn, got, want)
						wrong++
					}
				}
			})
			if rows < c.rows {
				t.Errorf("%d rows, want at least %d", rows, c.rows)
			}
		})
	}
}

// eachRow calls visit for each row that readelf prints of the functions in a section: the
// row holds from one address to another.
func eachRow(t *testing.T, path, section string, machine elf.Machine, visit func(fn, from, to uint64, left bool)) {
	t.Helper()
	dump := func(how string) []byte {
		out, err := exec.Command("readelf", "-W", "--debug-dump="+how+",no-follow-links", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// In the rows there is no difference between others and what nobody called, as _start,
	// or what has its return address in another register (glibc's _mcount).
	other := map[string]bool{}
	var last string
	own := map[elf.Machine]string{elf.EM_X86_64: "16", elf.EM_AARCH64: "30"}[machine]
	for line := range strings.Lines(string(dump("frames"))) {
		fields := strings.Fields(line)
		switch {
		case strings.Contains(line, " CIE"):
			last = "cie=" + fields[0]
		case strings.Contains(line, " FDE "):
			last = fields[len(fields)-1]
			other[last] = other[fields[len(fields)-2]]
		case strings.Contains(line, "Return address column:"):
			other[last] = fields[3] != own
		case strings.Contains(line, "DW_CFA_undefined: r"+own+" "):
			other[last] = true
		}
	}
	register := regexp.MustCompile(` \([a-z0-9]+\)`)
	var (
		columns  []string
		fn, end  uint64
		from     uint64
		left, is bool
		inFDE    bool
		in       string
	)
	number := func(s string) uint64 {
		n, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return n
	}
	done := func(to uint64) {
		if is && in == section && to > from {
			visit(fn, from, to, left)
		}
		is = false
	}
	lines := bufio.NewScanner(bytes.NewReader(dump("frames-interp")))
	for lines.Scan() {
		fields := strings.Fields(register.ReplaceAllString(lines.Text(), ""))
		switch {
		case len(fields) == 0:
			done(end)
			inFDE = false
		case fields[0] == "Contents":
			in = fields[3]
		case strings.Contains(lines.Text(), " FDE "):
			pc := fields[len(fields)-1]
			at, to, _ := strings.Cut(strings.TrimPrefix(pc, "pc="), "..")
			fn, end, inFDE = number(at), number(to), !other[pc]
		case fields[0] == "LOC":
			columns = fields
		case inFDE && len(fields) == len(columns):
			at := number(fields[0])
			done(at)
			from, is = at, true
			ra := slices.Index(columns, "ra")
			if machine == elf.EM_AARCH64 {
				// Go's linker says so even where it is being loaded, with less than nothing on the stack.
				left = ra < 0 || fields[ra] == "u" || fields[ra] == "s" && (in == ".eh_frame" || fields[1] == "sp+0")
			} else {
				left = fields[1] == "rsp+8" && (ra < 0 || fields[ra] == "c-8")
			}
		}
	}
	done(end)
}

// unwindable is a program with a function at 0x1000 and its tables: the instructions of the
// common description and its own.
func unwindable(common, own []byte) []byte {
	le := binary.LittleEndian
	cie := append([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, dwarfRA, 1, 0x1b}, common...)
	frame := append(le.AppendUint32(nil, uint32(len(cie))), cie...)
	const at = 0x2000 // of .eh_frame
	description := len(frame)
	fde := le.AppendUint32(nil, uint32(description+4))
	begins := at + description + 8
	fde = le.AppendUint32(fde, uint32(int32(0x1000-begins)))
	fde = append(le.AppendUint32(fde, 0x100), 0)
	fde = append(fde, own...)
	frame = append(append(le.AppendUint32(frame, uint32(len(fde))), fde...), 0, 0, 0, 0)
	header := 0x800000
	table := append([]byte{1, pcrelSigned4, unsigned4, fromTable}, 0, 0, 0, 0, 1, 0, 0, 0)
	table = le.AppendUint32(table, uint32(int32(0x1000-header)))
	table = le.AppendUint32(table, uint32(int32(at+description-header)))
	// All that Small has is loaded at 0x1000, which is where its file begins.
	base := elfbomb.Small()
	for len(base) < at-0x1000 {
		base = append(base, 0)
	}
	return elfbomb.With(append(base[:at-0x1000], frame...), elfbomb.Section{Name: ".eh_frame_hdr", Type: elf.SHT_PROGBITS, Addr: uint64(header), Data: table})
}

// x86 is how a function on x86-64 is entered: CFA rsp+8, return address at CFA-8.
var x86 = []byte{0x0c, dwarfRSP, 8, 0x80 | dwarfRA, 1}

// TestUnwindInstructions: instructions that compilers write seldom, or never.
func TestUnwindInstructions(t *testing.T) {
	for i, c := range []struct {
		own         []byte
		first, last bool // at the first and the last byte of the function
	}{
		{nil, true, true},
		{[]byte{0x41, 0x0e, 16}, true, false},                               // advance 1; CFA rsp+16
		{[]byte{0x41, 0x0a, 0x0e, 16, 0x42, 0x0b}, true, true},              // remember … restore
		{[]byte{0x41, 0x0b}, true, false},                                   // nothing was remembered
		{[]byte{0x02, 0x10, 0x13, 0x7e}, true, false},                       // CFA rsp+(-2*-8)
		{[]byte{0x03, 0x10, 0, 0x12, 7, 0x7f}, true, true},                  // the same CFA, otherwise written
		{[]byte{0x04, 0x10, 0, 0, 0, 0x0d, 6}, true, false},                 // CFA rbp+8
		{[]byte{0x41, 0x0f, 2, 0x77, 8}, true, false},                       // an expression
		{[]byte{0x41, 0x07, dwarfRA}, true, false},                          // nobody called it
		{[]byte{0x41, 0x07, dwarfRA, 0x42, 0x06, dwarfRA}, true, true},      // restored
		{[]byte{0x41, 0x05, dwarfRA, 2, 0x42, 0xc0 | dwarfRA}, true, true},  // elsewhere, restored
		{[]byte{0x41, 0x11, dwarfRA, 1}, true, true},                        // at -8 all the same
		{[]byte{0x41, 0x09, dwarfRA, 3}, true, false},                       // in a register
		{[]byte{0x41, 0x16, dwarfRA, 1, 0x77, 0x2e, 5, 0}, true, false},     // by an expression
		{[]byte{0x41, 0x1d}, true, false},                                   // not known
		{[]byte{0x41, 0x0e}, true, false},                                   // ends in the middle
		{bytes.Repeat([]byte{0x0a}, maxKeptRows+1), false, false},           // remembers without end
		{append(bytes.Repeat([]byte{0x0a}, 8), 0x41, 0x0e, 9), true, false}, // some of that
	} {
		f, err := New(ample(), readerOf(unwindable(x86, c.own)))
		if err != nil {
			t.Fatal(err)
		}
		u := f.UnwindTable()
		if u == nil {
			t.Fatal("no table")
		}
		if first, last := u.LeftByCall(0x1000), u.LeftByCall(0x10ff); first != c.first || last != c.last {
			t.Errorf("%d: %v, %v, want %v, %v", i, first, last, c.first, c.last)
		}
		if u.LeftByCall(0xfff) || u.LeftByCall(0x1100) {
			t.Errorf("%d: outside of the function", i)
		}
	}
}

// FuzzUnwind follows any descriptions.
func FuzzUnwind(f *testing.F) {
	f.Add(x86, []byte{0x41, 0x0e, 16}, uint16(0x10))
	f.Add([]byte{}, []byte{0x0a, 0x0b, 0x0f, 2, 0x77, 8}, uint16(0xff))
	f.Fuzz(func(t *testing.T, common, own []byte, at uint16) {
		if len(common)+len(own) > maxDescription {
			return
		}
		file, err := New(ample(), readerOf(unwindable(common, own)))
		if err != nil {
			t.Skip(fmt.Sprint(err))
		}
		if u := file.UnwindTable(); u != nil {
			u.LeftByCall(0x1000 + uint64(at))
		}
	})
}
