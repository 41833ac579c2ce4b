package cause

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// QdiscDrop: the queue in front of a device is full, or shaped to a rate, or
// drops on purpose.
const QdiscDrop ID = "qdisc-drop"

var qdiscDrop = Cause{
	ID:    QdiscDrop,
	Title: "A qdisc drops packets on egress",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindPath},
	Check: drops(dropSpec{layers: []DropLayer{DropQdisc}, words: qdiscWords, none: "no queueing discipline dropped a packet"}),
	Try:   tryOtherQdisc,
}

// TCIngressDrop: a filter of traffic control drops what comes in.
const TCIngressDrop ID = "tc-ingress-drop"

var tcIngressDrop = Cause{
	ID:    TCIngressDrop,
	Title: "A tc ingress filter drops packets",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropTCIngress}, words: filterWords, none: "no filter at an ingress dropped a packet"}),
	Try:   foundOnly,
}

// TCEgressDrop: the same for what goes out.
const TCEgressDrop ID = "tc-egress-drop"

var tcEgressDrop = Cause{
	ID:    TCEgressDrop,
	Title: "A tc egress filter drops packets",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests},
	Check: drops(dropSpec{layers: []DropLayer{DropTCEgress}, words: filterWords, none: "no filter at an egress dropped a packet"}),
	Try:   foundOnly,
}

// XDPDrop: a program drops packets before the kernel makes anything of them.
const XDPDrop ID = "xdp-drop"

var xdpDrop = Cause{
	ID:    XDPDrop,
	Title: "An XDP program drops packets of a service",
	Layer: LayerPath,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindPath},
	Check: drops(dropSpec{layers: []DropLayer{DropXDP}, words: xdpWords, none: "no XDP program dropped a packet"}),
	Try:   foundOnly,
}

// SoftnetBacklogOverflow: a CPU's queue of packets that came in is full.
const SoftnetBacklogOverflow ID = "softnet-backlog-overflow"

var softnetBacklog = Cause{
	ID:            SoftnetBacklogOverflow,
	Title:         "A CPU's softnet backlog is full",
	Layer:         LayerPath,
	Class:         ClassDrop,
	Needs:         []observe.Kind{observe.KindRequests},
	ConsequenceOf: []Parent{SoftirqSaturated},
	Folds:         true,
	Check:         drops(dropSpec{layers: []DropLayer{DropSoftnet}, words: softnetWords, none: "no packet was dropped from a CPU's backlog"}),
	Try:           onHost(func(v *View) []Change { return v.raised(nil, "net.core.netdev_max_backlog", wantedDevBacklog) }),
}

func qdiscWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	f.Fix.Text = "Find out who set the queue up, lengthen it or raise its rate."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("tc -s qdisc show dev %s", shell.Word(s.Interface)))}
	q := s.Qdisc
	if q == nil {
		f.Title = "The queue of " + s.Interface + " drops packets on their way out"
		return
	}
	f.Subject.Rule = "qdisc " + q.Kind + " " + q.Handle
	f.Title = fmt.Sprintf("qdisc %s %s on %s drops packets", q.Kind, q.Handle, q.Interface)
	f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: fmt.Sprintf("%s %s on %s: packets dropped, of those sent", q.Kind, q.Handle, q.Interface), Value: q.Drops, Limit: q.Packets, Unit: "packets", Source: "statistics of the queueing discipline"})
	if q.RateBits > 0 {
		f.Evidence = slices.Insert(f.Evidence, 1, Evidence{Fact: "rate that it is shaped to", Value: round(float64(q.RateBits) / 1e6), Unit: "Mbit/s", Source: "tc"})
	}
	if q.Overlimits > 0 {
		f.Evidence = slices.Insert(f.Evidence, 1, Evidence{Fact: "times that a packet had to wait for the rate", Value: q.Overlimits, Source: "statistics of the queueing discipline"})
	}
	f.Fix.Changes = otherQdisc(ns, q)
	switch {
	case q.Kind == "netem":
		f.Title = fmt.Sprintf("netem %s on %s drops packets", q.Handle, q.Interface)
		f.Evidence = slices.Insert(f.Evidence, 1, Evidence{Fact: "loss that it is configured to make", Value: percent(q.Loss), Source: "tc"})
		f.Fix.Text = "netem is there to make a network bad: take it away."
	case q.RateBits > 0:
		f.Fix.Text = fmt.Sprintf("It is shaped to %.3g Mbit/s: raise the rate, or take the shaper away if nobody needs it.", float64(q.RateBits)/1e6)
	}
	if q.Parent == "root" {
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("tc qdisc del dev %s root   # the kernel puts its default in its place", shell.Word(q.Interface))))
	} else {
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("tc -s class show dev %s", shell.Word(q.Interface))))
	}
}

// filterNames lists filters.
func filterNames(list []*observe.TrafficFilter) string {
	var names []string
	for _, f := range list {
		name := fmt.Sprintf("%s pref %d", f.Kind, f.Preference)
		if f.Name == "tcx" {
			name = "tcx"
		}
		if f.Program > 0 {
			name += fmt.Sprintf(" %s (BPF program %d)", strings.TrimPrefix(f.Name, "tcx"), f.Program)
		}
		if f.Action != "" {
			name += " " + f.Action
		}
		names = append(names, strings.Join(strings.Fields(name), " "))
	}
	return strings.Join(names, "; ")
}

func filterWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	way := map[DropLayer]string{DropTCIngress: "ingress", DropTCEgress: "egress"}[s.Layer]
	f.Subject.Kind = "interface"
	f.Title = fmt.Sprintf("A tc filter at the %s of %s drops packets", way, s.Interface)
	f.Fix.Text = "Find out who attached the filter, and take it away or fix it."
	f.Fix.Commands = []shell.Command{v.in(ns, shell.Line("tc -s filter show dev %s %s", shell.Word(s.Interface), way))}
	if len(s.Filters) == 0 {
		return
	}
	f.Subject.Rule = filterNames(s.Filters)
	f.Fix.Changes = filterChanges(ns, s.Filters)
	f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "filters there", Value: filterNames(s.Filters), Source: "tc, tcx"})
	for _, x := range s.Filters {
		if x.Program > 0 {
			f.Fix.Commands = append(f.Fix.Commands, shell.Line("bpftool prog show id %s", x.Program))
		}
		if x.Name != "tcx" {
			f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("tc filter del dev %s %s pref %s", shell.Word(s.Interface), way, x.Preference)))
		}
	}
}

func xdpWords(v *View, s *DropSite, f *Finding) {
	ns := v.namespaces[s.NetNS]
	f.Subject.Kind = "interface"
	f.Title = "An XDP program at " + s.Interface + " drops packets of a service"
	f.Fix.Text = "Find out who attached the program, and take it off or fix it."
	if s.Link != nil && s.Link.XDP != "" {
		f.Evidence = slices.Insert(f.Evidence, 0, Evidence{Fact: "XDP program at " + s.Interface + ", " + s.Link.XDP, Value: s.Link.XDPProgram, Unit: "program id", Source: "netlink"})
		f.Fix.Commands = []shell.Command{shell.Line("bpftool prog show id %s", s.Link.XDPProgram)}
		f.Fix.Changes = xdpChanges(ns, s.Link)
		mode := map[string]string{"driver": "xdp", "generic": "xdpgeneric", "offload": "xdpoffload"}[s.Link.XDP]
		f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip link set dev %s %s off", shell.Word(s.Interface), mode)))
	}
}

func softnetWords(v *View, _ *DropSite, f *Finding) {
	f.Subject = Subject{Kind: "host"}
	backlog := v.Sysctl["net.core.netdev_max_backlog"]
	if backlog != "" {
		f.Evidence = append(f.Evidence, Evidence{Fact: "net.core.netdev_max_backlog", Value: backlog, Unit: "packets", Source: "sysctl"})
	}
	f.Fix.Text = "Lengthen the queue, on the host, and spread the packets over more CPUs (RPS, more queues of the device)."
	v.setSysctl(&f.Fix, nil, "net.core.netdev_max_backlog", wantedDevBacklog)
}
