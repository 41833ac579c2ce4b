package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"sort"
)

// UnwindTable is the table that binaries have for exceptions, stripped or not: how to get
// from any of their instructions to the caller (.eh_frame and .eh_frame_hdr, Linux Standard
// Base 5.0, 10.6). It is read where it is asked for.
type UnwindTable struct {
	file   *File
	header *Section
	count  int
}

// Encodings of addresses (DW_EH_PE_*), and sizes of .eh_frame_hdr.
const (
	encodedSize     = 0x07 // of the value: 8, 2, 4, 8 bytes
	encodedRelative = 0x70
	relativeToPlace = 0x10
	pcrelSigned4    = 0x1b
	unsigned4       = 0x03
	fromTable       = 0x3b // DW_EH_PE_datarel | DW_EH_PE_sdata4
	unwindHeader    = 12
	unwindEntry     = 8
)

// UnwindTable finds the table; nil when the file has none, or one that ld does not write so.
func (f *File) UnwindTable() *UnwindTable {
	s := f.Section(".eh_frame_hdr")
	head := make([]byte, unwindHeader)
	if s == nil || s.FileSize < unwindHeader {
		return nil
	}
	if _, err := s.ReadAt(head, 0); err != nil || head[0] != 1 || head[1] != pcrelSigned4 || head[2] != unsigned4 || head[3] != fromTable {
		return nil
	}
	n := min(uint64(binary.LittleEndian.Uint32(head[8:])), (s.FileSize-unwindHeader)/unwindEntry)
	return &UnwindTable{file: f, header: s, count: int(n)}
}

// find is where the last function begins that does so at or before an address, and where
// the table has its description.
func (t *UnwindTable) find(addr uint64) (start, description uint64, ok bool) {
	failed := false
	entry := func(i int) (start, description uint64) {
		var b [unwindEntry]byte
		if _, err := t.header.ReadAt(b[:], unwindHeader+unwindEntry*int64(i)); err != nil {
			failed = true
		}
		at := func(b []byte) uint64 { return t.header.Addr + uint64(int64(int32(binary.LittleEndian.Uint32(b)))) }
		return at(b[:]), at(b[4:])
	}
	i := sort.Search(t.count, func(i int) bool { start, _ := entry(i); return start > addr }) - 1
	if i < 0 {
		return 0, 0, false
	}
	start, description = entry(i)
	return start, description, !failed
}

// Start is where the function of an address begins. Between the functions of a binary lie
// at most some of another language.
func (t *UnwindTable) Start(addr uint64) (start uint64, ok bool) {
	start, _, ok = t.find(addr)
	return start, ok && addr-start < 1<<20
}

// The registers that DWARF numbers (System V AMD64 ABI, figure 3.36; DWARF for the Arm 64-bit
// Architecture, 4.1).
const (
	dwarfRSP = 7
	dwarfRA  = 16
	dwarfX30 = 30
)

// LeftByCall says whether before the instruction at an address the return address of its
// function is still where the call left it: on top of the stack (x86-64), in x30 (arm64).
// It is false where that is not known.
func (t *UnwindTable) LeftByCall(addr uint64) bool {
	start, description, ok := t.find(addr)
	if !ok {
		return false
	}
	u := unwinding{table: t, addr: addr, at: start}
	switch t.file.Machine {
	case elf.EM_X86_64:
		u.register = dwarfRA
	case elf.EM_AARCH64:
		u.register = dwarfX30
	default:
		return false
	}
	if t.file.Class != elf.ELFCLASS64 || t.file.Data != elf.ELFDATA2LSB || !u.follow(description) {
		return false
	}
	if t.file.Machine == elf.EM_X86_64 {
		return u.row.cfa == dwarfRSP && u.row.offset == 8 && u.row.saved && u.row.at == -8
	}
	return !u.row.saved && !u.row.lost
}

// maxDescription bounds what a table says of one function, bytes: the longest of libc has
// some 2 KB.
const maxDescription = 64 << 10

// unwinding follows the description of a function up to an address (DWARF 4, 6.4).
type unwinding struct {
	table    *UnwindTable
	addr, at uint64 // wanted, and reached
	register uint64 // that of the return address

	code, data int64 // factors of advances and of offsets
	encoding   byte
	signal     bool // what is described is the frame of a signal
	row, first unwindRow
	kept       []unwindRow
}

// unwindRow is how the caller is found from a place in the function.
type unwindRow struct {
	cfa    uint64 // register, from which offset is counted; noRegister of an expression
	offset int64
	saved  bool  // the return address lies at
	at     int64 // from there
	lost   bool  // it is not to be had, or in another way
}

const noRegister = ^uint64(0)

// maxKeptRows bounds the rows that a description keeps for later.
const maxKeptRows = 64

// follow goes through the common description and that of the function.
func (u *unwinding) follow(description uint64) bool {
	body, place, ok := u.table.record(description)
	if !ok || len(body) < 4 {
		return false
	}
	back := uint64(binary.LittleEndian.Uint32(body))
	common, _, ok := u.table.record(place - back)
	if !ok || back == 0 || !u.common(common) {
		return false
	}
	r := dwarfReader{b: body[4:]}
	begins, ok := r.encoded(u.encoding, place+4)
	length, sized := r.encoded(u.encoding&encodedSize, 0)
	r.bytes(r.unsigned()) // augmentation
	if !ok || !sized || r.failed || begins != u.at || u.addr-begins >= length || u.signal {
		return false
	}
	u.first = u.row
	return u.run(r.b)
}

// record is a description at an address, behind its length, and where that is.
func (t *UnwindTable) record(addr uint64) (body []byte, place uint64, ok bool) {
	head := t.file.Loaded(addr, 4)
	if len(head) < 4 {
		return nil, 0, false
	}
	size := uint64(binary.LittleEndian.Uint32(head))
	if size == 0 || size > maxDescription {
		return nil, 0, false
	}
	body = t.file.Loaded(addr+4, size)
	return body, addr + 4, uint64(len(body)) == size
}

// common reads the description that functions share.
func (u *unwinding) common(body []byte) bool {
	if len(body) < 6 || binary.LittleEndian.Uint32(body) != 0 || body[4] != 1 && body[4] != 3 {
		return false
	}
	version, r := body[4], dwarfReader{b: body[5:]}
	augmentation := r.text()
	u.code, u.data = int64(r.unsigned()), r.signed()
	register := uint64(r.byte())
	if version == 3 && register >= 0x80 {
		return false // of two bytes: none of ours
	}
	if register != u.register || len(augmentation) == 0 || augmentation[0] != 'z' {
		return false
	}
	more := dwarfReader{b: r.bytes(r.unsigned())}
	for _, c := range augmentation[1:] {
		switch c {
		case 'R':
			u.encoding = more.byte()
		case 'P':
			more.encoded(more.byte()&encodedSize, 0)
		case 'L':
			more.byte()
		case 'S':
			u.signal = true
		case 'B', 'G': // which key signs return addresses; tagged stack
		default:
			return false
		}
	}
	return !r.failed && !more.failed && u.run(r.b)
}

// run executes instructions, until one is behind the address.
func (u *unwinding) run(code []byte) bool {
	const (
		advance, offset, restore = 0x40, 0x80, 0xc0 // with the operand in the low bits
		low                      = 0x3f
	)
	r := dwarfReader{b: code}
	for len(r.b) > 0 && !r.failed {
		op := r.byte()
		steps := int64(0)
		switch op &^ low {
		case advance:
			steps = int64(op & low)
		case offset:
			u.rule(uint64(op&low), unwindRow{saved: true, at: int64(r.unsigned()) * u.data})
		case restore:
			u.rule(uint64(op&low), u.first)
		default:
			var ok bool
			if steps, ok = u.execute(op, &r); !ok {
				return false
			}
		}
		if steps != 0 {
			if u.at += uint64(steps * u.code); u.at > u.addr {
				return !r.failed
			}
		}
	}
	return !r.failed
}

// rule sets how a register is found, if it is the return address.
func (u *unwinding) rule(register uint64, how unwindRow) {
	if register == u.register {
		u.row.saved, u.row.at, u.row.lost = how.saved, how.at, how.lost
	}
}

// execute is an instruction without an operand in it: by how many steps it advances. It
// fails at one that it does not know (DWARF 4, 7.23; DWARF for the Arm 64-bit Architecture, 4.4).
func (u *unwinding) execute(op byte, r *dwarfReader) (steps int64, ok bool) {
	lost := unwindRow{lost: true}
	switch op {
	case 0x00, 0x2d: // nop; AARCH64_negate_ra_state: from here on x30 is signed, or not
	case 0x02: // advance_loc1, 2, 4
		return int64(r.byte()), true
	case 0x03:
		return int64(r.fixed(2)), true
	case 0x04:
		return int64(r.fixed(4)), true
	case 0x05: // offset_extended
		register := r.unsigned()
		u.rule(register, unwindRow{saved: true, at: int64(r.unsigned()) * u.data})
	case 0x11: // offset_extended_sf
		register := r.unsigned()
		u.rule(register, unwindRow{saved: true, at: r.signed() * u.data})
	case 0x06: // restore_extended
		u.rule(r.unsigned(), u.first)
	case 0x07: // undefined: nobody called it
		u.rule(r.unsigned(), lost)
	case 0x08: // same_value
		u.rule(r.unsigned(), unwindRow{})
	case 0x09, 0x14: // register, val_offset
		u.rule(r.unsigned(), lost)
		r.unsigned()
	case 0x15: // val_offset_sf
		u.rule(r.unsigned(), lost)
		r.signed()
	case 0x10, 0x16: // expression, val_expression
		u.rule(r.unsigned(), lost)
		r.bytes(r.unsigned())
	case 0x0a: // remember_state
		if len(u.kept) == maxKeptRows {
			return 0, false
		}
		u.kept = append(u.kept, u.row)
	case 0x0b: // restore_state
		if len(u.kept) == 0 {
			return 0, false
		}
		u.row = u.kept[len(u.kept)-1]
		u.kept = u.kept[:len(u.kept)-1]
	case 0x0c: // def_cfa
		u.row.cfa = r.unsigned()
		u.row.offset = int64(r.unsigned())
	case 0x12: // def_cfa_sf
		u.row.cfa = r.unsigned()
		u.row.offset = r.signed() * u.data
	case 0x0d: // def_cfa_register
		u.row.cfa = r.unsigned()
	case 0x0e: // def_cfa_offset
		u.row.offset = int64(r.unsigned())
	case 0x13: // def_cfa_offset_sf
		u.row.offset = r.signed() * u.data
	case 0x0f: // def_cfa_expression
		r.bytes(r.unsigned())
		u.row.cfa = noRegister
	case 0x2e: // GNU_args_size
		r.unsigned()
	default:
		return 0, false
	}
	return 0, true
}

// dwarfReader reads what DWARF writes; once it failed, zeros.
type dwarfReader struct {
	b      []byte
	failed bool
}

func (r *dwarfReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.b, r.failed = nil, true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *dwarfReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// fixed is a number of so many bytes.
func (r *dwarfReader) fixed(size int) (v uint64) {
	for i, c := range r.bytes(uint64(size)) {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func (r *dwarfReader) unsigned() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.failed = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *dwarfReader) signed() (v int64) {
	for shift := 0; ; shift += 7 {
		c := r.byte()
		if shift < 64 {
			v |= int64(c&0x7f) << shift
		}
		if c&0x80 == 0 {
			if c&0x40 != 0 && shift < 57 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

func (r *dwarfReader) text() string {
	end := bytes.IndexByte(r.b, 0)
	if end < 0 {
		r.b, r.failed = nil, true
		return ""
	}
	return string(r.bytes(uint64(end + 1))[:end])
}

// encoded is an address or a size in an encoding (DW_EH_PE_*), at a place.
func (r *dwarfReader) encoded(encoding byte, place uint64) (v uint64, ok bool) {
	size := [8]int{8, 0, 2, 4, 8}[encoding&encodedSize]
	v = r.fixed(size)
	if signed := encoding&0x08 != 0; signed && size < 8 {
		v = uint64(int64(v<<(64-8*size)) >> (64 - 8*size))
	}
	switch encoding & encodedRelative {
	case 0:
	case relativeToPlace:
		v += place
	default:
		return 0, false
	}
	return v, size > 0 && encoding&0x80 == 0 && !r.failed
}
