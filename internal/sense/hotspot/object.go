package hotspot

import (
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Java's own objects are found by what the machine writes down of each class: the
// names of its fields and where they are.

// forObjects are the fields of the machine's structures without which Java
// objects are not read. "_fields" is that of versions up to 20,
// "_fieldinfo_stream" that of later ones.
var forObjects = []string{
	"_threadObj", "Klass::_super", "InstanceKlass::_constants", "InstanceKlass::_fields", "InstanceKlass::_java_fields_count", "InstanceKlass::_fieldinfo_stream",
	"_narrow_oop._base", "_narrow_oop._shift", "JVMFlag::flags", "JVMFlag::numFlags", "JVMFlag::_name", "JVMFlag::_addr",
}

const (
	maxSupers   = 32
	maxFields   = 512 // of a class
	maxFlags    = 4096
	arrayData   = 4 // Array<u1>, Array<u2>: behind their length
	oldFieldLen = 12
	typeEntry   = 40
)

// field is where a field of a class is in its objects.
type field struct {
	class, name string
}

// readTypes reads the sizes of types that are needed, from the machine's table of
// types (vmStructs.hpp: name, superclass, three flags, size).
func (m *Machine) readTypes(table uint64) {
	for i := range uint64(maxEntries) {
		e := m.memory.Bytes(table+i*typeEntry, typeEntry)
		if e == nil || procmem.Long(e, 0) == 0 {
			return
		}
		switch m.text(procmem.Long(e, 0)) {
		case "ConstantPool":
			m.poolSize = procmem.Long(e, 32)
		case "JVMFlag":
			m.flagSize = procmem.Long(e, 32)
		}
	}
}

// compressed reads whether references between objects take 4 bytes.
func (m *Machine) compressed() bool {
	flags := m.memory.Word(m.fields["JVMFlag::flags"])
	n := m.memory.Word(m.fields["JVMFlag::numFlags"])
	for i := range min(n, maxFlags) {
		at := flags + i*m.flagSize
		if m.text(m.memory.Word(at+m.fields["JVMFlag::_name"])) == "UseCompressedOops" {
			b := m.memory.Bytes(m.memory.Word(at+m.fields["JVMFlag::_addr"]), 1)
			return b != nil && b[0] != 0
		}
	}
	return false
}

// reference reads a field of an object that refers to another one.
func (m *Machine) reference(object, offset uint64) uint64 {
	if !m.narrow {
		return m.memory.Word(object + offset)
	}
	b := m.memory.Bytes(object+offset, 4)
	if b == nil || procmem.Half(b, 0) == 0 {
		return 0
	}
	return m.narrowBase + uint64(procmem.Half(b, 0))<<m.narrowShift
}

// classAt is the class of an object, as far as the machine keeps class pointers
// as it does by default; 0 when that is not known.
func (m *Machine) classAt(object uint64) uint64 {
	narrow := m.memory.Bytes(object+8, 4)
	shift := m.memory.Bytes(m.fields["_narrow_klass._shift"], 4)
	if narrow == nil || shift == nil || procmem.Half(shift, 0) > 8 {
		return 0
	}
	return m.memory.Word(m.fields["_narrow_klass._base"]) + uint64(procmem.Half(narrow, 0))<<procmem.Half(shift, 0)
}

// nameOf is the name of a class, with slashes.
func (m *Machine) nameOf(class uint64) string {
	at := m.memory.Word(class + m.fields["Klass::_name"])
	if name, ok := m.names[at]; ok {
		return name
	}
	name := m.symbol(at)
	if len(m.names) >= maxNames {
		clear(m.names)
	}
	if name != "" {
		m.names[at] = name
	}
	return name
}

// maxNames bounds the names of classes that are kept.
const maxNames = 1024

// symbol is a name that the machine keeps.
func (m *Machine) symbol(addr uint64) string {
	size := m.memory.Bytes(addr+m.fields["Symbol::_length"], 2)
	if size == nil {
		return ""
	}
	name := m.memory.Bytes(addr+m.fields["Symbol::_body"], uint64(min(int(size[0])|int(size[1])<<8, 256)))
	for _, c := range name {
		if c <= ' ' || c == 0x7f {
			return ""
		}
	}
	return string(name)
}

// offset is where a field of a class is in its objects, of which the class of one
// is given; 0 when that class does not descend from it, or has no such field.
func (m *Machine) offset(class uint64, f field) uint64 {
	for range maxSupers {
		if class == 0 {
			return 0
		}
		if m.nameOf(class) == f.class {
			break
		}
		class = m.memory.Word(class + m.fields["Klass::_super"])
	}
	if at, ok := m.offsets[f]; ok {
		return at
	}
	at := m.offsetIn(class, f.name)
	if at != 0 {
		m.offsets[f] = at
	}
	return at
}

// offsetIn looks a field up among those that a class declares.
func (m *Machine) offsetIn(class uint64, name string) uint64 {
	pool := m.memory.Word(class + m.fields["InstanceKlass::_constants"])
	named := func(index uint32) bool { return m.symbol(m.memory.Word(pool+m.poolSize+8*uint64(index))) == name }
	if at, ok := m.fields["InstanceKlass::_fields"]; ok {
		return m.inFields(class, m.memory.Word(class+at), named)
	}
	return m.inStream(m.memory.Word(class+m.fields["InstanceKlass::_fieldinfo_stream"]), named)
}

// inFields searches an array of 16-bit numbers, six for each field: flags, index of the
// name, of the signature, of the first value, and the offset with two bits of a tag
// (fieldInfo.hpp of versions up to 20).
func (m *Machine) inFields(class, array uint64, named func(uint32) bool) uint64 {
	count := m.memory.Bytes(class+m.fields["InstanceKlass::_java_fields_count"], 2)
	if count == nil {
		return 0
	}
	short := func(b []byte, at int) uint32 { return uint32(b[at]) | uint32(b[at+1])<<8 }
	for i := range min(uint64(short(count, 0)), maxFields) {
		b := m.memory.Bytes(array+arrayData+i*oldFieldLen, oldFieldLen)
		if b == nil {
			return 0
		}
		if named(short(b, 2)) {
			return uint64(short(b, 8)|short(b, 10)<<16) >> 2
		}
	}
	return 0
}

// Optional numbers of a field in the stream, by its flags (fieldInfo.hpp).
const (
	fieldInitialized = 1 << 0
	fieldGeneric     = 1 << 2
	fieldContended   = 1 << 4
)

// inStream searches the fields of a class as versions from 21 on keep them.
func (m *Machine) inStream(array uint64, named func(uint32) bool) uint64 {
	size := m.memory.Bytes(array, 4)
	if size == nil {
		return 0
	}
	b := m.memory.Bytes(array+arrayData, uint64(min(procmem.Half(size, 0), 1<<16)))
	java := unsigned5(&b)
	unsigned5(&b) // of the machine's own
	for range min(java, maxFields) {
		if len(b) == 0 {
			return 0
		}
		name := unsigned5(&b)
		unsigned5(&b) // signature
		offset := unsigned5(&b)
		unsigned5(&b) // access
		flags := unsigned5(&b)
		for _, flag := range []uint32{fieldInitialized, fieldGeneric, fieldContended} {
			if flags&flag != 0 {
				unsigned5(&b)
			}
		}
		if named(name) {
			return uint64(offset)
		}
	}
	return 0
}

// unsigned5 takes a number from a stream (unsigned5.hpp): up to five bytes, none
// of them 0, of which the ones under 192 end it.
func unsigned5(b *[]byte) uint32 {
	var sum uint32
	for i := 0; i < 5 && len(*b) > 0; i++ {
		c := (*b)[0]
		*b = (*b)[1:]
		sum += (uint32(c) - 1) << (6 * i)
		if c < 192 {
			break
		}
	}
	return sum
}
