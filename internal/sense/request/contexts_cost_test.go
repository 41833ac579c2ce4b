package request

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

// published is what a thread publishes, as OTEP 4947 has it: its pointer, the record, and
// the vector of the blocks of its modules as glibc has it, with the length before.
var published struct {
	pointer uintptr
	block   uintptr
	vector  [6]uintptr
	record  threadContext
}

// publishersOf are the ways to the pointer: from the thread pointer, and by the vector.
func publishersOf(thread uintptr) map[string]publisher {
	p := &published
	p.pointer = uintptr(unsafe.Pointer(&p.record))
	p.record = threadContext{trace: [16]byte{1}, span: [8]byte{2}, valid: 1, flags: 1, attributes: 1 << 15}
	const module = 1
	vector := &p.vector[2]
	p.vector[0], p.vector[2+2*module] = module, uintptr(unsafe.Pointer(&p.pointer))
	p.block = uintptr(unsafe.Pointer(vector))
	from := func(at unsafe.Pointer) int64 { return int64(uintptr(at)) - int64(thread) }
	return map[string]publisher{
		"from the thread pointer": {Offset: from(unsafe.Pointer(&p.pointer))},
		"by the module":           {Vector: from(unsafe.Pointer(&p.block)), Length: -16, Module: module, Entry: 16},
	}
}

// BenchmarkThreadContext measures what a thread's context costs the kernel for each end of a
// request: short blocks of the same requests without it and with it, in turn. It reports the
// median of the differences between neighbours, and their quartiles: what interrupts a program
// counts as its time.
func BenchmarkThreadContext(b *testing.B) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		b.Skip("SKIP: needs root, and Go's thread pointer")
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	for name := range publishersOf(0) {
		b.Run(name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var thread uintptr
			const archGetFS = 0x1003 // arch_prctl(2)
			if _, _, errno := unix.Syscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&thread)), 0); errno != 0 {
				b.Fatal(errno)
			}
			threadContextCost(b, publishersOf(thread)[name])
		})
	}
}

func threadContextCost(b *testing.B, p publisher) {
	client, server := pingPong(b, []byte("*1\r\n$4\r\nPING\r\n"))
	floor := statsOverhead()
	const pairs, requests, ends = 200, 200, 2
	traced, records := [2]int{}, [2]int{}
	r, err := Start(Options{Labels: true, Split: true, Budget: -1}) // with what the server does, the hook is attached anyway
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if r.sending == nil {
		b.Skip("SKIP: needs Linux 6.16")
	}
	if err := r.objects.Publishers.Put(uint32(self), &p); err != nil {
		b.Fatal(err)
	}
	block := func(publish int) (each float64) {
		if err := r.objects.Publishing.Set(uint32(publish)); err != nil {
			b.Fatal(err)
		}
		before := programTimes(b)
		for range requests {
			client()
			server()
			client()
		}
		var took time.Duration
		for name, after := range programTimes(b) {
			took += after.Runtime - before[name].Runtime - time.Duration(after.RunCount-before[name].RunCount)*floor
		}
		r.Poll(func(q *observe.Request) {
			records[publish]++
			if q.Flags&observe.FlagThreadContext != 0 {
				traced[publish]++
			}
		})
		return float64(took.Nanoseconds()) / (requests * ends)
	}
	block(0)
	var bare, more []float64
	for b.Loop() {
		for pair := range pairs {
			var cost [2]float64
			for _, publish := range [][2]int{{0, 1}, {1, 0}}[pair%2] {
				cost[publish] = block(publish)
			}
			bare, more = append(bare, cost[0]), append(more, cost[1]-cost[0])
		}
	}
	if traced[1] < records[1]*95/100 || traced[0] > records[0]*5/100 {
		b.Fatalf("%d of %d have a context, %d of %d without", traced[1], records[1], traced[0], records[0])
	}
	slices.Sort(bare)
	slices.Sort(more)
	b.ReportMetric(bare[len(bare)/2], "bpf-ns/end")
	b.ReportMetric(more[len(more)/4], "context-p25-bpf-ns/end")
	b.ReportMetric(more[len(more)/2], "context-p50-bpf-ns/end")
	b.ReportMetric(more[3*len(more)/4], "context-p75-bpf-ns/end")
}
