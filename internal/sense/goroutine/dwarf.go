package goroutine

import (
	"debug/dwarf"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

// dwarfLimits is what may be read of debugging information for a layout: that of
// a large program takes some 50 MB.
var dwarfLimits = budget.Limits{Bytes: 96 << 20, Unpacked: 64 << 20, Nodes: 4 << 20, Wall: 400 * time.Millisecond}

// layoutInDWARF is the layout that the debugging information tells.
//
// Of the library only what reads the entries of one unit is used, and that with
// one unit at a time: it reads all tables of abbreviations at once, which may
// overlap, follows types to any depth, and takes memory for attributes that take
// none in the file.
func layoutInDWARF(b *budget.Budget, f *elffile.File) (l layout, err error) {
	part := b.Sub(dwarfLimits)
	f.Within(part)
	defer f.Within(b)
	var s sections
	for name, to := range map[string]*[]byte{".debug_info": &s.info, ".debug_abbrev": &s.abbreviations, ".debug_str": &s.text} {
		if *to, err = f.Unpacked(name); err != nil {
			return l, fmt.Errorf("its version of Go is not known to this slowray; debugging information: %w", err)
		}
	}
	if s.info == nil {
		return l, errVersion
	}
	r, err := s.runtimeUnit(part)
	if err != nil {
		return l, err
	}
	fields := map[string]map[string]*uint64{
		"runtime.g": {
			"syscallsp": &l.syscallSP, "syscallpc": &l.syscallPC, "atomicstatus": &l.status, "goid": &l.id, "waitsince": &l.waitSince, "waitreason": &l.reason,
		},
		"runtime.m":          {"procid": &l.procID},
		"runtime.moduledata": {"gofunc": &l.goFunc},
	}
	l.inlined = true
	for len(fields) > 0 {
		e, err := next(part, r)
		if err != nil {
			return l, err
		}
		if e == nil {
			return l, errVersion
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		wanted := fields[name]
		if e.Tag != dwarf.TagStructType || wanted == nil || !e.Children {
			continue
		}
		if err := members(part, r, wanted); err != nil {
			return l, err
		}
		if len(wanted) > 0 {
			return l, errVersion
		}
		delete(fields, name)
	}
	return l, nil
}

// next is the next entry; nil at the end.
func next(b *budget.Budget, r *dwarf.Reader) (*dwarf.Entry, error) {
	e, err := r.Next()
	if err != nil {
		return nil, fmt.Errorf("debugging information: %w", err)
	}
	if e == nil {
		return nil, nil
	}
	return e, b.Nodes(1 + int64(len(e.Field)))
}

// members notes where in a structure, whose entry was read last, its members lie.
func members(b *budget.Budget, r *dwarf.Reader, wanted map[string]*uint64) error {
	for {
		e, err := next(b, r)
		if err != nil {
			return err
		}
		if e == nil || e.Tag == 0 {
			return nil
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		at, known := e.Val(dwarf.AttrDataMemberLoc).(int64)
		if to := wanted[name]; to != nil && known && e.Tag == dwarf.TagMember {
			*to = uint64(at)
			delete(wanted, name)
		}
		if e.Children {
			r.SkipChildren()
		}
	}
}

// sections are those of the debugging information.
type sections struct{ info, abbreviations, text []byte }

// runtimeUnit reads on behind the beginning of the runtime's unit. Units are
// found by their lengths: to read through all of them would take seconds.
func (s *sections) runtimeUnit(b *budget.Budget) (*dwarf.Reader, error) {
	for at := 0; at+12 <= len(s.info); {
		length := int(binary.LittleEndian.Uint32(s.info[at:]))
		if length <= 0 || length > len(s.info)-at-4 {
			break // also the 64-bit form, which Go has no use for
		}
		unit := s.info[at : at+4+length]
		at += 4 + length
		d, err := s.unit(b, unit)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		r := d.Reader()
		e, err := next(b, r)
		if err != nil {
			return nil, err
		}
		if e != nil && e.Tag == dwarf.TagCompileUnit {
			if name, _ := e.Val(dwarf.AttrName).(string); name == "runtime" {
				return r, nil
			}
		}
	}
	return nil, errVersion
}

// unit is one unit with its own abbreviations alone; nil of a form that Go's
// linker does not write.
func (s *sections) unit(b *budget.Budget, unit []byte) (*dwarf.Data, error) {
	if len(unit) < 12 {
		return nil, nil
	}
	where := unit[6:10] // of the offset of its abbreviations
	if binary.LittleEndian.Uint16(unit[4:]) >= 5 {
		where = unit[8:12]
	}
	from := int64(binary.LittleEndian.Uint32(where))
	if from > int64(len(s.abbreviations)) {
		return nil, nil
	}
	size, err := abbreviations(b, s.abbreviations[from:])
	if err != nil {
		return nil, err
	}
	clear(where)
	d, err := dwarf.New(s.abbreviations[from:from+int64(size)], nil, nil, unit, nil, nil, nil, s.text)
	if err != nil {
		return nil, fmt.Errorf("debugging information: %w", err)
	}
	return d, nil
}

// maxAttributes bounds the attributes of an entry, some of which take no bytes in
// it; Go's linker gives none more than twenty.
const maxAttributes = 256

// abbreviations is how long the first table of abbreviations is (DWARF 5, 7.5.3).
func abbreviations(b *budget.Budget, data []byte) (size int, err error) {
	rest := data
	number := func() (v uint64) {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			rest = nil
			return 0
		}
		rest = rest[n:]
		return v
	}
	for len(rest) > 0 {
		if err := b.Node(); err != nil {
			return 0, err
		}
		if number() == 0 {
			break
		}
		number() // tag
		if len(rest) > 0 {
			rest = rest[1:] // whether it has children
		}
		for n := 0; len(rest) > 0; n++ {
			attribute, form := number(), number()
			const implicit = 0x21 // DW_FORM_implicit_const: its value is here, of either sign
			if form == implicit {
				number()
			}
			if attribute == 0 && form == 0 {
				break
			}
			if n == maxAttributes {
				return 0, fmt.Errorf("debugging information: an entry with more than %d attributes", maxAttributes)
			}
			if err := b.Node(); err != nil {
				return 0, err
			}
		}
	}
	return len(data) - len(rest), nil
}
