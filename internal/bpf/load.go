package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// ErrNotPermitted says that this process may not load BPF programs.
var ErrNotPermitted = errors.New("not permitted to load BPF programs (needs root, or CAP_BPF and CAP_PERFMON)")

// Load loads the programs and maps of spec into objects, a pointer to one of
// the generated ...Objects structures. The returned error is one line; the
// verifier's log is in its %+v form.
func Load(spec *ebpf.CollectionSpec, objects any) error {
	// Before Linux 5.11 maps are charged to RLIMIT_MEMLOCK. Raising it may be
	// refused where it is not needed either, so the failure is not the news:
	// the load that follows tells.
	_ = rlimit.RemoveMemlock()

	err := spec.LoadAndAssign(objects, nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return ErrNotPermitted
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("load BPF programs: this kernel lacks BTF or a program type: %w", err)
	}
	return fmt.Errorf("load BPF programs: %w", err)
}
