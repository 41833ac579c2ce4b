package report

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// waitTitle says a chain in one line.
func waitTitle(c *observe.WaitChain) string {
	last := &c.Hops[len(c.Hops)-1]
	who := fmt.Sprintf("%s (pid %d)", last.Process.Comm, last.Process.PID)
	alone := len(c.Hops) == 1
	if c.Hops[0].Goroutine != 0 && c.End != observe.EndCycle {
		return goTitle(c)
	}
	switch c.End {
	case observe.EndCycle:
		n := len(c.Hops) - c.BackTo
		name, one := "Deadlock", "thread"
		if !c.Sure {
			name = "Perhaps a deadlock"
		}
		if last.Goroutine != 0 {
			one = "goroutine"
		}
		switch {
		case n == 1:
			return fmt.Sprintf("%s: a %s waits for itself", name, one)
		case c.BackTo > 0:
			return fmt.Sprintf("%s further on: %d %ss wait for each other", name, n, one)
		}
		return fmt.Sprintf("%s: %d %ss wait for each other", name, n, one)
	case observe.EndRemote:
		return "Waits for " + last.Remote + ", which is not on this host"
	case observe.EndMutual:
		return fmt.Sprintf("Waits for %s, which waits for it", who)
	case observe.EndNoHolder, observe.EndGone:
		return "Waits for somebody who is not there"
	}
	if alone {
		switch c.End {
		case observe.EndStopped:
			return "Stopped by a signal"
		case observe.EndTraced:
			return "Stopped by its tracer"
		case observe.EndFrozen:
			return "Frozen with its control group"
		case observe.EndDisk:
			return "Waits for storage"
		case observe.EndFuse:
			return "Waits for a file system in user space"
		case observe.EndKernel:
			return "Cannot be interrupted inside the kernel"
		}
		return "Waits: " + c.Text
	}
	return "Waits for " + who + ", " + endText(c.End)
}

// goTitle says a chain of goroutines in one line.
func goTitle(c *observe.WaitChain) string {
	title := "A goroutine waits for " + c.Hops[0].Object
	if c.Count > 1 {
		title = fmt.Sprintf("%s goroutines wait for %s", figure.Count(c.Count), c.Hops[0].Object)
	}
	last := &c.Hops[len(c.Hops)-1]
	switch {
	case len(c.Hops) == 1:
		return title
	case last.Goroutine == 0:
		return title + fmt.Sprintf(", and in the end for %s (pid %d), %s", last.Process.Comm, last.Process.PID, endText(c.End))
	}
	return title + fmt.Sprintf(", and in the end for goroutine %d, %s", last.Goroutine, endText(c.End))
}

// endText is an end as a clause on the last process of a chain.
func endText(e observe.WaitEnd) string {
	switch e {
	case observe.EndStopped:
		return "which is stopped by a signal"
	case observe.EndTraced:
		return "which is stopped by its tracer"
	case observe.EndFrozen:
		return "which is frozen with its control group"
	case observe.EndDisk:
		return "which waits for storage"
	case observe.EndFuse:
		return "which waits for a file system in user space"
	case observe.EndKernel:
		return "which cannot be interrupted inside the kernel"
	case observe.EndRunning:
		return "which is running"
	case observe.EndSleep:
		return "which sleeps"
	case observe.EndIdle:
		return "which is ready for work and does not come round to it"
	case observe.EndNoOwner:
		return "which waits to be woken"
	case observe.EndEnded:
		return "which has ended"
	case observe.EndTooLong:
		return "and there is more"
	}
	return "of which no more can be seen"
}

// waitFix is what would end a chain, and the command for it where there is one.
func waitFix(c *observe.WaitChain) (advice string, command shell.Command) {
	last := &c.Hops[len(c.Hops)-1]
	switch c.End {
	case observe.EndStopped:
		return "Let it go on:", shell.Line("kill -CONT %s", last.Process.PID)
	case observe.EndTraced:
		if c.Actor != 0 {
			return fmt.Sprintf("Let the tracer (pid %d) continue it, or end the tracer.", c.Actor), shell.Command{}
		}
		return "Let its tracer continue it, or end the tracer.", shell.Command{}
	case observe.EndFrozen:
		state := "0"
		if strings.HasSuffix(c.Path, "freezer.state") {
			state = "THAWED"
		}
		return "Thaw the control group:", shell.Write(state, shell.Path(c.Path))
	case observe.EndCycle:
		if !c.Sure {
			return "", shell.Command{}
		}
		return "They cannot go on by themselves: restart what can be restarted. It will not come back when all take these in the same order.", shell.Command{}
	case observe.EndRemote:
		if c.Culprit() {
			return "Look at the service at " + last.Remote + ", and at the way there.", shell.Command{}
		}
	case observe.EndDisk:
		return "Look at the device and at who else uses it; slowray why tells whether it is busy.", shell.Command{}
	}
	return "", shell.Command{}
}
