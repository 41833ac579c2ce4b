package bpf

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// TestHaveFetchAtomics: the probe comes to a conclusion on every kernel, and
// where it says yes the instruction does what it is there for.
func TestHaveFetchAtomics(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP: needs root, to load BPF programs: the probe is NOT tested")
	}
	err := HaveFetchAtomics()
	if lacks := new(LacksError); errors.As(err, &lacks) {
		if !errors.Is(err, ebpf.ErrNotSupported) {
			t.Errorf("%v is not ErrNotSupported", err)
		}
		t.Skipf("SKIP: %v: that they have a result is NOT tested", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := ebpf.NewProgram(fetchAdd())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	got, _, err := p.Test(make([]byte, 14)) // the shortest packet
	if err != nil || got != fetchAddFrom {
		t.Errorf("returned %d, want what was there before, %d (%v)", got, fetchAddFrom, err)
	}
}
