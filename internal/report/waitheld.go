package report

import (
	"fmt"
	"path"
	"strings"

	"github.com/slowray/slowray/internal/figure"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/shell"
)

// waitWithoutChain is the verdict where no single wait lasts: what many short ones come
// to, what others wait for, and what is not seen, else what it was.
func waitWithoutChain(o *observe.Waits, word string, c color, text string) (string, color, string) {
	threads, most := o.HeldUp()
	lock, database := o.HoldsUp(), o.BehindDatabase()
	switch {
	case most != nil:
		what, _ := briefText(most)
		what = what[max(0, strings.LastIndexByte(strings.SplitN(what, " → ", 2)[0], '/')+1):]
		return "PROBLEM", red, fmt.Sprintf("%.3g of %s wait for %s on average", threads, figure.Counted(o.Looked, "thread"), what)
	case lock != nil:
		who := "others"
		if len(lock.Waiters) > 0 {
			who = lock.Waiters[0].Process.Comm
		}
		return "PROBLEM", red, fmt.Sprintf("holds %s: %.3g threads of %s wait for it on average", path.Base(lock.Object), lock.Threads, who)
	case database != nil && len(database.Hops) == 1 && database.Hops[0].Goroutine == 0 && o.Unfollowed() == 0:
		return "UNKNOWN", yellow, "locks of its transactions are not seen here"
	case database != nil && o.Unfollowed() == 0:
		return "UNKNOWN", yellow, fmt.Sprintf("waits for %s, whose locks are not seen here: %s", databaseName(database), askDatabase(database))
	}
	return word, c, text
}

// briefText is what short waits are for, and the call that threads wait in.
func briefText(s *observe.WaitShare) (what, call string) {
	h := &s.Chain.Hops[0]
	what = h.Object
	if _, object, ok := strings.Cut(h.Object, " → "); ok {
		what = object
	}
	if len(s.Chain.Hops) > 1 {
		what += " → " + lastName(&s.Chain)
	}
	return what, h.Syscall
}

// heldLocks writes the locks that others wait for, and what is not seen of a database.
func (p *printer) heldLocks(o *observe.Waits) {
	if len(o.Held) > 0 {
		p.line("%s", p.paint(bold, "Locks that it holds and others wait for"))
		for i := range o.Held {
			h := &o.Held[i]
			text := fmt.Sprintf("%s (%s): %.3g threads wait for it at a time on average, %s at most", h.Object, h.Detail, h.Threads, figure.Count(h.AtOnce))
			for j := range h.Waiters {
				w := &h.Waiters[j]
				text += fmt.Sprintf("%s %s (pid %d) %.3g", map[bool]string{true: ":", false: ","}[j == 0], w.Process.Comm, w.Process.PID, w.Threads)
			}
			p.wrapped("  ", 2, printable.Text(text))
		}
		p.wrapped("  fix   ", 8, "Hold the lock for less time, or release it between pieces of the work. What it does meanwhile:")
		p.line("        %s", p.paint(bold, shell.Line("slowray flame --pid %s --off-cpu", o.Process.PID).String()))
		p.line("")
	}
	if c := o.BehindDatabase(); c != nil {
		p.line("%s", p.paint(bold, "Not seen"))
		p.wrapped("  ", 2, printable.Text(fmt.Sprintf("Locks of transactions in %s: only the database knows who holds them. slowray why asks it:", databaseName(c))))
		p.line("  %s", p.paint(bold, askDatabase(c).String()))
		p.line("")
	}
}

// databaseName is the database at the end of a chain.
func databaseName(c *observe.WaitChain) string {
	if len(c.Hops) == 1 && c.Hops[0].Goroutine != 0 {
		return "the database that it calls"
	}
	return lastName(c)
}

// lastName is the process that a chain ends in.
func lastName(c *observe.WaitChain) string {
	last := &c.Hops[len(c.Hops)-1].Process
	return fmt.Sprintf("%s (pid %d)", last.Comm, last.PID)
}

// askDatabase is the command that asks the database at the end of a chain, by its port
// where the chain leads over TCP.
func askDatabase(c *observe.WaitChain) shell.Command {
	for i := len(c.Hops) - 2; i >= 0; i-- {
		if at := strings.LastIndexByte(c.Hops[i].Object, ':'); c.Hops[i].Kind == observe.WaitTCP {
			if port := c.Hops[i].Object[at+1:]; port != "" && strings.Trim(port, "0123456789") == "" {
				return shell.Line("slowray why --port %s", shell.Word(port))
			}
		}
	}
	return shell.Line("slowray why --pid %s", c.Hops[len(c.Hops)-1].Process.PID)
}
