package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// AutoreloadStatStorm: a service looks at its files again and again, to start
// itself anew when one has changed. It is what strace(1) shows first, and hardly
// ever what makes requests slow.
const AutoreloadStatStorm ID = "autoreload-stat-storm"

var autoreloadStatStorm = Cause{
	ID:            AutoreloadStatStorm,
	Title:         "The service spends its CPU on stat() calls",
	Layer:         LayerApplication,
	Class:         ClassCompute,
	Needs:         []observe.Kind{observe.KindRequests, observe.KindProfile, observe.KindProcess},
	ConsequenceOf: []Parent{CPUQuotaThrottled},
	Folds:         true,
	Check:         checkStatStorm,
}

// statFunctions are the kernel functions behind stat(2), newfstatat(2),
// statx(2) and access(2) (fs/stat.c, fs/open.c), of several versions.
var statFunctions = []string{
	"vfs_statx", "vfs_fstatat", "do_statx", "vfs_statx_path", "vfs_statx_fd", "__do_sys_newfstatat", "__do_sys_newstat", "__do_sys_statx",
	"__x64_sys_newfstatat", "__x64_sys_newstat", "__x64_sys_statx", "__arm64_sys_newfstatat", "__arm64_sys_statx", "do_faccessat",
}

func checkStatStorm(v *View) Result {
	return v.judgeLedgers(fewRequests, func(l *ledger) judged {
		if l.called() {
			return judged{because: "no request is answered here", near: -1}
		}
		w := v.atWork(l)
		e := v.executedBy(w.procs, 0)
		var most *observe.ProfileFunction
		for i := range e.functions {
			if f := &e.functions[i]; slices.Contains(statFunctions, f.Name) && (most == nil || f.Total > most.Total) {
				most = f
			}
		}
		if most == nil {
			if !e.enough() {
				return judged{because: fmt.Sprintf("what answers on %s uses too little CPU for it", l.name()), near: 0}
			}
			return judged{because: fmt.Sprintf("stat() is not among what takes most of the CPU of %s", v.commOf(l)), near: 0}
		}
		share := e.share(most)
		because := fmt.Sprintf("%s spends %s of its CPU time looking at files (%s), %s of a CPU", v.commOf(l), percent(share), most.Name, percent(share*ratio(w.cpu, v.Window.Seconds)))
		k := l.cost(1, threadParts...)
		own := l.ownCPU(&w)
		scarce, why := v.computingIsScarce(l, &w, own)
		switch {
		case !e.enough() || share < fileWorkShare:
			return judged{because: because, near: share}
		case !l.noticed(k, threadFloor):
			return judged{because: because + ", and no request is slow for it", near: share}
		case scarce == 0:
			return judged{because: because + ", and requests wait for something else", near: share}
		}
		f := v.found(l, scaled(k, scarce*share), threadFloor, "behind a look at files")
		f.Subject.Kind = "process"
		f.Evidence = append(f.Evidence,
			Evidence{Fact: "CPU time in " + most.Name, Value: round(share), Limit: 1, Unit: fmt.Sprintf("share of %s CPU samples", count(e.samples)), Source: "CPU samples, kernel stacks"},
			Evidence{Fact: "why its requests wait for it", Value: why, Source: "/proc/PID/schedstat, request records"},
		)
		f.Fix.Text = "Switch off the automatic reload in production (--reload, DEBUG, opcache.validate_timestamps): that is for development."
		f.Fix.Commands = []shell.Command{shell.Line("slowray flame --pid %s -o flame.html   # who looks", v.busiestOf(&w))}
		return judged{finding: f}
	})
}
