package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// ApplicationSleep: who has a request in hand sleeps for a time that it chose itself: a
// retry with back-off, a limit of its own, a loop that looks again and again.
const ApplicationSleep ID = "application-sleep"

var applicationSleep = Cause{
	ID:            ApplicationSleep,
	Title:         "Requests sleep in the application",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{ProcessStopped, PHPFPMSlowScript, ErrorAnswers, UpstreamRefused, ConnectTimeout},
	Folds:         true,
	Check:         checkApplicationSleep,
}

func checkApplicationSleep(v *View) Result {
	return v.judgeRoots(ApplicationSleep, "no thread slept by its own choice with a slow request in hand", func(r *root, f *Finding) {
		sleeper := r.blamed()
		at := ""
		if len(sleeper.Stack) > 0 {
			at = " at " + sleeper.Stack[0]
			f.Subject.Path = sleeper.Stack[0]
			f.Evidence = append(f.Evidence, Evidence{Fact: "where it sleeps", Value: strings.Join(sleeper.Stack, " ← "), Source: languageOf(sleeper).source})
		}
		here := f.Subject.NetNS
		f.MayFollow = func(p *Finding) bool { // an error that its own calls get
			return p.Subject.NetNS == here && p.Cause != ErrorAnswers || slices.ContainsFunc(v.servedOf[r.shares[0].PID], func(l *ledger) bool { return p.hurts[l] })
		}
		f.Title = fmt.Sprintf("Requests of %s sleep in the application%s", sleeper.Process.Comm, at)
		f.Fix.Text = fmt.Sprintf("Who answers sleeps%s, about %s in each such request. See what the pause is for (a retry, a limit on its own rate, a look again and again for a result), and wait for the event itself, or give up sooner.",
			at, nanoseconds(r.lost/max(r.hit, 1)))
	})
}
