package goroutine

import (
	"encoding/binary"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// fuzzed is a program that was opened, of which everything is made up.
func fuzzed(file *elffile.File, memory, table []byte, entries uint16, b *budget.Budget) *Program {
	p := &Program{PID: 1, memory: procmem.Process{PID: 1, Read: memoryOf(memory), Budget: b}, elf: file, quantum: 1, linkSize: 8,
		layout: layouts[len(layouts)-1].layout, allGs: 1 << 20, causes: map[uint8]Wait{}, stacks: map[uint64][]Frame{}}
	file.Within(b)
	p.text, p.textEnd = 0x1000, 0x100000
	p.base, p.names, p.units, p.files, p.values, p.inline = 0x1000, 0x1000, 0x1000, 0x1000, 0x1000, 0x1000
	p.entries = int(entries)
	for i := range p.entries {
		p.index = binary.LittleEndian.AppendUint32(p.index, uint32(i*16))
		p.index = binary.LittleEndian.AppendUint32(p.index, uint32(i*7)%uint32(len(table)+1))
	}
	return p
}
