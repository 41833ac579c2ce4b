package wait

import (
	"fmt"
	"os"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// First argument of waitid(2).
const (
	idAll   = 0
	idPID   = 1
	idGroup = 2
	idPIDFD = 3
)

// waitsForChild is the wait in wait4(2) and waitid(2).
func (l *look) waitsForChild(t *thread, waitid bool) *link {
	which, id := idAll, int(int32(t.call.args[0]))
	switch {
	case waitid:
		which, id = int(t.call.args[0]), int(int32(t.call.args[1]))
		if which == idPIDFD {
			return l.onPIDFD(t, l.object(t, id))
		}
	case id > 0:
		which = idPID
	case id == 0 || id < -1:
		which = idGroup
	}
	children := l.childrenOf(t.p)
	object := "any child"
	switch which {
	case idPID:
		object = fmt.Sprintf("child %d", id)
		children = slices.DeleteFunc(children, func(pid int) bool { return !l.knownAs(pid, id) })
	case idGroup:
		object = "any child of a process group"
	}
	return l.onChildren(object, children)
}

// onChildren is the wait for the end of any of several processes.
func (l *look) onChildren(object string, children []int) *link {
	k := &link{kind: observe.WaitChild, wants: observe.WantsEnd, object: object, sure: len(children) == 1}
	for i, pid := range children {
		if i == maxBranches {
			k.cut = fmt.Sprintf("%d more children", len(children)-i)
			break
		}
		k.targets = append(k.targets, target{pid: pid, how: observe.HowChild, why: "is the child whose end is waited for"})
	}
	if len(children) == 0 {
		k.end, k.text = observe.EndUnseen, "the child that it waits for is not seen"
	}
	return k
}

// knownAs says whether a process has a number in the innermost pid namespace
// that it has one in: that of its parent, which waits for that number.
func (l *look) knownAs(pid, id int) bool {
	if pid == id {
		return true
	}
	return slices.Contains(l.nsPIDs(pid, pid), id)
}

// childrenOf is the children of a process that have not been waited for, in
// ascending order.
func (l *look) childrenOf(p *process) []int {
	if l.parents == nil {
		l.parents = map[int][]int{}
		pids, err := numbersIn(l.fs.Proc)
		if err != nil {
			l.miss("the processes of this host: " + err.Error())
		}
		slices.Sort(pids)
		for _, pid := range pids[:min(len(pids), 4*maxProcesses)] {
			b, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", l.fs.Proc, pid))
			if err != nil {
				continue
			}
			if s, ok := parseStat(b); ok {
				l.parents[s.ppid] = append(l.parents[s.ppid], pid)
			}
		}
	}
	return slices.Clone(l.parents[p.pid])
}

// forked is the wait of a parent for its child's exec or end, after vfork(2) or
// clone(2) with CLONE_VFORK.
func (l *look) forked(t *thread) *link {
	children := l.childrenOf(t.p)
	if len(children) > 1 { // the one made last: it has not been through exec
		children = children[len(children)-1:]
	}
	k := l.onChildren("exec or end of a child (vfork)", children)
	k.sure = false
	return k
}

// onPIDFD is the wait for the end of the process that a descriptor stands for
// (pidfd_open(2)); its fdinfo has the number.
func (l *look) onPIDFD(t *thread, o object) *link {
	pid, ok := host.ParseSmall(keyed(l.fdInfo(t.p.pid, o.fd), "Pid:"))
	if !ok {
		return l.onChildren(o.String(), nil)
	}
	k := l.onChildren(fmt.Sprintf("fd %d → process %d", o.fd, pid), []int{pid})
	k.targets[0].why = "is the process whose end is waited for"
	return k
}
