package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ProcessStopped: a process that answers requests, or that those who answer
// wait for, does nothing: a signal has stopped it, a debugger holds it, or its
// control group is frozen.
const ProcessStopped ID = "process-stopped"

var processStopped = Cause{
	ID:    ProcessStopped,
	Title: "A process that requests wait for is stopped",
	Layer: LayerApplication,
	Class: ClassWait,
	Needs: []observe.Kind{observe.KindWaits},
	Check: checkProcessStopped,
	Try:   tryLetRun,
}

func checkProcessStopped(v *View) Result {
	return v.judgeRoots(ProcessStopped, "no process that requests wait for was stopped, traced or frozen", func(r *root, f *Finding) {
		c, last := r.example(), r.last()
		f.Subject.Kind, f.Subject.PID, f.Subject.Comm, f.Subject.Path = "process", last.Process.PID, last.Process.Comm, c.Path
		if last.Process.PID != r.shares[0].PID && v.Master(last.Process.PID) != r.shares[0].PID {
			f.Subject.Port = 0
		}
		if n := len(c.Hops); n > 1 && c.Hops[n-2].Kind == observe.WaitFuse {
			f.Subject.Path = objectOf(&c.Hops[n-2]) // what is on the file system that it serves
		}
		f.Fix.Changes = stoppedChanges(c)
		f.Evidence = append(f.Evidence, Evidence{Fact: "state of " + who(last), Value: last.State, Source: "/proc/PID/stat"})
		switch c.End {
		case observe.EndTraced:
			f.Title = fmt.Sprintf("%s is stopped by a debugger", last.Process.Comm)
			f.Fix.Text = "Let its tracer continue it, or end the tracer: that lets it go."
			if c.Actor != 0 {
				f.Fix.Text = fmt.Sprintf("Its tracer is %s (pid %d): let that continue it and detach, or end it, which lets it go.", v.Comm(c.Actor), c.Actor)
				f.Fix.Commands = []shell.Command{shell.Line("ps -o pid,user,lstart,args -p %s", c.Actor)}
			}
		case observe.EndFrozen:
			f.Title = fmt.Sprintf("The cgroup of %s is frozen", last.Process.Comm)
			f.Fix.Text = "Make sure that nothing relies on its being frozen (a snapshot, a checkpoint), and thaw it."
			f.Fix.Commands = []shell.Command{thaw(c.Path)}
			if last.Process.Container != "" {
				f.Fix.Commands = append(f.Fix.Commands, shell.Line("docker unpause %s   # where Docker froze it", shell.Operand(last.Process.Container)))
			}
		default:
			f.Title = fmt.Sprintf("%s is stopped by a signal", last.Process.Comm)
			f.Fix.Text = "Find out who stopped it (a debugger, job control, a script that sends SIGSTOP), and let it go on."
			f.Fix.Commands = []shell.Command{shell.Line("kill -CONT %s", last.Process.PID)}
		}
	})
}

// thaw is the command that thaws a control group, of which path is the file.
func thaw(path string) shell.Command {
	if strings.HasSuffix(path, "freezer.state") {
		return shell.Write("THAWED", shell.Path(path))
	}
	return shell.Write("0", shell.Path(path))
}
