package cause

import (
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Which rule dropped a packet the kernel does not say. A rule with a counter
// says so itself; what the counters leave over was dropped by a rule without
// one that the packets match.

// inHooks and outHooks are where rules see packets of each direction. What is
// forwarded came in, too.
var (
	inHooks  = []string{"ingress", "prerouting", "input", "forward", "postrouting"}
	outHooks = []string{"output", "postrouting", "egress"}
)

// firewallSites shares the drops of the packet filter out among the rules.
func (v *View) firewallSites(drops []*observe.Drop) []*DropSite {
	type side struct {
		netns uint64
		in    bool
	}
	groups := map[side][]*observe.Drop{}
	var order []side
	for _, d := range drops {
		k := side{d.NetNS, d.In}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], d)
	}
	var out []*DropSite
	for _, k := range order {
		out = append(out, v.shareOut(v.namespaces[k.netns], k.in, groups[k])...)
	}
	if v.Drops != nil {
		return out
	}
	// Without the kernel's word, the counters alone.
	for i := range v.Namespaces {
		ns := &v.Namespaces[i]
		for j := range rulesOf(ns) {
			if r := &ns.Firewall.Rules[j]; r.Counted && r.Packets > 0 {
				out = append(out, &DropSite{Layer: DropFirewall, NetNS: ns.Inode, In: !slices.Contains(r.Hooks, "output"), Rule: r, Packets: r.Packets, Segments: r.Packets,
					Source: "counter of the rule"})
			}
		}
	}
	return out
}

func rulesOf(ns *observe.NetNS) []observe.FirewallRule {
	if ns == nil || ns.Firewall == nil {
		return nil
	}
	return ns.Firewall.Rules
}

// shareOut shares the drops of one direction in one namespace out.
func (v *View) shareOut(ns *observe.NetNS, in bool, drops []*observe.Drop) []*DropSite {
	hooks := outHooks
	if in {
		hooks = inHooks
	}
	drops, full := v.tableDrops(ns, in, drops)
	if len(drops) == 0 {
		return full
	}
	rules := rulesOf(ns)
	matches := make([][]bool, len(drops)) // [drop][rule]
	left := make([]float64, len(drops))   // packets that no counter explains
	var all, counted float64
	for i, d := range drops {
		matches[i] = make([]bool, len(rules))
		left[i] = float64(d.Packets)
		all += float64(d.Packets)
		for j := range rules {
			matches[i][j] = slices.ContainsFunc(rules[j].Hooks, func(h string) bool { return slices.Contains(hooks, h) }) && seen(&rules[j], d)
		}
	}
	weights := make([]float64, len(rules))
	for j := range rules {
		if rules[j].Counted {
			weights[j] = float64(rules[j].Packets)
		}
	}
	matched := make([]float64, len(rules)) // packets of all drops that a rule may have dropped
	for i, d := range drops {
		for j := range rules {
			if matches[i][j] {
				matched[j] += float64(d.Packets)
			}
		}
	}
	taken := make([]float64, len(drops)*len(rules))
	for i := range drops {
		var sum float64
		for j := range rules {
			if matches[i][j] {
				sum += weights[j]
			}
		}
		for j := range rules {
			if matches[i][j] && sum > 0 {
				// A counter that also counts other drops explains part of these.
				n := min(weights[j]*float64(drops[i].Packets)/max(matched[j], 1), left[i])
				taken[i*len(rules)+j] = n
				left[i] -= n
				counted += n
			}
		}
	}
	sites := full
	for j := range rules {
		s := &DropSite{Layer: DropFirewall, NetNS: nsInode(ns, drops), In: in, Rule: &rules[j], Source: "counter of the rule"}
		for i, d := range drops {
			if n := taken[i*len(rules)+j]; n > 0 {
				s.take(d, n/float64(d.Packets))
			}
		}
		if len(s.parts) > 0 && s.Packets > 0 {
			sites = append(sites, s)
		}
	}
	// The small rest is what was dropped between two readings.
	if all-counted > fewUncounted*all {
		sites = append(sites, v.uncounted(ns, in, drops, matches, left)...)
	}
	return sites
}

// tableDrops takes out what connection tracking dropped itself because its table was
// full, as far as its own counter tells, and no counter of a rule claims it. It drops
// at the same place as rules do, what needs an entry: SYNs before all others.
func (v *View) tableDrops(ns *observe.NetNS, in bool, drops []*observe.Drop) (left []*observe.Drop, full []*DropSite) {
	dropped := v.withoutRoom(ns)
	if dropped == 0 {
		return drops, nil
	}
	room := dropped - min(v.tableTook[ns.Inode], dropped)
	var all, counted uint64
	for _, d := range drops {
		all += d.Packets
	}
	for i := range rulesOf(ns) {
		if r := &ns.Firewall.Rules[i]; r.Counted && slices.ContainsFunc(drops, func(d *observe.Drop) bool { return seen(r, d) }) {
			counted += r.Packets
		}
	}
	room = min(room, all-min(counted, all))
	order := slices.Clone(drops)
	slices.SortStableFunc(order, func(a, b *observe.Drop) int { return needsEntry(a) - needsEntry(b) })
	s := &DropSite{Layer: DropConntrack, NetNS: ns.Inode, In: in, Source: "tracepoint skb:kfree_skb; conntrack statistics"}
	for _, d := range order {
		n := min(room, d.Packets)
		if n == 0 {
			left = append(left, d)
			continue
		}
		room -= n
		v.tableTook[ns.Inode] += n
		share := ratio(n, d.Packets)
		s.take(d, share)
		if n < d.Packets {
			rest := *d
			rest.Packets -= n
			rest.Segments -= min(uint64(share*float64(d.Segments)), rest.Segments)
			rest.Flows = slices.Clone(d.Flows)
			for i := range rest.Flows {
				rest.Flows[i].Segments -= uint64(share * float64(rest.Flows[i].Segments))
			}
			left = append(left, &rest)
		}
	}
	if s.Packets == 0 {
		return left, nil
	}
	return left, []*DropSite{s}
}

// needsEntry orders what was dropped by how likely it had no entry yet.
func needsEntry(d *observe.Drop) int {
	switch d.Kind {
	case observe.DropSYN:
		return 0
	case "udp", "icmp":
		return 1
	}
	return 2
}

func nsInode(ns *observe.NetNS, drops []*observe.Drop) uint64 {
	if ns != nil {
		return ns.Inode
	}
	return drops[0].NetNS
}

// uncounted gives what counters left over to the rules without one.
func (v *View) uncounted(ns *observe.NetNS, in bool, drops []*observe.Drop, matches [][]bool, left []float64) []*DropSite {
	rules := rulesOf(ns)
	byRule := map[int]*DropSite{}
	var sites []*DropSite
	for i, d := range drops {
		if left[i] < 0.5 {
			continue
		}
		var candidates []int
		for j := range rules {
			if matches[i][j] && !rules[j].Counted {
				candidates = append(candidates, j)
			}
		}
		// The rule that names the packets' port knows them best; a rule for
		// what is invalid, and the policy of a chain, come last.
		slices.SortStableFunc(candidates, func(a, b int) int { return vague(&rules[a]) - vague(&rules[b]) })
		best, among := -1, 0
		if len(candidates) > 0 {
			best = candidates[0]
			for _, c := range candidates[1:] {
				if vague(&rules[c]) == vague(&rules[best]) {
					among++
				}
			}
		}
		s := byRule[best]
		if s == nil {
			s = &DropSite{Layer: DropFirewall, NetNS: nsInode(ns, drops), In: in, Source: "tracepoint skb:kfree_skb"}
			switch {
			case best >= 0:
				s.Rule = &rules[best]
				s.Source = "tracepoint skb:kfree_skb; the rule has no counter"
			case v.tableFilled(ns):
				s.Layer = DropConntrack
			}
			byRule[best] = s
			sites = append(sites, s)
		}
		s.Among = max(s.Among, among)
		s.take(d, left[i]/float64(d.Packets))
	}
	return sites
}

// vague orders rules by how little they say of the packets.
func vague(r *observe.FirewallRule) int {
	switch {
	case r.Verdict == "policy drop":
		return 3
	case r.Invalid:
		return 2
	case len(r.SrcPorts)+len(r.DstPorts) > 0:
		return 0
	}
	return 1
}

// seen says whether packets of a drop may have met a rule. A reason that is
// not the packet filter's function of that rule excludes it, too.
func seen(r *observe.FirewallRule, d *observe.Drop) bool {
	legacy := r.Backend == "iptables-legacy"
	switch {
	case strings.HasPrefix(d.Location, "nft_do_chain") && legacy, strings.HasPrefix(d.Location, "ipt_do") && !legacy:
		return false
	case r.Protocol != "" && !protocolFits(r.Protocol, d.Kind):
		return false
	case d.In && r.In != "" && !deviceFits(r.In, d.Interface):
		return false
	case !d.In && r.Out != "" && d.Interface != "" && !deviceFits(r.Out, d.Interface):
		return false
	case !d.In && r.In != "" && !slices.Contains(r.Hooks, "forward"):
		return false
	}
	if len(r.SrcPorts)+len(r.DstPorts) == 0 || len(d.Flows) == 0 {
		return true
	}
	return slices.ContainsFunc(d.Flows, func(f observe.DropFlow) bool {
		return portFits(r.SrcPorts, f.SrcPort) && portFits(r.DstPorts, f.DstPort)
	})
}

func protocolFits(protocol, kind string) bool {
	switch protocol {
	case "tcp", "udp", "icmp":
		return strings.HasPrefix(kind, protocol) || kind == "fragment"
	case "icmpv6":
		return kind == "icmp"
	}
	return kind == "other"
}

// deviceFits compares names of devices, of which a rule's may end in * or +.
func deviceFits(rule, device string) bool {
	if n := len(rule); n > 0 && (rule[n-1] == '*' || rule[n-1] == '+') {
		return strings.HasPrefix(device, rule[:n-1])
	}
	return rule == device
}

// portFits says whether a port is in the ranges. One that is not known, since
// it is a client's own, fits a range of many ports only.
func portFits(ranges [][2]int, port int) bool {
	if len(ranges) == 0 {
		return true
	}
	return slices.ContainsFunc(ranges, func(r [2]int) bool {
		if port == 0 {
			return r[1]-r[0] >= 1000
		}
		return r[0] <= port && port <= r[1]
	})
}
