package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// FDLimit: accept() and connect() need a file descriptor; at RLIMIT_NOFILE
// they fail with EMFILE, at fs.file-max with ENFILE (getrlimit(2), accept(2)).
const FDLimit ID = "fd-limit"

var fdLimit = Cause{
	ID:    FDLimit,
	Title: "accept() fails: open files limit reached (EMFILE)",
	Layer: LayerApplication,
	Needs: []observe.Kind{observe.KindProcess, observe.KindConnects},
	Check: checkFDLimit,
	Try:   tryMoreFiles,
	// What is never closed uses up any number.
	ConsequenceOf: []Parent{CloseWaitLeak},
	Folds:         true,
}

func checkFDLimit(v *View) Result {
	var r Result
	top, most := -1.0, "no server with traffic"
	for _, a := range v.Accepts {
		if !v.Serving(a.PID) {
			continue
		}
		if n := a.Errors["EMFILE"] + a.Errors["ENFILE"]; n > 0 {
			r.Findings = append(r.Findings, fdFinding(v, a, n))
		}
	}
	for i := range v.Processes {
		p := &v.Processes[i]
		if !v.Serving(p.PID) || p.FDLimit == 0 {
			continue
		}
		if use := ratio(p.FDs, p.FDLimit); use > top {
			top = use
			most = fmt.Sprintf("accept() never failed because file descriptors ran out; closest is %s (pid %d) with %s",
				p.Comm, p.PID, ofLimit(p.FDs, p.FDLimit, "open"))
		}
	}
	r.RuledOut = most
	if len(r.Findings) == 0 {
		return v.otherDescriptors(r)
	}
	return r
}

// otherDescriptors looks for calls other than accept() that found no descriptor
// left, of services whose requests fail with them.
func (v *View) otherDescriptors(r Result) Result {
	match := func(e *observe.CallError) bool {
		return e.Error == "EMFILE" && !strings.HasPrefix(e.Call, "inotify_init") && !strings.HasPrefix(e.Call, "accept")
	}
	other := v.judgeLack(match, r.RuledOut, func(k *lack, f *Finding) {
		e := k.first()
		f.Title = "open files limit reached (EMFILE) in a service"
		want, limit := v.raisedFDs(v.Process(e.PID))
		if p := v.Process(e.PID); p != nil {
			f.Fix.Changes = []Change{rlimitChange(p, "nofile", itoa(p.FDLimit), itoa(want))}
			f.Evidence = append(f.Evidence, Evidence{Fact: "open files, peak", Value: p.FDs, Limit: p.FDLimit, Unit: "files", Source: "/proc/PID/fd, /proc/PID/limits"})
			if p.Unit != "" {
				f.Fix.Persist = []shell.Command{shell.Line("systemctl edit %s   # [Service] LimitNOFILE=%s", shell.Unit(p.Unit), want)}
			}
		}
		f.Fix.Text = fmt.Sprintf("Raise the limit of open files of %s to %d, and see whether it forgets to close some.", e.Comm, want)
		f.Fix.Commands = []shell.Command{shell.Line("prlimit --pid %s --nofile=%s", e.PID, limit)}
	})
	if other.NotChecked != "" {
		return r
	}
	return other
}

func fdFinding(v *View, a observe.Accept, failed uint64) Finding {
	f := supported(Subject{Kind: "process", PID: a.PID, Comm: a.Comm})
	if s := v.ServiceOf(a.PID); s != nil {
		f.Subject.NetNS, f.Subject.Port, f.Subject.Path = s.NS.Inode, s.Port(), s.Path()
	}
	// A server that cannot accept is asked again and again by the same waiting
	// connections: failures outnumber the connections lost. What is sure is
	// that none can come in while they last.
	f.Weight, f.uncounted = ratio(failed, failed+a.Accepted), true
	f.Impact = Impact{Share: round(f.Weight), Of: "accept() calls",
		Text: fmt.Sprintf("%s of %s accept() calls failed", count(failed), count(failed+a.Accepted))}
	p := v.Process(a.PID)
	if a.Errors["ENFILE"] > a.Errors["EMFILE"] {
		f.Title = "The host is out of file descriptors (fs.file-max)"
		f.Evidence = []Evidence{{Fact: "accept() failed with ENFILE", Value: a.Errors["ENFILE"], Limit: v.Sysctl["fs.file-max"], Unit: "calls", Source: "accept() results"}}
		f.Fix = Fix{Text: "Raise fs.file-max, and find who holds so many files.", Changes: fileMax.Try(v, Target{})}
		v.setSysctl(&f.Fix, nil, "fs.file-max", v.wantedFiles())
		return f
	}
	f.Evidence = []Evidence{{Fact: "accept() failed with EMFILE", Value: a.Errors["EMFILE"], Unit: "calls", Source: "accept() results"}}
	want, limit := v.raisedFDs(p)
	if p != nil {
		f.Evidence = append(f.Evidence, Evidence{Fact: "open files, peak", Value: p.FDs, Limit: p.FDLimit, Unit: "files", Source: "/proc/PID/fd, /proc/PID/limits"})
	}
	for i := range v.Nginx {
		n := &v.Nginx[i]
		if slices.Contains(n.Workers, a.PID) && n.WorkerRlimitNofile.Value != "" {
			if s := fromHost(n.Root, n.WorkerRlimitNofile); s.Line > 0 {
				f.Subject.Path = fmt.Sprintf("%s:%d", s.File, s.Line)
			}
			f.Fix.Persist = append(f.Fix.Persist, shell.Line("# in %s: worker_rlimit_nofile %s;", n.Root+n.Config, want))
		}
	}
	f.Fix.Text = fmt.Sprintf("Raise the limit of open files of %s to %d.", a.Comm, want)
	f.Fix.Commands = []shell.Command{shell.Line("prlimit --pid %s --nofile=%s", a.PID, limit)}
	if p != nil && p.Unit != "" {
		f.Fix.Persist = append(f.Fix.Persist, shell.Line("systemctl edit %s   # [Service] LimitNOFILE=%s", shell.Unit(p.Unit), want))
	}
	return f
}
