package function

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/slowray/slowray/internal/bpf"
)

// TestOwnStack: every program has the tail call that keeps the kernel from
// giving it a stack of its CPU, which is overwritten when it is preempted.
func TestOwnStack(t *testing.T) {
	spec, err := bpf.LoadFunction()
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.Programs) != 6 {
		t.Errorf("%d programs, want 6", len(spec.Programs))
	}
	for name, p := range spec.Programs {
		found := false
		for _, in := range p.Instructions {
			found = found || in.IsBuiltinCall() && asm.BuiltinFunc(in.Constant) == asm.FnTailCall
		}
		if !found {
			t.Errorf("%s has no tail call", name)
		}
	}
}
