package bpf

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// LacksError names what this kernel lacks. It is ebpf.ErrNotSupported.
type LacksError struct {
	What  string // a plural noun
	Since string // the version of Linux that has it, "5.12"
}

func (e *LacksError) Error() string {
	return fmt.Sprintf("this kernel's BPF has no %s: needs Linux %s", e.What, e.Since)
}

// Is makes errors.Is(err, ebpf.ErrNotSupported) hold.
func (e *LacksError) Is(target error) bool { return target == ebpf.ErrNotSupported }

// HaveFetchAtomics asks the kernel for atomic instructions that return what
// was there before (5ffa25502b5a and 5ca419f2864a, Linux 5.12). It returns nil
// when they are there, a *LacksError when they are not, and another error when
// it cannot be known. A kernel that has them also has socket storage in tracing
// programs (8e4597c627fb, Linux 5.11).
func HaveFetchAtomics() error {
	p, err := ebpf.NewProgramWithOptions(fetchAdd(), ebpf.ProgramOptions{LogDisabled: true})
	switch {
	case err == nil:
		return p.Close()
	case errors.Is(err, unix.EINVAL), // "BPF_STX uses reserved fields"
		errors.Is(err, enotsupp): // by the compiler to machine code
		since := "5.12"
		if runtime.GOARCH == "arm64" {
			since = "5.18" // 1902472b4fa9
		}
		return &LacksError{What: "atomic instructions with a result", Since: since}
	}
	return fmt.Errorf("probe atomic instructions: %w", err)
}

// HaveLoops asks the kernel for loops over a function (e6f2dd0f8067, Linux 5.17). Results
// are those of HaveFetchAtomics.
func HaveLoops() error {
	switch err := features.HaveProgramHelper(ebpf.CGroupSKB, asm.FnLoop); {
	case errors.Is(err, ebpf.ErrNotSupported):
		return &LacksError{What: "loops over a function", Since: "5.17"}
	case err != nil:
		return fmt.Errorf("probe loops: %w", err)
	}
	return nil
}

// fetchAdd is a program that adds 1 to fetchAddFrom and returns what was there.
func fetchAdd() *ebpf.ProgramSpec {
	add := asm.FetchAdd.Mem(asm.RFP, asm.R1, asm.DWord, -8)
	// cilium/ebpf v0.22.0 keeps the kind of an atomic instruction in its
	// OpCode, and writes it from here: without this it is a plain addition.
	add.Constant = int64(asm.FetchAdd >> 8)
	return &ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R1, fetchAddFrom),
		asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 1),
		add,
		asm.Mov.Reg(asm.R0, asm.R1),
		asm.Return(),
	}}
}

const fetchAddFrom = 7

// enotsupp is the kernel's ENOTSUPP, which has no name in user space
// (include/linux/errno.h).
const enotsupp = unix.Errno(524)
