package symbol

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/procmem"
)

// mapping is an executable part of a process's memory.
type mapping struct {
	start, end uint64
	offset     uint64 // in the file
	device     string // "fd:01"
	inode      uint64
	path       string // as in /proc/PID/maps, without " (deleted)"
	deleted    bool
}

// anonymous says that no file is behind it: code that was written at run time.
func (m *mapping) anonymous() bool { return m.inode == 0 && m.path != vdso }

const vdso = "[vdso]"

// maxMappings bounds what is kept of one process.
const maxMappings = 65536

// mappingOf is an executable mapping out of a process's memory map.
func mappingOf(of *procmem.Mapping) mapping {
	m := mapping{start: of.Start, end: of.End, offset: of.Offset, device: of.Device, inode: of.Inode}
	m.path, m.deleted = strings.CutSuffix(of.Path, " (deleted)")
	return m
}

// find is the mapping that holds an address, nil when none does.
func find(mappings []mapping, address uint64) *mapping {
	i, found := slices.BinarySearchFunc(mappings, address, func(m mapping, a uint64) int {
		switch {
		case m.end <= a:
			return -1
		case m.start > a:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &mappings[i]
}
