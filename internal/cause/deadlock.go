package cause

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// Deadlock: threads wait for each other in a circle, or for a lock whose owner
// has ended.
const Deadlock ID = "deadlock"

var deadlock = Cause{
	ID:    Deadlock,
	Title: "Deadlock between threads",
	Layer: LayerApplication,
	Class: ClassWait,
	Needs: []observe.Kind{observe.KindWaits},
	Check: checkDeadlock,
}

func checkDeadlock(v *View) Result {
	return v.judgeRoots(Deadlock, "no threads were seen to wait for each other in a circle", func(r *root, f *Finding) {
		c := r.example()
		round := c.Hops[r.at:]
		f.Subject.PID, f.Subject.Comm = round[0].Process.PID, round[0].Process.Comm
		var tids, locks []string
		one := "thread"
		if round[0].Goroutine != 0 {
			one = "goroutine"
		}
		for i := range round {
			tids = append(tids, hopNumber(&round[i]))
			locks = append(locks, round[i].Object)
		}
		f.Evidence = append(f.Evidence,
			Evidence{Fact: one + "s of the circle", Value: strings.Join(tids, ", "), Source: taskFiles},
			Evidence{Fact: "what they wait for", Value: strings.Join(locks, ", "), Source: string(howOf(round))})
		switch {
		case c.BackTo < 0:
			f.Title = fmt.Sprintf("A lock in %s is held by an exited thread", round[0].Process.Comm)
		case c.Sure:
			f.Title = fmt.Sprintf("Deadlock in %s between %d threads", round[0].Process.Comm, len(round))
		default:
			f.Title = fmt.Sprintf("Possible deadlock of %d %ss of %s", len(round), one, round[0].Process.Comm)
		}
		if unwritten(&round[0]) {
			inferredDeadlock(f, round, c.Sure)
			return
		}
		f.Fix.Text = "They cannot go on by themselves. Save the stacks of the threads, which show where the locks are taken, then restart the process. It will not come back when all take these locks in the same order."
		f.Fix.Commands = []shell.Command{
			shell.Line("gdb -p %s -batch -ex 'thread apply all bt' > stacks.%s   # "+asItsUser, round[0].Process.PID, round[0].Process.PID),
		}
		if strings.HasPrefix(round[0].Object, javaLock) {
			f.Fix.Commands = []shell.Command{jcmd(round[0].Process.PID)}
		}
		if unit := round[0].Process.Unit; unit != "" {
			f.Fix.Commands = append(f.Fix.Commands, shell.Line("systemctl restart %s", shell.Unit(unit)))
		}
	})
}

// inferredDeadlock is what is known of a circle of goroutines, or of threads of
// Python. Most of their locks do not say who holds them: then it is not sure.
func inferredDeadlock(f *Finding, round []observe.WaitHop, sure bool) {
	lang := languageOf(&round[0])
	seems, inferred := ", it seems", fmt.Sprintf(" Who holds the locks is inferred: %s writes it down nowhere.", lang.name)
	if sure {
		seems, inferred = "", ""
	}
	f.Title = fmt.Sprintf("Deadlock in %s%s: %d %ss, at %s", round[0].Process.Comm, seems, len(round), lang.thread, placesOf(round))
	for i := range round {
		f.Evidence = append(f.Evidence, Evidence{Fact: "stack of " + lang.thread + " " + hopNumber(&round[i]), Value: strings.Join(round[i].Stack, " ← "), Source: lang.source})
	}
	f.Fix.Text = fmt.Sprintf("They cannot go on by themselves.%s Save the stacks of all %ss, then start it anew. It will not come back when all take these locks in the same order.", inferred, lang.thread)
	pid := round[0].Process.PID
	f.Fix.Commands = []shell.Command{lookAtWaits(pid), lang.dump(pid)}
}

// language is how what waits is called, of a program whose stacks are read from
// memory.
type language struct {
	name, thread, source string
	dump                 func(pid int) shell.Command
}

// unwritten says that a hop is of Go or Python, where nobody writes down who holds a lock.
func unwritten(h *observe.WaitHop) bool { return len(h.Stack) > 0 && !ofRuntime(h) }

// ofRuntime says that where a hop waits was recorded, of Java, PHP or JavaScript.
func ofRuntime(h *observe.WaitHop) bool {
	return h.Goroutine == 0 && len(h.Stack) > 0 && slices.ContainsFunc([]string{".java:", ".kt:", ".scala:", ".php:", ".js:", ".mjs:", ".cjs:", ".ts:"},
		func(file string) bool { return strings.Contains(h.Stack[0], file) })
}

func languageOf(h *observe.WaitHop) language {
	if h.Goroutine != 0 {
		return language{"Go", "goroutine", goMemory, func(pid int) shell.Command {
			return shell.Line("kill -QUIT %s   # prints the stacks to its standard error, and ends the program", pid)
		}}
	}
	if ofRuntime(h) {
		return language{"its runtime", "thread", "stacks of threads as they wait", jcmd}
	}
	return language{"Python", "thread", "stacks in the process's memory", func(pid int) shell.Command {
		return shell.Line("py-spy dump --locals --pid %s   # all stacks, with what the locks belong to (pip install py-spy)", pid)
	}}
}

// javaLock begins what a thread waits for that is a monitor of Java's, or a lock of
// java.util.concurrent.
const javaLock = "Java "

// jcmd prints the stacks of a Java process with the locks that they hold.
func jcmd(pid int) shell.Command {
	return shell.Line("jcmd %s Thread.print -l > threads.%s   # where the locks are taken, "+asItsUser, pid, pid)
}

// asItsUser is how what writes a file next to a process is to be run: in a directory of
// everybody's another user can put a link where the file will be.
const asItsUser = "as the user that it runs as, in a directory of its own"

// goMemory is where what is known of goroutines comes from.
const goMemory = "goroutines in the process's memory"

// hopNumber is the number of the thread or goroutine of a hop.
func hopNumber(h *observe.WaitHop) string {
	if h.Goroutine != 0 {
		return strconv.FormatUint(h.Goroutine, 10)
	}
	return itoa(h.TID)
}

// placesOf is where the hops of a chain are in their program, each place once.
func placesOf(hops []observe.WaitHop) string {
	var places []string
	for i := range hops {
		if s := hops[i].Stack; len(s) > 0 && !slices.Contains(places, s[0]) {
			places = append(places, s[0])
		}
	}
	return strings.Join(places, " and ")
}

// howOf is how the edges of a circle are known, the least sure of them.
func howOf(round []observe.WaitHop) observe.WaitHow {
	for i := range round {
		if round[i].How == observe.HowInferred || round[i].How == observe.HowPeer {
			return round[i].How
		}
	}
	for i := range round {
		if round[i].How != "" {
			return round[i].How
		}
	}
	return observe.HowOwner
}
