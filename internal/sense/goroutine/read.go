package goroutine

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"slices"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// State is what the scheduler of Go says of a goroutine (runtime2.go).
type State uint32

// The states of goroutines; others are passed through quickly.
const (
	Runnable State = 1
	Running  State = 2
	Syscall  State = 3
	Waiting  State = 4

	statusDead   = 6
	statusLast   = 15
	statusScan   = 0x1000 // the collector looks at its stack
	statusExtra  = 11     // dead, since Go 1.26
	statusLeaked = 10     // waiting, since Go 1.26
)

// Goroutine is one goroutine.
type Goroutine struct {
	ID    uint64
	State State
	Wait  Wait // when it is Waiting
	// Since is the time on the clock CLOCK_MONOTONIC, ns, since when it waits at
	// least: the collector notes it when it comes by. 0 when it has not yet.
	Since  int64
	TID    int     // of the thread that executes it; 0 when none does
	Object uint64  // address of the semaphore of the lock that it waits for; 0 when it is none, or not known
	Stack  []Frame // innermost first, without functions of the runtime that only wait
	// Mark tells one wait from the next at the same place, mostly: a sum of what
	// is on its stack.
	Mark uint64

	addr   uint64
	sp, pc uint64   // where it rests
	high   uint64   // end of its stack
	raw    []byte   // of its stack, from sp
	calls  []uint64 // return addresses, innermost first
	depths []uint64 // where in raw the frame begins that each returns into
}

const (
	maxListed  = 65536
	maxStacks  = 2048 // of one reading
	stackFirst = 2048 // bytes of a stack that are read at once,
	stackMost  = 32 << 10
	maxRaw     = 16 << 20 // bytes of all stacks of one reading
	maxFrames  = 64
)

// All is the goroutines at this moment: those that wait for a lock first, and
// how many others there are of which no stack was read, for their number or
// because b is used up. b is also what may be read when goroutines are asked for
// more ([Program.Distances]).
func (p *Program) All(b *budget.Budget) (list []Goroutine, left int, err error) {
	p.within(b)
	p.room = maxRaw
	defer func() {
		if r := recover(); r != nil { // memory that changes while it is read
			err = errors.New("its goroutines changed while they were read")
		}
	}()
	head := p.bytes(p.allGs, 16)
	if head == nil {
		return nil, 0, cmp.Or(b.Err(), errors.New("its memory could not be read"))
	}
	at, n := procmem.Long(head, 0), procmem.Long(head, 8)
	if n > 1<<24 {
		return nil, 0, errors.New("its list of goroutines changed while it was read")
	}
	if n > maxListed {
		left = int(n - maxListed)
		n = maxListed
	}
	addresses := p.bytes(at, 8*n)
	if addresses == nil {
		return nil, 0, cmp.Or(b.Err(), errors.New("its list of goroutines could not be read"))
	}
	for i := range n {
		if b.Err() != nil {
			left += int(n - i)
			break
		}
		if g, ok := p.goroutine(procmem.Long(addresses, 8*i)); ok {
			list = append(list, g)
		}
	}
	// Those that are not at rest, as far as is known already, come first.
	slices.SortStableFunc(list, func(a, b Goroutine) int { return cmp.Compare(a.rank(), b.rank()) })
	for i := range list {
		if i >= maxStacks || b.Err() != nil {
			left += len(list) - i
			list = list[:i]
			break
		}
		// The stack and where it stood are read together.
		if g, ok := p.goroutine(list[i].addr); ok {
			list[i] = g
			p.readStack(&list[i])
			p.follow(&list[i])
		}
	}
	if over := b.Err(); over != nil && len(list) == 0 {
		return nil, 0, over
	}
	return list, left, nil
}

// rank orders goroutines by how much they have to tell.
func (g *Goroutine) rank() int {
	switch {
	case g.State != Waiting:
		return 1
	case g.Wait == Idle:
		return 4
	case g.Wait == IO || g.Wait == Select || g.Wait == Receive || g.Wait == Sleep:
		return 3
	case g.Wait == Unknown:
		return 2
	}
	return 0
}

// goroutine reads one structure; false when it is none, or unused.
func (p *Program) goroutine(addr uint64) (g Goroutine, ok bool) {
	b := p.bytes(addr, p.gSize())
	if b == nil {
		return g, false
	}
	g = Goroutine{addr: addr, ID: procmem.Long(b, p.id), State: State(procmem.Half(b, p.status) &^ statusScan), Since: int64(procmem.Long(b, p.waitSince))}
	low, high := procmem.Long(b, gStackLow), procmem.Long(b, gStackHigh)
	switch g.State {
	case statusLeaked:
		g.State = Waiting
	case Runnable, Running, Syscall, Waiting:
	default:
		return g, false
	}
	pc := procmem.Long(b, gSchedPC)
	g.sp = procmem.Long(b, gSchedSP)
	switch g.State {
	case Waiting:
		g.Wait = p.causes[b[p.reason]]
	case Syscall:
		g.sp, pc = procmem.Long(b, p.syscallSP), procmem.Long(b, p.syscallPC)
	}
	if g.State == Running || g.State == Syscall {
		if m := procmem.Long(b, gM); m != 0 {
			g.TID = int(uint32(p.memory.Word(m + p.procID)))
		}
		g.Since = 0
	}
	if g.State == Running || g.sp < low || g.sp >= high || high-low > 1<<30 {
		g.sp = 0 // a stack in use, which cannot be walked
		return g, g.ID != 0
	}
	g.high, g.pc = high, pc
	g.Mark = uint64(b[p.reason])
	return g, g.ID != 0
}

// readStack reads the innermost part of the stack of a goroutine at rest.
func (p *Program) readStack(g *Goroutine) {
	if g.sp == 0 {
		return
	}
	g.calls = []uint64{g.pc}
	size := min(stackFirst, g.high-g.sp, p.room)
	p.room -= size
	g.raw = p.memory.Some(g.sp, size)
}

// follow walks the stack of a goroutine, and tells from it what it waits for.
func (p *Program) follow(g *Goroutine) {
	if len(g.calls) == 0 {
		return
	}
	p.walk(g)
	var frames []Frame
	for _, pc := range g.calls {
		frames = append(frames, p.frames(pc-1)...)
		if len(frames) >= maxFrames {
			break
		}
	}
	wait := waitOf(frames)
	if g.State == Waiting {
		g.Wait = wait
		if reason := uint8(g.Mark); wait.alone() {
			p.causes[reason] = wait
		}
		if wait.lock() {
			g.Object = p.semaphore(g)
		}
	}
	g.Stack = withoutParking(frames)
	h := fnv.New64a()
	h.Write(g.raw[:min(len(g.raw), 1024)])
	var pc [8]byte
	binary.LittleEndian.PutUint64(pc[:], g.sp^g.calls[0])
	h.Write(pc[:])
	g.Mark = h.Sum64()
}

// walk finds the return addresses on the stack, by the size that each function
// has there: its description tells.
func (p *Program) walk(g *Goroutine) {
	sp, pc := uint64(0), g.calls[0]
	g.depths = []uint64{0}
	for len(g.calls) < maxFrames {
		size, ok := p.size(pc - 1)
		if !ok {
			return
		}
		sp += size
		at := sp
		if p.linkSize == 0 { // the link register, at the lower end of the frame
			at = sp - size
		}
		if at+8 > uint64(len(g.raw)) {
			if uint64(len(g.raw)) != stackFirst {
				return
			}
			if p.room < stackMost {
				return
			}
			p.room -= stackMost
			if g.raw = p.memory.Some(g.sp, stackMost); at+8 > uint64(len(g.raw)) {
				return
			}
		}
		pc = procmem.Long(g.raw, at)
		sp += p.linkSize
		if pc < p.text || pc >= p.textEnd {
			return
		}
		g.calls, g.depths = append(g.calls, pc), append(g.depths, sp)
	}
}

// size is that of the frame of the function at a program counter.
func (p *Program) size(pc uint64) (uint64, bool) {
	if n, ok := p.sizes[pc]; ok {
		return uint64(max(n, 0)), n >= 0
	}
	n := int64(-1)
	if f, ok := p.functionAt(pc); ok {
		if size, ok := p.frameSize(&f, pc); ok && size < stackMost {
			n = int64(size)
		}
	}
	if p.sizes == nil || len(p.sizes) > 1<<16 {
		p.sizes = map[uint64]int64{}
	}
	p.sizes[pc] = n
	return uint64(max(n, 0)), n >= 0
}

// semaphore is the address of the semaphore that a goroutine waits for. What it
// waits with (runtime.sudog) is named on its stack, and names the goroutine.
func (p *Program) semaphore(g *Goroutine) uint64 {
	for at := uint64(0); at+8 <= min(uint64(len(g.raw)), 768); at += 8 {
		addr := procmem.Long(g.raw, at)
		if addr&7 != 0 || addr < 1<<16 || addr>>48 != 0 {
			continue
		}
		s := p.bytes(addr, sudogElement+16)
		if s == nil || procmem.Long(s, sudogG) != g.addr {
			continue
		}
		element := procmem.Long(s, sudogElement)
		if element == 0 {
			element = procmem.Long(s, sudogElement+8) // where the collector does not look (Go 1.26)
		}
		if element != 0 && element>>48 == 0 && element&3 == 0 {
			return element
		}
	}
	return 0
}

// Distances are how far before an address the things begin that the program's
// own functions name on the stack of a goroutine: 0 is the address itself. They
// are at most within, in bytes.
func (p *Program) Distances(g *Goroutine, addr, within uint64) (out []uint64) {
	if p.memory.Budget.Nodes(int64(len(g.raw)/8)) != nil {
		return nil
	}
	for at := p.ownDepth(g); at+8 <= uint64(len(g.raw)); at += 8 {
		if v := procmem.Long(g.raw, at); v != 0 && v <= addr && addr-v <= within && !slices.Contains(out, addr-v) {
			out = append(out, addr-v)
		}
	}
	return out
}

// ownDepth is where on the stack the innermost frame of the program's own begins.
func (p *Program) ownDepth(g *Goroutine) uint64 {
	for i, pc := range g.calls[:min(len(g.calls), len(g.depths))] {
		if f := p.frames(pc - 1); len(f) > 0 && slices.ContainsFunc(f, func(f Frame) bool { return p.own(&f) }) {
			return g.depths[i]
		}
	}
	return uint64(len(g.raw))
}
