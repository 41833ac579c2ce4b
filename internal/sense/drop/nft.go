package drop

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

var nftFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	nftables.TableFamilyNetdev: "netdev", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyARP: "arp",
}

// nftHooks are the hooks of the families for IP; a netdev chain has others.
var nftHooks = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}

// iptablesChains are base chains as iptables-nft names them.
var iptablesChains = map[string]bool{"INPUT": true, "OUTPUT": true, "FORWARD": true, "PREROUTING": true, "POSTROUTING": true}

// readNFT reads the rules of the thread's network namespace that may have
// dropped something since before: those without a counter, and those whose
// counter rose.
func readNFT(f *observe.Firewall, before map[ruleID]uint64) error {
	d, err := dumpRules()
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return nil // nfnetlink without nf_tables
	case err != nil:
		return fmt.Errorf("nftables: %w", err)
	}
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	defer conn.CloseLasting() //nolint:errcheck // nothing was written
	// A chain without rules may have a policy that drops.
	chains, err := conn.ListChains()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nftables: %w", err)
	}
	type tableKey struct {
		family nftables.TableFamily
		name   string
	}
	tables := map[tableKey]*nftTable{}
	var order []*nftTable
	for _, c := range chains {
		if c.Table == nil {
			continue
		}
		k := tableKey{c.Table.Family, c.Table.Name}
		t := tables[k]
		if t == nil {
			t = &nftTable{conn: conn, table: c.Table, ruleSet: newRuleSet("nft", nftFamilies[c.Table.Family], printable.Name(c.Table.Name, maxName))}
			tables[k] = t
			order = append(order, t)
		}
		t.base(c)
	}
	f.All += d.all
	f.Long = d.long()
	for i := range d.rules {
		r := &d.rules[i]
		t := tables[tableKey{nftables.TableFamily(r.family), r.table}]
		if t == nil {
			continue // made since
		}
		t.jump(r.chain, r.jump)
		t.verdictMap(r)
		if r.drops && (!r.counted || r.packets > before[r.id()]) {
			t.rule(r, before[r.id()])
		}
	}
	for _, t := range order {
		t.into(f)
	}
	return nil
}

// nftTable is one table while it is read.
type nftTable struct {
	*ruleSet
	conn     *nftables.Conn
	table    *nftables.Table
	elements map[string][]nftables.SetElement // of sets without a name
}

// base notes the hook of a base chain, and its policy.
func (t *nftTable) base(c *nftables.Chain) {
	name := printable.Name(c.Name, maxName)
	if c.Hooknum == nil {
		return
	}
	hook := ""
	switch n := int(*c.Hooknum); {
	case t.table.Family == nftables.TableFamilyNetdev:
		hook = map[bool]string{true: "ingress", false: "egress"}[n == 0]
	case n < len(nftHooks):
		hook = nftHooks[n]
	}
	t.hooks[name] = hook
	if iptablesChains[c.Name] && (t.family == "ip" || t.family == "ip6") {
		t.backend = "iptables-nft"
	}
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		t.add(observe.FirewallRule{Chain: name, Text: fmt.Sprintf("chain %s { type %s hook %s policy drop }", name, c.Type, hook), Verdict: "policy drop"})
	}
}

// verdictMap notes where a map of verdicts jumps to.
func (t *nftTable) verdictMap(r *nftRule) {
	if r.verdicts == "" {
		return
	}
	drops := false
	for _, el := range t.set(r.verdicts) {
		if el.VerdictData == nil {
			continue
		}
		t.jump(r.chain, printable.Name(el.VerdictData.Chain, maxName))
		drops = drops || el.VerdictData.Kind == expr.VerdictDrop
	}
	r.drops = drops
}

// rule decodes a rule that drops or rejects.
func (t *nftTable) rule(r *nftRule, before uint64) {
	w := &ruleWriter{table: t, regs: map[uint32]value{}}
	w.rule.Chain, w.rule.Handle = printable.Name(r.chain, maxName), r.handle
	if t.backend == "iptables-nft" {
		w.rule.Number = r.number
	}
	if r.verdicts != "" {
		w.rule.Verdict = "drop"
	}
	w.write(r.decode())
	w.rule.Packets = grown(before, r.packets)
	if w.rule.Verdict != "" {
		t.add(w.rule)
	}
}

// set gives the elements of a set without a name; those with one are reported by
// their name, and may be large.
func (t *nftTable) set(name string) []nftables.SetElement {
	if len(name) < 2 || name[:2] != "__" {
		return nil
	}
	if t.elements == nil {
		t.elements = map[string][]nftables.SetElement{}
	}
	if list, ok := t.elements[name]; ok {
		return list
	}
	s, err := t.conn.GetSetByName(t.table, name)
	if err == nil {
		t.elements[name], err = t.conn.GetSetElements(s)
	}
	if err != nil {
		t.elements[name] = nil
	}
	return t.elements[name]
}
