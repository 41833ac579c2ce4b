package function

import (
	"debug/elf"
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// MaxArgs is how many arguments of a call can be asked for (MAX_ARGS).
const MaxArgs = 4

// Arg is an argument to be shown with the slowest calls.
type Arg struct {
	Number int    // from 1
	Field  string // of a tracepoint's record, instead of a number
	Type   string // one of argTypes
}

// argTypes are the ways to show an argument.
var argTypes = []string{"int", "uint", "i32", "u32", "hex", "bool", "str", "gostr"}

// ParseArg reads "1:str", "2" (an int), or for tracepoints "name:str".
func ParseArg(text string) (Arg, error) {
	which, kind, _ := strings.Cut(text, ":")
	if kind == "" {
		kind = "int"
	}
	a := Arg{Type: kind}
	known := false
	for _, t := range argTypes {
		known = known || t == kind
	}
	if !known {
		return a, fmt.Errorf("%q: the type must be one of %s", text, strings.Join(argTypes, ", "))
	}
	n, err := strconv.Atoi(which)
	switch {
	case err == nil && n >= 1 && n <= 12:
		a.Number = n
	case err == nil || which == "":
		return a, fmt.Errorf("%q: arguments are numbered from 1 to 12", text)
	default:
		a.Field = which
	}
	return a, nil
}

// label is what stands before the value.
func (a Arg) label() string {
	if a.Field != "" {
		return a.Field
	}
	return strconv.Itoa(a.Number)
}

// where an argument lies: struct argument.where.
type where uint8

const (
	inNowhere where = iota
	inRegister
	inMemory
	inConstant
	inRecord
	inRecordText
)

const noRegister = 0xffff

// place is where an argument lies, in the terms of struct argument.
type place struct {
	where  where
	size   int
	signed bool
	reg    uint16 // offset in struct pt_regs
	second uint16
	scale  int
	offset int64
	text   bool // text in the record itself
}

// x86Registers are the offsets of registers in struct pt_regs
// (arch/x86/include/uapi/asm/ptrace.h), by all their names.
var x86Registers = func() map[string]uint16 {
	out := map[string]uint16{}
	for i, names := range []string{
		"r15 r15d r15w r15b", "r14 r14d r14w r14b", "r13 r13d r13w r13b", "r12 r12d r12w r12b", "rbp ebp bp bpl", "rbx ebx bx bl",
		"r11 r11d r11w r11b", "r10 r10d r10w r10b", "r9 r9d r9w r9b", "r8 r8d r8w r8b", "rax eax ax al", "rcx ecx cx cl",
		"rdx edx dx dl", "rsi esi si sil", "rdi edi di dil", "orig_rax", "rip", "cs", "eflags", "rsp esp sp spl",
	} {
		for name := range strings.FieldsSeq(names) {
			out[name] = uint16(i * 8)
		}
	}
	return out
}()

// arm64Register is the offset of x0…x30, w0…w30 or sp in struct user_pt_regs.
func arm64Register(name string) (uint16, bool) {
	name = strings.TrimSpace(name)
	if name == "sp" {
		return 31 * 8, true
	}
	if len(name) < 2 || (name[0] != 'x' && name[0] != 'w') {
		return 0, false
	}
	n, err := strconv.Atoi(name[1:])
	if err != nil || n < 0 || n > 30 {
		return 0, false
	}
	return uint16(n * 8), true
}

// machine is what the programs have to know of this one: struct pt_regs.
type machine struct {
	number               uint8
	elf                  elf.Machine
	sp, result, g        uint32
	pushed               int64    // bytes that a call leaves on the stack
	native, golang, call []uint16 // registers of arguments: C, Go, system calls
}

func registers(names string) []uint16 {
	var out []uint16
	for name := range strings.FieldsSeq(names) {
		out = append(out, x86Registers[name])
	}
	return out
}

// here is this machine.
var here = machineOf(runtime.GOARCH)

// System V AMD64 ABI, 3.2.3; Procedure Call Standard for the Arm 64-bit Architecture, 6.8;
// cmd/compile/abi-internal.md; syscall(2).
func machineOf(goarch string) machine {
	if goarch == "arm64" {
		var x []uint16
		for i := range uint16(12) {
			x = append(x, i*8)
		}
		return machine{number: 2, elf: elf.EM_AARCH64, sp: 31 * 8, result: 0, g: 28 * 8, native: x[:8], golang: x, call: append([]uint16{34 * 8}, x[1:6]...)}
	}
	return machine{number: 1, elf: elf.EM_X86_64, sp: 152, result: 80, g: uint32(x86Registers["r14"]), pushed: 8,
		native: registers("rdi rsi rdx rcx r8 r9"),
		golang: registers("rax rbx rcx rdi rsi r8 r9 r10 r11"),
		call:   registers("rdi rsi rdx r10 r8 r9")}
}

// inRegisters is where the arguments of a call lie that are passed in
// registers; those of C beyond them are on the stack.
func (m *machine) inRegisters(a Arg, regs []uint16, stack bool) place {
	switch {
	case a.Number >= 1 && a.Number <= len(regs):
		p := place{where: inRegister, reg: regs[a.Number-1], second: noRegister, size: 8}
		if a.Type == "gostr" && a.Number < len(regs) {
			p.second = regs[a.Number]
		}
		return p
	case a.Number > len(regs) && stack:
		return place{where: inMemory, reg: uint16(m.sp), second: noRegister, scale: 1, size: 8, offset: m.pushed + int64(8*(a.Number-len(regs)-1))}
	}
	return place{}
}

// show writes a value as it was asked for.
func (a Arg) show(p place, v *value) string {
	text := ""
	switch {
	case v.Length < 0 && (v.Number == 0 || p.where == inNowhere):
		text = "?"
		if a.isText() && p.where != inNowhere {
			text = "NULL"
		}
	case v.Length < 0:
		text = fmt.Sprintf("%#x (not in memory)", v.Number)
	case a.isText() || p.where == inRecordText || p.text:
		b := v.Text[:min(int(v.Length), len(v.Text))]
		cut := int(v.Length) == len(v.Text)
		if (a.Type != "gostr" || cut) && len(b) > 0 {
			b = b[:len(b)-1] // the zero at its end, or what there was no room for
		}
		text = strconv.QuoteToASCII(string(b))
		if cut {
			text += "…"
		}
	default:
		text = a.number(p, v.Number)
	}
	return a.label() + " = " + text
}

func (a Arg) isText() bool { return a.Type == "str" || a.Type == "gostr" }

func (a Arg) number(p place, n uint64) string {
	switch {
	case p.size == 4 && p.signed:
		n = uint64(int64(int32(n)))
	case p.size == 2 && p.signed:
		n = uint64(int64(int16(n)))
	case p.size == 1 && p.signed:
		n = uint64(int64(int8(n)))
	case p.size == 4:
		n = uint64(uint32(n))
	case p.size == 2:
		n = uint64(uint16(n))
	case p.size == 1:
		n = uint64(uint8(n))
	}
	switch a.Type {
	case "uint":
		return strconv.FormatUint(n, 10)
	case "i32":
		return strconv.Itoa(int(int32(n)))
	case "u32":
		return strconv.FormatUint(uint64(uint32(n)), 10)
	case "hex":
		return fmt.Sprintf("%#x", n)
	case "bool":
		return strconv.FormatBool(n&0xff != 0)
	}
	return strconv.FormatInt(int64(n), 10)
}
