package function

import (
	"debug/elf"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/slowray/slowray/internal/sense/elffile"
)

// goProgram is what is known of a Go program.
type goProgram struct {
	from, to  uint64 // addresses of Go's own code
	registers bool   // arguments and the goroutine are in registers
}

// findGo tells whether a file is a Go program.
func (im *image) findGo() *goProgram {
	lines := slices.ContainsFunc(im.elf.Sections, func(s elffile.Section) bool { return strings.HasSuffix(s.Name, ".gopclntab") })
	if !lines && !im.elf.IsGo() {
		return nil
	}
	g := &goProgram{}
	for i := range im.symbols {
		switch im.symbols[i].name {
		case "runtime.text":
			g.from = im.symbols[i].addr
		case "runtime.etext":
			g.to = im.symbols[i].addr
		}
	}
	text := im.elf.Section(".text")
	if text != nil && g.from == 0 {
		g.from, g.to = text.Addr, text.Addr+text.Size
	}
	g.registers = registersOf(im)
	return g
}

// registersOf says whether g is in a register at every entry and return: since
// Go 1.17 on x86-64 (R14, cmd/compile/abi-internal.md), always elsewhere.
func registersOf(im *image) bool {
	if im.elf.Machine != elf.EM_X86_64 {
		return true
	}
	version := im.elf.GoVersion()
	for _, old := range []string{"go1.0", "go1.1.", "go1.2.", "go1.3.", "go1.4", "go1.5", "go1.6", "go1.7", "go1.8", "go1.9", "go1.10", "go1.11", "go1.12", "go1.13", "go1.14", "go1.15", "go1.16"} {
		if version == strings.TrimSuffix(old, ".") || strings.HasPrefix(version, strings.TrimSuffix(old, ".")+".") {
			return false
		}
	}
	return strings.HasPrefix(version, "go") || strings.HasPrefix(version, "devel")
}

// has says whether an address is Go's own code, and not C's.
func (g *goProgram) has(addr uint64) bool { return addr >= g.from && addr < g.to }

// afterStackCheck is the offset of a Go function's first instruction that is
// run once for each call. Before it the function compares the stack pointer
// with the goroutine's bound, and when the stack must grow it begins again:
//
//	[LEAQ -size(SP), R12]
//	CMPQ SP or R12, 16(R14)
//	JBE  grow
//
// (cmd/internal/obj/x86, stacksplit). Functions with a small frame have none;
// sure is false where there may be another form of it.
func afterStackCheck(machine elf.Machine, code []byte) (offset uint64, sure bool) {
	if machine != elf.EM_X86_64 {
		return 0, false
	}
	checks, at := false, 0
	for n := 0; n < 10 && at < len(code); n++ {
		inst, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return 0, false
		}
		at += inst.Len
		switch inst.Op {
		case x86asm.CMP:
			if m, ok := inst.Args[1].(x86asm.Mem); ok && m.Base == x86asm.R14 && m.Disp == 16 {
				checks = true
			}
		case x86asm.JBE:
			if checks {
				return uint64(at), true
			}
			return 0, true
		case x86asm.LEA, x86asm.MOV, x86asm.SUB, x86asm.JB, x86asm.NOP:
			// Part of the check of a large frame, or of the function.
			if inst.Op == x86asm.SUB && inst.Args[0] == x86asm.RSP {
				return 0, true
			}
		default:
			if !checks {
				return 0, true
			}
			return 0, false
		}
	}
	return 0, !checks
}
