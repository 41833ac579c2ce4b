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
	"github.com/cilium/ebpf/link"
)

// Held is a program that a process holds, by itself or by a link.
type Held struct {
	Program ebpf.ProgramID
	Link    link.ID // 0: the program itself
}

// OwnPrograms lists the programs that this process holds.
func OwnPrograms() ([]ebpf.ProgramID, error) {
	held, err := HeldBy("/proc/self")
	if err != nil {
		return nil, fmt.Errorf("own BPF programs: %w", err)
	}
	var ids []ebpf.ProgramID
	for _, h := range held {
		ids = append(ids, h.Program)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// HeldBy lists what a process holds, by what its descriptors say of programs and of links
// (proc_pid_fdinfo(5), kernel/bpf/syscall.c: prog_id, link_id). process is its directory
// in /proc.
func HeldBy(process string) ([]Held, error) {
	entries, err := os.ReadDir(filepath.Join(process, "fd"))
	if err != nil {
		return nil, err
	}
	var held []Held
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(process, "fd", e.Name()))
		if err != nil || to != "anon_inode:bpf-prog" && !strings.HasPrefix(to, "anon_inode:bpf_link") && !strings.HasPrefix(to, "anon_inode:bpf-link") {
			continue // it may be closed by now
		}
		if h := heldAs(filepath.Join(process, "fdinfo", e.Name())); h.Program != 0 {
			held = append(held, h)
		}
	}
	return held, nil
}

// heldAs reads the lines prog_id and link_id.
func heldAs(fdinfo string) (h Held) {
	f, err := os.Open(fdinfo)
	if err != nil {
		return h
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
		switch {
		case err != nil:
		case key == "prog_id":
			h.Program = ebpf.ProgramID(id)
		case key == "link_id":
			h.Link = link.ID(id)
		}
	}
	return h
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
