package cause

import (
	"fmt"
	"slices"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// UDPReceiveBufferOverflow: a datagram that does not fit into its socket's
// receive buffer is dropped, and nobody learns of it (__udp_enqueue_schedule_skb,
// net/ipv4/udp.c): who asked waits for its own time limit. Whoever reads such a
// socket is to read faster, or to have more room.
const UDPReceiveBufferOverflow ID = "udp-receive-buffer-overflow"

var udpReceiveBufferOverflow = Cause{
	ID:            UDPReceiveBufferOverflow,
	Title:         "A UDP receive buffer is full",
	Layer:         LayerSocket,
	Needs:         []observe.Kind{observe.KindUDP, observe.KindCounters, observe.KindProcess},
	ConsequenceOf: []Parent{ProcessStopped, RunQueueWait, SingleThreadSaturated, ClassShort},
	Folds:         true,
	Check:         checkUDPBuffer,
	Try:           tryDatagramRoom,
}

// asks says whether a service in view looks up names at this port of the
// namespace.
func (v *View) asks(ns *observe.NetNS, port int) bool {
	return port == namePort && v.asked()[ns]
}

// namesAt is the processes that answer for names at an address, where that is on this
// host.
func (v *View) namesAt(netns uint64, addr string) (pids []int) {
	a := address(addr).Unmap()
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		for j := range ns.UDP {
			u := &ns.UDP[j]
			at := address(u.Addr).Unmap()
			here := at == a && (!a.IsLoopback() || ns.Inode == netns) || at.IsUnspecified() && slices.Contains(v.owners.of(a), ns.Inode)
			if u.Port == namePort && u.PID != 0 && here {
				pids = append(pids, u.PID)
			}
		}
	}
	return pids
}

func (v *View) findAsked() map[*observe.NetNS]bool {
	out := map[*observe.NetNS]bool{}
	for _, n := range v.lookedUp() {
		for _, s := range n.servers {
			if there, _ := v.listensHere(destination{n.netns, s.Addr, namePort}); there != nil {
				out[there] = true
			}
		}
	}
	return out
}

func checkUDPBuffer(v *View) Result {
	r := ruledOut("no UDP socket threw a datagram away")
	var most uint64
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		full := ns.Counters["Udp.RcvbufErrors"] + ns.Counters["Ip6.Udp6RcvbufErrors"]
		came := ns.Counters["Udp.InDatagrams"] + ns.Counters["Ip6.Udp6InDatagrams"]
		_, counts6 := ns.Counters["Ip6.Udp6InDatagrams"]
		for j := range ns.UDP {
			u := &ns.UDP[j]
			comm := v.Comm(u.PID)
			name := fmt.Sprintf("the UDP socket of %s at port %d", comm, u.Port)
			text := fmt.Sprintf("%s datagrams to %s were dropped; %s came in%s", count(u.Drops), name, count(came), where(ns))
			share := ratio(u.Drops, u.Drops+came)
			inView := v.Filter == (observe.Filter{}) || v.OnPath(u.PID) || v.InScope(ns.Inode) || v.asks(ns, u.Port)
			// Without the counter drops may be of wrong checksums.
			v6 := address(u.Addr).Is6() && !counts6
			if u.Drops < fewPackets || share < noiseShare || !inView || full == 0 && !v6 || u.PID == 0 {
				if u.Drops > most {
					r.RuledOut, most = text, u.Drops
				}
				continue
			}
			f := supported(Subject{Kind: "process", NetNS: ns.Inode, PID: u.PID, Comm: comm, Addr: u.Addr, Port: u.Port})
			f.Weight = share
			f.Impact = Impact{Share: round(share), Of: "datagrams", Text: text}
			f.Evidence = []Evidence{
				{Fact: "datagrams dropped at this socket", Value: u.Drops, Unit: "datagrams", Source: "/proc/net/udp"},
				{Fact: "datagrams without room in a receive buffer, in the namespace", Value: full, Unit: "datagrams", Source: "/proc/net/snmp, snmp6: RcvbufErrors"},
				{Fact: "received and not read, at the end", Value: u.QueueBytes, Unit: "bytes", Source: "/proc/net/udp"},
			}
			if p := v.Process(u.PID); p != nil {
				f.Evidence = append(f.Evidence, Evidence{Fact: "state of the process, and its CPU", Value: fmt.Sprintf("%s, %.2g CPUs", p.State, p.CPUSeconds()/max(v.Window.Seconds, 1)), Source: "/proc/PID/stat"})
			}
			if bound := v.sysctl(ns, "net.core.rmem_max"); bound != "" {
				f.Evidence = append(f.Evidence, Evidence{Fact: "net.core.rmem_max, rmem_default", Value: bound + ", " + v.sysctl(ns, "net.core.rmem_default"), Unit: "bytes", Source: "sysctl" + where(ns)})
			}
			f.Fix.Text = fmt.Sprintf("Give the socket more room: a larger SO_RCVBUF in the configuration of %s, and net.core.rmem_max, by which it is bounded, raised on the host. Should it be full all the time, %s reads too slowly: find what it waits for, or give it more threads.", comm, comm)
			f.Fix.Commands = []shell.Command{shell.Line("sysctl -w net.core.rmem_max=8388608   # on the host"), v.in(ns, shell.Line("ss -uanmp sport = :%s   # rb is its buffer, d what was dropped", u.Port))}
			f.Fix.Persist = []shell.Command{LastingSysctl("net.core.rmem_max", wantedDatagrams)}
			r.Findings = append(r.Findings, f)
		}
	}
	return r
}
