package function

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/exits"
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

// exits finds the instructions by which a function is left.
func (im *image) exits(s *elfFunc, code []byte) ([]uint64, bool) {
	return exits.Find(im.elf.Machine, code, func(offset int64) bool { return im.isElsewhere(s, offset) })
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
