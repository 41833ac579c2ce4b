package symbol

import (
	"debug/elf"
	"debug/gosym"

	"github.com/slowray/slowray/internal/observe"
)

// maxGoTable bounds the function table of a Go binary, in bytes.
const maxGoTable = 512 << 20

// goFunctions finds functions in the table that every Go binary has, stripped
// or not. Nothing is found in other binaries.
func goFunctions(f *elf.File, addresses []uint64) map[uint64]function {
	var table *elf.Section
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if table = f.Section(name); table != nil {
			break
		}
	}
	text := f.Section(".text")
	if table == nil || text == nil || table.Size > maxGoTable {
		return nil
	}
	data, err := table.Data()
	if err != nil {
		return nil
	}
	lines := gosym.NewLineTable(data, goTextStart(f, text))
	symbols, err := gosym.NewTable(nil, lines)
	if err != nil {
		return nil
	}
	found := map[uint64]function{}
	for _, a := range addresses {
		fn := symbols.PCToFunc(a)
		if fn == nil {
			continue
		}
		// The line where the function begins: that of the address would
		// make one function many.
		file, line, _ := symbols.PCToLine(fn.Entry)
		found[a] = function{name: clean(fn.Name), kind: observe.FrameGo, file: clean(file), line: line}
	}
	return found
}

// goTextStart is where the code begins that the table tells of. With code of C
// in it that is not where the section begins.
func goTextStart(f *elf.File, text *elf.Section) uint64 {
	if symbols, err := f.Symbols(); err == nil {
		for _, s := range symbols {
			if s.Name == "runtime.text" {
				return s.Value
			}
		}
	}
	return text.Addr
}
