package gocode

import (
	"debug/elf"
	"encoding/binary"
	"testing"
)

// words is code of arm64.
func words(all ...uint32) (code []byte) {
	for _, w := range all {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	return code
}

// TestAfterStackCheck: the first instruction that is run once for each call.
func TestAfterStackCheck(t *testing.T) {
	for name, c := range map[string]struct {
		code string
		want uint64
		sure bool
	}{
		// cmp 0x10(%r14),%rsp; jbe; push %rbp
		"small frame": {"\x49\x3b\x66\x10\x76\x20\x55", 6, true},
		// lea -0x188(%rsp),%r12; cmp 0x10(%r14),%r12; jbe (near)
		"large frame": {"\x4c\x8d\xa4\x24\x78\xfe\xff\xff\x4d\x3b\x66\x10\x0f\x86\x20\x01\x00\x00\x55", 18, true},
		// push %rbp; mov %rsp,%rbp
		"no check": {"\x55\x48\x89\xe5", 0, true},
		// sub $0x18,%rsp first: what follows has another stack pointer
		"frame first": {"\x48\x83\xec\x18\x49\x3b\x66\x10\x76\x20", 0, true},
	} {
		if got, sure := AfterStackCheck(elf.EM_X86_64, []byte(c.code)); got != c.want || sure != c.sure {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, sure, c.want, c.sure)
		}
	}
}

// TestAfterStackCheckARM: MOVD 16(g), R16; SUB; CMP; BLS; and without.
func TestAfterStackCheckARM(t *testing.T) {
	for _, c := range []struct {
		code []byte
		want uint64
		sure bool
	}{
		{words(0xf9400b90, 0xd10143f1, 0xeb10023f, 0x540033a9, 0xf8130ffe), 16, true},
		{words(0xf8130ffe, 0xf9400b90, 0x540033a9), 0, false},
		{words(0xf9400b90, 0xd10143f1, 0xeb10023f, 0x540033a8), 0, false}, // B.HI
		{nil, 0, false},
	} {
		if got, sure := AfterStackCheck(elf.EM_AARCH64, c.code); got != c.want || sure != c.sure {
			t.Errorf("%x: %d, %v; want %d, %v", c.code, got, sure, c.want, c.sure)
		}
	}
}

// TestKeepsReceiver: only where the first argument goes to the caller's room for it, before
// another function may use its register.
func TestKeepsReceiver(t *testing.T) {
	const ret = 0xd65f03c0
	for name, c := range map[string]struct {
		machine elf.Machine
		code    []byte
		want    bool
	}{
		// push %rbp; sub $0x18,%rsp; mov %rax,0x28(%rsp)
		"frame and BP": {elf.EM_X86_64, []byte("\x55\x48\x83\xec\x18\x48\x89\x44\x24\x28\xc3"), true},
		// sub $0x18,%rsp; mov %rax,0x20(%rsp)
		"frame":         {elf.EM_X86_64, []byte("\x48\x83\xec\x18\x48\x89\x44\x24\x20\xc3"), true},
		"elsewhere":     {elf.EM_X86_64, []byte("\x55\x48\x83\xec\x18\x48\x89\x44\x24\x20\xc3"), false},
		"another value": {elf.EM_X86_64, []byte("\x55\x48\x83\xec\x18\x48\x89\x5c\x24\x28\xc3"), false},
		"after a call":  {elf.EM_X86_64, []byte("\x55\x48\x83\xec\x18\xe8\x00\x00\x00\x00\x48\x89\x44\x24\x28\xc3"), false},
		"no code":       {elf.EM_X86_64, nil, false},
		// MOVD R0, 312(RSP); ADD $304, RSP; RET
		"arm64":            {elf.EM_AARCH64, words(0xf9009fe0, 0x9104c3ff, ret), true},
		"arm64, elsewhere": {elf.EM_AARCH64, words(0xf900a3e0, 0x9104c3ff, ret), false},
		"arm64, late":      {elf.EM_AARCH64, words(0x97fff880, 0xf9009fe0, 0x9104c3ff, ret), false},
		"arm64, no frame":  {elf.EM_AARCH64, words(0xf9009fe0, ret), false},
	} {
		if got := KeepsReceiver(c.machine, c.code); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFirstArgument: what is added for a call, in the forms that compilers of Go gave it.
func TestFirstArgument(t *testing.T) {
	const entry = 0x1000
	call := func(before string, callee uint64) []byte {
		at := uint64(len(before)) + 5
		return binary.LittleEndian.AppendUint32([]byte(before+"\xe8"), uint32(callee-entry-at))
	}
	for name, c := range map[string]struct {
		before string
		want   uint64
		ok     bool
	}{
		"add":           {"\x48\x05\x70\x01\x00\x00\x0f\x1f\x00", 0x170, true},     // add $0x170,%rax; nopl
		"lea":           {"\x48\x8d\x86\x58\x01\x00\x00", 0x158, true},             // lea 0x158(%rsi),%rax
		"by a register": {"\x48\x8d\x90\x78\x01\x00\x00\x48\x89\xd0", 0x178, true}, // lea 0x178(%rax),%rdx; mov %rdx,%rax
		"loaded":        {"\x48\x8b\x46\x08", 0, false},                            // mov 8(%rsi),%rax
		"nothing":       {"", 0, false},
		"negative":      {"\x48\x83\xc0\xf8", 0, false}, // add $-8,%rax
	} {
		if got, ok := FirstArgument(elf.EM_X86_64, call(c.before, 0x400), entry, 0x400); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %#x, %v", name, got, ok)
		}
		if _, ok := FirstArgument(elf.EM_X86_64, call(c.before, 0x400), entry, 0x404); ok {
			t.Errorf("%s: a call of another function", name)
		}
	}
	two := append(call("\x48\x05\x70\x01\x00\x00", 0x400), 0x48, 0x05, 0x78, 1, 0, 0)
	two = binary.LittleEndian.AppendUint32(append(two, 0xe8), uint32(0x400-entry-(len(two)+5)&0xffffffff))
	if got, ok := FirstArgument(elf.EM_X86_64, two, entry, 0x400); ok {
		t.Errorf("two members: %#x", got)
	}
	// ADD $368, R4, R0; BL -0x1e00
	arm := words(0x9105c080, 0x97fff880)
	if got, ok := FirstArgument(elf.EM_AARCH64, arm, 0x134f7c, 0x134f80-0x780*4); !ok || got != 368 {
		t.Errorf("arm64: %d, %v", got, ok)
	}
	if _, ok := FirstArgument(elf.EM_AARCH64, arm, 0x134f7c, 0x133184); ok {
		t.Error("arm64: a call of another function")
	}
}

// FuzzGo: code of any kind is looked at without a fault.
func FuzzGo(f *testing.F) {
	f.Add([]byte("\x55\x48\x83\xec\x18\x48\x89\x44\x24\x28\xc3"), uint64(0x400))
	f.Add(words(0x9105c080, 0x97fff880, 0xf9009fe0, 0x9104c3ff, 0xd65f03c0), uint64(0))
	f.Fuzz(func(_ *testing.T, code []byte, callee uint64) {
		for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64, elf.EM_386} {
			AfterStackCheck(m, code)
			KeepsReceiver(m, code)
			FirstArgument(m, code, 0, callee)
		}
	})
}
