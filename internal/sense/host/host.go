package host

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// FS is where the kernel's file systems are mounted. Cgroup file systems are
// found through Proc/self/mountinfo; a mount point below /sys is looked for
// below Sys.
type FS struct {
	Proc string // procfs, usually /proc
	Sys  string // sysfs, usually /sys
}

// Default is the running system.
func Default() FS { return FS{Proc: "/proc", Sys: "/sys"} }

// Host identifies the machine. It fails only when not even the kernel release
// can be read; other parts stay empty when they cannot be had. The initial
// network namespace is that of the kernel's threads, else taken to be that of
// process 1, else our own (looking at others needs CAP_SYS_PTRACE).
func (fs FS) Host() (observe.Host, error) {
	release, err := fs.line("sys/kernel/osrelease")
	if err != nil {
		return observe.Host{}, fmt.Errorf("host: %w", err)
	}
	h := observe.Host{Kernel: release}
	h.Name, _ = fs.line("sys/kernel/hostname")
	h.BootID, _ = fs.line("sys/kernel/random/boot_id")
	if f, err := os.Open(filepath.Join(fs.Proc, "stat")); err == nil {
		s, _ := parseStat(f)
		f.Close()
		h.CPUs = s.online()
	}
	h.MemoryBytes = fs.totalMemory()
	h.NetNS = fs.initialNetNS()
	h.MountNS, _ = netNSLink(filepath.Join(fs.Proc, "self/ns/mnt"))
	return h, nil
}

func (fs FS) initialNetNS() uint64 {
	var p ProcSample
	// In a container's pid namespace, pid 2 is just any process.
	if b, err := os.ReadFile(filepath.Join(fs.Proc, "2/stat")); err == nil && parsePIDStat(b, &p) && p.Kernel {
		if inode, err := fs.netNSOf(2); err == nil {
			return inode
		}
	}
	inode, err := fs.netNSOf(1)
	if err != nil {
		inode, _ = netNSLink(filepath.Join(fs.Proc, "self/ns/net"))
	}
	return inode
}

// line reads a one-line file below Proc.
func (fs FS) line(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(fs.Proc, name))
	if err != nil {
		return "", err
	}
	return printable.Name(bytes.TrimSpace(b), 256), nil
}

// AvailableMemory is what programs can have of the memory without others being
// swapped out (MemAvailable), bytes; 0 when it cannot be read.
func (fs FS) AvailableMemory() uint64 {
	var m observe.Memory
	_ = fs.parse("meminfo", func(r io.Reader) (err error) { m, err = parseMeminfo(r); return })
	return m.AvailableBytes
}

// totalMemory is MemTotal in bytes, 0 when it cannot be read.
func (fs FS) totalMemory() uint64 {
	f, err := os.Open(filepath.Join(fs.Proc, "meminfo"))
	if err != nil {
		return 0
	}
	defer f.Close()
	m, _ := parseMeminfo(f)
	return m.TotalBytes
}
