package wait

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

// maxBranches is how many of several possible causes of a wait are followed.
const maxBranches = 4

// onPipe is the wait for the other end of a pipe or FIFO.
func (l *look) onPipe(t *thread, o object, does direction) *link {
	k := &link{kind: observe.WaitPipe, wants: observe.WantsData, object: o.String()}
	if does == writing {
		k.wants = observe.WantsRoom
	}
	others := l.endsOf(o, does)
	if does == reading && t.p.total > 1 && len(others) == 1 && others[0] == t.p.pid {
		// How a thread is woken by the others of its process; no circle.
		k.end = observe.EndNoOwner
		k.text = "waits to be woken by another thread of its process, which alone has the other end: by which is not written anywhere"
		return k
	}
	l.aim(t, k, o, others, does)
	if len(k.targets) == 0 {
		k.end = observe.EndNoHolder
		k.text = fmt.Sprintf("no process is seen that %s the other end%s", openFor(does), l.perhapsHidden())
	}
	return k
}

// openFor is what the other end of a pipe has to be open for.
func openFor(does direction) string {
	if does == writing {
		return "reads from"
	}
	return "writes to"
}

// perhapsHidden reminds that not all processes could be read.
func (l *look) perhapsHidden() string {
	if o := l.scanned; o != nil && o.denied > 0 {
		return fmt.Sprintf(" (the open files of %s could not be read)", processes(o.denied, o.deniedPID))
	}
	return ""
}

// pipeEnd is a process that has a pipe open.
type pipeEnd struct {
	pid           int
	wanted, other bool // which end: the one that is asked for, the one the waiting thread uses itself
}

// endsOf is the processes that have the other end of a pipe open, those that
// have only that first: one that has both often merely forgot to close one.
func (l *look) endsOf(o object, does direction) []int {
	var list []pipeEnd
	for _, h := range l.holdersOf(o) {
		read, write := accessOf(l.fdInfo(int(h.pid), int(h.fd)))
		wanted, other := read, write
		if does == reading {
			wanted, other = write, read
		}
		i := slices.IndexFunc(list, func(e pipeEnd) bool { return e.pid == int(h.pid) })
		if i < 0 {
			list = append(list, pipeEnd{pid: int(h.pid)})
			i = len(list) - 1
		}
		list[i].wanted = list[i].wanted || wanted
		list[i].other = list[i].other || other
	}
	var only, both []int
	for _, e := range list {
		switch {
		case e.wanted && !e.other:
			only = append(only, e.pid)
		case e.wanted:
			both = append(both, e.pid)
		}
	}
	return append(only, both...)
}

// aim makes the processes that have the other end of an object the targets of a
// link. The process itself counts only when nobody else has it.
func (l *look) aim(t *thread, k *link, other object, pids []int, does direction) {
	if rest := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return pid == t.p.pid }); len(rest) > 0 {
		pids = rest
	}
	counter, why := writing, "has the other end, and has written nothing"
	if does == writing {
		counter, why = reading, "has the other end, and does not read"
	}
	if len(pids) == 1 && pids[0] == t.p.pid {
		why = "is the only process that has the other end, and it is the same process"
	}
	k.sure = len(pids) == 1
	for i, pid := range pids {
		if i == maxBranches {
			k.cut = fmt.Sprintf("%d more processes have the other end", len(pids)-i)
			break
		}
		k.targets = append(k.targets, target{pid: pid, how: observe.HowPeer, why: why, object: other, does: counter})
	}
}
