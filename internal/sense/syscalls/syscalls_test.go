package syscalls

import "testing"

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		arch, name string
		nr         uint32
	}{
		{"amd64", "read", 0}, {"amd64", "openat2", 437}, {"amd64", "newfstatat", 262},
		{"arm64", "read", 63}, {"arm64", "io_setup", 0}, {"riscv64", "riscv_hwprobe", 258}, {"loong64", "futex", 98},
	} {
		if nr, ok := Numbers(c.arch)[c.name]; !ok || nr != c.nr {
			t.Errorf("%s: %s is %d, %v, want %d", c.arch, c.name, nr, ok, c.nr)
		}
	}
	for arch, without := range map[string]string{"arm64": "open", "riscv64": "renameat", "mips": "read"} {
		if nr, ok := Numbers(arch)[without]; ok {
			t.Errorf("%s has %s: %d", arch, without, nr)
		}
	}
	for _, arch := range []string{"amd64", "arm64", "riscv64", "loong64"} {
		by := map[uint32]string{}
		for name, nr := range Numbers(arch) {
			if other := by[nr]; other != "" {
				t.Errorf("%s: %d is %s and %s", arch, nr, name, other)
			}
			by[nr] = name
		}
		if len(by) < 300 || len(Names(arch)) != len(by) {
			t.Errorf("%s: %d calls", arch, len(by))
		}
	}
}

func TestByNumber(t *testing.T) {
	got := ByNumber[uint64]("arm64", map[string]int{"read": 1, "open": 2})
	if len(got) != 1 || got[63] != 1 {
		t.Error(got)
	}
	if ByNumber[uint64]("mips", map[string]int{"read": 1}) != nil {
		t.Error("an architecture that is not known")
	}
}
