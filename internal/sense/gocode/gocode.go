// Package gocode reads what the machine code of functions of Go says of how they are called.
//
// In: the code of a function (x86-64, arm64). Out: where in it a probe sees each call once,
// and where its receiver is. It reads no file.
package gocode

import (
	"debug/elf"
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"
)

// AfterStackCheck is the offset of a Go function's first instruction that is
// run once for each call. Before it the function compares the stack pointer
// with the goroutine's bound, and when the stack must grow it begins again:
//
//	[LEAQ -size(SP), R12]
//	CMPQ SP or R12, 16(R14)
//	JBE  grow
//
// (cmd/internal/obj/x86, stacksplit; arm64 likewise, by R16 and X28). Functions with a small frame have none;
// sure is false where there may be another form of it.
func AfterStackCheck(machine elf.Machine, code []byte) (offset uint64, sure bool) {
	if machine == elf.EM_AARCH64 {
		return afterStackCheckARM(code)
	}
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

func afterStackCheckARM(code []byte) (offset uint64, sure bool) {
	const bound, lowerOrSame = 0xf9400b90, 9 // MOVD 16(g), R16; condition of B.cond
	if len(code) < 4 || binary.LittleEndian.Uint32(code) != bound {
		return 0, false
	}
	for at := 4; at+4 <= len(code) && at < 40; at += 4 {
		if word := binary.LittleEndian.Uint32(code[at:]); word>>24 == 0x54 && word&0x1f == lowerOrSame {
			return uint64(at + 4), true
		}
	}
	return 0, false
}

// KeepsReceiver says whether a Go function stores its first argument where its caller has
// room for that: 8 bytes above the stack pointer at entry, which is also that at return
// (cmd/compile/abi-internal.md, "spill area"). There it stays: nothing else has that place.
func KeepsReceiver(machine elf.Machine, code []byte) bool {
	switch machine {
	case elf.EM_X86_64:
		depth, frame := int64(0), false
		for at := 0; at < len(code); {
			inst, err := x86asm.Decode(code[at:], 64)
			if err != nil {
				return false
			}
			at += inst.Len
			switch inst.Op {
			case x86asm.CALL:
				return false
			case x86asm.PUSH:
				depth += 8
			case x86asm.SUB:
				if by, ok := inst.Args[1].(x86asm.Imm); ok && inst.Args[0] == x86asm.RSP && !frame {
					depth += int64(by)
					frame = true
				}
			case x86asm.MOV:
				if m, ok := inst.Args[0].(x86asm.Mem); ok && m.Base == x86asm.RSP && m.Index == 0 && m.Disp == depth+8 && inst.Args[1] == x86asm.RAX {
					return frame
				}
			}
		}
	case elf.EM_AARCH64:
		frame := frameARM(code)
		for at := 0; at+4 <= len(code) && frame > 0; at += 4 {
			word := binary.LittleEndian.Uint32(code[at:])
			if word>>26 == 0b100101 { // BL
				return false
			}
			if word&0xffc003ff == 0xf90003e0 && word>>10&0xfff*8 == frame+8 { // MOVD R0, frame+8(RSP)
				return true
			}
		}
	}
	return false
}

// frameARM is by how much a function adds to the stack pointer before it returns; 0 where
// that is not seen.
func frameARM(code []byte) uint32 {
	for at := 4; at+4 <= len(code); at += 4 {
		add, ret := binary.LittleEndian.Uint32(code[at-4:]), binary.LittleEndian.Uint32(code[at:])
		if ret == 0xd65f03c0 && add&0xffc003ff == 0x910003ff { // ADD $n, RSP; RET
			return add >> 10 & 0xfff
		}
	}
	return 0
}

// maxBefore is how many instructions before a call are looked at.
const maxBefore = 8

// FirstArgument is what a Go function, whose code begins at entry, adds to an address to
// have the first argument for its calls of another function: the offset of a member, whose
// address it passes. It must be the same in all of them.
func FirstArgument(machine elf.Machine, code []byte, entry, callee uint64) (offset uint64, ok bool) {
	offsetBefore := map[elf.Machine]func([]byte, uint64) ([]uint64, bool){elf.EM_X86_64: argumentsX86, elf.EM_AARCH64: argumentsARM}[machine]
	if offsetBefore == nil {
		return 0, false
	}
	all, ok := offsetBefore(code, callee-entry)
	if !ok || len(all) == 0 {
		return 0, false
	}
	for _, o := range all {
		if o != all[0] {
			return 0, false
		}
	}
	return all[0], true
}

func argumentsX86(code []byte, callee uint64) (all []uint64, ok bool) {
	var before []x86asm.Inst
	for at := 0; at < len(code); {
		inst, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return nil, false
		}
		at += inst.Len
		if to, direct := inst.Args[0].(x86asm.Rel); inst.Op == x86asm.CALL && direct && uint64(at)+uint64(int64(to)) == callee {
			o, ok := addedX86(before)
			if !ok {
				return nil, false
			}
			all = append(all, o)
		}
		if before = append(before, inst); len(before) > maxBefore {
			before = before[1:]
		}
	}
	return all, true
}

// addedX86 follows RAX back to where something was added.
func addedX86(before []x86asm.Inst) (uint64, bool) {
	reg := x86asm.Arg(x86asm.RAX)
	for i := len(before) - 1; i >= 0; i-- {
		inst := &before[i]
		if inst.Op == x86asm.CALL {
			return 0, false
		}
		if inst.Args[0] != reg || inst.Op == x86asm.CMP || inst.Op == x86asm.TEST || inst.Op == x86asm.NOP {
			continue
		}
		switch from := inst.Args[1].(type) {
		case x86asm.Imm:
			return uint64(from), inst.Op == x86asm.ADD && from > 0
		case x86asm.Mem:
			return uint64(from.Disp), inst.Op == x86asm.LEA && from.Index == 0 && from.Disp > 0
		case x86asm.Reg:
			if inst.Op != x86asm.MOV {
				return 0, false
			}
			reg = from
		default:
			return 0, false
		}
	}
	return 0, false
}

func argumentsARM(code []byte, callee uint64) (all []uint64, ok bool) {
	for at := 0; at+4 <= len(code); at += 4 {
		word := binary.LittleEndian.Uint32(code[at:])
		if word>>26 != 0b100101 || uint64(at)+uint64(int64(int32(word<<6)>>6)*4) != callee {
			continue
		}
		o, ok := addedARM(code[max(0, at-4*maxBefore):at])
		if !ok {
			return nil, false
		}
		all = append(all, o)
	}
	return all, true
}

func addedARM(before []byte) (uint64, bool) {
	reg := uint32(0)
	for at := len(before) - 4; at >= 0; at -= 4 {
		switch word := binary.LittleEndian.Uint32(before[at:]); {
		case word>>26 == 0b100101: // BL
			return 0, false
		case word&0xffc0001f == 0x91000000|reg: // ADD $n, Rm, reg
			return uint64(word >> 10 & 0xfff), true
		case word&0xffe0ffff == 0xaa0003e0|reg: // MOVD Rm, reg
			reg = word >> 16 & 0x1f
		}
	}
	return 0, false
}
