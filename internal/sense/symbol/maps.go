package symbol

import (
	"bytes"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/host"
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

// parseMaps reads the executable mappings of a file in the form of
// /proc/PID/maps, by address. Lines that are not understood are left out.
func parseMaps(data []byte) []mapping {
	var out []mapping
	for line := range bytes.Lines(data) {
		if len(out) == maxMappings {
			break
		}
		if m, ok := parseMapping(line); ok {
			out = append(out, m)
		}
	}
	if !slices.IsSortedFunc(out, byStart) {
		slices.SortFunc(out, byStart)
	}
	return out
}

func byStart(a, b mapping) int {
	switch {
	case a.start < b.start:
		return -1
	case a.start > b.start:
		return 1
	}
	return 0
}

// parseMapping reads a line such as
// "7f0c2e6ac000-7f0c2e801000 r-xp 00026000 fd:01 1185 /usr/lib/libc.so.6".
func parseMapping(line []byte) (m mapping, ok bool) {
	fields := [5][]byte{}
	rest := bytes.TrimRight(line, "\n")
	for i := range fields {
		rest = bytes.TrimLeft(rest, " ")
		field, after, _ := bytes.Cut(rest, []byte(" "))
		fields[i], rest = field, after
	}
	if len(fields[1]) < 3 || fields[1][2] != 'x' {
		return m, false
	}
	from, to, dash := bytes.Cut(fields[0], []byte("-"))
	var good [4]bool
	m.start, good[0] = host.ParseHex(from)
	m.end, good[1] = host.ParseHex(to)
	m.offset, good[2] = host.ParseHex(fields[2])
	m.inode, good[3] = host.ParseUint(fields[4])
	if !dash || good != [4]bool{true, true, true, true} || m.end <= m.start {
		return m, false
	}
	m.device = string(fields[3])
	m.path = unescape(string(bytes.TrimLeft(rest, " ")))
	m.path, m.deleted = strings.CutSuffix(m.path, " (deleted)")
	return m, true
}

// unescape undoes what seq_file does to line ends in names.
func unescape(path string) string { return strings.ReplaceAll(path, `\012`, "\n") }

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
