package exits

import (
	"debug/elf"
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

// readCode is SSL_read of OpenSSL 3.0 as gcc 12 has it: the stack protector's check is before the
// return, and what follows that is the case of a negative length.
var readCode = []byte{
	0x48, 0x83, 0xec, 0x18, // 0: sub $0x18,%rsp
	0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, // 4: mov %fs:0x28,%rax
	0x48, 0x89, 0x44, 0x24, 0x08, // 13: mov %rax,0x8(%rsp)
	0x31, 0xc0, // 18: xor %eax,%eax
	0x85, 0xd2, // 20: test %edx,%edx
	0x78, 0x28, // 22: js 64
	0x48, 0x89, 0xe1, // 24: mov %rsp,%rcx
	0xe8, 0, 0, 0, 0, // 27: call
	0x8b, 0x04, 0x24, // 32: mov (%rsp),%eax
	0x48, 0x8b, 0x54, 0x24, 0x08, // 35: mov 0x8(%rsp),%rdx
	0x64, 0x48, 0x2b, 0x14, 0x25, 0x28, 0, 0, 0, // 40: sub %fs:0x28,%rdx
	0x75, 0x14, // 49: jne 71
	0x48, 0x83, 0xc4, 0x18, // 51: add $0x18,%rsp
	0x31, 0xd2, // 55: xor %edx,%edx
	0xc3,                         // 57: ret
	0x66, 0x0f, 0x1f, 0x44, 0, 0, // 58: nop
	0xb8, 0xff, 0xff, 0xff, 0xff, // 64: mov $-1,%eax
	0xeb, 0xdc, // 69: jmp 35
	0xe8, 0, 0, 0, 0, // 71: call __stack_chk_fail
}

func TestCheaper(t *testing.T) {
	with := func(at int, b ...byte) []byte {
		code := slices.Clone(readCode)
		copy(code[at:], b)
		return code
	}
	for _, c := range []struct {
		what  string
		code  []byte
		end   uint64
		begin uint64
		moved uint64
	}{
		{"SSL_read", readCode, 57, 22, 49},
		{"the result comes after the check", with(55, 0x31, 0xc0), 57, 22, 57},
		{"a jump to behind the check", with(69, 0xeb, 0xec), 57, 22, 57},
		{"no check of the protector", with(44, 0x14, 0x25, 0x30), 57, 22, 57},
		{"an argument is changed", with(18, 0x31, 0xff), 57, 0, 49},
		{"a part of an argument is changed", with(18, 0xb2, 0x01), 57, 0, 49},
		{"a jump back to the beginning's way", with(69, 0xeb, 0xcd), 57, 0, 49},
		{"a jump to who knows where", with(69, 0xff, 0xe0), 57, 0, 57},
		{"push first", []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x54, 0xc3}, 6, 4, 6},
		{"nothing that is emulated", []byte{0x48, 0x83, 0xec, 0x18, 0xc3}, 4, 0, 4},
		{"a call first", []byte{0x48, 0x83, 0xec, 0x18, 0xe8, 0, 0, 0, 0, 0x55, 0xc3}, 10, 0, 10},
	} {
		ends := []uint64{c.end}
		begin, moved := Cheaper(elf.EM_X86_64, c.code, ends)
		if begin != c.begin || !slices.Equal(moved, []uint64{c.moved}) || ends[0] != c.end {
			t.Errorf("%s: begins at %d, ends at %v, want %d and %d", c.what, begin, moved, c.begin, c.moved)
		}
	}
	if begin, moved := Cheaper(elf.EM_AARCH64, readCode, []uint64{56}); begin != 0 || moved[0] != 56 {
		t.Errorf("arm64: %d, %v", begin, moved)
	}
}

// FuzzCheaper: whatever the code is, probes lie in it, and none is moved far.
func FuzzCheaper(f *testing.F) {
	f.Add(readCode)
	f.Fuzz(func(t *testing.T, code []byte) {
		budgettest.Within(t, len(code), budgettest.Usual, func() {
			ends, _ := Find(elf.EM_X86_64, code, func(int64) bool { return false })
			begin, moved := Cheaper(elf.EM_X86_64, code, ends)
			if begin >= max(uint64(len(code)), 1) || len(moved) != len(ends) {
				t.Fatalf("%d, %v of %d bytes", begin, moved, len(code))
			}
			for i := range moved {
				if moved[i] > ends[i] {
					t.Errorf("%d was %d", moved[i], ends[i])
				}
			}
		})
	})
}
