package function

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strconv"
	"strings"
)

// staticProbe is one place of a static probe (USDT), by a note in the file
// (sys/sdt.h of SystemTap, version 3 of the note).
type staticProbe struct {
	provider, name string
	addr           uint64 // virtual
	semaphore      uint64 // virtual address of the counter of who watches; 0 = none
	args           string // "-4@%edi 8@-16(%rbp)"
}

const noteSDT = 3 // type of the notes

// staticProbes reads the notes of a file, once.
func (im *image) staticProbes() []staticProbe {
	if im.noted {
		return im.probes
	}
	im.noted = true
	s := im.elf.Section(".note.stapsdt")
	if s == nil {
		return nil
	}
	data, err := s.Data()
	if err != nil {
		return nil
	}
	base := uint64(0)
	if b := im.elf.Section(".stapsdt.base"); b != nil {
		base = b.Addr
	}
	im.probes = parseNotes(data, im.elf.ByteOrder, base)
	return im.probes
}

// parseNotes reads the notes of a section. base is where .stapsdt.base is now:
// addresses were written when it was where the note says.
func parseNotes(data []byte, order binary.ByteOrder, base uint64) []staticProbe {
	var out []staticProbe
	for len(data) >= 12 {
		nameSize, descSize, kind := order.Uint32(data), order.Uint32(data[4:]), order.Uint32(data[8:])
		data = data[12:]
		nameEnd, descEnd := (uint64(nameSize)+3)&^3, (uint64(descSize)+3)&^3
		if nameEnd+descEnd > uint64(len(data)) {
			return out
		}
		name, desc := data[:nameSize], data[nameEnd:nameEnd+uint64(descSize)]
		data = data[nameEnd+descEnd:]
		if kind != noteSDT || string(bytes.TrimRight(name, "\x00")) != "stapsdt" || len(desc) < 24 {
			continue
		}
		p := staticProbe{addr: order.Uint64(desc), semaphore: order.Uint64(desc[16:])}
		if was := order.Uint64(desc[8:]); base != 0 && was != 0 {
			p.addr += base - was
			if p.semaphore != 0 {
				p.semaphore += base - was
			}
		}
		text := bytes.SplitN(desc[24:], []byte{0}, 4)
		if len(text) < 3 {
			continue
		}
		p.provider, p.name, p.args = string(text[0]), string(text[1]), string(text[2])
		out = append(out, p)
	}
	return out
}

// pairs are the endings of names that begin and end the same thing, as in
// query__start and query__done.
var pairs = [][2]string{
	{"__start", "__done"}, {"__start", "__end"}, {"__start", "__finish"}, {"__begin", "__end"}, {"__begin", "__done"},
	{"__entry", "__return"}, {"__enter", "__exit"}, {"__enter", "__entered"}, {"__startup", "__shutdown"},
	{"-start", "-done"}, {"-begin", "-end"}, {"-entry", "-return"}, {"_start", "_done"}, {"_start", "_end"}, {"_begin", "_end"},
}

// pairOf splits the name of a probe that begins something; has says which names
// there are. It returns the name of the whole and of the probe that ends it.
func pairOf(name string, has func(string) bool) (whole, end string, ok bool) {
	for _, p := range pairs {
		stem, is := strings.CutSuffix(name, p[0])
		if is && stem != "" && has(stem+p[1]) {
			return stem, stem + p[1], true
		}
	}
	return "", "", false
}

// parseStaticArgs reads the arguments of a static probe for a machine. What it
// does not understand has the place NOWHERE, so that the others keep their
// number.
func parseStaticArgs(machine elf.Machine, text string) []place {
	var out []place
	for _, one := range splitArgs(text) {
		size, where, ok := strings.Cut(one, "@")
		n, err := strconv.Atoi(size)
		if !ok || err != nil {
			if size, _, isFloat := strings.Cut(size, "f"); isFloat && size != "" {
				out = append(out, place{}) // a float, in a register that is not kept
				continue
			}
			out = append(out, place{})
			continue
		}
		p := place{size: n, signed: n < 0}
		if p.signed {
			p.size = -n
		}
		switch machine {
		case elf.EM_X86_64:
			p.parseX86(where)
		case elf.EM_AARCH64:
			p.parseARM64(where)
		}
		out = append(out, p)
	}
	return out
}

// splitArgs splits at blanks outside of brackets: arm64 writes "[sp, 8]".
func splitArgs(text string) []string {
	depth := 0
	return strings.FieldsFunc(text, func(r rune) bool {
		switch r {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		}
		return r == ' ' && depth == 0
	})
}

// parseX86 reads %reg, $constant, offset(%base), offset(%base,%index,scale).
func (p *place) parseX86(s string) {
	switch {
	case strings.HasPrefix(s, "$"):
		n, err := strconv.ParseInt(s[1:], 0, 64)
		if err == nil {
			p.where, p.offset = inConstant, n
		}
	case strings.HasPrefix(s, "%"):
		if reg, ok := x86Registers[s[1:]]; ok {
			p.where, p.reg = inRegister, reg
		}
	default:
		offset, rest, ok := strings.Cut(s, "(")
		rest, closed := strings.CutSuffix(rest, ")")
		if !ok || !closed {
			return
		}
		if offset != "" {
			n, err := strconv.ParseInt(offset, 0, 64)
			if err != nil {
				return // relative to a symbol: not followed
			}
			p.offset = n
		}
		parts := strings.Split(rest, ",")
		reg, ok := x86Registers[strings.TrimPrefix(strings.TrimSpace(parts[0]), "%")]
		if !ok {
			return
		}
		p.reg, p.second, p.scale = reg, noRegister, 1
		if len(parts) > 1 {
			if p.second, ok = x86Registers[strings.TrimPrefix(strings.TrimSpace(parts[1]), "%")]; !ok {
				return
			}
		}
		if len(parts) > 2 {
			n, err := strconv.Atoi(strings.TrimSpace(parts[2]))
			if err != nil || n < 1 || n > 8 {
				return
			}
			p.scale = n
		}
		p.where = inMemory
	}
}

// parseARM64 reads x0, w0, a constant, [x0], [sp, 8].
func (p *place) parseARM64(s string) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		p.where, p.offset = inConstant, n
		return
	}
	if in, ok := strings.CutPrefix(s, "["); ok {
		base, offset, more := strings.Cut(strings.TrimSuffix(in, "]"), ",")
		reg, ok := arm64Register(base)
		n, err := int64(0), error(nil)
		if more {
			n, err = strconv.ParseInt(strings.TrimSpace(offset), 0, 64)
		}
		if ok && err == nil {
			p.where, p.reg, p.offset, p.second, p.scale = inMemory, reg, n, noRegister, 1
		}
		return
	}
	if reg, ok := arm64Register(s); ok {
		p.where, p.reg = inRegister, reg
	}
}
