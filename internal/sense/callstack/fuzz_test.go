package callstack

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// recordOf is a record as stacks.bpf.c writes it.
func recordOf(k kind, pid uint32, kernel, user []uint64) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, 100), 10), 20), 0x1001)
	b = le.AppendUint32(le.AppendUint32(b, pid), pid+1)
	b = le.AppendUint16(le.AppendUint16(b, uint16(k)), uint16(len(kernel)))
	b = le.AppendUint16(le.AppendUint16(b, uint16(len(user))), 0)
	b = append(b, "a thread\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for _, ip := range append(kernel, user...) {
		b = le.AppendUint64(b, ip)
	}
	return b
}

// watcherOf takes in records without a kernel, of processes below proc.
func watcherOf(proc string) *watcher {
	space := symbol.NewSpace(proc)
	return &watcher{recorder: &recorder{opt: Options{OffCPU: true, Hz: DefaultHz, Min: DefaultMin, Threads: true}},
		tally: newTally(space, true), full: newFull(), ended: 1 << 62, out: &observe.Stacks{Types: Types(true)}}
}

// FuzzRecords: what the ring holds, in whatever order, comes out as samples whose
// frames are there.
func FuzzRecords(f *testing.F) {
	f.Add(recordOf(offCPU, 7, []uint64{0xffffffff81000000}, []uint64{0x1000, 0x2000}), uint8(1))
	f.Add(append(recordOf(executed, 7, nil, nil), recordOf(onCPU, 8, nil, []uint64{1})...), uint8(40))
	proc := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 1 << 12, Fixed: 64 << 20, CPU: 2 * time.Second}, func() {
			w := watcherOf(proc)
			defer w.tally.space.Close()
			step := max(int(size)*4, headerSize)
			for rest := data; len(rest) > 0 && len(data)/step < 1000; rest = rest[min(step, len(rest)):] {
				w.take(rest[:min(step, len(rest))])
			}
			w.settle(time.Time{})
			w.tally.export(w.out)
			for _, s := range w.out.Samples {
				for _, at := range s.Frames {
					if int(at) >= len(w.out.Frames) {
						t.Fatalf("frame %d of %d", at, len(w.out.Frames))
					}
				}
			}
		})
	})
}

// TestStacksWithoutEnd: a program whose stacks all differ, in each frame, takes no
// more memory than there is for stacks.
func TestStacksWithoutEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIP: takes seconds: NOT tested with -short")
	}
	tall := newTally(symbol.NewSpace(t.TempDir()), false)
	one := thread{pid: 7}
	at := uint64(1 << 40)
	for range 40_000 {
		frames := make([]int32, 0, userDepth)
		for range userDepth {
			at++
			frames = append(frames, tall.id(tall.space.Kernel(at)))
		}
		tall.count(one, frames, value{})
	}
	if len(tall.locations) > maxLocations+1 || tall.frames > maxFrames || len(tall.stacks) > maxStacks {
		t.Errorf("%d places, %d frames, %d stacks", len(tall.locations), tall.frames, len(tall.stacks))
	}
	if last := tall.id(tall.space.Kernel(at)); tall.locations[last].Known() {
		t.Errorf("the last place is known as %+v", tall.locations[last])
	}
	if first := tall.id(tall.space.Kernel(1<<40 + 1)); !tall.locations[first].Known() {
		t.Error("the first place is not known any more")
	}
	f := newFull()
	for tid := range 3 * maxThreads {
		f.byThread[tid] = []moment{{at: uint64(tid)}}
		if len(f.byThread) > maxThreads {
			f.forget(uint64(tid))
		}
	}
	if len(f.byThread) > maxThreads {
		t.Errorf("stacks of %d threads are kept", len(f.byThread))
	}
}
