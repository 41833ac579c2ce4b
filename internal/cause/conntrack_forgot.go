package cause

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/shell"
)

// ConntrackForgot: a firewall that goes by the state of connections drops packets of
// open ones because their entry is gone (its timeout was short, or the table was
// emptied), or was never complete (the answers go another way). The rule is not to
// blame: what made tracking forget is.
const ConntrackForgot ID = "conntrack-forgot"

var conntrackForgot = Cause{
	ID:    ConntrackForgot,
	Title: "A firewall drops established connections unknown to conntrack",
	Layer: LayerNetfilter,
	Class: ClassDrop,
	Needs: []observe.Kind{observe.KindRequests, observe.KindFirewall, observe.KindConntrack},
	Check: drops(dropSpec{layers: []DropLayer{DropFirewall}, which: forgotten, words: forgottenWords,
		none: "no firewall dropped packets of open connections by their state"}),
	Try: foundOnly,
}

const (
	timeoutEstablished = "net.netfilter.nf_conntrack_tcp_timeout_established"
	conntrackLoose     = "net.netfilter.nf_conntrack_tcp_loose"
)

// withoutRoom is how many packets connection tracking dropped because its table was full.
// Its counter drop also has those whose entry clashed with another's (two lookups of a name
// from one port, addresses that are translated to the same), which are in insert_failed, too,
// and those that a helper of a protocol refused (nf_conntrack_core.c, Linux 6.12).
func (v *View) withoutRoom(ns *observe.NetNS) uint64 {
	if !v.tableFilled(ns) {
		return 0
	}
	return ns.Conntrack.Drop - min(ns.Conntrack.Drop, ns.Conntrack.InsertFailed)
}

// tableFull says whether the connection tracking table of a namespace had no room for
// an entry: packets were dropped for lack of one, or others' entries thrown out.
func (v *View) tableFull(ns *observe.NetNS) bool {
	return v.withoutRoom(ns) > 0 || v.tableFilled(ns) && ns.Conntrack.EarlyDrop > 0
}

// tableFilled says whether a table was full at some time, although nothing may have
// counted what that did: counters are looked at from when a namespace is found.
func (v *View) tableFilled(ns *observe.NetNS) bool {
	return ns != nil && ns.Conntrack != nil && (ratio(ns.Conntrack.PeakEntries, ns.Conntrack.Max) >= fullTable || v.kernelLines("conntrack-table-full", ns) > 0)
}

// forgotten says whether a rule goes by the state of connections and dropped what is
// in the middle of one, not its SYN.
func forgotten(v *View, s *DropSite) bool {
	ns := v.namespaces[s.NetNS]
	r := s.Rule
	switch {
	case ns == nil || ns.Conntrack == nil || v.tableFull(ns) || r == nil || r.Some || rejects(s):
		return false
	case !r.Stateful && (r.Verdict != "policy drop" || ns.Conntrack.PeakEntries == 0):
		return false
	}
	kinds := s.Kinds()
	middle := kinds[observe.DropData] + kinds[observe.DropACK] + kinds[observe.DropSYNACK]
	return middle >= fewAffected && ratio(kinds[observe.DropSYN], middle) < noiseShare
}

func forgottenWords(v *View, s *DropSite, f *Finding) {
	ns, r := v.namespaces[s.NetNS], s.Rule
	ct := ns.Conntrack
	f.Subject.Kind, f.Subject.Rule, f.Subject.Interface = "rule", RuleName(r), ""
	commands, persist := v.ruleCommands(ns, r, f.Subject.Port)
	f.Fix.Commands = commands[:1]
	loose := v.sysctl(ns, conntrackLoose)
	limit, _ := strconv.Atoi(v.sysctl(ns, timeoutEstablished))
	timeout := seconds(float64(limit))
	f.Evidence = append([]Evidence{
		{Fact: "the rule that drops them, which is not to blame", Value: r.Text, Source: r.Backend},
		{Fact: "entries in the table, at most and at the end", Value: ct.PeakEntries, Limit: ct.Entries, Unit: "entries", Source: "net.netfilter.nf_conntrack_count"},
		{Fact: timeoutEstablished, Value: limit, Unit: "s", Source: "sysctl" + where(ns)},
		{Fact: conntrackLoose + ": whether connections are taken up in their middle", Value: loose, Source: "sysctl" + where(ns)},
	}, f.Evidence...)
	emptied := ct.PeakEntries >= fewPackets && 2*ct.Entries < ct.PeakEntries
	switch {
	case limit > 0 && limit < shortTracking:
		f.Title = fmt.Sprintf("conntrack times out after %s, then rule %s drops", timeout, RuleName(r))
		f.Fix.Text = fmt.Sprintf("Let connection tracking keep idle connections for as long as the applications do: %s is %s, the kernel's own is 5 days.", timeoutEstablished, timeout)
		v.setSysctl(&f.Fix, ns, timeoutEstablished, wantedTracking)
		f.Fix.Changes = append(f.Fix.Changes, sysctlChange(ns, timeoutEstablished, itoa(limit), itoa(wantedTracking)))
	case emptied:
		f.Title = fmt.Sprintf("conntrack was flushed, rule %s drops established connections", RuleName(r))
		f.Fix.Text = "Find who empties the table (conntrack -F, a reload of the firewall, a program that deletes entries), and let it keep the entries of open connections."
	default:
		f.Title = fmt.Sprintf("Rule %s drops established connections unknown to conntrack", RuleName(r))
		f.Fix.Text = "The table was emptied before (conntrack -F, a reload of the firewall), or only one direction of these connections passes here: then send both the same way, or leave them out of tracking (notrack)."
		if flows := s.Flows(); len(flows) > 0 {
			f.Fix.Commands = append(f.Fix.Commands, v.in(ns, shell.Line("ip route get %s", flows[0].Dst)), v.in(ns, shell.Line("ip route get %s", flows[0].Src)))
		}
	}
	if loose == "0" {
		f.Fix.Text += " Until then, let it pick up connections in their middle."
		v.setSysctl(&f.Fix, ns, conntrackLoose, 1)
		f.Fix.Changes = append(f.Fix.Changes, sysctlChange(ns, conntrackLoose, loose, "1"))
	} else if len(f.Fix.Changes) == 0 {
		f.Fix.Commands = append(f.Fix.Commands, commands[1:]...)
		f.Fix.Persist = append(f.Fix.Persist, persist...)
		f.Fix.Changes = slices.Clone(ruleChange(ns, r))
	}
}
