package symbol

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/elffile"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Left says where a function has its return address.
type Left uint8

// Functions of Go are apart from those of C and its kind: their frame pointers lead
// through all their callers but this one.
const (
	LeftNowhere Left = iota // elsewhere, or that is not known
	LeftByCall              // where the call left it: on top of the stack (x86-64), in x30 (arm64)
	LeftByGo                // the same, in a function of Go
)

// Left asks the tables of binaries for locations at which threads were interrupted. A
// binary that cannot be read, or only over the budget, says nothing.
func (s *Space) Left(b *budget.Budget, locations []Location) map[Location]Left {
	byImage := map[*image][]uint64{}
	var order []*image
	for _, l := range locations {
		if l.in.kind != imageFile && l.in.kind != imageVDSO {
			continue
		}
		if _, met := byImage[l.in]; !met {
			order = append(order, l.in)
		}
		byImage[l.in] = append(byImage[l.in], l.at)
	}
	out := map[Location]Left{}
	for i, img := range order {
		var from io.ReaderAt
		if img.kind == imageVDSO {
			data, err := vdsoImage()
			if err != nil {
				continue
			}
			from = bytes.NewReader(data)
		} else if img.file != nil {
			from = img.file
		} else {
			continue
		}
		slices.Sort(byImage[img])
		_ = leftAt(b.Share(len(order)-i), from, img.byAddress, slices.Compact(byImage[img]), func(at uint64, how Left) { out[Location{img, at}] = how })
	}
	return out
}

// leftAt asks one binary.
func leftAt(b *budget.Budget, r io.ReaderAt, byAddress bool, places []uint64, each func(at uint64, how Left)) (err error) {
	// The binary may be damaged, and not all that reads it expects that.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged: %v", p)
		}
	}()
	f, err := elffile.New(b, r)
	if err != nil {
		return err
	}
	golang, _ := f.GoFunctions()
	table := f.UnwindTable()
	for _, at := range places {
		addr, ok := at, true
		if !byAddress {
			addr, ok = addressOf(f, at)
		}
		if !ok || b.Err() != nil {
			continue
		}
		if golang != nil {
			if left, known := golang.LeftByCall(addr); known {
				if left {
					each(at, LeftByGo)
				}
				continue
			}
		}
		if table != nil && table.LeftByCall(addr) {
			each(at, LeftByCall)
		}
	}
	return b.Err()
}

// Holds says whether an address is code of the process, as far as its memory map was read.
func (p *Process) Holds(address uint64) bool { return find(p.mappings, address) != nil }

// ReturnAddress is a return address without what signs it: on arm64 a function that calls
// others may sign its own, in the bits that no address of the process has (pointer
// authentication, Armv8.3).
func ReturnAddress(signed uint64) uint64 {
	if runtime.GOARCH != "arm64" {
		return signed
	}
	return unsigned(signed, stackEnd())
}

// unsigned keeps the bits that an address of a process can have: those of the end of its
// stack, which the kernel puts behind all else (39, 42, 47 or 48;
// Documentation/arch/arm64/memory.rst).
func unsigned(address, stackEnd uint64) uint64 {
	return address & (1<<bits.Len64(stackEnd-1) - 1)
}

// stackEnd is where the stack of this process ends; the end of 48 bits where that is not
// known.
var stackEnd = sync.OnceValue(func() uint64 {
	end := uint64(1 << 48)
	_ = procmem.EachMapping(budget.New(context.Background(), mapShare), "/proc", os.Getpid(), func(m *procmem.Mapping) bool {
		if strings.HasPrefix(m.Path, "[stack") {
			end = m.End
		}
		return true
	})
	return end
})
