package bpf

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// ErrNotPermitted says that this process may not load BPF programs.
var ErrNotPermitted = errors.New("not permitted to load BPF programs (needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN)")

// Load loads the programs and maps of spec into objects, a pointer to one of
// the generated ...Objects structures. The returned error is one line; the
// verifier's log is in its %+v form.
func Load(spec *ebpf.CollectionSpec, objects any) error {
	// Before Linux 5.11 maps are charged to RLIMIT_MEMLOCK. Raising it may be
	// refused where it is not needed either, so the failure is not the news:
	// the load that follows tells.
	_ = rlimit.RemoveMemlock()

	return explain(undisturbed(func() error { return spec.LoadAndAssign(objects, nil) }))
}

// LoadBeside is Load for programs that share maps with others, by name, and
// have them open already.
func LoadBeside(spec *ebpf.CollectionSpec, objects any, shared map[string]*ebpf.Map) error {
	_ = rlimit.RemoveMemlock() // as in Load
	for name, m := range shared {
		// What is sized by user space has its size now.
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	return explain(undisturbed(func() error {
		return spec.LoadAndAssign(objects, &ebpf.CollectionOptions{MapReplacements: shared})
	}))
}

// LoadCollection loads what is in spec, for readers that leave out programs
// whose hook the kernel lacks. Errors are those of Load.
func LoadCollection(spec *ebpf.CollectionSpec) (c *ebpf.Collection, err error) {
	_ = rlimit.RemoveMemlock() // as in Load
	err = undisturbed(func() error {
		c, err = ebpf.NewCollection(spec)
		return err
	})
	return c, explain(err)
}

// undisturbed loads in a thread that takes no signal which another one can. The verifier gives
// up where its thread has one (EAGAIN; kernel/bpf/verifier.c, bpf_check), and begins anew: a
// process whose children end more often than the verifier takes would never have a program.
// It takes up to a second of CPU time, for which it has no precedence over the services that
// are looked at.
func undisturbed(load func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	for _, s := range []unix.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS, unix.SIGABRT} {
		bits := 8 * int(unsafe.Sizeof(all.Val[0]))
		all.Val[(int(s)-1)/bits] &^= 1 << ((int(s) - 1) % bits)
	}
	if unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before) == nil {
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	}
	tid := unix.Gettid()
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-raw < 0 { // getpriority(2), C library/kernel differences
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 0)
		defer unix.Setpriority(unix.PRIO_PROCESS, tid, 20-raw)
	}
	return load()
}

// explain says in one line why loading failed.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case !capable(unix.CAP_BPF):
		// Without the right the library's feature probes fail too, and what
		// it then reports is that the kernel is too old.
		return ErrNotPermitted
	case errors.Is(err, unix.EPERM):
		// Another right than that to BPF, or a security module: which program or
		// map it refuses is all there is to go by.
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("load BPF programs: this kernel lacks BTF or a program type: %w", err)
	}
	return fmt.Errorf("load BPF programs: %w", err)
}

// capable says whether this process has a capability, or CAP_SYS_ADMIN, which
// stands for all that BPF needs.
func capable(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return true // not known: let the kernel say
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	return has(capability) || has(unix.CAP_SYS_ADMIN)
}
