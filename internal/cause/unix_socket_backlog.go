package cause

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// UnixSocketBacklog: threads that should answer wait in connect() to a unix
// socket: its queue of connections that wait for accept() is full. Callers that
// do not block fail with EAGAIN instead, which is reported as accept-queue-overflow.
const UnixSocketBacklog ID = "unix-socket-backlog"

var unixSocketBacklog = Cause{
	ID:            UnixSocketBacklog,
	Title:         "Requests wait for a unix socket's full backlog",
	Layer:         LayerCall,
	Class:         ClassWait,
	Needs:         []observe.Kind{observe.KindWaits},
	ConsequenceOf: []Parent{ProcessStopped, PHPFPMChildrenExhausted},
	Check:         checkUnixBacklog,
	Try:           tryUnixBacklog,
}

func checkUnixBacklog(v *View) Result {
	return v.judgeRoots(UnixSocketBacklog, "no thread that answers requests was held up in connect() to a unix socket", func(r *root, f *Finding) {
		c, h := r.example(), r.blamed()
		name := objectOf(h)
		if s := v.unixService(strings.TrimPrefix(name, "unix to ")); s != nil {
			f.Fix.Changes = tryUnixBacklog(v, Target{Service: s})
		}
		f.Evidence = append(f.Evidence, Evidence{Fact: "queue", Value: name, Unit: "(" + h.Detail + ")", Source: "sock_diag, unix"})
		if r.at == len(c.Hops)-1 {
			f.Fix.Text = "Find who should accept connections there."
			return
		}
		server := &c.Hops[r.at+1]
		f.Title = fmt.Sprintf("The listen backlog of %s is full (%s)", name, server.Process.Comm)
		f.Fix.Text = fmt.Sprintf("%s does not take up the connections: it %s. Give it more workers, or find what those that it has wait for; a longer queue only lets callers wait there.", who(server), ownerText(c, r.at+1))
		f.Fix.Commands = []shell.Command{lookAtWaits(server.Process.PID)}
	})
}
