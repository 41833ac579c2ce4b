package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// BlockedOnFileLock: threads that should answer wait for a lock on a file.
const BlockedOnFileLock ID = "blocked-on-file-lock"

var blockedOnFileLock = Cause{
	ID:            BlockedOnFileLock,
	Title:         "Requests wait for a file lock",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{ProcessStopped},
	Check:         checkFileLock,
}

func checkFileLock(v *View) Result {
	return v.judgeRoots(BlockedOnFileLock, "no thread that answers requests was held up by a lock on a file", func(r *root, f *Finding) {
		c, waiter := r.example(), r.blamed()
		file := objectOf(waiter)
		f.Subject.Path = file
		f.Evidence = append(f.Evidence, Evidence{Fact: "locked file", Value: file, Unit: inBrackets(waiter.Detail), Source: "/proc/locks"})
		if len(waiter.Stack) > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "where they ask for it", Value: strings.Join(waiter.Stack, " ← "), Source: languageOf(waiter).source})
		}
		f.Fix.Commands = []shell.Command{shell.Line("lslocks -o COMMAND,PID,TYPE,MODE,PATH")}
		f.Title = fmt.Sprintf("Requests wait for a lock on %s", file)
		if r.passedOn() {
			f.Evidence = append(f.Evidence, Evidence{Fact: "who holds it", Value: fmt.Sprintf("threads of %s in turn, none for long", who(&c.Hops[0])), Source: "/proc/locks"})
			f.Fix.Text = fmt.Sprintf("Requests of %s take the lock on %s one after the other, and each does something while it has it: its time, times the requests, is what all of them wait for. Do less while it is held, or lock less (a file for each of what it protects).", who(&c.Hops[0]), file)
			f.Fix.Commands = append([]shell.Command{lookAtWaits(c.Hops[0].Process.PID)}, f.Fix.Commands...)
			return
		}
		if r.at == len(c.Hops)-1 {
			f.Fix.Text = "Find who holds the lock on " + file + "."
			return
		}
		holder := &c.Hops[r.at+1]
		f.Title = fmt.Sprintf("Requests wait for a file lock held by %s", holder.Process.Comm)
		f.Evidence = append(f.Evidence, Evidence{Fact: "who holds it", Value: fmt.Sprintf("%s, which %s", who(holder), ownerText(c, r.at+1)), Source: "/proc/locks"})
		f.Fix.Text = fmt.Sprintf("%s holds the lock on %s: let it finish or end it, and let neither hold the lock while it does anything slow. What may wait can ask with a time limit (LOCK_NB and another try).", who(holder), file)
		f.Fix.Commands = append([]shell.Command{lookAtWaits(holder.Process.PID)}, f.Fix.Commands...)
	})
}

// passedOn says that those who wait for a lock are also those who hold it: threads or
// workers of one service, or others that wait for it in their turn.
func (r *root) passedOn() bool {
	var others, all int64
	for _, s := range r.shares {
		c := &s.Chain
		_, at := blameOf(s)
		all += s.ThreadNS
		if at+1 < len(c.Hops) && c.Hops[at+1].Process.PID != c.Hops[0].Process.PID && c.Hops[at+1].Kind != observe.WaitFileLock {
			others += s.ThreadNS
		}
	}
	return 2*others < all && r.shares[0].Chain.End != observe.EndUnseen
}

// inBrackets is a remark after a figure, where there is one.
func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}
