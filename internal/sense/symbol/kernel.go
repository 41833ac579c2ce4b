package symbol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// errHidden says that the kernel shows no addresses.
var errHidden = errors.New("hidden by kernel.kptr_restrict (needs CAP_SYSLOG)")

// kernelSymbol is a function of the kernel.
type kernelSymbol struct {
	start        uint64
	name, module string
}

// kernelFrames names kernel addresses. What has no name keeps its address.
func (s *Space) kernelFrames(addresses []uint64) (map[uint64]observe.Frame, error) {
	frames := make(map[uint64]observe.Frame, len(addresses))
	for _, a := range addresses {
		frames[a] = observe.Frame{Name: "[kernel]", Kind: observe.FrameKernel, Module: "vmlinux"}
	}
	f, err := os.Open(filepath.Join(s.proc, "kallsyms"))
	if err != nil {
		return frames, err
	}
	defer f.Close()
	symbols, err := parseKallsyms(f, addresses)
	if err != nil {
		return frames, err
	}
	for address, sym := range symbols {
		frames[address] = observe.Frame{Name: clean(sym.name), Kind: observe.FrameKernel, Module: clean(sym.module)}
	}
	return frames, nil
}

// parseKallsyms finds the functions that hold the addresses in a file in the
// form of /proc/kallsyms, which tells no sizes: a function ends where the next
// begins. Addresses before the first function have none.
func parseKallsyms(r io.Reader, addresses []uint64) (map[uint64]kernelSymbol, error) {
	// Functions of modules and BPF programs come after the kernel's own, in no
	// order. Only starts are kept of all; names only of those that are needed.
	var (
		starts []uint64
		lines  []int64 // where in text each begins
		text   []byte
		hidden = true
	)
	if len(addresses) == 0 {
		return nil, nil
	}
	text, err := io.ReadAll(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	for at := 0; at < len(text); {
		line := text[at:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end]
		}
		space := bytes.IndexByte(line, ' ')
		if space > 0 && len(line) > space+3 {
			kind := line[space+1] | 0x20
			if address, ok := host.ParseHex(line[:space]); ok && address != 0 {
				hidden = false
				if kind == 't' || kind == 'w' {
					starts = append(starts, address)
					lines = append(lines, int64(at))
				}
			}
		}
		at += len(line) + 1
	}
	if hidden {
		return nil, errHidden
	}
	order := make([]int, len(starts))
	for i := range order {
		order[i] = i
	}
	// Of several names of one function the first of the file is taken.
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case starts[a] < starts[b]:
			return -1
		case starts[a] > starts[b]:
			return 1
		}
		return 0
	})
	found := make(map[uint64]kernelSymbol, len(addresses))
	for _, address := range addresses {
		i := sort.Search(len(order), func(i int) bool { return starts[order[i]] > address })
		if i == 0 {
			continue
		}
		first := sort.Search(i, func(j int) bool { return starts[order[j]] >= starts[order[i-1]] })
		sym := parseKernelLine(text[lines[order[first]]:])
		for j := first + 1; j < i && padding(sym.name); j++ {
			sym = parseKernelLine(text[lines[order[j]]:])
		}
		sym.start = starts[order[i-1]]
		found[address] = sym
	}
	return found, nil
}

// padding says that a name is that of the bytes before a function
// (CONFIG_PREFIX_SYMBOLS) or of a place in it.
func padding(name string) bool {
	return len(name) > 6 && (name[:6] == "__pfx_" || name[:6] == "__cfi_")
}

// parseKernelLine reads "ffffffff81000000 T name\t[module]".
func parseKernelLine(line []byte) kernelSymbol {
	if end := bytes.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	fields := bytes.Fields(line)
	sym := kernelSymbol{module: "vmlinux"}
	if len(fields) > 2 {
		sym.name = string(fields[2])
	}
	if len(fields) > 3 {
		sym.module = string(bytes.Trim(fields[3], "[]"))
	}
	return sym
}
