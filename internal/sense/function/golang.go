package function

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/sense/elffile"
)

// goProgram is what is known of a Go program.
type goProgram struct {
	from, to  uint64 // addresses of Go's own code
	registers bool   // arguments and the goroutine are in registers
}

// findGo tells whether a file is a Go program.
func (im *image) findGo() *goProgram {
	lines := slices.ContainsFunc(im.elf.Sections, func(s elffile.Section) bool { return strings.HasSuffix(s.Name, ".gopclntab") })
	if !lines && !im.elf.IsGo() {
		return nil
	}
	g := &goProgram{}
	for i := range im.symbols {
		switch im.symbols[i].name {
		case "runtime.text":
			g.from = im.symbols[i].addr
		case "runtime.etext":
			g.to = im.symbols[i].addr
		}
	}
	text := im.elf.Section(".text")
	if text != nil && g.from == 0 {
		g.from, g.to = text.Addr, text.Addr+text.Size
	}
	g.registers = registersOf(im)
	return g
}

// registersOf says whether g is in a register at every entry and return: since
// Go 1.17 on x86-64 (R14, cmd/compile/abi-internal.md), always elsewhere.
func registersOf(im *image) bool {
	if im.elf.Machine != elf.EM_X86_64 {
		return true
	}
	version := im.elf.GoVersion()
	for _, old := range []string{"go1.0", "go1.1.", "go1.2.", "go1.3.", "go1.4", "go1.5", "go1.6", "go1.7", "go1.8", "go1.9", "go1.10", "go1.11", "go1.12", "go1.13", "go1.14", "go1.15", "go1.16"} {
		if version == strings.TrimSuffix(old, ".") || strings.HasPrefix(version, strings.TrimSuffix(old, ".")+".") {
			return false
		}
	}
	return strings.HasPrefix(version, "go") || strings.HasPrefix(version, "devel")
}

// has says whether an address is Go's own code, and not C's.
func (g *goProgram) has(addr uint64) bool { return addr >= g.from && addr < g.to }
