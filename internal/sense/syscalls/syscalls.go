package syscalls

import (
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run generate.go

// numbers has a line for each system call: its name, then its number on each of
// the architectures of the first line, "-" where it does not exist.
//
//go:embed numbers.txt
var numbers string

// parse reads numbers: by architecture, then by name.
var parse = sync.OnceValue(func() map[string]map[string]uint32 {
	head, lines, _ := strings.Cut(numbers, "\n")
	archs := strings.Fields(head)[1:]
	all := map[string]map[string]uint32{}
	for _, arch := range archs {
		all[arch] = map[string]uint32{}
	}
	for line := range strings.Lines(lines) {
		fields := strings.Fields(line)
		for i, arch := range archs {
			if nr, err := strconv.ParseUint(fields[i+1], 10, 32); err == nil {
				all[arch][fields[0]] = uint32(nr)
			}
		}
	}
	return all
})

// Numbers is the system calls of an architecture by name; empty for one that is
// not known. It must not be changed.
func Numbers(arch string) map[string]uint32 { return parse()[arch] }

// Names is the names of an architecture's system calls, sorted.
func Names(arch string) []string { return slices.Sorted(maps.Keys(Numbers(arch))) }

// ByNumber turns what is known of system calls by name into what is known of an
// architecture's by number. Names that it does not have are left out; the result
// is nil for an architecture that is not known.
func ByNumber[N uint32 | uint64, T any](arch string, byName map[string]T) map[N]T {
	known := Numbers(arch)
	if len(known) == 0 {
		return nil
	}
	out := make(map[N]T, len(byName))
	for name, what := range byName {
		if nr, ok := known[name]; ok {
			out[N(nr)] = what
		}
	}
	return out
}
