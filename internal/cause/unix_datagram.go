package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// UnixDatagramBlocked: a datagram socket holds net.unix.max_dgram_qlen messages
// (10 by default, unix_dgram_sendmsg), and who sends the next one waits until
// the reader takes one. The system's own log sockets are reported as
// syslog-blocked.
const UnixDatagramBlocked ID = "unix-datagram-blocked"

var unixDatagramBlocked = Cause{
	ID:            UnixDatagramBlocked,
	Title:         "Requests block on a unix socket nobody reads",
	Layer:         LayerApplication,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{LogCollectorStalled, SyslogBlocked, ProcessStopped},
	Check:         checkUnixDatagram,
}

func checkUnixDatagram(v *View) Result {
	return v.judgeRoots(UnixDatagramBlocked, "no thread that answers requests was held up in sending to a unix datagram socket", func(r *root, f *Finding) {
		c, sender := r.example(), r.blamed()
		ns := v.Namespace(sender.Process.NetNS)
		f.Evidence = append(f.Evidence, Evidence{Fact: "full", Value: sender.Object, Source: "/proc/PID/fd"})
		qlen := v.sysctl(ns, "net.unix.max_dgram_qlen")
		if qlen != "" {
			f.Evidence = append(f.Evidence, Evidence{Fact: "net.unix.max_dgram_qlen", Value: qlen, Unit: "messages", Source: "sysctl" + where(ns)})
		}
		f.Fix.Text = fmt.Sprintf("Nobody is seen who reads %s: find what should. In %s: send without blocking, and leave out what does not fit.", objectOf(sender), sender.Process.Comm)
		if r.at < len(c.Hops)-1 {
			reader := &c.Hops[r.at+1]
			f.Title = fmt.Sprintf("Requests block on a unix socket %s ignores", reader.Process.Comm)
			f.Fix.Text = fmt.Sprintf("%s has the other end and does not read: it %s. Fix or restart it; to be independent of it, send without blocking (MSG_DONTWAIT) in %s. A longer queue helps with bursts only.",
				who(reader), ownerText(c, r.at+1), sender.Process.Comm)
			f.Fix.Commands = []shell.Command{lookAtWaits(reader.Process.PID)}
		}
		if qlen != "" {
			f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("sysctl -w net.unix.max_dgram_qlen=512   # for sockets that are made after it")))
		}
	})
}
