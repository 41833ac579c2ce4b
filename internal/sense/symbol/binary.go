package symbol

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/elffile"
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
// symbols, if there is one, by build id. Over the budget, what was found until
// then is returned with its error.
func nameOffsets(b *budget.Budget, r io.ReaderAt, offsets []uint64, byAddress bool, debug func(buildID string) *os.File) (found map[uint64]function, err error) {
	// The binary may be damaged, and not all that reads it expects that.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	f, err := elffile.New(b, r)
	if err != nil {
		return nil, fmt.Errorf("not readable: %w", err)
	}
	n := &naming{file: f, budget: b, found: map[uint64]function{}, offsetOf: map[uint64]uint64{}}
	for _, o := range offsets {
		a, ok := addressOf(f, o)
		if byAddress {
			a, ok = o, true
		}
		if ok {
			n.addresses = append(n.addresses, a)
			n.offsetOf[a] = o
		}
	}
	slices.Sort(n.addresses)
	n.addresses = slices.Compact(n.addresses)
	n.goFunctions()
	n.symbolsOf(f, elf.SHT_SYMTAB)
	if file := n.debugFile(debug); file != nil {
		defer file.Close()
		if d, err := elffile.New(b, file); err == nil {
			n.symbolsOf(d, elf.SHT_SYMTAB)
		}
	}
	if len(n.missing()) > 0 {
		if mini, err := f.MiniDebug(); err == nil && mini != nil {
			n.symbolsOf(mini, elf.SHT_SYMTAB)
		}
	}
	n.symbolsOf(f, elf.SHT_DYNSYM)
	if table := f.UnwindTable(); table != nil {
		// What has no name can so be named by function.
		for _, a := range n.missing() {
			if start, ok := table.Start(a); ok {
				n.take(a, function{start: start})
			}
		}
	}
	if err := b.Err(); err != nil {
		return n.found, err
	}
	if n.symbols == 0 && len(n.found) == 0 {
		return n.found, errStripped
	}
	return n.found, nil
}

// naming is the names of one binary while they are looked for.
type naming struct {
	file      *elffile.File
	budget    *budget.Budget
	addresses []uint64 // sorted
	offsetOf  map[uint64]uint64
	found     map[uint64]function // by offset
	symbols   int                 // functions that tables had, whether wanted or not
}

func (n *naming) take(a uint64, fn function) {
	if o, ok := n.offsetOf[a]; ok {
		n.found[o] = fn
	}
}

// missing are the addresses without a name; none once the budget is used up.
func (n *naming) missing() []uint64 {
	if n.budget.Err() != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.addresses), func(a uint64) bool { _, ok := n.found[n.offsetOf[a]]; return ok })
}

// goFunctions finds functions in the table that every Go binary has, stripped
// or not. Nothing is found in other binaries.
func (n *naming) goFunctions() {
	table, err := n.file.GoFunctions()
	if err != nil || table == nil {
		return
	}
	for _, a := range n.addresses {
		if n.budget.Err() != nil {
			return
		}
		// The line where the function begins: that of the address would
		// make one function many.
		if fn, file, line, ok := table.At(a); ok {
			n.take(a, function{name: clean(fn.Name), kind: observe.FrameGo, file: clean(file), line: line})
		}
	}
}

// debugFile is the separate file of symbols, where one is needed.
func (n *naming) debugFile(open func(buildID string) *os.File) *os.File {
	if len(n.missing()) == 0 || n.budget.File() != nil {
		return nil
	}
	return open(n.file.BuildID())
}

// symbolsOf looks what is missing up in a table of symbols.
func (n *naming) symbolsOf(f *elffile.File, kind elf.SectionType) {
	rest := n.missing()
	if len(rest) == 0 {
		return
	}
	count, names := elfFunctions(n.budget, f, kind, rest)
	n.symbols += count
	for a, name := range names {
		n.take(a, function{name: demangled(name), kind: observe.FrameNative})
	}
}

// addressOf is the address at which the binary wants this offset.
func addressOf(f *elffile.File, offset uint64) (uint64, bool) {
	for i := range f.Progs {
		p := &f.Progs[i]
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && offset >= p.Off && offset-p.Off < p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// maxGap is how far behind a symbol without a size, as assembly has them, an
// address may be.
const maxGap = 1 << 16

// nearest is the best symbol for an address so far.
type nearest struct {
	elffile.Symbol
	sized, local bool
}

// over says whether it tells more of an address than another.
func (s *nearest) over(old *nearest) bool {
	switch {
	case s.sized != old.sized:
		return s.sized
	case s.Value != old.Value:
		return s.Value > old.Value // the nearer one
	}
	return old.local && !s.local
}

// elfFunctions finds in a symbol table the functions that hold the addresses
// (sorted), and tells how many functions the table has.
func elfFunctions(b *budget.Budget, f *elffile.File, kind elf.SectionType, addresses []uint64) (count int, names map[uint64]string) {
	table := f.Symbols(kind)
	if table == nil {
		return 0, nil
	}
	found := map[uint64]nearest{}
	// An error is the budget's, or that of a table that ends early.
	_ = table.Each(func(s *elffile.Symbol) bool {
		if !s.Function() || s.Value == 0 || !s.Named() {
			return true
		}
		count++
		one := nearest{Symbol: *s, sized: s.Size > 0, local: elf.ST_BIND(s.Info) == elf.STB_LOCAL}
		reach := s.Size
		if !one.sized {
			reach = maxGap
		}
		i, _ := slices.BinarySearch(addresses, s.Value)
		from := i
		for ; i < len(addresses) && addresses[i]-s.Value < reach; i++ {
			if old, ok := found[addresses[i]]; !ok || one.over(&old) {
				found[addresses[i]] = one
			}
		}
		// All symbols may claim all addresses.
		return b.Nodes(int64(i-from)) == nil
	})
	names = make(map[uint64]string, len(found))
	for a, s := range found {
		if name := table.Name(&s.Symbol); name != "" {
			names[a] = name
		}
	}
	return count, names
}

// demangled is a name as its author wrote it, without the types of its
// parameters. A version of the dynamic linker ("name@@GLIBC_2.2") goes.
func demangled(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if len(name) < elffile.MaxSymbolName {
		name = demangle.Filter(name, demangle.NoParams, demangle.NoClones, demangle.MaxLength(10))
	}
	return clean(name)
}
