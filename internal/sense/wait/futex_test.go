package wait

import (
	"debug/elf"
	"encoding/binary"
	"testing"
)

// TestControlBlock: who holds the lock of a stdio stream, and whose end is waited for, by
// glibc's control block of a thread; and nobody by what only looks like one.
func TestControlBlock(t *testing.T) {
	const lock, block, next, before = 0x7000, 0xffff_0001_0000, 0xffff_0002_0000, 0xffff_0003_0000
	for arch, at := range controlBlocks {
		f := newTree(t)
		f.process(100, 1, "app", "S", "")
		f.thread(100, 1, 107, "worker", "S", "")
		long := func(words []uint32, offset int, v uint64) {
			words[offset/4], words[offset/4+1] = uint32(v), uint32(v>>32)
		}
		memory := make([]uint32, at.tid/4+2)
		if arch == "amd64" {
			long(memory, tcbSelf, block)
			long(memory, tcbSelf2, block)
		}
		long(memory, at.list, next)
		long(memory, at.list+8, before)
		memory[at.tid/4] = 107
		f.words(100, block, memory...)
		self := block + uint64(at.list)
		f.words(100, next, 0, 0, uint32(self), uint32(self>>32))
		f.words(100, before, uint32(self), uint32(self>>32), 0, 0)
		f.words(100, lock, contended, 1, uint32(block&0xffffffff), block>>32)

		ask := func() (stream, join int) {
			r := f.reader()
			r.arch = arch
			l := newLook(r, lookLimits)
			p := l.process(100)
			l.complete(p)
			waiter := l.threadOf(p, 100)
			if o, ok := l.streamOwner(waiter, lock, contended); ok {
				stream = o.tid
			}
			if o, ok := l.joined(waiter, block+uint64(at.tid), 107, false); ok {
				join = o.tid
			}
			return stream, join
		}
		if stream, join := ask(); stream != 107 || join != 107 {
			t.Errorf("%s: %d holds the stream, %d is joined; want thread 107", arch, stream, join)
		}
		if arch == "amd64" {
			long(memory, tcbSelf2, block+8)
			f.words(100, block, memory...)
		} else {
			f.words(100, before, uint32(self)+16, uint32(self>>32), 0, 0)
		}
		if stream, join := ask(); stream != 0 || join != 0 {
			t.Errorf("%s: %d and %d, by what is no control block", arch, stream, join)
		}
	}
}

// TestControlBlockOfLibc: glibc says where its control block has what is read of it, for
// debuggers (nptl_db, db_info.c): size in bits, count, offset.
func TestControlBlockOfLibc(t *testing.T) {
	for arch, path := range map[string]string{"amd64": "/lib/x86_64-linux-gnu/libc.so.6", "arm64": "/usr/aarch64-linux-gnu/lib/libc.so.6"} {
		f, err := elf.Open(path)
		if err != nil {
			t.Logf("SKIP: %v: the layout on %s is NOT tested", err, arch)
			continue
		}
		defer f.Close()
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		offset := func(name string) int {
			for _, s := range symbols {
				if s.Name != name {
					continue
				}
				section := f.Sections[s.Section]
				var b [12]byte
				if _, err := section.ReadAt(b[:], int64(s.Value-section.Addr)); err != nil {
					t.Fatal(err)
				}
				return int(binary.LittleEndian.Uint32(b[8:]))
			}
			t.Fatalf("%s: no %s", path, name)
			return 0
		}
		got := struct{ list, tid int }{offset("_thread_db_pthread_list"), offset("_thread_db_pthread_tid")}
		if got != controlBlocks[arch] || offset("_thread_db_list_t_next") != 0 || offset("_thread_db_list_t_prev") != 8 {
			t.Errorf("%s: %+v, want %+v", arch, got, controlBlocks[arch])
		}
	}
}
