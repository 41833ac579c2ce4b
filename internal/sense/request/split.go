package request

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/syscalls"
)

// The classes of system calls that block, enum call_class of sched.h.
const (
	callOther = iota
	callLock
	callDisk
	callNet
	callSleep
	callFile
	callFutex
)

// callClasses say what a thread waits for that sleeps in a system call.
var callClasses = func() (classes [512]uint8) {
	numbers := syscalls.Numbers(runtime.GOARCH)
	for class, names := range map[uint8][]string{
		callFutex: {"futex"},
		callLock:  {"flock", "fcntl", "semop", "semtimedop"},
		callDisk: {
			"fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync", "fallocate", "open", "openat", "openat2",
			"stat", "lstat", "newfstatat", "statx", "unlink", "unlinkat", "rename", "renameat2", "getdents", "getdents64", "ftruncate",
		},
		callNet: {
			"recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg", "connect", "accept", "accept4",
			"poll", "ppoll", "select", "pselect6",
		},
		callSleep: {"nanosleep", "clock_nanosleep", "pause"},
		callFile: {
			"read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev", "pwritev2",
			"sendfile", "splice", "vmsplice", "tee",
		},
	} {
		for _, name := range names {
			if nr, ok := numbers[name]; ok && nr < uint32(len(classes)) {
				classes[nr] = class
			}
		}
	}
	return classes
}()

// splitHooks are the programs that only follow requests, and where they attach.
var splitHooks = map[string]string{
	bpf.RequestProgSwitched: "sched/sched_switch",
	bpf.RequestProgWaking:   "sched/sched_waking",
	bpf.RequestProgSent:     sockSendLength,
}

// prepareSplit sets the programs up to follow requests from thread to thread,
// or leaves that out where it was not asked for or this kernel cannot.
func (r *Recorder) prepareSplit(spec *ebpf.CollectionSpec) error {
	if r.opt.Split && r.opt.Side != observe.Called {
		if err := haveSplit(); err != nil {
			r.missing = append(r.missing, fmt.Sprintf("what the server did with its time: %v", err))
		} else {
			r.split = true
		}
	}
	if r.split {
		if hasTracepoint("tcp_sendmsg_locked") {
			delete(spec.Programs, bpf.RequestProgSent)
		}
		if err := spec.Variables[bpf.RequestVarCallClasses].Set(callClasses); err != nil {
			return fmt.Errorf("set %s: %w", bpf.RequestVarCallClasses, err)
		}
		return spec.Variables[bpf.RequestVarWithWork].Set(uint8(1))
	}
	for name := range splitHooks {
		delete(spec.Programs, name)
	}
	// Nothing reaches it, but the kernel makes it: of a type that all have.
	spec.Maps[bpf.RequestMapThreads].Type = ebpf.Array
	spec.Maps[bpf.RequestMapThreads].Flags = 0
	spec.Maps[bpf.RequestMapThreads].MaxEntries = 1
	return nil
}

// haveSplit asks the kernel for what following a request needs.
func haveSplit() error {
	if !hasTaskStorage() {
		return errors.New("programs cannot keep anything of a thread (needs Linux 5.13)")
	}
	if !hasTracepoint("tcp_sendmsg_locked") && !hasTracepoint("sock_send_length") {
		return errors.New("which thread sends an answer cannot be seen: tracepoint sock:sock_send_length is missing (needs Linux 6.3)")
	}
	return nil
}

// hasTaskStorage asks the kernel whether tracing programs may use the storage of
// threads, by loading one that does.
func hasTaskStorage() bool {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.TaskStorage, KeySize: 4, ValueSize: 4, Flags: unix.BPF_F_NO_PREALLOC, Key: number, Value: number,
	})
	if err != nil {
		return false
	}
	defer m.Close()
	p, err := ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_switch", License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentTaskBtf.Call(),
			asm.Mov.Reg(asm.R2, asm.R0),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Imm(asm.R3, 0),
			asm.Mov.Imm(asm.R4, 0),
			asm.FnTaskStorageGet.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return false // whatever else is wrong fails the load that follows, too
	}
	p.Close()
	return true
}

// attachSplit attaches what runs the clocks of threads.
func (r *Recorder) attachSplit(programs map[string]*ebpf.Program) error {
	for name, prog := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: prog})
		if err != nil {
			return fmt.Errorf("attach %s: %w", splitHooks[name], err)
		}
		r.links = append(r.links, l)
	}
	return nil
}
