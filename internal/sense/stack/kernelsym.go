package stack

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// portSearch are the kernel functions that look for a free local port
// (net/ipv4/inet_hashtables.c). __inet_hash_connect calls the others; they are
// listed because the compiler may have inlined it into its callers.
var portSearch = []string{"__inet_hash_connect", "__inet_check_established", "__inet6_check_established", "inet_hash_connect"}

// kernelSymbol is a function of the kernel or of a module.
type kernelSymbol struct{ name, module string }

// kernelNames are the functions at some addresses.
type kernelNames map[uint64]kernelSymbol

// frame is the function at an address.
func (n kernelNames) frame(ip uint64) observe.Frame {
	s, ok := n[ip]
	if !ok {
		return observe.Frame{Kind: observe.FrameUnknown}
	}
	return observe.Frame{Name: s.name, Kind: observe.FrameKernel, Module: s.module}
}

func (n kernelNames) searchesPort(ip uint64) bool { return slices.Contains(portSearch, n[ip].name) }

// kernelSymbols finds the functions at some addresses in a file in the form of
// /proc/kallsyms. It fails when the addresses are hidden (kernel.kptr_restrict).
func kernelSymbols(path string, ips []uint64) (kernelNames, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	return parseSymbols(f, ips)
}

// parseSymbols keeps of each symbol only what is nearest below a wanted
// address: there are some 200,000 of them. The file is not sorted as a whole
// (modules follow the kernel proper).
func parseSymbols(r io.Reader, ips []uint64) (kernelNames, error) {
	ips = slices.Clone(ips)
	slices.Sort(ips)
	ips = slices.Compact(ips)
	type start struct {
		addr uint64
		kernelSymbol
	}
	nearest := make([]start, len(ips)) // the last symbol at or below each address, above the address before
	hidden := true
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		hex, rest, ok := bytes.Cut(sc.Bytes(), []byte(" "))
		if !ok || len(rest) < 3 {
			continue
		}
		addr, ok := host.ParseHex(hex)
		if !ok || addr == 0 {
			continue
		}
		hidden = false
		if kind := rest[0] | 0x20; kind != 't' && kind != 'w' {
			continue
		}
		i, _ := slices.BinarySearch(ips, addr)
		if i == len(ips) || nearest[i].addr >= addr {
			continue
		}
		name, module, _ := strings.Cut(string(rest[2:]), "\t")
		nearest[i] = start{addr, kernelSymbol{name, strings.Trim(module, "[]")}}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	if hidden {
		return nil, errors.New("kernel symbols are hidden (kernel.kptr_restrict, or CAP_SYSLOG is missing)")
	}
	names := make(kernelNames, len(ips))
	var last start
	for i, ip := range ips {
		if nearest[i].addr != 0 {
			last = nearest[i]
		}
		if last.addr != 0 && ip-last.addr < maxFunctionBytes {
			names[ip] = last.kernelSymbol
		}
	}
	return names, nil
}

// maxFunctionBytes is how far behind the start of a function an address may
// lie. Beyond the last function of the kernel or of a module lies something
// else.
const maxFunctionBytes = 1 << 20
