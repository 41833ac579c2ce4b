package hotspot

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slowray/slowray/internal/sense/host"
)

// Memory copies from the memory of a process, and returns how much it got.
type Memory func(pid int, addr uint64, into []byte) (int, error)

// ErrNotJava says that no HotSpot is in a process.
var ErrNotJava = errors.New("it is no HotSpot virtual machine")

// A Machine is a Java virtual machine that runs. It is for one goroutine.
type Machine struct {
	pid    int
	memory Memory
	fields map[string]uint64 // offsets, of static fields their addresses
	tids   map[uint64]int    // by address of the JavaThread
}

// needed are the fields without which owners cannot be read.
var needed = []string{
	"ThreadsSMRSupport::_java_thread_list", "ThreadsList::_length", "ThreadsList::_threads", "_osthread", "OSThread::_thread_id",
	"_current_pending_monitor", "_stack_base", "_stack_size", "ObjectMonitor::_owner",
}

// wished are fields that name what a monitor belongs to.
var wished = []string{
	"ObjectMonitor::_object", "Klass::_name", "Symbol::_length", "Symbol::_body", "_narrow_klass._base", "_narrow_klass._shift",
}

const (
	maxEntries = 16384
	maxThreads = 4096
)

// Open finds the machine in a process below proc ("/proc"); ErrNotJava when there
// is none.
func Open(proc string, pid int, memory Memory) (*Machine, error) {
	base, path, err := library(proc, pid)
	if err != nil {
		return nil, err
	}
	table, err := tableIn(filepath.Join(proc, fmt.Sprint(pid), "root", path))
	if err != nil {
		return nil, err
	}
	m := &Machine{pid: pid, memory: memory, fields: map[string]uint64{}, tids: map[uint64]int{}}
	m.readFields(m.word(base + table))
	for _, name := range needed {
		if _, ok := m.fields[name]; !ok {
			return nil, fmt.Errorf("its table of fields has no %s: this version of Java is not known", name)
		}
	}
	return m, nil
}

// library is where libjvm.so was loaded.
func library(proc string, pid int) (base uint64, path string, err error) {
	maps, err := os.Open(filepath.Join(proc, fmt.Sprint(pid), "maps"))
	if err != nil {
		return 0, "", err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 6 || !strings.HasSuffix(f[5], "/libjvm.so") || f[2] != "00000000" {
			continue
		}
		from, _, _ := strings.Cut(f[0], "-")
		if at, ok := host.ParseHex([]byte(from)); ok {
			return at, f[5], nil
		}
	}
	return 0, "", ErrNotJava
}

// tableIn is where in a library the pointer to the table of fields is. The
// layout of the table's entries has not changed since there are 64-bit machines.
func tableIn(path string) (table uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its libjvm.so is damaged: %v", r)
		}
	}()
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "gHotSpotVMStructs" {
			return s.Value, nil
		}
	}
	return 0, errors.New("its libjvm.so has no table of fields")
}

// readFields reads the table (vmStructs.hpp: names of type and field, the field's
// type, whether it is static, its offset, its address).
func (m *Machine) readFields(table uint64) {
	const entry = 48
	for i := range uint64(maxEntries) {
		e := m.bytes(table+i*entry, entry)
		if e == nil || long(e, 0) == 0 {
			return
		}
		field := m.text(long(e, 8))
		kind := ""
		for _, name := range append(needed, wished...) {
			of, last, both := strings.Cut(name, "::")
			switch {
			case !both && of == field: // a thread's, which is in Thread or in JavaThread
			case both && last == field:
				if kind == "" {
					kind = m.text(long(e, 0))
				}
				if kind != of {
					continue
				}
			default:
				continue
			}
			m.fields[name] = long(e, 32)
			if half(e, 24) != 0 {
				m.fields[name] = long(e, 40)
			}
		}
	}
}

func (m *Machine) bytes(addr, size uint64) []byte {
	if addr < 1<<12 || addr>>56 != 0 {
		return nil
	}
	b := make([]byte, size)
	if n, err := m.memory(m.pid, addr, b); err != nil || n != len(b) {
		return nil
	}
	return b
}

func (m *Machine) word(addr uint64) uint64 {
	if b := m.bytes(addr, 8); b != nil {
		return long(b, 0)
	}
	return 0
}

// text is a C string of the machine's own, which are short.
func (m *Machine) text(addr uint64) string {
	b := make([]byte, 64)
	n, _ := m.memory(m.pid, addr, b)
	s, _, _ := strings.Cut(string(b[:max(n, 0)]), "\x00")
	return s
}

func long(b []byte, at uint64) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
func half(b []byte, at uint64) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
