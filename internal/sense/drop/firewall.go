package drop

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/host"
)

// maxRules bounds the rules of one namespace that are looked at, and
// maxDropping those that are kept. All are counted; a chain is long from longChain on.
const (
	maxRules    = 20_000
	maxDropping = 4096
	longChain   = 500
	longChains  = 4
)

// Counts is what the rules of a namespace had counted when a window began.
type Counts struct {
	Rules  int // there are; of every verdict
	nft    map[ruleID]uint64
	Long   []observe.FirewallChain // chains with most rules, as of Firewall
	legacy observe.Firewall
}

// ReadCounts reads the counters only: of thousands of rules, in milliseconds.
// A firewall that is not there is an empty one.
func ReadCounts(ns *host.NetNS) (Counts, error) {
	c := Counts{nft: map[ruleID]uint64{}}
	err := guarded(ns, func() error {
		d, err := dumpRules()
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			err = nil // nfnetlink without nf_tables
		}
		for i := range d.rules {
			c.nft[d.rules[i].id()] = d.rules[i].packets
		}
		c.Rules, c.Long = d.all, d.long()
		return errors.Join(err, readLegacy(&c.legacy))
	})
	c.Rules += c.legacy.All
	c.Long = longest(append(c.Long, c.legacy.Long...))
	return c, err
}

// ReadFirewall reads the rules that may have dropped or rejected packets since
// before: nftables, which holds those of iptables-nft too, and the older
// iptables. An error comes with what could be read.
func ReadFirewall(ns *host.NetNS, before Counts) (observe.Firewall, error) {
	var f, legacy observe.Firewall
	err := guarded(ns, func() error { return errors.Join(readNFT(&f, before.nft), readLegacy(&legacy)) })
	old := map[ruleKey]uint64{}
	for i, k := range keys(before.legacy) {
		old[k] = before.legacy.Rules[i].Packets
	}
	for i, k := range keys(legacy) {
		r := legacy.Rules[i]
		if r.Packets = grown(old[k], r.Packets); r.Packets > 0 {
			f.Rules = append(f.Rules, r)
		}
	}
	f.All += legacy.All
	f.Long = longest(append(f.Long, legacy.Long...))
	return f, err
}

// longest keeps the chains with most rules.
func longest(chains []observe.FirewallChain) []observe.FirewallChain {
	chains = slices.DeleteFunc(chains, func(c observe.FirewallChain) bool { return c.Rules < longChain })
	slices.SortFunc(chains, func(a, b observe.FirewallChain) int {
		return cmp.Or(cmp.Compare(b.Rules, a.Rules), strings.Compare(a.Family, b.Family), strings.Compare(a.Table, b.Table), strings.Compare(a.Chain, b.Chain))
	})
	return slices.Clone(chains[:min(len(chains), longChains)])
}

// guarded runs fn in a namespace. The library may panic on what it does not
// expect: that is an error like another.
func guarded(ns *host.NetNS, fn func() error) error {
	err := ns.Do(func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("answer not understood: %v", p)
			}
		}()
		return fn()
	})
	if err != nil {
		return fmt.Errorf("firewall: %w", err)
	}
	return nil
}

// ruleKey tells a rule of the older tables, which have no handles, from others:
// by its text and which of those alike it is.
type ruleKey struct {
	family, table, chain, text string
	alike                      int
}

func keys(f observe.Firewall) []ruleKey {
	alike := map[ruleKey]int{}
	out := make([]ruleKey, len(f.Rules))
	for i := range f.Rules {
		r := &f.Rules[i]
		k := ruleKey{r.Family, r.Table, r.Chain, r.Text, 0}
		alike[k]++
		k.alike = alike[k]
		out[i] = k
	}
	return out
}

// ruleSet is rules on their way into a Firewall: which chain is reached from
// which hook is known only when all have been read.
type ruleSet struct {
	backend, family, table string
	hooks                  map[string]string   // base chain → hook
	jumps                  map[string][]string // chain → chains that it jumps to
	known                  map[[2]string]bool  // the same, by both
	dropping               []observe.FirewallRule
}

func newRuleSet(backend, family, table string) *ruleSet {
	return &ruleSet{backend: backend, family: family, table: table, hooks: map[string]string{}, jumps: map[string][]string{}, known: map[[2]string]bool{}}
}

func (s *ruleSet) add(r observe.FirewallRule) {
	r.Backend, r.Family, r.Table = s.backend, s.family, s.table
	s.dropping = append(s.dropping, r)
}

func (s *ruleSet) jump(from, to string) {
	if to != "" && !s.known[[2]string{from, to}] {
		s.known[[2]string{from, to}] = true
		s.jumps[from] = append(s.jumps[from], to)
	}
}

// into says of each rule from which hooks packets come to it, and keeps those
// that any come to.
func (s *ruleSet) into(f *observe.Firewall) {
	bases := map[string][]string{}
	for base, hook := range s.hooks {
		bases[hook] = append(bases[hook], base)
	}
	// Hooks are few, chains may be many thousands: each is come to once for a hook.
	reached := map[string][]string{}
	for hook, todo := range bases {
		seen := map[string]bool{}
		for len(todo) > 0 {
			chain := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if seen[chain] {
				continue
			}
			seen[chain] = true
			reached[chain] = append(reached[chain], hook)
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
