package cause

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// LogCollectorStalled: a service writes its log into a pipe; who reads that
// passes it on over a connection, and the collector at the other end does not
// read. When all buffers between are full, the service stands still in its next
// line of log, with everything else on the host that logs to the same place.
const LogCollectorStalled ID = "log-collector-stalled"

var logCollectorStalled = Cause{
	ID:    LogCollectorStalled,
	Title: "The log collector does not read",
	Layer: LayerApplication,
	Class: ClassWait,
	Needs: []observe.Kind{observe.KindWaits},
	Check: checkLogCollector,
	Try:   foundOnly,
}

func checkLogCollector(v *View) Result {
	return v.judgeRoots(LogCollectorStalled, "no thread that answers requests was held up in writing its log", func(r *root, f *Finding) {
		c, sender := r.example(), r.blamed()
		_, to, _ := strings.Cut(sender.Object, " to ")
		if a, err := netip.ParseAddrPort(to); err == nil {
			f.Subject.Kind, f.Subject.Addr, f.Subject.Port = "destination", a.Addr().String(), int(a.Port())
			f.Subject.PID, f.Subject.Comm = sender.Process.PID, sender.Process.Comm
		}
		collector := "the collector"
		if to != "" {
			collector += " at " + to
		}
		stopped := c.End == observe.EndStopped
		f.Fix.Changes = fullPipe(c)
		switch {
		case r.at < len(c.Hops)-1:
			collector = fmt.Sprintf("%s at %s", who(&c.Hops[r.at+1]), to)
		case sender.Remote != "":
			collector = "the collector at " + sender.Remote + ", which is not on this host,"
		}
		f.Title = fmt.Sprintf("The log collector at %s does not read", nameOf(to))
		f.Evidence = append(f.Evidence, Evidence{Fact: "not taken by the collector", Value: sender.Object, Unit: "(" + sender.Detail + ")", Source: "sock_diag"})
		if sender.QuietNS > 0 {
			f.Evidence = append(f.Evidence, Evidence{Fact: "nothing has passed there", Value: round(float64(sender.QuietNS) / 1e9), Unit: "s", Source: "sock_diag, tcp_info"})
		}
		f.Fix.Text = fmt.Sprintf("Fix %s: it does not read. So that a collector cannot stop the services, let the log be dropped when it is late (Docker: mode=non-blocking with a buffer), which takes effect when a container is made anew.", collector)
		if stopped {
			f.Fix.Text = fmt.Sprintf("Let %s go on: it is stopped by a signal. So that a collector cannot stop the services, let the log be dropped when it is late (Docker: mode=non-blocking with a buffer), which takes effect when a container is made anew.", collector)
			f.Fix.Commands, f.Fix.Changes = []shell.Command{shell.Line("kill -CONT %s", r.last().Process.PID)}, stoppedChanges(c)
		} else if r.at < len(c.Hops)-1 {
			f.Fix.Commands = []shell.Command{lookAtWaits(r.last().Process.PID)}
		} else if to != "" {
			f.Fix.Commands = []shell.Command{v.in(v.place(sender.Process.NetNS), shell.Line("ss -tnpoi dst %s", to))}
		}
		if docker(c) {
			f.Fix.Persist = []shell.Command{
				shell.Line("# docker run --log-opt mode=non-blocking --log-opt max-buffer-size=4m …, or log_opts in its compose file"),
				shell.Line("# for all new containers, in /etc/docker/daemon.json: %s", `"log-opts": {"mode": "non-blocking", "max-buffer-size": "4m"}`),
			}
		}
	})
}

func nameOf(address string) string {
	if address == "" {
		return "the other end"
	}
	return address
}

// docker says whether a chain leads through a Docker engine or a container's shim.
func docker(c *observe.WaitChain) bool {
	for i := range c.Hops {
		if name := c.Hops[i].Process.Comm; strings.HasPrefix(name, "dockerd") || strings.HasPrefix(name, "containerd-shim") {
			return true
		}
	}
	return false
}
