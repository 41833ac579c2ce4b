package procmem

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
)

// FuzzMemory reads the memory of a process that is what the process likes, and what is
// where in it. No more is read than there is, and nothing over the budget.
func FuzzMemory(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), uint64(0x7f0000000000), uint64(8), []byte("7f0c2e6ac000-7f0c2e801000 r-xp 00026000 fd:01 1185 /usr/lib/libc.so.6\n"))
	f.Add([]byte{}, uint64(1<<12), uint64(1<<62), []byte("x\n7f00-8f00 rw-s 00000000 00:01 9 /dev/zero (deleted)\n\n"))
	f.Add([]byte{1}, uint64(1<<56-1), uint64(1<<64-1), bytes.Repeat([]byte("a"), 1<<17))
	proc := f.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, memory []byte, addr, size uint64, maps []byte) {
		if err := os.WriteFile(filepath.Join(proc, "7", "maps"), maps, 0o600); err != nil {
			t.Fatal(err)
		}
		const most = 1 << 20
		base := addr
		read := func(_ int, at uint64, into []byte) (int, error) {
			if at < base || at-base >= uint64(len(memory)) {
				return 0, errors.New("nothing there")
			}
			return copy(into, memory[at-base:]), nil
		}
		budgettest.Within(t, len(memory)+len(maps), budgettest.Cost{PerByte: 256, Fixed: 8 << 20, CPU: time.Second}, func() {
			p := Process{PID: 7, Read: read, Budget: budget.New(context.Background(), budget.Limits{Bytes: most})}
			some := p.Some(addr, size)
			if len(some) > len(memory) || uint64(len(some)) > size || !bytes.Equal(some, memory[:len(some)]) {
				t.Errorf("%x of %x", some, memory)
			}
			if all := p.Bytes(addr, size); all != nil && uint64(len(all)) != size {
				t.Errorf("%d bytes of %d", len(all), size)
			}
			if w := p.Word(addr); w != 0 && (len(memory) < 8 || w != Long(memory, 0) || uint32(w) != Half(memory, 0)) {
				t.Errorf("%x of %x", w, memory)
			}
			n := 0
			err := EachMapping(budget.New(context.Background(), budget.Limits{Bytes: most}), proc, 7, func(m *Mapping) bool {
				if n++; m.End <= m.Start {
					t.Errorf("%+v", m)
				}
				return n < 100
			})
			if n > bytes.Count(maps, []byte("\n"))+1 {
				t.Errorf("%d mappings: %v", n, err)
			}
		})
	})
}
