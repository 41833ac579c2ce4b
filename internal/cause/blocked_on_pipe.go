package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// BlockedOnPipe: threads that should answer are in a write to a full pipe (or
// unix socket, or terminal), and whoever has the other end does not read.
const BlockedOnPipe ID = "blocked-on-pipe"

var blockedOnPipe = Cause{
	ID:            BlockedOnPipe,
	Title:         "Requests block on a pipe that nobody reads",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{LogCollectorStalled, ProcessStopped},
	Check:         checkBlockedOnPipe,
	Try:           foundOnly,
}

func checkBlockedOnPipe(v *View) Result {
	r := v.judgeRoots(BlockedOnPipe, "no thread that answers requests was held up in a write to a pipe", func(r *root, f *Finding) {
		c := r.example()
		writer := r.blamed()
		f.Fix.Changes = fullPipe(c)
		f.Evidence = append(f.Evidence, Evidence{Fact: "full", Value: writer.Object, Source: "/proc/PID/fd"})
		if r.at == len(c.Hops)-1 {
			f.Fix.Text = fmt.Sprintf("%s writes to %s, and nobody is seen who reads there: find what should.", who(writer), objectOf(writer))
			return
		}
		reader := &c.Hops[r.at+1]
		f.Title = fmt.Sprintf("Requests block on a pipe %s does not read", reader.Process.Comm)
		f.Fix.Text = fmt.Sprintf("%s has the other end and does not read: it %s. Fix or restart it; to be independent of it, write without blocking (a queue with a bound, or a file) in %s.",
			who(reader), ownerText(c, r.at+1), writer.Process.Comm)
		f.Fix.Commands = []shell.Command{lookAtWaits(reader.Process.PID)}
	})
	// A pipe whose reader is stopped is reported as what follows from that.
	for _, stop := range v.roots {
		if c := stop.example(); stop.cause == ProcessStopped && v.harmless(stop) == "" && len(c.Hops) > 1 &&
			c.Hops[len(c.Hops)-2].Kind == observe.WaitPipe && c.Hops[len(c.Hops)-2].Wants == observe.WantsRoom {
			f := v.rootFinding(stop, func(_ *root, f *Finding) {
				f.Title = fmt.Sprintf("Requests block on a pipe %s does not read", stop.last().Process.Comm)
				f.Fix.Text = fmt.Sprintf("Let %s go on.", who(stop.last()))
				f.Fix.Commands = []shell.Command{shell.Line("kill -CONT %s", stop.last().Process.PID)}
				f.Fix.Changes = stoppedChanges(stop.example())
				f.follows(ProcessStopped)
				f.Weight = 0
			})
			r.Findings = append(r.Findings, f)
		}
	}
	return r
}
