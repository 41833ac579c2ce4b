// Package exits finds the instructions by which a function is left.
//
// In: a function's machine code (x86-64, arm64). Out: where in it a probe sees each call
// end. A return probe of the kernel would do so, too, by another return address on the
// stack: but whoever walks the stack then comes to an end there, and a program that goes
// on with another stack, as coroutines do, may lose it and is ended. An instruction that is
// probed changes nothing that the program can see.
package exits

import (
	"debug/elf"
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"
)

// Find finds the instructions by which a function is left, as offsets into its
// code: returns, and jumps to elsewhere, after which another function returns
// in its place. elsewhere says of an offset whether that is there. It fails when it does
// not know an instruction: what follows may then be read wrong.
func Find(machine elf.Machine, code []byte, elsewhere func(offset int64) bool) ([]uint64, bool) {
	var out []uint64
	switch machine {
	case elf.EM_AARCH64:
		for i := 0; i+4 <= len(code); i += 4 {
			word := binary.LittleEndian.Uint32(code[i:])
			switch {
			case word == 0xd65f03c0, word == 0xd65f0bff, word == 0xd65f0fff: // RET, RETAA, RETAB
				out = append(out, uint64(i))
			case word>>26 == 0b000101: // B
				to := int64(i) + int64(int32(word<<6)>>6)*4
				if elsewhere(to) {
					out = append(out, uint64(i))
				}
			}
		}
		return out, true
	case elf.EM_X86_64:
		known := eachInstruction(code, func(at int, inst *x86asm.Inst) {
			switch to, direct := inst.Args[0].(x86asm.Rel); {
			case inst.Op == x86asm.RET:
				out = append(out, uint64(at))
			case inst.Op == x86asm.JMP && direct && elsewhere(int64(at+inst.Len)+int64(to)):
				out = append(out, uint64(at))
			}
		})
		if !known {
			return nil, false
		}
		return out, true
	}
	return nil, false
}

// eachInstruction calls see with each instruction of a function and its offset. It ends, and says
// no, at one that is not known.
func eachInstruction(code []byte, see func(at int, inst *x86asm.Inst)) (known bool) {
	for i := 0; i < len(code); {
		inst := x86asm.Inst{Op: x86asm.NOP, Len: endbranch(code[i:])}
		if inst.Len == 0 {
			var err error
			if inst, err = x86asm.Decode(code[i:], 64); err != nil || inst.Len == 0 {
				return false
			}
		}
		see(i, &inst)
		i += inst.Len
	}
	return true
}

// endbranch is the length of ENDBR64, which the disassembler does not know.
func endbranch(code []byte) int {
	if len(code) >= 4 && code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa {
		return 4
	}
	return 0
}
