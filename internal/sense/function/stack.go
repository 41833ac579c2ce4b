package function

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// space is the address space of a process, as it was when a call of it was
// seen first.
type space struct {
	maps []mapping
}

const maxSpaces = 256

// spaceOf reads the mappings of a process, once: when stacks are named it may
// be gone.
func (t *Tracer) spaceOf(pid int) {
	if pid == 0 || t.spaces[pid] != nil || len(t.spaces) >= maxSpaces || t.plan.opt.NoStacks {
		return
	}
	maps, _ := mappings(pid) // without, addresses stay addresses
	t.spaces[pid] = &space{maps}
}

// names gives addresses their functions.
type names struct {
	spaces  map[int]*space
	images  map[string]*image // by device and inode; nil = cannot be read
	symbols []kernelSymbol
	read    bool
}

type kernelSymbol struct {
	addr uint64
	name string
}

func newNames(spaces map[int]*space) *names {
	return &names{spaces: spaces, images: map[string]*image{}}
}

func (n *names) close() {
	for _, im := range n.images {
		if im != nil {
			im.close()
		}
	}
}

// user is the stack of a call in its process, leaf first. It was taken when the
// call returned, or where a place was passed.
func (n *names) user(pid int, c *call, returned bool) []observe.Frame {
	var addrs []uint64
	if k := int(c.UserBytes) / 8; k > 0 {
		addrs = c.User[:min(k, len(c.User))]
	}
	var out []observe.Frame
	for i, addr := range addrs {
		if i > 0 || (returned && c.Caller == 0) {
			// A return address is that of the next instruction, which may be
			// part of another function; so is the first one of a return probe.
			addr--
		}
		if i > 0 && !n.isCode(pid, addr) {
			break // code without frame pointers: what follows is no stack
		}
		out = append(out, n.frame(pid, addr))
		if i == 0 && c.Caller != 0 {
			out = append(out, n.frame(pid, c.Caller-1))
		}
	}
	return out
}

// mapping is the one that an address is in, nil when it is in none.
func (n *names) mapping(pid int, addr uint64) *mapping {
	sp := n.spaces[pid]
	if sp == nil {
		return nil
	}
	i, _ := slices.BinarySearchFunc(sp.maps, addr+1, func(m mapping, a uint64) int { return cmp.Compare(m.start, a) })
	if i == 0 || addr >= sp.maps[i-1].end {
		return nil
	}
	return &sp.maps[i-1]
}

// isCode says whether an address may be one of code; it may where the mappings
// are not known.
func (n *names) isCode(pid int, addr uint64) bool {
	sp := n.spaces[pid]
	return sp == nil || len(sp.maps) == 0 || n.mapping(pid, addr) != nil
}

func (n *names) frame(pid int, addr uint64) observe.Frame {
	m := n.mapping(pid, addr)
	if m == nil {
		return observe.Frame{Name: fmt.Sprintf("[%#x]", addr), Kind: observe.FrameUnknown}
	}
	module := filepath.Base(m.path)
	offset := addr - m.start + m.offset
	f := observe.Frame{Name: fmt.Sprintf("[%s+%#x]", module, offset), Kind: observe.FrameNative, Module: m.path}
	if m.path == "" || m.inode == 0 {
		f.Name, f.Module, f.Kind = fmt.Sprintf("[%#x]", addr), "", observe.FrameUnknown
		if m.path != "" {
			f.Name = m.path
		}
		return f
	}
	im := n.image(pid, m)
	if im == nil {
		return f
	}
	at, ok := im.addressOf(offset)
	if !ok {
		return f
	}
	if s := im.at(at); s != nil {
		f.Name = s.shown()
	}
	if im.golang != nil && im.golang.has(at) {
		f.Kind = observe.FrameGo
	}
	return f
}

func (n *names) image(pid int, m *mapping) *image {
	key := fmt.Sprintf("%s:%d", m.device, m.inode)
	im, ok := n.images[key]
	if ok {
		return im
	}
	for _, open := range []string{
		fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.start, m.end), fmt.Sprintf("/proc/%d/root%s", pid, m.path), m.path,
	} {
		if im, err := openImage(file{open: open, name: m.path}); err == nil {
			n.images[key] = im
			return im
		}
	}
	n.images[key] = nil
	return nil
}

// kernel is a stack in the kernel, leaf first.
func (n *names) kernel(addrs []uint64) []observe.Frame {
	if !n.read {
		n.read = true
		n.symbols = readKernelSymbols()
	}
	var out []observe.Frame
	for _, addr := range addrs {
		f := observe.Frame{Name: fmt.Sprintf("[%#x]", addr), Kind: observe.FrameKernel}
		i, _ := slices.BinarySearchFunc(n.symbols, addr+1, func(s kernelSymbol, a uint64) int { return cmp.Compare(s.addr, a) })
		if i > 0 && addr-n.symbols[i-1].addr < 1<<20 {
			f.Name = n.symbols[i-1].name
		}
		out = append(out, f)
	}
	return out
}

// readKernelSymbols reads /proc/kallsyms; nothing when the addresses are
// hidden.
func readKernelSymbols() []kernelSymbol {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []kernelSymbol
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		hex, rest, ok := strings.Cut(sc.Text(), " ")
		if !ok || len(rest) < 3 || (rest[0] != 't' && rest[0] != 'T' && rest[0] != 'w' && rest[0] != 'W') {
			continue
		}
		addr, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || addr == 0 {
			continue
		}
		name, _, _ := strings.Cut(rest[2:], "\t")
		out = append(out, kernelSymbol{addr, name})
	}
	slices.SortFunc(out, func(a, b kernelSymbol) int { return cmp.Compare(a.addr, b.addr) })
	return out
}
