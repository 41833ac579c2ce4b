package cpython

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// memoryOf is a process in which a text lies at every address, again and again.
func memoryOf(data []byte) procmem.Reader {
	return func(_ int, addr uint64, into []byte) (int, error) {
		if len(data) == 0 {
			return 0, os.ErrInvalid
		}
		for i := range into {
			into[i] = data[(addr+uint64(i))%uint64(len(data))]
		}
		return len(into), nil
	}
}

func interpreterOf(version string, memory procmem.Reader, b *budget.Budget) *Interpreter {
	return &Interpreter{Version: version, memory: procmem.Process{PID: 1, Read: memory, Budget: b}, layout: layouts[version], runtime: 1 << 20, codes: map[uint64]*code{}}
}

// TestStacksWithoutEnd: lists of threads and of frames that lead back to
// themselves, and names and tables of a megabyte each.
func TestStacksWithoutEnd(t *testing.T) {
	for name, memory := range map[string]procmem.Reader{
		"all the same": memoryOf([]byte{0, 0, 16, 0, 0, 0, 0, 0}),
		"all small":    memoryOf([]byte{1, 2, 0, 0, 0, 0, 0, 0}),
		"never the same": func(_ int, addr uint64, into []byte) (int, error) {
			return copy(into, bytes.Repeat([]byte{byte(addr >> 4), byte(addr >> 12), 15, 0, 0, 0, 0, 0}, len(into)/8+1)), nil
		},
	} {
		for version := range layouts {
			b := budget.New(t.Context(), budget.Limits{Bytes: 64 << 20, Nodes: 100_000, Wall: 2 * time.Second})
			began := time.Now()
			p := interpreterOf(version, memory, b)
			p.Stacks(b)
			p.Owner(b, 1, 1<<20)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s, Python %s: took %v", name, version, took)
			}
		}
	}
}

func FuzzStacks(f *testing.F) {
	f.Add([]byte{0, 0, 16, 0, 0, 0, 0, 0}, "3.11")
	f.Add([]byte("text of an object\x00\x00\x01\x00\x00\x00\x00\x00"), "3.13")
	f.Fuzz(func(t *testing.T, data []byte, version string) {
		if _, known := layouts[version]; !known {
			version = "3.12"
		}
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 1 << 10, Fixed: 64 << 20, CPU: 2 * time.Second}, func() {
			b := budget.New(context.Background(), budget.Limits{Bytes: 4 << 20, Nodes: 1 << 12, Wall: time.Second})
			p := interpreterOf(version, memoryOf(data), b)
			for _, stack := range p.Stacks(b) {
				for i := range stack {
					for _, r := range stack[i].Function + stack[i].File {
						if r < ' ' || r >= 0x7f {
							t.Errorf("%q in %q", stack[i].Function, stack[i].File)
						}
					}
				}
			}
			p.Owner(b, 1, 1<<20)
		})
	})
}
