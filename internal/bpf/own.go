package bpf

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// OwnPrograms lists the programs that this process holds, by what its descriptors say of
// programs and of links (proc_pid_fdinfo(5), kernel/bpf/syscall.c: prog_id).
func OwnPrograms() ([]ebpf.ProgramID, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("own BPF programs: %w", err)
	}
	var ids []ebpf.ProgramID
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || to != "anon_inode:bpf-prog" && !strings.HasPrefix(to, "anon_inode:bpf_link") && !strings.HasPrefix(to, "anon_inode:bpf-link") {
			continue // it may be closed by now
		}
		if id, ok := programOf(filepath.Join("/proc/self/fdinfo", e.Name())); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// programOf reads the line prog_id.
func programOf(fdinfo string) (ebpf.ProgramID, bool) {
	f, err := os.Open(fdinfo)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "prog_id:"); ok {
			id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			return ebpf.ProgramID(id), err == nil
		}
	}
	return 0, false
}

// ProgramStats reads the statistics of a loaded program, runs and their time only while those
// are on; false when it was unloaded, or may not be looked at.
func ProgramStats(id ebpf.ProgramID) (ebpf.ProgramStats, bool) {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ebpf.ProgramStats{}, false
	}
	defer p.Close()
	stats, err := p.Stats()
	if err != nil {
		return ebpf.ProgramStats{}, false
	}
	return *stats, true
}

// ProgramName is its name, which takes longer to read; "" as above.
func ProgramName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
