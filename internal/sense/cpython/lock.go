package cpython

import (
	"bytes"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Fields of _thread.RLock in 3.11 to 3.13 (Modules/_threadmodule.c), of a type
// (Include/cpython/object.h), and where the variables of a frame begin
// (pycore_frame.h).
const (
	objectType = 8
	typeName   = 24
	rlockLock  = 16
	rlockOwner = 24
	rlockCount = 32
	rlockSize  = 40
	// methodSelf is, of a method that is written in C and bound, what it is bound to
	// (methodobject.h): "with" keeps only the lock's __exit__ at hand.
	methodSelf = 24
	variables  = 72
	// maxVariables bounds what is looked at of a frame: its variables and what it
	// computes with.
	maxVariables = 64
	// lockFrames is how many frames are searched for a lock, innermost first: it is
	// on hand where it is asked for.
	lockFrames = 2
)

// Owner is the thread that holds the RLock for whose semaphore, at address lock, the thread
// tid waits, both by the numbers that the process itself sees; 0 when it waits
// for something else. Of its other locks Python writes down no owner.
func (p *Interpreter) Owner(b *budget.Budget, tid int, lock uint64) int {
	p.memory.Budget = b
	waiter, owner := uint64(0), uint64(0)
	p.eachThread(func(thread uint64, n int) bool {
		if n == tid {
			waiter = thread
		}
		return waiter == 0
	})
	if waiter == 0 || lock == 0 {
		return 0
	}
	frame := p.frameOf(waiter)
	for range lockFrames {
		b := p.memory.Some(frame, variables+8*maxVariables)
		if len(b) < variables {
			return 0
		}
		for at := uint64(variables); at+8 <= uint64(len(b)) && owner == 0; at += 8 {
			object := procmem.Long(b, at)
			if owner = p.rlockOwner(object, lock); owner == 0 && object%8 == 0 {
				owner = p.rlockOwner(p.memory.Word(object+methodSelf), lock)
			}
		}
		frame = procmem.Long(b, p.previous)
	}
	found := 0
	if owner != 0 {
		p.eachThread(func(thread uint64, n int) bool {
			if p.memory.Word(thread+p.nativeID-8) == owner { // thread_id, of pthread_self(3)
				found = n
			}
			return found == 0
		})
	}
	return found
}

// rlockOwner is what an object says of its owner, if it is an RLock with that
// semaphore.
func (p *Interpreter) rlockOwner(object, lock uint64) uint64 {
	if object%8 != 0 {
		return 0
	}
	b := p.memory.Bytes(object, rlockSize)
	if b == nil || procmem.Long(b, rlockLock) != lock || procmem.Long(b, rlockCount) == 0 {
		return 0
	}
	name := p.memory.Some(p.memory.Word(procmem.Long(b, objectType)+typeName), 16)
	if !bytes.HasPrefix(name, []byte("_thread.RLock\x00")) {
		return 0
	}
	return procmem.Long(b, rlockOwner)
}

// eachThread visits the threads of the interpreter until visit returns false.
func (p *Interpreter) eachThread(visit func(thread uint64, tid int) bool) {
	thread := p.memory.Word(p.memory.Word(p.runtime+p.interpreters) + p.threads)
	for n := 0; thread != 0 && n < maxThreads; n++ {
		if !visit(thread, int(uint32(p.memory.Word(thread+p.nativeID)))) {
			return
		}
		thread = p.memory.Word(thread + threadNext)
	}
}

// frameOf is the innermost frame of a thread.
func (p *Interpreter) frameOf(thread uint64) uint64 {
	if p.cframe != 0 {
		return p.memory.Word(p.memory.Word(thread+p.cframe) + p.current)
	}
	return p.memory.Word(thread + p.current)
}
