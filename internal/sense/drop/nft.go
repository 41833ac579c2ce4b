package drop

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
)

var nftFamilies = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
	nftables.TableFamilyNetdev: "netdev", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyARP: "arp",
}

// nftHooks are the hooks of the families for IP; a netdev chain has others.
var nftHooks = []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}

// iptablesChains are base chains as iptables-nft names them.
var iptablesChains = map[string]bool{"INPUT": true, "OUTPUT": true, "FORWARD": true, "PREROUTING": true, "POSTROUTING": true}

// readNFT reads the rule sets of the thread's network namespace.
func readNFT(f *observe.Firewall) error {
	conn, err := nftables.New(nftables.AsLasting())
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil // a kernel without nftables
	}
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	defer conn.CloseLasting() //nolint:errcheck // nothing was written
	chains, err := conn.ListChains()
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EOPNOTSUPP):
		return nil // nfnetlink without nf_tables
	case err != nil:
		return fmt.Errorf("nftables: %w", err)
	}
	type tableKey struct {
		family nftables.TableFamily
		name   string
	}
	sets := map[tableKey]*nftTable{}
	var order []*nftTable
	for _, c := range chains {
		if c.Table == nil || f.All >= maxRules {
			continue
		}
		k := tableKey{c.Table.Family, c.Table.Name}
		t := sets[k]
		if t == nil {
			t = &nftTable{conn: conn, table: c.Table, ruleSet: newRuleSet("nft", nftFamilies[c.Table.Family], printable(c.Table.Name))}
			sets[k] = t
			order = append(order, t)
		}
		t.base(c)
	}
	var errs []error
	for _, t := range order {
		for _, c := range t.chains {
			if f.All >= maxRules {
				break
			}
			rules, err := conn.GetRules(t.table, c)
			if errors.Is(err, unix.ENOENT) {
				continue // gone meanwhile
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("nftables chain %s %s %s: %w", t.family, t.ruleSet.table, printable(c.Name), err))
				continue
			}
			f.All += len(rules)
			for i, r := range rules {
				t.rule(c, i+1, r)
			}
		}
		t.into(f)
	}
	return errors.Join(errs...)
}

// nftTable is one table while it is read.
type nftTable struct {
	*ruleSet
	conn     *nftables.Conn
	table    *nftables.Table
	chains   []*nftables.Chain
	elements map[string][]nftables.SetElement // of sets without a name
}

// base notes a chain, and the hook of a base chain.
func (t *nftTable) base(c *nftables.Chain) {
	t.chains = append(t.chains, c)
	name := printable(c.Name)
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

// rule notes a rule that drops or rejects, and where it jumps to.
func (t *nftTable) rule(c *nftables.Chain, number int, rule *nftables.Rule) {
	w := &ruleWriter{table: t, regs: map[uint32]value{}}
	w.rule.Chain, w.rule.Handle, w.rule.Number = printable(c.Name), rule.Handle, number
	for _, e := range rule.Exprs {
		switch v := e.(type) {
		case *expr.Verdict:
			if v.Kind == expr.VerdictJump || v.Kind == expr.VerdictGoto {
				t.jump(w.rule.Chain, printable(v.Chain))
			}
		case *expr.Lookup:
			if v.IsDestRegSet && v.DestRegister == 0 { // a map of verdicts
				for _, el := range t.set(v.SetName) {
					if el.VerdictData != nil && el.VerdictData.Chain != "" {
						t.jump(w.rule.Chain, printable(el.VerdictData.Chain))
					}
					if el.VerdictData != nil && el.VerdictData.Kind == expr.VerdictDrop {
						w.rule.Verdict = "drop"
					}
				}
			}
		}
	}
	w.write(rule.Exprs)
	if t.backend != "iptables-nft" {
		w.rule.Number = 0
	}
	if w.rule.Verdict != "" {
		t.add(w.rule)
	}
}

// set gives the elements of a set without a name; those with one are told by
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
