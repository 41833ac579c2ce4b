package goroutine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
)

// layout is where the fields of the runtime's structures are that are read
// (runtime/runtime2.go), on 64-bit machines.
type layout struct {
	syscallSP, syscallPC uint64
	status, id           uint64
	waitSince, reason    uint64
	procID               uint64 // of m
	inlined              bool   // the table of inlined calls is as since Go 1.20
	goFunc               uint64 // of moduledata
}

// Fields that are where they are in all versions since Go 1.18.
const (
	gStackLow  = 0
	gStackHigh = 8
	gM         = 48
	gSchedSP   = 56
	gSchedPC   = 64

	sudogG       = 0
	sudogElement = 24

	moduleHeader    = 0
	moduleFunctions = 104 // pclntable
	moduleTable     = 128 // ftab
	moduleText      = 176
	moduleTextEnd   = 184
	moduleData      = 208 // data, edata, bss, ebss, noptrbss, enoptrbss
	moduleSize      = 328
)

// layouts are those of the releases, as the debugging information of programs
// says that their compilers build: 1.18.10, 1.20.14, 1.21.13, 1.22.12, 1.23.12,
// 1.24.9, 1.25.3 and 1.26.8. They have not changed within a release so far.
var layouts = []struct {
	first, last int // minor versions of Go 1
	layout
}{
	{18, 19, layout{112, 120, 144, 152, 168, 176, 72, false, 304}},
	{20, 22, layout{112, 120, 144, 152, 168, 176, 72, true, 320}},
	{23, 24, layout{112, 120, 152, 160, 176, 184, 72, true, 320}},
	{25, 26, layout{104, 112, 144, 152, 168, 176, 64, true, 320}},
}

var errVersion = errors.New("its version of Go is not known to this slowray, and the program has no debugging information (DWARF)")

// minorOf is 22 of "go1.22.3 X:loopvar"; false of a version of another form,
// as that of a development build.
func minorOf(version string) (int, bool) {
	rest, ok := strings.CutPrefix(version, "go1.")
	if !ok {
		return 0, false
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	n, err := strconv.Atoi(rest)
	return n, err == nil
}

// layoutOf is the layout of a program built by a version of Go.
func layoutOf(b *budget.Budget, version string, f *elffile.File) (layout, error) {
	minor, known := minorOf(version)
	if known {
		for i := range layouts {
			if minor >= layouts[i].first && minor <= layouts[i].last {
				return layouts[i].layout, nil
			}
		}
		if minor < layouts[0].first {
			return layout{}, fmt.Errorf("it is built by %s: goroutines are read since Go 1.%d", version, layouts[0].first)
		}
	}
	return layoutInDWARF(b, f)
}
