package exits

import (
	"debug/elf"
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// A probe of x86-64 costs one exception at an instruction that the kernel emulates, and two
// elsewhere, where it is executed out of line and stepped over (arch/x86/kernel/uprobes.c,
// branch_setup_xol_ops and push_setup_xol_ops). Jumps on a condition are emulated since 3.16,
// pushes of a register since 4.18.

const (
	longestWay = 16   // instructions that a probe is moved by
	canary     = 0x28 // of the stack protector, in the thread's block (x86-64 psABI, fs:0x28)
)

type instruction struct {
	x86asm.Inst
	at int
}

// Cheaper finds where probes at the beginning and at the ends of a function cost less and see
// the same: the arguments in registers (the first four of the System V ABI), and the result in
// RAX. ends are those of Find; offsets are in the function's code. What cannot be moved stays
// where it is.
func Cheaper(machine elf.Machine, code []byte, ends []uint64) (begin uint64, moved []uint64) {
	moved = slices.Clone(ends)
	if machine != elf.EM_X86_64 {
		return 0, moved
	}
	var all []instruction
	var targets []int64 // of jumps
	sure := true
	known := eachInstruction(code, func(at int, inst *x86asm.Inst) {
		all = append(all, instruction{*inst, at})
		if to, direct := inst.Args[0].(x86asm.Rel); direct && inst.Op != x86asm.CALL {
			targets = append(targets, int64(at+inst.Len)+int64(to))
		} else if inst.Op == x86asm.JMP {
			sure = false // who knows where to
		}
	})
	if !known || !sure {
		return 0, moved
	}
	slices.Sort(targets)
	isTarget := func(i *instruction) bool {
		_, found := slices.BinarySearch(targets, int64(i.at))
		return found
	}
	begin = uint64(beginOf(all, isTarget))
	for i, end := range ends {
		moved[i] = uint64(endOf(all, int(end), isTarget))
	}
	return begin, moved
}

// beginOf follows the way that each call takes, up to an instruction that is emulated.
func beginOf(all []instruction, isTarget func(*instruction) bool) int {
	for i := range all[:min(len(all), longestWay)] {
		in := &all[i]
		if i > 0 && isTarget(in) {
			return 0 // it may come by again
		}
		if isConditional(in.Op) || in.Op == x86asm.PUSH && isRegister(in.Args[0]) {
			return in.at
		}
		if !isPlain(in) || writes(in, x86asm.RDI, x86asm.RSI, x86asm.RDX, x86asm.RCX) {
			return 0
		}
	}
	return 0
}

// endOf follows a return back to the check of the stack protector before it, which all ways to
// that return take, and which goes on elsewhere only to end the process.
func endOf(all []instruction, end int, isTarget func(*instruction) bool) int {
	at, found := slices.BinarySearchFunc(all, end, func(i instruction, end int) int { return i.at - end })
	if !found {
		return end
	}
	for i := at; i > 0 && at-i < longestWay; i-- {
		before := &all[i-1]
		if isTarget(&all[i]) {
			return end
		}
		if isConditional(before.Op) {
			if checksCanary(all[max(i-3, 0) : i-1]) {
				return before.at
			}
			return end
		}
		if !isPlain(before) && before.Op != x86asm.POP || writes(before, x86asm.RAX) {
			return end
		}
	}
	return end
}

func checksCanary(all []instruction) bool {
	return slices.ContainsFunc(all, func(i instruction) bool {
		return slices.ContainsFunc(i.Args[:], func(a x86asm.Arg) bool {
			m, ok := a.(x86asm.Mem)
			return ok && m.Segment == x86asm.FS && m.Base == 0 && m.Index == 0 && m.Disp == canary
		})
	})
}

// isPlain says whether an instruction changes nothing but its first operand, and what RSP
// points at.
func isPlain(i *instruction) bool {
	switch i.Op {
	case x86asm.NOP, x86asm.PUSH, x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA, x86asm.ADD, x86asm.SUB, x86asm.AND, x86asm.OR, x86asm.XOR,
		x86asm.CMP, x86asm.TEST:
		return true
	}
	return false
}

func isConditional(op x86asm.Op) bool {
	switch op {
	case x86asm.JA, x86asm.JAE, x86asm.JB, x86asm.JBE, x86asm.JE, x86asm.JG, x86asm.JGE, x86asm.JL, x86asm.JLE, x86asm.JNE, x86asm.JNO, x86asm.JNP, x86asm.JNS, x86asm.JO, x86asm.JP, x86asm.JS:
		return true
	}
	return false
}

func isRegister(a x86asm.Arg) bool {
	_, ok := a.(x86asm.Reg)
	return ok
}

// writes says whether an instruction writes one of some registers, or a part of it.
func writes(i *instruction, registers ...x86asm.Reg) bool {
	r, ok := i.Args[0].(x86asm.Reg)
	if !ok || i.Op == x86asm.CMP || i.Op == x86asm.TEST || i.Op == x86asm.PUSH {
		return false
	}
	return slices.Contains(registers, whole(r))
}

// whole is the register of 64 bits that a general one is a part of.
func whole(r x86asm.Reg) x86asm.Reg {
	switch {
	case r >= x86asm.AL && r <= x86asm.BL:
		return r - x86asm.AL + x86asm.RAX
	case r >= x86asm.AH && r <= x86asm.BH:
		return r - x86asm.AH + x86asm.RAX
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return r - x86asm.SPB + x86asm.RSP
	case r >= x86asm.AX && r <= x86asm.R15W:
		return r - x86asm.AX + x86asm.RAX
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return r - x86asm.EAX + x86asm.RAX
	}
	return r
}
