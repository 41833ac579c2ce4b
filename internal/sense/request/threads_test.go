package request

import (
	"testing"
	"unsafe"

	"github.com/slowray/slowray/internal/bpf"
)

// TestThreadLayout: what is written into the storage of threads is what the
// programs read there.
func TestThreadLayout(t *testing.T) {
	spec, err := bpf.LoadRequest()
	if err != nil {
		t.Fatal(err)
	}
	if kernel, here := int(spec.Maps[bpf.RequestMapThreads].ValueSize), int(unsafe.Sizeof(thread{})); kernel != here {
		t.Errorf("struct thread has %d bytes in work.h and %d here", kernel, here)
	}
}
