package symbol

import (
	"os"
	"reflect"
	"runtime"
	"testing"
)

// TestUnsigned: what signs a return address goes, whatever the kernel gives processes to
// address.
func TestUnsigned(t *testing.T) {
	for _, c := range []struct{ address, stackEnd, want uint64 }{
		{0x002c_aaaa_d2f1_0a5c, 0xffff_f28a_1000, 0xaaaa_d2f1_0a5c}, // 48 bits, 4 KiB pages
		{0x0000_aaaa_d2f1_0a5c, 0xffff_f28a_1000, 0xaaaa_d2f1_0a5c}, // not signed
		{0xff5a_d055_5580_0a5c, 0x7f_f28a_1000, 0x55_5580_0a5c},     // 39 bits
		{0x0015_03ff_8000_0a5c, 0x3ff_f28a_0000, 0x3ff_8000_0a5c},   // 42 bits, 64 KiB pages
	} {
		if got := unsigned(c.address, c.stackEnd); got != c.want {
			t.Errorf("%#x below %#x: %#x, want %#x", c.address, c.stackEnd, got, c.want)
		}
	}
	if end := stackEnd(); end == 1<<48 || end>>38 == 0 {
		t.Errorf("the stack of this process ends at %#x", end)
	}
	if code := uint64(reflect.ValueOf(TestUnsigned).Pointer()); ReturnAddress(code) != code {
		t.Errorf("%#x became %#x", code, ReturnAddress(code))
	}
}

// TestLeft: at its first instruction a function has its return address where the call left
// it; where it calls another one, it has not.
func TestLeft(t *testing.T) {
	space := NewSpace("/proc")
	defer space.Close()
	p := space.Process(os.Getpid())
	pc, _, _, _ := runtime.Caller(0)
	entry, inside := p.Location(uint64(reflect.ValueOf(TestLeft).Pointer())), p.Location(uint64(pc))
	got := space.Left(ample(), []Location{entry, inside, space.Unknown(), space.Kernel(1)})
	if len(got) != 1 || got[entry] != LeftByGo {
		t.Errorf("%v, want only %v", got, entry)
	}
	if !p.Holds(uint64(pc)) || p.Holds(0x10) {
		t.Error("its own code is not the process's, or the first page is")
	}
}
