package drop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// All rules of a namespace come in one dump. There may be thousands, twice in a
// window: only what every rule has to be asked is read of its bytes (counter,
// verdict, jumps). What rules say is decoded, by the library, only of those that
// may have dropped something.

// nftRule is a rule as it comes from the kernel.
type nftRule struct {
	family       byte
	table, chain string
	handle       uint64
	number       int // its place in the chain, from 1
	expressions  []byte
	counted      bool
	packets      uint64
	drops        bool   // it may drop or reject
	jump         string // a chain
	verdicts     string // a map of verdicts
}

// ruleID tells a rule from others.
type ruleID struct {
	family       byte
	table, chain string
	handle       uint64
}

func (r *nftRule) id() ruleID { return ruleID{r.family, r.table, r.chain, r.handle} }

// dumpRules lists the rules of the thread's network namespace.
func dumpRules() (dump ruleDump, err error) {
	sock, err := nl.Open(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return dump, nil // a kernel without nftables
	}
	if err != nil {
		return dump, err
	}
	defer sock.Close()
	dump.numbers = map[ruleID]int{}
	// struct nfgenmsg of any family.
	_, err = sock.Dump(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, make([]byte, nfgenmsgSize), dump.take)
	return dump, err
}

// nfgenmsgSize is the size of struct nfgenmsg, which begins every message.
const nfgenmsgSize = 4

// ruleDump is a dump of rules while it comes.
type ruleDump struct {
	rules   []nftRule // the first maxRules
	all     int
	numbers map[ruleID]int // rules so far, by chain
}

// take reads one answer.
func (d *ruleDump) take(m nl.Message) {
	if len(m.Payload) < nfgenmsgSize || m.Kind != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE {
		return
	}
	d.all++
	chain := ruleID{family: m.Payload[0], table: cstring(nl.Find(m.Payload[nfgenmsgSize:], unix.NFTA_RULE_TABLE)), chain: cstring(nl.Find(m.Payload[nfgenmsgSize:], unix.NFTA_RULE_CHAIN))}
	d.numbers[chain]++
	if len(d.rules) >= maxRules {
		return
	}
	r := parseRule(m.Payload)
	r.number = d.numbers[chain]
	d.rules = append(d.rules, r)
}

// long is the chains with most rules.
func (d *ruleDump) long() []observe.FirewallChain {
	var out []observe.FirewallChain
	for c, n := range d.numbers {
		if n < longChain {
			continue
		}
		family, backend := nftFamilies[nftables.TableFamily(c.family)], "nft"
		for base := range iptablesChains {
			if d.numbers[ruleID{family: c.family, table: c.table, chain: base}] > 0 && (family == "ip" || family == "ip6") {
				backend = "iptables-nft"
			}
		}
		out = append(out, observe.FirewallChain{Backend: backend, Family: family, Table: printable.Name(c.table, maxName), Chain: printable.Name(c.chain, maxName), Rules: n})
	}
	return longest(out)
}

func parseRule(b []byte) nftRule {
	r := nftRule{family: b[0]}
	for kind, value := range nl.Attrs(b[nfgenmsgSize:]) {
		switch kind {
		case unix.NFTA_RULE_TABLE:
			r.table = cstring(value)
		case unix.NFTA_RULE_CHAIN:
			r.chain = cstring(value)
		case unix.NFTA_RULE_HANDLE:
			if len(value) >= 8 {
				r.handle = binary.BigEndian.Uint64(value)
			}
		case unix.NFTA_RULE_EXPRESSIONS:
			r.expressions = bytes.Clone(value)
		}
	}
	for name, data := range expressions(r.expressions) {
		switch name {
		case "counter":
			if packets := nl.Find(data, unix.NFTA_COUNTER_PACKETS); len(packets) >= 8 {
				r.counted, r.packets = true, binary.BigEndian.Uint64(packets)
			}
		case "immediate":
			r.verdict(data)
		case "lookup":
			r.lookup(data)
		case "reject", "target":
			r.drops = true
		}
	}
	return r
}

// expressions are those of a rule: their names and what they are called.
func expressions(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, element := range nl.Attrs(b) {
			if !yield(cstring(nl.Find(element, unix.NFTA_EXPR_NAME)), nl.Find(element, unix.NFTA_EXPR_DATA)) {
				return
			}
		}
	}
}

// verdict reads an immediate value into the register of verdicts.
func (r *nftRule) verdict(data []byte) {
	verdict := nl.Find(nl.Find(data, unix.NFTA_IMMEDIATE_DATA), unix.NFTA_DATA_VERDICT)
	if chain := nl.Find(verdict, unix.NFTA_VERDICT_CHAIN); chain != nil {
		r.jump = cstring(chain)
	}
	if code := nl.Find(verdict, unix.NFTA_VERDICT_CODE); len(code) >= 4 && binary.BigEndian.Uint32(code) == 0 { // NF_DROP
		r.drops = true
	}
}

// lookup notes a map of verdicts: it may drop, and jump.
func (r *nftRule) lookup(data []byte) {
	if register := nl.Find(data, unix.NFTA_LOOKUP_DREG); len(register) >= 4 && binary.BigEndian.Uint32(register) == unix.NFT_REG_VERDICT {
		r.verdicts, r.drops = cstring(nl.Find(data, unix.NFTA_LOOKUP_SET)), true
	}
}

// unknown is an expression that the library does not know.
type unknown struct {
	expr.Any
	name string
}

// decode gives the expressions of a rule.
func (r *nftRule) decode() []expr.Any {
	var list []expr.Any
	for name, data := range expressions(r.expressions) {
		if name == "byteorder" { // the library only writes it; the register holds the same
			continue
		}
		e := newExpression(name)
		if e == nil || expr.Unmarshal(r.family, data, e) != nil {
			list = append(list, &unknown{name: name})
			continue
		}
		// A verdict is an immediate value for the register of verdicts.
		if i, ok := e.(*expr.Immediate); ok && i.Register == unix.NFT_REG_VERDICT && len(i.Data) == 0 {
			v := &expr.Verdict{}
			if expr.Unmarshal(r.family, data, v) == nil {
				e = v
			}
		}
		list = append(list, e)
	}
	return list
}

func newExpression(name string) expr.Any {
	switch name {
	case "meta":
		return &expr.Meta{}
	case "payload":
		return &expr.Payload{}
	case "ct":
		return &expr.Ct{}
	case "numgen":
		return &expr.Numgen{}
	case "bitwise":
		return &expr.Bitwise{}
	case "cmp":
		return &expr.Cmp{}
	case "range":
		return &expr.Range{}
	case "lookup":
		return &expr.Lookup{}
	case "limit":
		return &expr.Limit{}
	case "connlimit":
		return &expr.Connlimit{}
	case "quota":
		return &expr.Quota{}
	case "dynset":
		return &expr.Dynset{}
	case "counter":
		return &expr.Counter{}
	case "objref":
		return &expr.Objref{}
	case "log":
		return &expr.Log{}
	case "match":
		return &expr.Match{}
	case "target":
		return &expr.Target{}
	case "reject":
		return &expr.Reject{}
	case "immediate":
		return &expr.Immediate{}
	}
	return nil
}

// String names it as the text of a rule does.
func (u *unknown) String() string { return fmt.Sprintf("[%s]", printable.Name(u.name, maxName)) }
