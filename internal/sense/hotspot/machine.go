package hotspot

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// ErrNotJava says that no HotSpot is in a process.
var ErrNotJava = errors.New("it is no HotSpot virtual machine")

// A Machine is a Java virtual machine that runs. It is for one goroutine.
type Machine struct {
	memory procmem.Process
	fields map[string]uint64 // offsets, of static fields their addresses
	tids   map[uint64]int    // by address of the JavaThread

	// Of Java objects.
	objects            bool // whether they can be read
	narrow             bool // references take 4 bytes
	narrowBase         uint64
	narrowShift        uint32
	poolSize, flagSize uint64
	offsets            map[field]uint64
	names              map[uint64]string // of classes, by the address of the symbol
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
func Open(b *budget.Budget, proc string, pid int, memory procmem.Reader) (*Machine, error) {
	lib, err := library(b, proc, pid)
	if err != nil {
		return nil, err
	}
	f, err := procmem.OpenFile(proc, pid, &lib)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	table, types, err := tablesIn(b, f)
	if err != nil {
		elffile.Refuse(b, f, err)
		return nil, err
	}
	base := lib.Start
	m := &Machine{memory: procmem.Process{PID: pid, Read: memory, Budget: b}, fields: map[string]uint64{}, tids: map[uint64]int{}, offsets: map[field]uint64{}, names: map[uint64]string{}}
	m.readFields(m.memory.Word(base + table))
	for _, name := range needed {
		if _, ok := m.fields[name]; !ok {
			return nil, fmt.Errorf("its table of fields has no %s: this version of Java is not known", name)
		}
	}
	m.readTypes(m.memory.Word(base + types))
	m.openObjects()
	return m, b.Err()
}

// openObjects finds out how Java objects are laid out.
func (m *Machine) openObjects() {
	for _, name := range slices.Concat(forObjects, wished) {
		_, ok := m.fields[name]
		if !ok && !strings.HasPrefix(name, "InstanceKlass::_f") && !strings.HasPrefix(name, "InstanceKlass::_j") {
			return
		}
	}
	m.narrow = m.compressed()
	m.narrowBase = m.memory.Word(m.fields["_narrow_oop._base"])
	if b := m.memory.Bytes(m.fields["_narrow_oop._shift"], 4); b != nil {
		m.narrowShift = procmem.Half(b, 0) & 7
	}
	m.objects = m.poolSize != 0 && m.flagSize != 0
}

// library is where libjvm.so was loaded.
func library(b *budget.Budget, proc string, pid int) (m procmem.Mapping, err error) {
	m, err = procmem.Loaded(b, proc, pid, func(path string) (ok, done bool) { return strings.HasSuffix(path, "/libjvm.so"), true })
	if errors.Is(err, procmem.ErrNoMapping) {
		err = ErrNotJava
	}
	return m, err
}

// tablesIn is where in a library the pointers to the tables of fields and of types are. The
// layout of the table's entries has not changed since there are 64-bit machines.
func tablesIn(b *budget.Budget, file *os.File) (table, types uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its libjvm.so is damaged: %v", r)
		}
	}()
	f, err := elffile.Open(b, file)
	if err != nil {
		return 0, 0, err
	}
	fields, ok := f.Lookup(elf.SHT_DYNSYM, "gHotSpotVMStructs")
	if !ok || fields.Value == 0 {
		return 0, 0, cmp.Or(b.Err(), errors.New("its libjvm.so has no table of fields"))
	}
	kinds, _ := f.Lookup(elf.SHT_DYNSYM, "gHotSpotVMTypes")
	return fields.Value, kinds.Value, b.Err()
}

// readFields reads the table (vmStructs.hpp: names of type and field, the field's
// type, whether it is static, its offset, its address).
func (m *Machine) readFields(table uint64) {
	const entry = 48
	all := slices.Concat(needed, wished, forObjects)
	for i := range uint64(maxEntries) {
		e := m.memory.Bytes(table+i*entry, entry)
		if e == nil || procmem.Long(e, 0) == 0 {
			return
		}
		field := m.text(procmem.Long(e, 8))
		kind := ""
		for _, name := range all {
			of, last, both := strings.Cut(name, "::")
			switch {
			case !both && of == field: // a thread's, which is in Thread or in JavaThread
			case both && last == field:
				if kind == "" {
					kind = m.text(procmem.Long(e, 0))
				}
				if kind != of {
					continue
				}
			default:
				continue
			}
			m.fields[name] = procmem.Long(e, 32)
			if procmem.Half(e, 24) != 0 {
				m.fields[name] = procmem.Long(e, 40)
			}
		}
	}
}

// text is a C string of the machine's own, which are short.
func (m *Machine) text(addr uint64) string {
	s, _, _ := strings.Cut(string(m.memory.Some(addr, 64)), "\x00")
	return s
}
