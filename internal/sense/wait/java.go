package wait

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/hotspot"
)

// maxMachines bounds the Java virtual machines that a Reader remembers.
const maxMachines = 256

// java is a Java virtual machine, and what its threads wait for in this look.
type java struct {
	machine *hotspot.Machine
	waits   map[*thread]hotspot.Wait
	again   map[*thread]hotspot.Wait // at the second look, once it was asked for
}

// javaOf is the virtual machine in a process; nil when there is none.
func (l *look) javaOf(p *process) *java {
	if j, ok := l.javas[p]; ok {
		return j
	}
	var j *java
	if m := l.machine(p); m != nil && !l.mapLocked(p) {
		j = &java{machine: m, waits: l.javaWaits(p, m)}
	}
	if l.javas == nil {
		l.javas = map[*process]*java{}
	}
	l.javas[p] = j
	return j
}

// javaWaits is what the threads of a virtual machine wait for now.
func (l *look) javaWaits(p *process, m *hotspot.Machine) map[*thread]hotspot.Wait {
	part := l.part()
	out := map[*thread]hotspot.Wait{}
	for own, w := range m.Waits(part) {
		if t := l.hostTID(p, own); t != nil {
			out[t] = w
		}
	}
	if err := part.Err(); err != nil {
		l.miss(fmt.Sprintf("some monitors of the Java process %d: %v", p.pid, err))
	}
	return out
}

// machine opens the virtual machine of a process, once.
func (l *look) machine(p *process) *hotspot.Machine {
	if m, ok := l.machines[p.pid]; ok {
		return m
	}
	exe, _ := os.Readlink(fmt.Sprintf("%s/%d/exe", l.fs.Proc, p.pid))
	if filepath.Base(exe) != "java" && !slices.ContainsFunc(p.threads, func(t *thread) bool { return t.comm == "VM Thread" }) {
		return nil
	}
	m, err := hotspot.Open(l.part(), l.fs.Proc, p.pid, l.memory)
	if err != nil {
		m = nil
		if !errors.Is(err, hotspot.ErrNotJava) && !vanished(err) {
			l.miss(fmt.Sprintf("monitors of the Java process %d: %v", p.pid, err))
		}
	}
	if len(l.machines) >= maxMachines || l.machines == nil {
		l.Reader.machines = map[int]*hotspot.Machine{}
	}
	l.machines[p.pid] = m
	return m
}

// monitorWait is the wait of a thread for a monitor of Java's (synchronized), or
// for a lock of java.util.concurrent; nil when it waits for none.
func (l *look) monitorWait(t *thread, timed bool) *link {
	j := l.javaOf(t.p)
	if j == nil {
		return nil
	}
	w := j.waits[t]
	switch {
	case w.Sleeps:
		return &link{kind: observe.WaitSleep, end: observe.EndSleep, text: "sleeps for a time that it chose itself"}
	case w.Lock != 0:
		return l.javaLock(t, j, w, timed)
	case w.Monitor == 0:
		return nil
	}
	k := &link{kind: observe.WaitLock, wants: observe.WantsRelease, sure: true, wakes: true, extra: fmt.Sprint(w.Monitor)}
	k.object = fmt.Sprintf("Java monitor 0x%x", w.Monitor)
	if w.Class != "" {
		k.object += " of a " + printable.Name(w.Class, 256)
	}
	owner := l.hostTID(t.p, w.Owner)
	if owner == nil || owner == t {
		k.end, k.text = observe.EndNoOwner, "who has entered the monitor could not be read"
		return k
	}
	k.targets = []target{{pid: t.p.pid, tid: owner.tid, how: observe.HowOwner, why: "has entered the monitor"}}
	k.same = func() bool {
		if j.again == nil {
			j.again = l.javaWaits(t.p, j.machine)
		}
		now, waits := j.again[t]
		return waits && now.Monitor == w.Monitor && now.Owner == w.Owner
	}
	return k
}

// javaLock is the wait for a lock of java.util.concurrent. Its address is not
// told: the garbage collector may move it.
func (l *look) javaLock(t *thread, j *java, w hotspot.Wait, timed bool) *link {
	class, _, _ := strings.Cut(w.Class, "$")
	k := &link{kind: observe.WaitLock, wants: observe.WantsRelease, sure: !timed, extra: fmt.Sprint(w.Lock), object: "Java lock, a " + printable.Name(class, 256)}
	owner := l.hostTID(t.p, w.Owner)
	switch {
	case w.OwnerEnded:
		k.end, k.text = observe.EndGone, "the lock was taken by a thread of Java that has ended without letting it go"
		return k
	case owner == nil || owner == t:
		k.end, k.text = observe.EndNoOwner, "who holds the lock could not be read"
		return k
	}
	k.targets = []target{{pid: t.p.pid, tid: owner.tid, how: observe.HowOwner, why: "holds the lock"}}
	k.same = func() bool { return j.machine.Still(l.budget, w) }
	return k
}
