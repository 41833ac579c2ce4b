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

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// errHidden says that the kernel shows no addresses.
var errHidden = errors.New("hidden by kernel.kptr_restrict (needs CAP_SYSLOG)")

// kernelSymbol is a function of the kernel.
type kernelSymbol struct{ name, module string }

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

// parseKallsyms finds the functions that hold the addresses (sorted) in a file
// in the form of /proc/kallsyms, which tells no sizes: a function ends where
// the next begins. Addresses before the first function have none.
func parseKallsyms(r io.Reader, addresses []uint64) (map[uint64]kernelSymbol, error) {
	// The file has some 200,000 lines, those of modules and BPF programs in no
	// order. Of each address is kept the nearest function between it and the
	// address before; if there is none, it has the function of that one.
	nearest := make([]kernelLine, len(addresses))
	hidden := true
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 1<<16), 1<<16)
	for in.Scan() {
		line := in.Bytes()
		space := bytes.IndexByte(line, ' ')
		if space <= 0 || len(line) < space+4 {
			continue
		}
		start, ok := host.ParseHex(line[:space])
		if !ok || start == 0 {
			continue
		}
		hidden = false
		if kind := line[space+1] | 0x20; kind != 't' && kind != 'w' {
			continue
		}
		i, _ := slices.BinarySearch(addresses, start)
		// Of several names of one function the first counts.
		if i < len(addresses) && (start > nearest[i].start || start == nearest[i].start && nearest[i].padding()) {
			nearest[i].start, nearest[i].text = start, append(nearest[i].text[:0], line...)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	if hidden {
		return nil, errHidden
	}
	found := make(map[uint64]kernelSymbol, len(addresses))
	for i, address := range addresses {
		if nearest[i].start == 0 && i > 0 {
			nearest[i] = nearest[i-1]
		}
		if nearest[i].start != 0 {
			found[address] = nearest[i].symbol()
		}
	}
	return found, nil
}

// kernelLine is "ffffffff81000000 T name\t[module]".
type kernelLine struct {
	start uint64
	text  []byte // used again for the next line
}

// padding says that the name is that of the bytes before a function
// (CONFIG_CALL_PADDING, CONFIG_CFI_CLANG).
func (l *kernelLine) padding() bool {
	return bytes.Contains(l.text, []byte(" __pfx_")) || bytes.Contains(l.text, []byte(" __cfi_"))
}

func (l *kernelLine) symbol() kernelSymbol {
	fields := bytes.Fields(l.text)
	sym := kernelSymbol{module: "vmlinux"}
	if len(fields) > 2 {
		sym.name = string(fields[2])
	}
	if len(fields) > 3 {
		sym.module = string(bytes.Trim(fields[3], "[]"))
	}
	return sym
}
