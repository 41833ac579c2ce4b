package postgres

import (
	"bytes"
	"cmp"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/slowlog"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Bounds of the statements that backends are seen executing.
const (
	maxStatement = 512 // bytes that are read of one
	maxRunning   = 1024
	maxTold      = 3
)

// running counts the statements that backends are seen executing, where no log tells
// them: debug_query_string points to the text of a backend's present one
// (src/backend/tcop/postgres.c). Backends are forked: it is at one address in all.
type running struct {
	at   uint64 // of debug_query_string; 0 = not known
	read procmem.Reader
	seen map[string]int
}

// find looks up the pointer in the program of a postmaster.
func (r *running) find(b *budget.Budget, proc string, pid int) {
	exe, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "exe"))
	if err != nil {
		return
	}
	name := filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
	m, err := procmem.Loaded(b, proc, pid, func(path string) (ok, done bool) {
		is := filepath.Base(path) == name
		return is, is
	})
	if err != nil {
		return
	}
	file, err := procmem.OpenFile(proc, pid, &m)
	if err != nil {
		return
	}
	defer file.Close()
	if r.at, err = pointerIn(b, file, m.Start); err != nil {
		elffile.Refuse(b, file, err)
	}
	r.read, r.seen = procmem.Read, map[string]int{}
}

func pointerIn(b *budget.Budget, file *os.File, base uint64) (at uint64, err error) {
	f, err := elffile.Open(b, file)
	if err != nil {
		return 0, err
	}
	if f.Type == elf.ET_EXEC {
		base = 0
	}
	if s, ok := f.Lookup(elf.SHT_DYNSYM, "debug_query_string"); ok {
		return base + s.Value, nil
	}
	return 0, b.Err()
}

// look notes what a backend executes.
func (r *running) look(pid int) {
	if r.at == 0 || len(r.seen) >= maxRunning {
		return
	}
	var pointer [8]byte
	if n, err := r.read(pid, r.at, pointer[:]); err != nil || n < len(pointer) {
		return
	}
	text := make([]byte, maxStatement)
	at := procmem.Long(pointer[:], 0)
	if at == 0 {
		return
	}
	n, err := r.read(pid, at, text)
	if err != nil && n == 0 {
		return
	}
	text, _, whole := bytes.Cut(text[:n], []byte{0})
	said := slowlog.Normalise(logtail.Printable(text, maxStatement))
	if !whole {
		said += "…"
	}
	if said != "" {
		r.seen[said]++
	}
}

// told is those seen most.
func (r *running) told() (out []observe.RunningStatement) {
	for text, n := range r.seen {
		out = append(out, observe.RunningStatement{Statement: text, Rounds: n})
	}
	slices.SortFunc(out, func(a, b observe.RunningStatement) int {
		return cmp.Or(cmp.Compare(b.Rounds, a.Rounds), cmp.Compare(a.Statement, b.Statement))
	})
	return out[:min(len(out), maxTold)]
}
