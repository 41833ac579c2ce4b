package cpython

import (
	"fmt"
	"path"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Frame is a function of Python that is on a stack.
type Frame struct {
	Function string // with its class: "Desk.book"
	File     string
	Line     int
}

// String is "Desk.book desk.py:41".
func (f *Frame) String() string {
	return fmt.Sprintf("%s %s:%d", f.Function, path.Base(f.File), f.Line)
}

const (
	maxThreads = 4096
	maxFrames  = 64
	maxCodes   = 1 << 16
	ownedByC   = 3 // FRAME_OWNED_BY_CSTACK
)

// Stacks is where the threads are, innermost first, by the number that the
// process itself sees of each. Over the budget those are missing that were not
// read until then.
func (p *Interpreter) Stacks(b *budget.Budget) map[int][]Frame {
	p.memory.Budget = b
	out := map[int][]Frame{}
	p.eachThread(func(thread uint64, tid int) bool {
		if stack := p.stack(thread); tid > 0 && len(stack) > 0 {
			out[tid] = stack
		}
		return true
	})
	return out
}

func (p *Interpreter) stack(thread uint64) []Frame {
	frame := p.frameOf(thread)
	var out []Frame
	for range maxFrames {
		b := p.memory.Bytes(frame, 80)
		if b == nil {
			break
		}
		if b[p.owner] != ownedByC {
			if c := p.code(procmem.Long(b, p.layout.code)); c != nil {
				out = append(out, Frame{Function: c.name, File: c.file, Line: c.line(procmem.Long(b, p.instruction))})
			}
		}
		frame = procmem.Long(b, p.previous)
	}
	return out
}

// code is a code object.
type code struct {
	name, file string
	first      int
	begin      uint64 // of its instructions
	lines      []byte
}

// code reads a code object; nil when it is none.
func (p *Interpreter) code(addr uint64) *code {
	if c, ok := p.codes[addr]; ok {
		return c
	}
	if len(p.codes) >= maxCodes {
		clear(p.codes)
	}
	var c *code
	if b := p.memory.Bytes(addr, 208); b != nil {
		c = &code{name: p.text(procmem.Long(b, codeName)), file: p.text(procmem.Long(b, codeFile)), first: int(procmem.Half(b, p.firstLine)), begin: addr + p.instructions}
		if c.name == "" || c.file == "" {
			c = nil
		}
		lines := procmem.Long(b, p.layout.lines)
		if size := p.memory.Word(lines + bytesSize); c != nil && size > 0 && size < 1<<20 {
			c.lines = p.memory.Bytes(lines+bytesData, size)
		}
	}
	p.codes[addr] = c
	return c
}

// maxText bounds a string that is read, in bytes.
const maxText = 1024

// text is a string object that is ASCII, as names and paths mostly are.
func (p *Interpreter) text(addr uint64) string {
	size := p.memory.Word(addr + stringLength)
	if size == 0 || size > maxText {
		return ""
	}
	return printable.Name(p.memory.Bytes(addr+p.layout.text, size), maxText)
}

// line is that of an instruction, from the table of locations
// (Objects/locations.md).
func (c *code) line(instruction uint64) int {
	at := int64(instruction) - int64(c.begin)
	b := c.lines
	varint := func() (v int) {
		for shift := 0; len(b) > 0 && shift < 30; shift += 6 {
			x := b[0]
			b = b[1:]
			v |= int(x&0x3f) << shift
			if x&0x40 == 0 {
				break
			}
		}
		return v
	}
	signed := func() int {
		if v := varint(); v&1 != 0 {
			return -(v >> 1)
		} else {
			return v >> 1
		}
	}
	line, end := c.first, int64(0)
	for len(b) > 0 {
		head := b[0]
		b = b[1:]
		end += 2 * (int64(head&7) + 1)
		switch kind := head >> 3 & 15; {
		case kind == 15:
		case kind == 14:
			line += signed()
			varint()
			varint()
			varint()
		case kind == 13:
			line += signed()
		case kind >= 10:
			line += int(kind) - 10
			b = b[min(2, len(b)):]
		default:
			b = b[min(1, len(b)):]
		}
		if at < end {
			return line
		}
	}
	return line
}
