package exits

import (
	"debug/elf"
	"slices"
	"testing"

	"github.com/slowray/slowray/internal/budget/budgettest"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		what    string
		machine elf.Machine
		code    []byte
		want    []uint64
		sure    bool
	}{
		{"two returns", elf.EM_X86_64, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x85, 0xff, 0x75, 0x01, 0xc3, 0x31, 0xc0, 0xc3}, []uint64{8, 11}, true},
		{"a jump within, a jump elsewhere", elf.EM_X86_64, []byte{0xeb, 0x00, 0xe9, 0x00, 0x01, 0x00, 0x00}, []uint64{2}, true},
		{"no instruction", elf.EM_X86_64, []byte{0x06, 0xc3}, nil, false},
		{"RET", elf.EM_AARCH64, []byte{0x1f, 0x20, 0x03, 0xd5, 0xc0, 0x03, 0x5f, 0xd6}, []uint64{4}, true},
		{"another machine", elf.EM_RISCV, []byte{0x82, 0x80}, nil, false},
	} {
		got, sure := Find(c.machine, c.code, func(offset int64) bool { return offset < 0 || offset >= int64(len(c.code)) })
		if !slices.Equal(got, c.want) || sure != c.sure {
			t.Errorf("%s: %v, %v", c.what, got, sure)
		}
	}
}

// FuzzFind: whatever the bytes are, exits lie in them, in order.
func FuzzFind(f *testing.F) {
	f.Add([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x85, 0xff, 0x75, 0x01, 0xc3, 0x31, 0xc0, 0xc3}, false)
	f.Add([]byte{0xc0, 0x03, 0x5f, 0xd6, 0x00, 0x00, 0x00, 0x15}, true)
	f.Fuzz(func(t *testing.T, code []byte, arm bool) {
		machine := elf.EM_X86_64
		if arm {
			machine = elf.EM_AARCH64
		}
		budgettest.Within(t, len(code), budgettest.Usual, func() {
			got, _ := Find(machine, code, func(offset int64) bool { return offset < 0 || offset >= int64(len(code)) })
			if !slices.IsSorted(got) || len(got) > 0 && got[len(got)-1] >= uint64(len(code)) {
				t.Errorf("exits %v of %d bytes", got, len(code))
			}
		})
	})
}
