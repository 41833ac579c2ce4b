package wait

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
)

// bytesAt is size bytes of a process's memory; nil when not all can be read.
func (l *look) bytesAt(p *process, addr uint64, size int) []byte {
	if addr == 0 || addr>>56 != 0 || l.mapLocked(p) {
		return nil
	}
	if l.budget.Read(int64(size)) != nil || l.budget.Node() != nil {
		return nil
	}
	b := make([]byte, size)
	n, err := l.memory(p.pid, addr, b)
	if err != nil {
		l.permission(fmt.Sprintf("memory of process %d", p.pid), err, "CAP_SYS_PTRACE")
		return nil
	}
	if n != size {
		return nil
	}
	return b
}

// mapLocked says whether a thread is uninterruptible in the lock of the
// process's address space. Whoever reads its memory then waits with it.
func (l *look) mapLocked(p *process) bool {
	if p.mapAsked {
		return p.mapLocked
	}
	p.mapAsked = true
	for _, t := range p.threads {
		if t.state == 'D' && strings.HasPrefix(l.wchanOf(t), "rwsem_down") {
			p.mapLocked = true
			l.miss(fmt.Sprintf("memory of process %d: its thread %d waits for a lock of the kernel that reading it may need too", p.pid, t.tid))
			break
		}
	}
	return p.mapLocked
}

// text is a C string in a process's memory, at most limit bytes.
func (l *look) text(p *process, addr uint64, limit int) (string, bool) {
	// To the end of the page and no further: what follows may not be there.
	page := os.Getpagesize()
	size := min(limit, page-int(addr&uint64(page-1)))
	b := l.bytesAt(p, addr, size)
	if b == nil {
		return "", false
	}
	s, _, ended := strings.Cut(string(b), "\x00")
	return s, ended || size == limit
}

// word is the 32-bit number at an offset.
func word(b []byte, offset int) uint32 { return binary.LittleEndian.Uint32(b[offset:]) }

// long is the 64-bit number at an offset.
func long(b []byte, offset int) uint64 { return binary.LittleEndian.Uint64(b[offset:]) }
