package hotspot

import (
	"context"
	"os"
	"slices"
	"strings"
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

// statics is where the machine has its own variables.
const statics = 1 << 30

// machineOf is a virtual machine that was opened, with all fields at offsets that a
// fuzzer chose.
func machineOf(memory procmem.Reader, offsets []byte, b *budget.Budget) *Machine {
	m := &Machine{memory: procmem.Process{PID: 1, Read: memory, Budget: b}, fields: map[string]uint64{}, tids: map[uint64]int{}, offsets: map[field]uint64{}}
	for i, name := range slices.Concat(needed, wished, forObjects) {
		at := uint64(1 << 20)
		if len(offsets) > 0 {
			at = uint64(offsets[i%len(offsets)]) * 8
		}
		switch { // addresses, not offsets
		case strings.HasPrefix(name, "_narrow"):
			at = statics
		case name == "ThreadsSMRSupport::_java_thread_list":
			at = 1 << 20
		}
		m.fields[name] = at
	}
	m.poolSize, m.flagSize = 72, 64
	m.openObjects()
	return m
}

// TestWaitsWithoutEnd: four thousand threads, of classes with hundreds of fields and
// of ancestors that are each other's.
func TestWaitsWithoutEnd(t *testing.T) {
	const pending = 9 // an offset that no other field has
	for name, word := range map[string]uint64{"classes in a circle": 1<<20 | 512, "another circle": 1<<21 | 768} {
		memory := func(_ int, addr uint64, into []byte) (int, error) {
			for i := range into {
				at := addr + uint64(i)
				switch {
				case at >= statics && at < statics+8, at&^7 == (word+8*pending)&^7:
					into[i] = 0
				default:
					into[i] = byte(word >> (8 * (at & 7)))
				}
			}
			return len(into), nil
		}
		b := budget.New(t.Context(), budget.Limits{Bytes: 64 << 20, Nodes: 200_000, Wall: 10 * time.Second})
		began := time.Now()
		m := machineOf(memory, []byte{0}, b)
		m.fields["_current_pending_monitor"] = 8 * pending
		for _, w := range m.Waits(b) {
			m.Still(b, w)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if !budget.IsExceeded(b.Err()) {
			t.Errorf("%s: %v: it ended before its budget did", name, b.Err())
		}
	}
}

func FuzzWaits(f *testing.F) {
	f.Add([]byte{0, 0, 16, 0, 0, 0, 0, 0}, []byte{1, 2, 3})
	f.Add([]byte("java/lang/Thread\x00\x10\x00\x00"), []byte{})
	f.Fuzz(func(t *testing.T, data, offsets []byte) {
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 1 << 10, Fixed: 64 << 20, CPU: 2 * time.Second}, func() {
			b := budget.New(context.Background(), budget.Limits{Bytes: 4 << 20, Nodes: 1 << 11, Wall: time.Second})
			m := machineOf(memoryOf(data), offsets, b)
			m.readFields(1 << 20)
			m.readTypes(1 << 20)
			for _, w := range m.Waits(b) {
				m.Still(b, w)
			}
		})
	})
}
