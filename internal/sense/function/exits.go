package function

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// A return probe puts the address of a trampoline where the return address was.
// Whoever walks the stack then comes to an end there: a C++ exception or a Rust
// panic on its way through the function ends the program, and Go's runtime
// calls it fatal. So where stacks are walked the instructions that leave a
// function are watched instead.

// unwinders are the beginnings of names of libraries that walk stacks.
var unwinders = []string{"libstdc++.so", "libgcc_s.so", "libunwind.so", "libc++abi.so", "libc++.so"}

func isUnwinder(name string) bool {
	return slices.ContainsFunc(unwinders, func(u string) bool { return strings.HasPrefix(name, u) })
}

// walksStacks says whether a program by itself may walk its stack: Go, or one
// with an unwinder inside or asked for.
func (im *image) walksStacks() bool {
	if im.golang != nil {
		return true
	}
	if slices.ContainsFunc(im.elf.Libraries(), isUnwinder) {
		return true
	}
	return slices.ContainsFunc(im.symbols, func(s elfFunc) bool {
		return s.name == "_Unwind_RaiseException" && s.size > 128 // the C library has small ones, which load libgcc_s
	})
}

// isLibrary says whether other programs may use the file.
func (im *image) isLibrary() bool {
	return im.elf.Type == elf.ET_DYN && !slices.ContainsFunc(im.elf.Progs, func(p elf.ProgHeader) bool { return p.Type == elf.PT_INTERP })
}

// keepsReturnAddress are functions that remember where they return to, and go
// there again without having been called.
var keepsReturnAddress = []string{
	"setjmp", "_setjmp", "__sigsetjmp", "sigsetjmp", "__sigsetjmp_cancel", "getcontext", "swapcontext", "vfork", "__vfork",
	"_start", "__longjmp", "longjmp", "_longjmp", "siglongjmp", "__libc_siglongjmp", "setcontext", "clone", "__clone", "clone3",
}

// exits finds the instructions by which a function is left, as offsets into its
// code: returns, and jumps to elsewhere, after which another function returns
// in its place. It fails when it does not know an instruction: what follows may
// then be read wrong.
func (im *image) exits(s *elfFunc, code []byte) ([]uint64, bool) {
	var out []uint64
	switch im.elf.Machine {
	case elf.EM_AARCH64:
		for i := 0; i+4 <= len(code); i += 4 {
			word := binary.LittleEndian.Uint32(code[i:])
			switch {
			case word == 0xd65f03c0, word == 0xd65f0bff, word == 0xd65f0fff: // RET, RETAA, RETAB
				out = append(out, uint64(i))
			case word>>26 == 0b000101: // B
				to := int64(i) + int64(int32(word<<6)>>6)*4
				if im.isElsewhere(s, to) {
					out = append(out, uint64(i))
				}
			}
		}
		return out, true
	case elf.EM_X86_64:
		for i := 0; i < len(code); {
			inst, err := x86asm.Decode(code[i:], 64)
			if n := endbranch(code[i:]); n > 0 {
				i += n
				continue
			}
			if err != nil || inst.Len == 0 {
				return nil, false
			}
			switch to, direct := inst.Args[0].(x86asm.Rel); {
			case inst.Op == x86asm.RET:
				out = append(out, uint64(i))
			case inst.Op == x86asm.JMP && direct && im.isElsewhere(s, int64(i+inst.Len)+int64(to)):
				out = append(out, uint64(i))
			}
			i += inst.Len
		}
		return out, true
	}
	return nil, false
}

// isElsewhere says whether an offset from a function's begin is in another one.
// A part that the compiler has put aside as seldom used is not.
func (im *image) isElsewhere(s *elfFunc, offset int64) bool {
	if offset >= 0 && uint64(offset) < s.size {
		return false
	}
	to := im.at(s.addr + uint64(offset))
	return to == nil || !strings.Contains(to.name, ".cold")
}

// endbranch is the length of ENDBR64, which the disassembler does not know.
func endbranch(code []byte) int {
	if len(code) >= 4 && code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa {
		return 4
	}
	return 0
}
