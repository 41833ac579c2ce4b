package function

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/slowray/slowray/internal/observe"
)

func TestParsePattern(t *testing.T) {
	for text, want := range map[string]pattern{
		"main":                     {kind: observe.FunctionNative, name: "main"},
		"ns::Class::method(int)":   {kind: observe.FunctionNative, name: "ns::Class::method(int)"},
		"libc.so.6:malloc":         {kind: observe.FunctionNative, in: "libc.so.6", name: "malloc"},
		"libx*:a::b":               {kind: observe.FunctionNative, in: "libx*", name: "a::b"},
		"main.(*T).Method":         {kind: observe.FunctionNative, name: "main.(*T).Method"},
		"usdt:postgresql:query*":   {kind: observe.FunctionUSDT, in: "postgresql", name: "query*"},
		"usdt:gc":                  {kind: observe.FunctionUSDT, name: "gc"},
		"tracepoint:sched:sched_*": {kind: observe.FunctionTracepoint, in: "sched", name: "sched_*"},
		"syscall:read":             {kind: observe.FunctionSyscall, name: "read"},
		"kprobe:tcp_sendmsg":       {kind: observe.FunctionKernel, name: "tcp_sendmsg"},
	} {
		want.text = text
		got, err := parsePattern(text)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(pattern{})); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
	for _, bad := range []string{"", "syscall:", "usdt:a:", "tracepoint:x", "__vdso_time", "[vdso]:x"} {
		if _, err := parsePattern(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"*", "", true}, {"*", "anything", true}, {"a*c", "abc", true}, {"a*c", "abcd", false}, {"a?c", "abc", true},
		{"a?c", "ac", false}, {"*x*x*", "axbxc", true}, {"*x*x*", "axb", false}, {"main.(*T).M", "main.(*T).M", true}, {"a/b/*", "a/b/c/d", true},
		{"[a]", "a", false}, {"[a]", "[a]", true}, {"ab", "abc", false},
	} {
		if got := match(c.pattern, c.text); got != c.want {
			t.Errorf("match(%q, %q) = %v", c.pattern, c.text, got)
		}
	}
}

// FuzzMatch: no pattern takes for ever, and a text matches itself.
func FuzzMatch(f *testing.F) {
	f.Add("a*b?c", "aXbYc")
	f.Fuzz(func(t *testing.T, p, s string) {
		if len(p) > 64 || len(s) > 256 {
			return
		}
		_ = match(p, s) // ends
		if !wild(s) && !match(s, s) {
			t.Errorf("%q does not match itself", s)
		}
		if !match("*", s) {
			t.Errorf("* does not match %q", s)
		}
	})
}

func TestNearest(t *testing.T) {
	names := []string{"malloc", "calloc", "realloc", "free", "memalign", "handle_request", "handle_response"}
	for want, first := range map[string]string{"maloc": "malloc", "handle": "handle_request", "Free": "free", "handle_requets": "handle_request"} {
		if got := nearest(want, names); len(got) == 0 || got[0] != first {
			t.Errorf("%s: %v, want %s first", want, got, first)
		}
	}
	if got := nearest("zzzzzzzz", names); len(got) != 0 {
		t.Errorf("zzzzzzzz is near %v", got)
	}
}

func TestParseArg(t *testing.T) {
	for text, want := range map[string]Arg{
		"1": {Number: 1, Type: "int"}, "2:str": {Number: 2, Type: "str"}, "comm:str": {Field: "comm", Type: "str"}, "12:hex": {Number: 12, Type: "hex"},
	} {
		if got, err := ParseArg(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", ":", "0", "13", "-1", "1:float", "1:str:x"} {
		if got, err := ParseArg(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

// TestShowArg: text of the target never comes out as it is.
func TestShowArg(t *testing.T) {
	text := func(s string, length int32) value {
		v := value{Number: 1, Length: length}
		copy(v.Text[:], s)
		return v
	}
	in := place{where: inRegister, size: 8}
	for _, c := range []struct {
		arg   Arg
		place place
		value value
		want  string
	}{
		{Arg{Number: 1, Type: "str"}, in, text("a\x1b[31m\xff\u202e", 11), `1 = "a\x1b[31m\xff\u202e"`},
		{Arg{Number: 1, Type: "str"}, in, text(strings.Repeat("x", 128), 128), `1 = "` + strings.Repeat("x", 127) + `"…`},
		{Arg{Number: 1, Type: "str"}, in, text("", 1), `1 = ""`},
		{Arg{Number: 1, Type: "gostr"}, in, text("abc", 3), `1 = "abc"`},
		{Arg{Number: 1, Type: "gostr"}, in, text("", 0), `1 = ""`},
		{Arg{Number: 1, Type: "str"}, in, value{Number: 4096, Length: -14}, "1 = 0x1000 (not in memory)"},
		{Arg{Number: 1, Type: "str"}, in, value{Length: -14}, "1 = NULL"},
		{Arg{Number: 9, Type: "int"}, place{}, value{Length: -1}, "9 = ?"},
		{Arg{Number: 2, Type: "int"}, in, value{Number: ^uint64(0)}, "2 = -1"},
		{Arg{Number: 2, Type: "uint"}, in, value{Number: ^uint64(0)}, "2 = 18446744073709551615"},
		{Arg{Number: 2, Type: "i32"}, in, value{Number: 0xffffffff}, "2 = -1"},
		{Arg{Number: 2, Type: "u32"}, in, value{Number: ^uint64(0)}, "2 = 4294967295"},
		{Arg{Number: 2, Type: "hex"}, in, value{Number: 255}, "2 = 0xff"},
		{Arg{Number: 2, Type: "bool"}, in, value{Number: 256}, "2 = false"},
		{Arg{Number: 2, Type: "int"}, place{where: inMemory, size: 2, signed: true}, value{Number: 0xfffe}, "2 = -2"},
		{Arg{Field: "comm", Type: "int"}, place{where: inRecord, text: true}, text("sh\x00", 3), `comm = "sh"`},
	} {
		if got := c.arg.show(c.place, &c.value); got != c.want {
			t.Errorf("%+v of %+v: %s, want %s", c.arg, c.place, got, c.want)
		}
	}
}

// note is a static probe's note.
func note(pc, base, semaphore uint64, text string) []byte {
	le := binary.LittleEndian
	desc := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, pc), base), semaphore)
	desc = append(desc, text...)
	out := le.AppendUint32(le.AppendUint32(le.AppendUint32(nil, 8), uint32(len(desc))), noteSDT)
	out = append(append(out, "stapsdt\x00"...), desc...)
	for len(out)%4 != 0 {
		out = append(out, 0)
	}
	return out
}

func TestParseNotes(t *testing.T) {
	data := append(note(0x1000, 0x500, 0x2000, "pg\x00query__start\x008@%rax\x00"), note(0x1010, 0x500, 0, "pg\x00query__done\x00\x00")...)
	want := []staticProbe{{"pg", "query__start", 0x1100, 0x2100, "8@%rax"}, {"pg", "query__done", 0x1110, 0, ""}}
	if diff := cmp.Diff(want, parseNotes(data, binary.LittleEndian, 0x600), cmp.AllowUnexported(staticProbe{})); diff != "" {
		t.Error(diff)
	}
}

// FuzzParseNotes: a broken section is no more than fewer probes.
func FuzzParseNotes(f *testing.F) {
	f.Add(note(1, 2, 3, "a\x00b\x00c\x00"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		for _, p := range parseNotes(data, binary.LittleEndian, 1) {
			parseStaticArgs(elf.EM_X86_64, p.args)
			parseStaticArgs(elf.EM_AARCH64, p.args)
		}
	})
}

func TestParseStaticArgs(t *testing.T) {
	got := parseStaticArgs(elf.EM_X86_64, "-4@%edi 8@-144(%rbp) 4@$-7 8@(%rax,%rcx,8) 2@sym(%rip) 8f@%xmm0 1@16(%rsp)")
	want := []place{
		{where: inRegister, size: 4, signed: true, reg: 112},
		{where: inMemory, size: 8, reg: 32, second: noRegister, scale: 1, offset: -144},
		{where: inConstant, size: 4, offset: -7},
		{where: inMemory, size: 8, reg: 80, second: 88, scale: 8},
		{size: 2},
		{},
		{where: inMemory, size: 1, reg: 152, second: noRegister, scale: 1, offset: 16},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" {
		t.Error(diff)
	}
	// As gcc 12 and clang 19 write them.
	got = parseStaticArgs(elf.EM_AARCH64, "8@x19 -4@[sp, 12] 4@-3 8@[x0] -4@w1 1@x3 -8@[x20, 24] 8f@[sp, 24] -2@0 8f@x22 8@[x30, -16]")
	want = []place{
		{where: inRegister, size: 8, reg: 19 * 8},
		{where: inMemory, size: 4, signed: true, reg: 31 * 8, second: noRegister, scale: 1, offset: 12},
		{where: inConstant, size: 4, offset: -3},
		{where: inMemory, size: 8, second: noRegister, scale: 1},
		{where: inRegister, size: 4, signed: true, reg: 8},
		{where: inRegister, size: 1, reg: 3 * 8},
		{where: inMemory, size: 8, signed: true, reg: 20 * 8, second: noRegister, scale: 1, offset: 24},
		{},
		{where: inConstant, size: 2, signed: true},
		{},
		{where: inMemory, size: 8, reg: 30 * 8, second: noRegister, scale: 1, offset: -16},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" {
		t.Error(diff)
	}
}

// TestArgumentPlaces: where arguments are when a function begins: struct pt_regs of x86-64
// (r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp) and of arm64
// (x0…x30, sp, pc, pstate, orig_x0).
func TestArgumentPlaces(t *testing.T) {
	x86, arm := machineOf("amd64"), machineOf("arm64")
	in := func(reg uint16) place { return place{where: inRegister, size: 8, reg: reg, second: noRegister} }
	on := func(sp uint16, offset int64) place {
		return place{where: inMemory, size: 8, reg: sp, second: noRegister, scale: 1, offset: offset}
	}
	text := in(8)
	text.second = 16
	for _, c := range []struct {
		m     *machine
		regs  []uint16
		arg   Arg
		stack bool
		want  place
	}{
		{&x86, x86.native, Arg{Number: 1}, true, in(112)},
		{&x86, x86.native, Arg{Number: 6}, true, in(64)},
		{&x86, x86.native, Arg{Number: 7}, true, on(152, 8)}, // above the return address
		{&x86, x86.native, Arg{Number: 8}, true, on(152, 16)},
		{&x86, x86.golang, Arg{Number: 10}, false, place{}},
		{&x86, x86.call, Arg{Number: 4}, false, in(56)},
		{&arm, arm.native, Arg{Number: 1}, true, in(0)},
		{&arm, arm.native, Arg{Number: 8}, true, in(56)},
		{&arm, arm.native, Arg{Number: 9}, true, on(248, 0)}, // the return address is in x30
		{&arm, arm.native, Arg{Number: 12}, true, on(248, 24)},
		{&arm, arm.golang, Arg{Number: 2, Type: "gostr"}, false, text},
		{&arm, arm.golang, Arg{Number: 12}, false, in(88)},
		{&arm, arm.call, Arg{Number: 1}, false, in(272)}, // x0 has the result by then
		{&arm, arm.call, Arg{Number: 2}, false, in(8)},
	} {
		if got := c.m.inRegisters(c.arg, c.regs, c.stack); got != c.want {
			t.Errorf("%s, %+v: %+v, want %+v", c.m.elf, c.arg, got, c.want)
		}
	}
	if x86.g != 8 || arm.g != 224 || arm.result != 0 || arm.sp != 248 {
		t.Errorf("%+v, %+v", x86, arm)
	}
}

func TestPairOf(t *testing.T) {
	names := []string{"query__start", "query__done", "gc__begin", "lonely__start", "function__entry", "function__return"}
	has := func(n string) bool { return slices.Contains(names, n) }
	for name, want := range map[string]string{"query__start": "query", "function__entry": "function", "gc__begin": "", "lonely__start": "", "query__done": ""} {
		if got, _, _ := pairOf(name, has); got != want {
			t.Errorf("%s begins %q, want %q", name, got, want)
		}
	}
}

func TestParseFormat(t *testing.T) {
	const text = `name: sched_process_exec
ID: 316
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:__data_loc char[] filename;	offset:8;	size:4;	signed:0;
	field:pid_t pid;	offset:12;	size:4;	signed:1;
	field:char comm[16];	offset:16;	size:16;	signed:0;
	field:const char * name;	offset:32;	size:8;	signed:0;
	field:broken

print fmt: "filename=%s", __get_str(filename)
`
	got, order := parseFormat([]byte(text))
	want := map[string]place{
		"filename": {where: inRecordText, size: 4, second: noRegister, offset: 8},
		"pid":      {where: inRecord, size: 4, signed: true, second: noRegister, offset: 12},
		"comm":     {where: inRecord, size: 1, second: noRegister, offset: 16, text: true},
		"name":     {where: inRecord, size: 8, second: noRegister, offset: 32},
	}
	delete(got, "broken")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(place{})); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(order[:4], []string{"filename", "pid", "comm", "name"}) {
		t.Error(order)
	}
}

// TestLayouts: the structures are those of function.bpf.c.
func TestLayouts(t *testing.T) {
	for name, c := range map[string]struct{ got, want uintptr }{
		"argument": {unsafe.Sizeof(argumentLayout{}), 16}, "site": {unsafe.Sizeof(siteLayout{}), 8 + 4*16}, "value": {unsafe.Sizeof(value{}), 144},
		"frame": {unsafe.Sizeof(frameLayout{}), 40}, "thread": {unsafe.Sizeof(threadLayout{}), 16 + 32*40}, "sums": {unsafe.Sizeof(sumsLayout{}), 80},
		"call": {unsafe.Sizeof(callLayout{}), 88 + 2*512 + 4*144}, "interval": {unsafe.Sizeof(interval{}), 32},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, c.got, c.want)
		}
	}
	if observe.Buckets != 1280 {
		t.Errorf("%d buckets, function.bpf.c has 1280", observe.Buckets)
	}
}
