package elffile

import (
	"bytes"
	"debug/elf"
	"fmt"
)

// symbolSize is sizeof(Elf64_Sym).
const symbolSize = 24

// MaxSymbolName bounds the name of a symbol, bytes; the longest of real
// programs, of templates of C++, have some thousands.
const MaxSymbolName = 4096

// Symbols is a table of symbols.
type Symbols struct {
	table, text *Section
	all         []byte // of the names, where they are few enough to be kept
	window      []byte // of the names, at
	at          int64
	tried       bool
}

// Symbol is one entry of a table.
type Symbol struct {
	Value, Size uint64
	Info        byte
	Section     elf.SectionIndex
	name        uint32
}

// Function says that it is the symbol of code, or may be: of a function, of one
// that chooses a function, or of hand-written assembly.
func (s *Symbol) Function() bool {
	t := elf.ST_TYPE(s.Info)
	return (t == elf.STT_FUNC || t == elf.STT_GNU_IFUNC || t == elf.STT_NOTYPE) && s.Section != elf.SHN_UNDEF
}

// Named says that it has a name.
func (s *Symbol) Named() bool { return s.name != 0 }

// Symbols is the first table of a type (SHT_SYMTAB or SHT_DYNSYM); nil when a
// 64-bit file has none that can be read. One that is compressed is none: no
// linker compresses it.
func (f *File) Symbols(kind elf.SectionType) *Symbols {
	t := f.SectionByType(kind)
	if t == nil || f.Class != elf.ELFCLASS64 || t.Compressed() || int64(t.Link) >= int64(len(f.Sections)) {
		return nil
	}
	text := &f.Sections[t.Link]
	if text.Compressed() || text.Type == elf.SHT_NOBITS {
		return nil
	}
	return &Symbols{table: t, text: text}
}

// Each visits the symbols in their order until visit returns false: the one that
// it is given lasts until the next. Each takes an item of the budget.
func (t *Symbols) Each(visit func(*Symbol) bool) error {
	const some = 4096
	buf := make([]byte, some*symbolSize)
	o := t.table.file.ByteOrder
	var s Symbol
	for at := int64(0); at >= 0 && uint64(at) < t.table.FileSize; at += int64(len(buf)) {
		n, err := t.table.ReadAt(buf, at)
		list := buf[:n-n%symbolSize]
		if over := t.table.file.budget.Nodes(int64(len(list) / symbolSize)); over != nil {
			return over
		}
		for ; len(list) > 0; list = list[symbolSize:] {
			s = Symbol{name: o.Uint32(list), Info: list[4], Section: elf.SectionIndex(o.Uint16(list[6:])), Value: o.Uint64(list[8:]), Size: o.Uint64(list[16:])}
			if !visit(&s) {
				return nil
			}
		}
		if n < len(buf) {
			if over := t.table.file.budget.Err(); over != nil {
				return over
			}
			if uint64(at)+uint64(n) < t.table.FileSize {
				return fmt.Errorf("%w: its symbols end early: %v", ErrDamaged, err)
			}
			return nil
		}
	}
	return nil
}

// Lookup finds a symbol by name in the first table of a type; false when it is
// not there.
func (f *File) Lookup(kind elf.SectionType, name string) (found Symbol, ok bool) {
	t := f.Symbols(kind)
	if t == nil {
		return found, false
	}
	// Over the budget it was not found: the budget tells.
	_ = t.Each(func(s *Symbol) bool {
		if s.Named() && t.NameOfMany(s) == name {
			found, ok = *s, true
		}
		return !ok
	})
	return found, ok
}

// Names of symbols: a table of up to wholeNames bytes is read at once by those who
// ask for all, else a window of it, since most linkers write names in the order
// of the symbols.
const (
	wholeNames  = 16 << 20
	windowNames = 16 << 10
)

// Name is the name of a symbol, "" where it cannot be read: at most
// [MaxSymbolName] bytes of it. It reads only that name.
func (t *Symbols) Name(s *Symbol) string {
	return t.cut(func(buf []byte) []byte {
		n, _ := t.text.ReadAt(buf, int64(s.name))
		return buf[:n]
	})
}

// cut reads more and more until the name ends.
func (t *Symbols) cut(read func([]byte) []byte) string {
	for size := 128; ; size *= 4 {
		size = min(size, MaxSymbolName)
		b := read(make([]byte, size))
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(b[:end])
		}
		if len(b) < size || size == MaxSymbolName {
			return string(b)
		}
	}
}

// NameOfMany is Name for those who ask for the names of many symbols in their
// order.
func (t *Symbols) NameOfMany(s *Symbol) string {
	if !t.tried {
		t.tried = true
		if t.text.FileSize <= wholeNames {
			t.all, _ = t.text.Data()
		}
	}
	name := t.within(t.all, int64(s.name))
	if name == nil && t.all == nil {
		if name = t.within(t.window, int64(s.name)-t.at); name == nil {
			if t.window == nil {
				t.window = make([]byte, windowNames)
			}
			t.window = t.window[:windowNames]
			n, _ := t.text.ReadAt(t.window, int64(s.name))
			t.window, t.at = t.window[:n], int64(s.name)
			name = t.within(t.window, 0)
		}
	}
	if t.text.file.budget.Unpack(int64(len(name))) != nil {
		return ""
	}
	return string(name)
}

// within is the name at an offset of a part of the table, as far as it is there
// up to its end; nil when it is not.
func (t *Symbols) within(part []byte, at int64) []byte {
	if at < 0 || at >= int64(len(part)) {
		return nil
	}
	part = part[at:min(int64(len(part)), at+MaxSymbolName)]
	if end := bytes.IndexByte(part, 0); end >= 0 {
		return part[:end]
	}
	if len(part) == MaxSymbolName {
		return part
	}
	return nil
}
