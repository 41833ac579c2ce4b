package hotspot

import (
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/sense/procmem"
)

// Wait is a thread that waits to enter a monitor, or for a lock of
// java.util.concurrent; or that sleeps.
type Wait struct {
	Monitor uint64 // address of the ObjectMonitor; 0 when it waits for a lock
	Lock    uint64 // address of the lock, which may be another one soon
	Owner   int    // thread that has entered or holds it; 0 when it is not known
	Class   string // of the object that the monitor belongs to: "orders.Account"; empty when it is not known

	OwnerEnded bool // the thread that took the lock is gone
	Sleeps     bool // it is in Thread.sleep()

	thread, holder uint64 // their JavaThreads
}

// thread is a JavaThread.
type thread struct {
	addr      uint64
	tid       int
	low, high uint64 // its stack
	monitor   uint64 // that it waits for
}

// Waits lists the threads that wait for a monitor or a lock, by their number in the
// machine's own pid namespace. Over the budget those are missing that were not
// read until then.
func (m *Machine) Waits(b *budget.Budget) map[int]Wait {
	m.memory.Budget = b
	list := m.memory.Word(m.fields["ThreadsSMRSupport::_java_thread_list"])
	head := m.memory.Bytes(list+m.fields["ThreadsList::_length"], 4)
	first := m.memory.Word(list + m.fields["ThreadsList::_threads"])
	if head == nil || first == 0 {
		return nil
	}
	addresses := m.memory.Bytes(first, 8*uint64(min(procmem.Half(head, 0), maxThreads)))
	var threads []thread
	waiting := false
	for i := 0; i+8 <= len(addresses) && b.Err() == nil; i += 8 {
		if t, ok := m.thread(procmem.Long(addresses, uint64(i))); ok {
			threads = append(threads, t)
			waiting = waiting || t.monitor != 0
		}
	}
	if !waiting && !m.objects {
		return nil
	}
	out := map[int]Wait{}
	for _, t := range threads {
		if b.Err() != nil {
			break
		}
		if t.monitor == 0 {
			if w, ok := m.parked(t.addr); ok {
				for _, o := range threads {
					if o.addr == w.holder && w.holder != 0 {
						w.Owner = o.tid
					}
				}
				out[t.tid] = w
			}
			continue
		}
		w := Wait{Monitor: t.monitor, Class: m.classOf(t.monitor)}
		owner := m.memory.Word(t.monitor + m.fields["ObjectMonitor::_owner"])
		for _, o := range threads {
			// Who had entered it before anybody waited is named by a place on its stack.
			if owner != 0 && (owner == o.addr || owner >= o.low && owner < o.high) {
				w.Owner = o.tid
			}
		}
		out[t.tid] = w
	}
	return out
}

// thread reads a JavaThread; false when it is about to end.
func (m *Machine) thread(addr uint64) (t thread, ok bool) {
	t.addr = addr
	if t.tid = m.tids[addr]; t.tid == 0 {
		os := m.memory.Word(addr + m.fields["_osthread"])
		if os == 0 {
			return t, false
		}
		id := m.memory.Bytes(os+m.fields["OSThread::_thread_id"], 4)
		if id == nil {
			return t, false
		}
		t.tid = int(procmem.Half(id, 0))
	}
	t.monitor = m.memory.Word(addr + m.fields["_current_pending_monitor"])
	t.high = m.memory.Word(addr + m.fields["_stack_base"])
	if size := m.memory.Word(addr + m.fields["_stack_size"]); size < t.high {
		t.low = t.high - size
	}
	return t, t.tid > 0
}

// classOf is the class of the object that a monitor belongs to.
func (m *Machine) classOf(monitor uint64) string {
	for _, name := range wished {
		if m.fields[name] == 0 && name != "Symbol::_length" {
			return ""
		}
	}
	handle := m.memory.Word(monitor + m.fields["ObjectMonitor::_object"])
	class := m.classAt(m.memory.Word(handle))
	if class == 0 {
		return ""
	}
	return strings.ReplaceAll(m.nameOf(class), "/", ".")
}
