package drop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// maxRules bounds the rules of one namespace that are looked at, and
// maxDropping those that are kept.
const (
	maxRules    = 20_000
	maxDropping = 4096
)

// ReadFirewall reads the rules of a namespace that drop or reject, with what
// their counters show: nftables, which holds those of iptables-nft too, and
// the older iptables. A firewall that is not there is an empty one; an error
// comes with what could be read.
func ReadFirewall(ns *host.NetNS) (observe.Firewall, error) {
	var f observe.Firewall
	err := ns.Do(func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("answer not understood: %v", p)
			}
		}()
		return errors.Join(readNFT(&f), readLegacy(&f))
	})
	if err != nil {
		return f, fmt.Errorf("firewall: %w", err)
	}
	return f, nil
}

// ruleKey tells a rule from others: in nftables by its handle; in the older
// tables, which have none, by its text and which of those alike it is.
type ruleKey struct {
	backend, family, table, chain, text string
	handle                              uint64
	alike                               int
}

func keys(f observe.Firewall) []ruleKey {
	alike := map[ruleKey]int{}
	out := make([]ruleKey, len(f.Rules))
	for i := range f.Rules {
		r := &f.Rules[i]
		k := ruleKey{r.Backend, r.Family, r.Table, r.Chain, "", r.Handle, 0}
		if r.Handle == 0 {
			k.text = r.Text
			alike[k]++
			k.alike = alike[k]
		}
		out[i] = k
	}
	return out
}

// FirewallBetween is the second reading with what the rules counted since the
// first. A rule that is new has counted from 0 on.
func FirewallBetween(a, b observe.Firewall) observe.Firewall {
	old := map[ruleKey]uint64{}
	for i, k := range keys(a) {
		old[k] = a.Rules[i].Packets
	}
	out := observe.Firewall{All: b.All, Rules: slices.Clone(b.Rules)}
	for i, k := range keys(b) {
		out.Rules[i].Packets = grown(old[k], b.Rules[i].Packets)
	}
	return out
}

// ruleSet is rules on their way into a Firewall: which chain is reached from
// which hook is known only when all have been read.
type ruleSet struct {
	backend, family, table string
	hooks                  map[string]string   // base chain → hook
	jumps                  map[string][]string // chain → chains that it jumps to
	dropping               []observe.FirewallRule
}

func newRuleSet(backend, family, table string) *ruleSet {
	return &ruleSet{backend: backend, family: family, table: table, hooks: map[string]string{}, jumps: map[string][]string{}}
}

func (s *ruleSet) add(r observe.FirewallRule) {
	r.Backend, r.Family, r.Table = s.backend, s.family, s.table
	s.dropping = append(s.dropping, r)
}

func (s *ruleSet) jump(from, to string) {
	if to != "" && !slices.Contains(s.jumps[from], to) {
		s.jumps[from] = append(s.jumps[from], to)
	}
}

// into says of each rule from which hooks packets come to it, and keeps those
// that any come to.
func (s *ruleSet) into(f *observe.Firewall) {
	reached := map[string][]string{}
	for base, hook := range s.hooks {
		seen := map[string]bool{}
		todo := []string{base}
		for len(todo) > 0 {
			chain := todo[0]
			todo = todo[1:]
			if seen[chain] {
				continue
			}
			seen[chain] = true
			if !slices.Contains(reached[chain], hook) {
				reached[chain] = append(reached[chain], hook)
			}
			todo = append(todo, s.jumps[chain]...)
		}
	}
	for _, r := range s.dropping {
		r.Hooks = reached[r.Chain]
		slices.Sort(r.Hooks)
		if len(r.Hooks) > 0 && len(f.Rules) < maxDropping {
			f.Rules = append(f.Rules, r)
		}
	}
}

// portText writes ranges as rules do: "80", "8000-8100".
func portText(ranges [][2]int) string {
	var list []string
	for _, r := range ranges {
		if r[0] == r[1] {
			list = append(list, fmt.Sprint(r[0]))
		} else {
			list = append(list, fmt.Sprintf("%d-%d", r[0], r[1]))
		}
	}
	return strings.Join(list, ",")
}

// Numbers of protocols that rules name.
var protocols = map[int]string{1: "icmp", 6: "tcp", 17: "udp", 41: "ipv6", 47: "gre", 50: "esp", 51: "ah", 58: "icmpv6", 132: "sctp"}

func protocolName(n int) string { return cmp.Or(protocols[n], fmt.Sprint(n)) }
