package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// SyslogBlocked: threads that should answer are in a send to the socket of the
// system's log. Its queue is short (net.unix.max_dgram_qlen, 10 datagrams on
// many systems), and syslog(3) waits while it is full.
const SyslogBlocked ID = "syslog-blocked"

var syslogBlocked = Cause{
	ID:            SyslogBlocked,
	Title:         "Requests block on syslog that nobody reads",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{ProcessStopped, DiskSaturated},
	Check:         checkSyslog,
}

// SlowConsole: threads that should answer are in a write to a terminal that
// takes no more.
const SlowConsole ID = "slow-console"

var slowConsole = Cause{
	ID:            SlowConsole,
	Title:         "Requests block on writes to a stopped terminal",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{ProcessStopped},
	Check:         checkConsole,
}

func checkSyslog(v *View) Result {
	return v.judgeRoots(SyslogBlocked, "no thread that answers requests was held up in sending to the system's log", func(r *root, f *Finding) {
		c, sender := r.example(), r.blamed()
		f.Evidence = append(f.Evidence, Evidence{Fact: "full", Value: sender.Object, Unit: sender.Detail, Source: "unix_diag, /proc/PID/fd"})
		f.Subject.Path = objectOf(sender)
		f.Fix.Text = "Find who should read the system's log, and fix it. To be independent of it, let the service log without waiting."
		if r.at < len(c.Hops)-1 {
			reader := &c.Hops[r.at+1]
			f.Title = fmt.Sprintf("Requests block on syslog: %s does not read", reader.Process.Comm)
			f.Fix.Text = fmt.Sprintf("%s reads the log and is late: it %s. Fix or restart it; rsyslog can write without a sync for each line (a minus sign before the file), journald can drop (RateLimitBurst=).", who(reader), ownerText(c, r.at+1))
			f.Fix.Commands = []shell.Command{lookAtWaits(reader.Process.PID)}
		}
		f.Fix.Commands = append(f.Fix.Commands, shell.Line("systemctl status rsyslog systemd-journald"), shell.Line("sysctl net.unix.max_dgram_qlen   # in the network namespace of the service, when the socket is made"))
	})
}

func checkConsole(v *View) Result {
	return v.judgeRoots(SlowConsole, "no thread that answers requests was held up in a write to a terminal", func(r *root, f *Finding) {
		c, writer := r.example(), r.blamed()
		f.Subject.Path = objectOf(writer)
		f.Evidence = append(f.Evidence, Evidence{Fact: "terminal", Value: writer.Object, Unit: writer.Detail, Source: "/proc/PID/fd"})
		f.Fix.Text = fmt.Sprintf("Let the terminal go on (Ctrl-Q), or find who shows it and does not read; then have %s write its log elsewhere.", writer.Process.Comm)
		f.Fix.Commands = []shell.Command{lookAtWaits(writer.Process.PID)}
		if r.at < len(c.Hops)-1 {
			f.Fix.Commands = append(f.Fix.Commands, lookAtWaits(c.Hops[r.at+1].Process.PID))
		}
	})
}
