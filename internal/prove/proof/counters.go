package proof

import (
	"github.com/slowray/slowray/internal/sense/host"
)

// watched are counters of a network namespace that tell of harm: they are shown
// next to the requests when they moved.
var watched = []string{
	"TcpExt.ListenOverflows", "TcpExt.ListenDrops", "TcpExt.TCPReqQFullDrop", "TcpExt.TCPReqQFullDoCookies",
	"TcpExt.TCPSynRetrans", "TcpExt.TCPTimeouts", "Tcp.RetransSegs", "Tcp.AttemptFails", "Tcp.EstabResets",
	"TcpExt.TCPTimeWaitOverflow", "TcpExt.TCPAbortOnMemory", "TcpExt.PruneCalled", "TcpExt.TCPRcvQDrop", "TcpExt.TCPBacklogDrop",
	"TcpExt.IPReversePathFilter", "TcpExt.PAWSEstab", "TcpExt.PAWSActive", "Ip.OutNoRoutes", "Ip.ReasmFails", "Ip.OutDiscards",
	"Udp.RcvbufErrors", "Udp.SndbufErrors",
}

// ownCounters are those that a cause is about, where it may have no requests.
var ownCounters = map[string][]string{
	"udp-receive-buffer-overflow": {"Udp.RcvbufErrors"},
}

// turnedAway are counters of clients whom the kernel does not let in, by the
// cause that keeps them out.
var turnedAway = map[string][]string{
	"accept-queue-overflow": {"TcpExt.ListenOverflows"},
}

// TurnedAway are the counters of clients that a cause keeps out.
func TurnedAway(cause string) []string { return turnedAway[cause] }

// Harmful are the counters that a cause is judged by where no requests are seen.
func Harmful(cause string) []string { return ownCounters[cause] }

// CountersOf reads the watched counters in the network namespace of a process.
// The namespace is closed by the second function.
func CountersOf(pid int) (read func() (map[string]uint64, error), closeNS func(), err error) {
	ns, err := host.Default().OpenNetNS(pid)
	if err != nil {
		return nil, nil, err
	}
	read = func() (map[string]uint64, error) {
		all, err := ns.Counters()
		if err != nil {
			return nil, err
		}
		some := map[string]uint64{}
		for _, name := range watched {
			if v, ok := all[name]; ok {
				some[name] = v
			}
		}
		return some, nil
	}
	return read, func() { ns.Close() }, nil
}
