package symbol

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/slowray/slowray/internal/observe"
)

// function is what is known of an address in a binary.
type function struct {
	name  string
	start uint64 // when it has no name: where it begins
	kind  observe.FrameKind
	file  string
	line  int
}

// errStripped says that a binary has no symbols.
var errStripped = errors.New("it has no symbols")

// nameOffsets names offsets in the file of a binary (sorted), or with byAddress
// addresses as the binary counts them. debug opens its separate file of
// symbols, if there is one, by build id.
func nameOffsets(r io.ReaderAt, offsets []uint64, byAddress bool, debug func(buildID string) *os.File) (found map[uint64]function, err error) {
	// The binary may be damaged, and not all that reads it expects that.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("not readable: %w", err)
	}
	found = map[uint64]function{}
	var addresses []uint64 // sorted like the file's segments, which are by address
	offsetOf := map[uint64]uint64{}
	for _, o := range offsets {
		a, ok := addressOf(f, o)
		if byAddress {
			a, ok = o, true
		}
		if ok {
			addresses = append(addresses, a)
			offsetOf[a] = o
		}
	}
	slices.Sort(addresses)
	take := func(a uint64, fn function) {
		if o, ok := offsetOf[a]; ok {
			found[o] = fn
		}
	}
	missing := func() []uint64 {
		return slices.DeleteFunc(slices.Clone(addresses), func(a uint64) bool { _, ok := found[offsetOf[a]]; return ok })
	}
	for a, fn := range goFunctions(f, addresses) {
		take(a, fn)
	}
	symbols := 0
	for _, source := range []func() (*elf.File, elf.SectionType, func()){
		func() (*elf.File, elf.SectionType, func()) { return f, elf.SHT_SYMTAB, nil },
		func() (*elf.File, elf.SectionType, func()) {
			file := debug(BuildID(f))
			if file == nil {
				return nil, 0, nil
			}
			d, err := elf.NewFile(file)
			if err != nil {
				file.Close()
				return nil, 0, nil
			}
			return d, elf.SHT_SYMTAB, func() { file.Close() }
		},
		func() (*elf.File, elf.SectionType, func()) { return miniDebug(f), elf.SHT_SYMTAB, nil },
		func() (*elf.File, elf.SectionType, func()) { return f, elf.SHT_DYNSYM, nil },
	} {
		rest := missing()
		if len(rest) == 0 {
			return found, nil
		}
		from, table, done := source()
		if from == nil {
			continue
		}
		n, names := elfFunctions(from, table, rest)
		symbols += n
		for a, name := range names {
			take(a, function{name: demangled(name), kind: observe.FrameNative})
		}
		if done != nil {
			done()
		}
	}
	if rest := missing(); len(rest) > 0 {
		for a, start := range functionStarts(f, rest) {
			take(a, function{start: start})
		}
	}
	if symbols == 0 && len(found) == 0 {
		return found, errStripped
	}
	return found, nil
}

// addressOf is the address at which the binary wants this offset.
func addressOf(f *elf.File, offset uint64) (uint64, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && offset >= p.Off && offset-p.Off < p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

const (
	// symbolSize is sizeof(Elf64_Sym).
	symbolSize = 24
	// maxSymbolTable and maxNames bound what is read of one binary, in bytes.
	maxSymbolTable = 512 << 20
	maxSymbolName  = 4096
	maxNotes       = 64
	// maxGap is how far behind a symbol without a size, as assembly has them,
	// an address may be.
	maxGap = 1 << 16
)

// elfFunctions finds in a symbol table the functions that hold the addresses
// (sorted), and tells how many functions the table has.
func elfFunctions(f *elf.File, kind elf.SectionType, addresses []uint64) (count int, names map[uint64]string) {
	table := f.SectionByType(kind)
	if table == nil || f.Class != elf.ELFCLASS64 || table.Flags&elf.SHF_COMPRESSED != 0 || table.Size > maxSymbolTable ||
		int(table.Link) >= len(f.Sections) {
		return 0, nil
	}
	text := f.Sections[table.Link]
	type best struct {
		start uint64
		sized bool
		local bool
		name  uint32
	}
	found := map[uint64]best{}
	in := io.NewSectionReader(table, 0, int64(table.Size))
	buf := make([]byte, 4096*symbolSize)
	for {
		n, err := io.ReadFull(in, buf)
		for s := buf[:n-n%symbolSize]; len(s) > 0; s = s[symbolSize:] {
			info := s[4]
			if t := elf.ST_TYPE(info); t != elf.STT_FUNC && t != elf.STT_GNU_IFUNC && t != elf.STT_NOTYPE || f.ByteOrder.Uint16(s[6:]) == 0 {
				continue
			}
			start, size := f.ByteOrder.Uint64(s[8:]), f.ByteOrder.Uint64(s[16:])
			name := f.ByteOrder.Uint32(s)
			if start == 0 || name == 0 {
				continue
			}
			count++
			reach, sized := size, size > 0
			if !sized {
				reach = maxGap
			}
			i, _ := slices.BinarySearch(addresses, start)
			for ; i < len(addresses) && addresses[i]-start < reach; i++ {
				b := best{start: start, sized: sized, local: elf.ST_BIND(info) == elf.STB_LOCAL, name: name}
				old, ok := found[addresses[i]]
				switch {
				case !ok, b.sized && !old.sized:
				case !b.sized && old.sized:
					continue
				case b.start > old.start: // the nearer one
				case b.start == old.start && old.local && !b.local:
				default:
					continue
				}
				found[addresses[i]] = b
			}
		}
		if err != nil {
			break
		}
	}
	names = make(map[uint64]string, len(found))
	for a, b := range found {
		if name := stringAt(text, b.name); name != "" {
			names[a] = name
		}
	}
	return count, names
}

// stringAt reads from a string table.
func stringAt(table *elf.Section, at uint32) string {
	if uint64(at) >= table.Size {
		return ""
	}
	buf := make([]byte, 128)
	for {
		n, _ := table.ReadAt(buf, int64(at))
		if end := bytes.IndexByte(buf[:n], 0); end >= 0 {
			return string(buf[:end])
		}
		if n < len(buf) || len(buf) >= maxSymbolName {
			return string(buf[:n])
		}
		buf = make([]byte, 2*len(buf))
	}
}

// demangled is a name as its author wrote it, without the types of its
// parameters. A version of the dynamic linker ("name@@GLIBC_2.2") goes.
func demangled(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if len(name) <= maxSymbolName {
		name = demangle.Filter(name, demangle.NoParams, demangle.NoClones, demangle.MaxLength(10))
	}
	return clean(name)
}

// BuildID is the binary's identity in hexadecimal, "" when it has none.
func BuildID(f *elf.File) string {
	notes := 0
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE || s.Size > 1<<16 || notes == maxNotes {
			continue
		}
		notes++
		data, err := s.Data()
		if err != nil {
			continue
		}
		// Elf64_Nhdr: lengths of name and description, type; then both, each
		// filled up to a multiple of four.
		for len(data) >= 12 {
			name, desc, kind := f.ByteOrder.Uint32(data), f.ByteOrder.Uint32(data[4:]), f.ByteOrder.Uint32(data[8:])
			body := data[12:]
			padded := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
			if padded(name)+padded(desc) > uint64(len(body)) {
				break
			}
			if kind == 3 && name == 4 && string(body[:4]) == "GNU\x00" { // NT_GNU_BUILD_ID
				return fmt.Sprintf("%x", body[4:4+desc])
			}
			data = body[padded(name)+padded(desc):]
		}
	}
	return ""
}
