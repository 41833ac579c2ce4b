package procmem

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/host"
)

// Mapping is one part of a process's memory, a line of /proc/PID/maps
// (proc_pid_maps(5)).
type Mapping struct {
	Start, End uint64
	Offset     uint64 // in the file
	Executable bool
	Shared     bool
	Device     string // "fd:01"
	Inode      uint64 // 0 when no file is behind it
	Path       string // as the kernel shows it: " (deleted)" at the end when it has no name
}

// ErrNoMapping says that no mapping of a process is the one that was looked for.
var ErrNoMapping = errors.New("it is not in the process's memory map")

// EachMapping visits the mappings of a process below proc ("/proc"), in order of
// address, until visit returns false. Lines that are not understood are left
// out. Reading them holds up the process when it maps or unmaps memory meanwhile.
// Over the budget the rest is not visited, and the error is the budget's.
func EachMapping(b *budget.Budget, proc string, pid int, visit func(*Mapping) bool) error {
	f, err := os.Open(fmt.Sprintf("%s/%d/maps", proc, pid))
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(b.Reader(f))
	lines.Buffer(nil, 1<<16)
	for lines.Scan() {
		if err := b.Node(); err != nil {
			return err
		}
		if m, ok := ParseMapping(lines.Bytes()); ok && !visit(&m) {
			return nil
		}
	}
	return lines.Err()
}

// Loaded is the mapping of the beginning of a file in a process's memory. is says
// of a path whether it is such a file: the last one counts, or the first of which
// is says that it is done with it. ErrNoMapping when there is none.
func Loaded(b *budget.Budget, proc string, pid int, is func(path string) (ok, done bool)) (found Mapping, err error) {
	err = EachMapping(b, proc, pid, func(m *Mapping) bool {
		if m.Offset != 0 || m.Path == "" {
			return true
		}
		ok, done := is(m.Path)
		if ok {
			found = *m
		}
		return !ok || !done
	})
	if err == nil && found.Path == "" {
		err = ErrNoMapping
	}
	return found, err
}

// ParseMapping reads a line such as
// "7f0c2e6ac000-7f0c2e801000 r-xp 00026000 fd:01 1185 /usr/lib/libc.so.6".
func ParseMapping(line []byte) (m Mapping, ok bool) {
	var fields [5][]byte
	rest := bytes.TrimRight(line, "\n")
	for i := range fields {
		fields[i], rest, _ = bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	}
	if len(fields[1]) < 4 {
		return m, false
	}
	m.Executable, m.Shared = fields[1][2] == 'x', fields[1][3] == 's'
	from, to, dash := bytes.Cut(fields[0], []byte("-"))
	var good [4]bool
	m.Start, good[0] = host.ParseHex(from)
	m.End, good[1] = host.ParseHex(to)
	m.Offset, good[2] = host.ParseHex(fields[2])
	m.Inode, good[3] = host.ParseUint(fields[4])
	if !dash || good != [4]bool{true, true, true, true} || m.End <= m.Start {
		return m, false
	}
	m.Device = string(fields[3])
	// seq_file writes the end of a line in a name as \012.
	m.Path = strings.ReplaceAll(string(bytes.TrimLeft(rest, " ")), `\012`, "\n")
	return m, true
}
