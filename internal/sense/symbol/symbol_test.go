package symbol

import (
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
)

func TestMappings(t *testing.T) {
	const text = `55d0c0a00000-55d0c0a01000 r--p 00000000 fd:01 11 /usr/bin/app
55d0c0a01000-55d0c0a05000 r-xp 00001000 fd:01 11                         /usr/bin/app
7f0c2e6ac000-7f0c2e801000 r-xp 00026000 fd:01 1185 /usr/lib/my lib.so (deleted)
7f0c2e900000-7f0c2e910000 rwxp 00000000 00:00 0
7ffd1b3f2000-7ffd1b3f4000 r-xp 00000000 00:00 0                          [vdso]
not a line
7f-6f r-xp 0 0 0
`
	want := []mapping{
		{start: 0x55d0c0a01000, end: 0x55d0c0a05000, offset: 0x1000, device: "fd:01", inode: 11, path: "/usr/bin/app"},
		{start: 0x7f0c2e6ac000, end: 0x7f0c2e801000, offset: 0x26000, device: "fd:01", inode: 1185, path: "/usr/lib/my lib.so", deleted: true},
		{start: 0x7f0c2e900000, end: 0x7f0c2e910000, device: "00:00"},
		{start: 0x7ffd1b3f2000, end: 0x7ffd1b3f4000, device: "00:00", path: vdso},
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "7", "maps"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := NewSpace(dir).Process(7).mappings
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Error(diff)
	}
	for address, want := range map[uint64]string{
		0x55d0c0a01000: "/usr/bin/app", 0x55d0c0a04fff: "/usr/bin/app", 0x55d0c0a05000: "", 0: "", 0x7ffd1b3f2010: vdso,
	} {
		path := ""
		if m := find(got, address); m != nil {
			path = m.path
		}
		if path != want {
			t.Errorf("%#x is in %q, want %q", address, path, want)
		}
	}
}

func TestParseKallsyms(t *testing.T) {
	const text = `ffffffff81000000 T _text
ffffffff81000000 T first
ffffffff81000100 T __pfx_second
ffffffff81000100 t second
ffffffff81000200 d data
ffffffff81000300 T third
ffffffffc0001000 t of_module	[nf_conntrack]
ffffffffc0000800 t bpf_prog_6deef7357e7b4530_flow	[bpf]
`
	got, err := parseKallsyms(strings.NewReader(text), []uint64{0xffffffff80000000, 0xffffffff81000010, 0xffffffff81000110, 0xffffffff81000250, 0xffffffffc0000900, 0xffffffffc0001234})
	names := map[uint64]string{}
	for a, s := range got {
		names[a] = s.name + " " + s.module
	}
	want := map[uint64]string{
		0xffffffff81000010: "_text vmlinux",
		0xffffffff81000110: "second vmlinux",
		0xffffffff81000250: "second vmlinux", // data ends no function
		0xffffffffc0000900: "bpf_prog_6deef7357e7b4530_flow bpf",
		0xffffffffc0001234: "of_module nf_conntrack",
	}
	if diff := cmp.Diff(want, names); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := parseKallsyms(strings.NewReader("0000000000000000 T _text\n"), []uint64{1}); err != errHidden {
		t.Errorf("%v, want %v", err, errHidden)
	}
}

func TestPerfMap(t *testing.T) {
	const text = `1000 100 LazyCompile:*old /srv/app.js:1
0x2000 10 py::handle:/srv/app.py
1000 80 JS:*crunch file:///srv/app.js:12:3
nonsense
3000 zz bad
4000 20 Lorg/example/Main;::run
5000 20 Builtin:ArrayForEach
`
	names, err := parsePerfMap(ample(), strings.NewReader(text), []uint64{0xfff, 0x1000, 0x107f, 0x10ff, 0x2008, 0x2010, 0x4000, 0x5001})
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]observe.Frame{}
	for a, n := range names {
		got[a] = jitFrame(n)
	}
	crunch := observe.Frame{Name: "crunch", Kind: observe.FrameNode, File: "/srv/app.js", Line: 12}
	want := map[uint64]observe.Frame{
		0x1000: crunch, 0x107f: crunch,
		0x10ff: {Name: "old", Kind: observe.FrameNode, File: "/srv/app.js", Line: 1},
		0x2008: {Name: "handle", Kind: observe.FramePython, File: "/srv/app.py"},
		0x4000: {Name: "org.example.Main.run", Kind: observe.FrameJava},
		0x5001: {Name: "ArrayForEach", Kind: observe.FrameNode},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzPerfMap(f *testing.F) {
	f.Add([]byte("1000 80 JS:*crunch file:///srv/app.js:12:3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, _ := parsePerfMap(ample(), strings.NewReader(string(data)), []uint64{1, 0x1000, 1 << 40})
		for _, n := range names {
			if f := jitFrame(n); f.Name != clean(f.Name) {
				t.Errorf("%q", f.Name)
			}
		}
	})
}

func TestDemangled(t *testing.T) {
	for name, want := range map[string]string{
		"_ZN4node5StartEiPPc":                        "node::Start",
		"_ZNSt6vectorIiSaIiEE9push_backERKi":         "std::vector<int, std::allocator<int> >::push_back",
		"_ZN3std2rt10lang_start17h0123456789abcdefE": "std::rt::lang_start",
		"memcpy@@GLIBC_2.14":                         "memcpy",
		"plain_c":                                    "plain_c",
		"_ZN" + strings.Repeat("9", 2000):            "_ZN" + strings.Repeat("9", maxName-3) + "…",
		"evil\x1b[2Jname\xff":                        "evil?[2Jname?",
	} {
		if got := demangled(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// FuzzBinary: whatever a binary holds, nothing but an error comes of it.
func FuzzBinary(f *testing.F) {
	if data, err := os.ReadFile("/usr/bin/true"); err == nil {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = nameOffsets(ample(), strings.NewReader(string(data)), []uint64{0, 0x1000, 0x2345}, false, func(string) *os.File { return nil })
	})
}

// TestOwnFunctions: the addresses of this very process get their names, from
// the symbol table or without it.
func TestOwnFunctions(t *testing.T) {
	s := NewSpace("/proc")
	defer s.Close()
	p := s.Process(os.Getpid())
	var at [1]uintptr
	runtime.Callers(1, at[:])
	frames, missing := s.Frames(ample(), []Location{p.Location(uint64(at[0]) - 1), p.Location(1)})
	f := frames[0]
	if f.Name != "github.com/slowray/slowray/internal/sense/symbol.TestOwnFunctions" || f.Kind != observe.FrameGo || f.Line == 0 || !strings.HasSuffix(f.File, "symbol_test.go") {
		t.Errorf("%+v", f)
	}
	if f := frames[1]; f.Name != "[unknown]" || len(missing) != 1 {
		t.Errorf("%+v %+v", f, missing)
	}
}

// TestStripped: a binary without symbols tells its functions by where they
// begin; one whose file is gone is found through the mapping.
func TestStripped(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc")
	}
	dir := t.TempDir()
	source, bin := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	const program = "#include <unistd.h>\n__attribute__((noinline)) int hot(int n) { return n * 3 + getpid(); }\nint main(int c, char **v) { return hot(c); }\n"
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-O1", "-o", bin, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var hot elf.Symbol
	for _, s := range symbols {
		if s.Name == "hot" {
			hot = s
		}
	}
	name := func(path string) (function, error) {
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		found, err := nameOffsets(ample(), r, []uint64{hot.Value + 2}, true, func(string) *os.File { return nil })
		return found[hot.Value+2], err
	}
	if got, err := name(bin); got.name != "hot" || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if out, err := exec.Command("strip", bin).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := name(bin); got.name != "" || got.start != hot.Value {
		t.Errorf("stripped: %+v, %v, want it to begin at %#x", got, err, hot.Value)
	}
}

// ample is a budget that no real program uses up.
func ample() *budget.Budget {
	return budget.New(context.Background(), budget.Limits{Bytes: 1 << 30, Wall: time.Minute})
}
