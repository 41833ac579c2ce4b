package cause

import (
	"fmt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ConntrackFull: every packet of a new flow needs an entry in the connection
// tracking table; when there is none to be had, the packet is dropped
// (nf_conntrack_alloc in net/netfilter/nf_conntrack_core.c). nf_conntrack_max
// is one number for the host, compared with each namespace's own entries.
const ConntrackFull ID = "conntrack-full"

var conntrackFull = Cause{
	ID:    ConntrackFull,
	Title: "The conntrack table is full",
	Layer: LayerNetfilter,
	Needs: []observe.Kind{observe.KindConntrack},
	Check: checkConntrackFull,
	Try:   tryConntrackLimit,
}

func checkConntrackFull(v *View) Result {
	var r Result
	most, used := "connection tracking is not in use", -1.0
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		ct := ns.Conntrack
		if ct == nil {
			continue
		}
		harms := v.tableHarms(ns)
		if !v.InScope(ns.Inode) && len(harms) == 0 {
			continue
		}
		logged := v.kernelLines("conntrack-table-full", ns)
		if v.withoutRoom(ns) == 0 && logged == 0 && len(harms) == 0 {
			if u := ratio(ct.PeakEntries, ct.Max); u > used {
				used = u
				most = fmt.Sprintf("at most %s in use (%s)%s, no packet dropped",
					ofLimit(ct.PeakEntries, ct.Max, "entries"), percent(u), where(ns))
				if ct.Drop > 0 {
					most += fmt.Sprintf(" for lack of room; %s were for what they are, %s of them as their entry clashed with another one",
						count(ct.Drop), count(min(ct.Drop, ct.InsertFailed)))
				}
			}
			continue
		}
		r.Findings = append(r.Findings, conntrackFinding(v, ns, logged, harms))
	}
	r.RuledOut = most
	return r
}

// tableHarms is what the full table of a namespace did to connections that pass it: it
// dropped their packets, or a rule did that takes those without an entry for invalid.
func (v *View) tableHarms(ns *observe.NetNS) []dropHarm {
	var out []dropHarm
	for _, s := range v.sites {
		if s.NetNS == ns.Inode && len(s.parts) > 0 && (s.Layer == DropConntrack || v.tableFull(ns) && s.Layer == DropFirewall && (s.Rule == nil || s.Rule.Stateful)) {
			out = append(out, v.harms(s)...)
		}
	}
	return out
}

func conntrackFinding(v *View, ns *observe.NetNS, logged int, harms []dropHarm) Finding {
	ct := ns.Conntrack
	f := supported(Subject{Kind: "namespace", NetNS: ns.Inode})
	for _, s := range v.servicesIn[ns.Inode] {
		if s.NS == ns { // the service that people know the namespace by
			f.Subject.PID = v.Master(s.Listeners[0].PID)
			f.Subject.Comm, f.Subject.Port = v.Comm(f.Subject.PID), s.Port()
			break
		}
	}
	f.hurts = map[*ledger]bool{}
	for i := range harms {
		h := &harms[i]
		if h.l != nil {
			f.hurts[h.l] = true
		}
		switch {
		case f.Subject.PID != 0:
		case h.l != nil:
			f.Subject.Port, f.Subject.PID, f.Subject.Comm = h.l.Port, h.l.pid, v.Comm(h.l.pid)
		default:
			f.Subject.Port, f.Subject.Addr, f.Subject.PID, f.Subject.Comm = h.connect.Port, h.connect.Addr, h.connect.PID, h.caller()
		}
	}
	// Each dropped packet is a connection attempt that has to be repeated
	// after a second or more; the attempts that came through are the
	// handshakes completed.
	var opened uint64
	for i := range ns.Listeners {
		opened += ns.Listeners[i].Opened
	}
	if len(ns.Listeners) == 0 {
		opened = v.openedOf(f.hurts)
	}
	dropped := v.withoutRoom(ns)
	lost := max(dropped, uint64(logged), ct.EarlyDrop)
	f.Weight = ratio(lost, lost+opened)
	f.lostAttempts(lost)
	f.Impact = Impact{
		Share: round(f.Weight), Of: "connection attempts",
		Text: fmt.Sprintf("%s packets of new connections dropped%s, %s connections came through", count(lost), where(ns), count(opened)),
	}
	if len(harms) > 0 && harms[0].weight > f.Weight {
		f.Weight = harms[0].weight
	}
	f.Evidence = append(f.Evidence,
		Evidence{Fact: "packets dropped because the table was full", Value: dropped, Unit: "packets", Source: "conntrack statistics, drop"},
		Evidence{Fact: "entries thrown out to make room", Value: ct.EarlyDrop, Unit: "entries", Source: "conntrack statistics, early_drop"},
		Evidence{Fact: "entries in use, peak", Value: ct.PeakEntries, Limit: ct.Max, Unit: "entries", Source: "net.netfilter.nf_conntrack_count, nf_conntrack_max"})
	if logged > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "kernel log: table full, dropping packet", Value: logged,
			Unit: "lines (rate-limited)", Source: "/dev/kmsg"})
	}
	if n := ns.Counters["TcpExt.TCPSynRetrans"]; n > 0 {
		f.Evidence = append(f.Evidence, Evidence{Fact: "SYNs retransmitted", Value: n, Unit: "segments", Source: "netstat TCPSynRetrans"})
	}
	limit := conntrackLimit(ct)
	f.Fix.Text = fmt.Sprintf("Raise nf_conntrack_max to %s (about %d MB when full).", count(limit), limit*320/1_000_000+1)
	if !ns.Host {
		f.Fix.Text += " It is set on the host, not inside the container; each network namespace is compared with it on its own."
	}
	v.setSysctl(&f.Fix, nil, "net.netfilter.nf_conntrack_max", limit)
	if v.Kubernetes != nil { // kube-proxy sets it whenever it starts
		f.Fix.Persist = []shell.Command{shell.Line("# in the configuration of kube-proxy: conntrack.min: %s", limit)}
	}
	return f
}

// openedOf counts the connections that came about at these ends.
func (v *View) openedOf(ends map[*ledger]bool) uint64 {
	var n uint64
	for l := range ends {
		n += l.Connections
	}
	return n
}

// tryConntrackLimit raises the limit, which is one for the host.
func tryConntrackLimit(v *View, t Target) []Change {
	ns := v.targetNS(t)
	if ns == nil || ns.Conntrack == nil {
		return nil
	}
	return []Change{sysctlChange(nil, "net.netfilter.nf_conntrack_max", utoa(ns.Conntrack.Max), utoa(conntrackLimit(ns.Conntrack)))}
}

// conntrackLimit proposes a limit: the kernel's usual default, or four times
// the present one if that is more.
func conntrackLimit(ct *observe.Conntrack) uint64 {
	return max(262144, ct.Max*4)
}

// kernelLines counts the kernel log lines of one kind that name the namespace
// or, from kernels that print no namespace, name none.
func (v *View) kernelLines(kind string, ns *observe.NetNS) int {
	n := 0
	for _, l := range v.logged[kind] {
		if l.NetNS == ns.Inode || l.NetNS == 0 && ns.Host {
			n += l.Count
		}
	}
	return n
}
