// Package procmem reads the memory of processes, by process_vm_readv(2) alone, and
// what is where in it (/proc/PID/maps): nothing is stopped, attached to or
// changed. It needs the right to trace them.
package procmem

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/slowray/slowray/internal/budget"
)

// A Reader copies from the memory of a process, and returns how much it got.
type Reader func(pid int, addr uint64, into []byte) (int, error)

// A Process is the memory of one. What it says of itself leads from place to
// place: every read takes its bytes and an item of the budget, and nothing is
// read once that is used up.
type Process struct {
	PID    int
	Read   Reader
	Budget *budget.Budget
}

// atOnce is how much is read at once: of a size that the process made up, no
// more memory is taken than it has.
const atOnce = 1 << 20

// upTo reads as much of a part of the memory as can be read.
func (p Process) upTo(addr, size uint64) []byte {
	if addr < 1<<12 || addr>>56 != 0 || size > math.MaxInt64 || p.Budget.Read(int64(size)) != nil || p.Budget.Node() != nil {
		return nil
	}
	b := make([]byte, 0, min(size, atOnce))
	for uint64(len(b)) < size {
		want := min(size-uint64(len(b)), atOnce)
		b = slices.Grow(b, int(want))
		n, err := p.Read(p.PID, addr+uint64(len(b)), b[len(b):len(b)+int(want)])
		b = b[:len(b)+max(n, 0)]
		if err != nil || uint64(n) < want || p.Budget.Err() != nil {
			break
		}
	}
	return b
}

// Bytes is memory of the process; nil when not all of it can be read.
func (p Process) Bytes(addr, size uint64) []byte {
	if b := p.upTo(addr, size); b != nil && uint64(len(b)) == size {
		return b
	}
	return nil
}

// Some is as much of a part of the memory as can be read.
func (p Process) Some(addr, size uint64) []byte { return p.upTo(addr, size) }

// Word is the 64-bit number at an address; 0 when it cannot be read.
func (p Process) Word(addr uint64) uint64 {
	if b := p.Bytes(addr, 8); b != nil {
		return Long(b, 0)
	}
	return 0
}

// Long is the 64-bit number at an offset.
func Long(b []byte, at uint64) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// Half is the 32-bit number at an offset.
func Half(b []byte, at uint64) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
