package hotspot

import (
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Locks of java.util.concurrent are Java objects. A thread that waits for one is
// parked, and says on what (LockSupport.park(blocker)); a lock that one thread
// holds at a time says which (AbstractOwnableSynchronizer).
var (
	parkBlocker = field{"java/lang/Thread", "parkBlocker"}
	eetop       = field{"java/lang/Thread", "eetop"}  // its JavaThread, 0 when it has ended
	holder      = field{"java/lang/Thread", "holder"} // of threadStatus, since 19
	status      = field{"java/lang/Thread", "threadStatus"}
	heldStatus  = field{"java/lang/Thread$FieldHolder", "threadStatus"}
	exclusive   = field{"java/util/concurrent/locks/AbstractOwnableSynchronizer", "exclusiveOwnerThread"}
)

// sleeping is a bit of threadStatus: the thread is in Thread.sleep() (jvmti.h,
// JVMTI_THREAD_STATE_SLEEPING).
const sleeping = 0x40

// sleeps says that a thread sleeps for a time that it chose itself.
func (m *Machine) sleeps(object uint64) bool {
	class := m.classAt(object)
	at := m.offset(class, status)
	if held := m.offset(class, holder); at == 0 && held != 0 {
		object = m.reference(object, held)
		at = m.offset(m.classAt(object), heldStatus)
	}
	if object == 0 || at == 0 {
		return false
	}
	b := m.memory.Bytes(object+at, 4)
	return b != nil && procmem.Half(b, 0)&sleeping != 0
}

// parked is the lock of java.util.concurrent that a thread waits for; false when
// it is parked on something else, or not at all, or when nobody holds it.
func (m *Machine) parked(thread uint64) (w Wait, ok bool) {
	if !m.objects {
		return w, false
	}
	object := m.threadObject(thread)
	if object != 0 && m.sleeps(object) {
		return Wait{Sleeps: true, thread: thread}, true
	}
	class := m.classAt(object)
	at := m.offset(class, parkBlocker)
	if object == 0 || at == 0 {
		return w, false
	}
	lock := m.reference(object, at)
	if lock == 0 {
		return w, false
	}
	kind := m.classAt(lock)
	held := m.offset(kind, exclusive)
	if held == 0 {
		return w, false
	}
	owner := m.reference(lock, held)
	to := m.offset(m.classAt(owner), eetop)
	if owner == 0 || to == 0 {
		return w, false
	}
	w = Wait{Lock: lock, Class: strings.ReplaceAll(m.nameOf(kind), "/", "."), thread: thread}
	w.holder = m.memory.Word(owner + to)
	w.OwnerEnded = w.holder == 0
	return w, w.holder != thread
}

// threadObject is the java.lang.Thread of a JavaThread, which has a handle for
// it (since 16), or the reference itself.
func (m *Machine) threadObject(thread uint64) uint64 {
	at := m.memory.Word(thread + m.fields["_threadObj"])
	if object := m.memory.Word(at); m.offset(m.classAt(object), eetop) != 0 && m.memory.Word(object+m.offsets[eetop]) == thread {
		return object
	}
	if m.offset(m.classAt(at), eetop) != 0 && m.memory.Word(at+m.offsets[eetop]) == thread {
		return at
	}
	return 0
}

// Still says whether a thread waits for the same lock of java.util.concurrent as
// before, and the same thread holds it.
func (m *Machine) Still(b *budget.Budget, w Wait) bool {
	m.memory.Budget = b
	now, ok := m.parked(w.thread)
	return ok && now.Lock == w.Lock && now.holder == w.holder
}
