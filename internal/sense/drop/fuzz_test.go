package drop

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/nl"
	"github.com/slowray/slowray/internal/observe"
)

// readable fails where a text that others chose the words of would drive a terminal.
func readable(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			t.Fatalf("%q has %q", text, r)
		}
	}
}

// FuzzLegacy: whatever getsockopt() might give, nothing is read beyond it.
func FuzzLegacy(f *testing.F) {
	f.Add(make([]byte, infoSize), make([]byte, 400))
	// Two rules that drop, in INPUT and in a chain of its own.
	for i := range legacyFamilies {
		l := &legacyFamilies[i]
		info := make([]byte, infoSize)
		binary.NativeEndian.PutUint32(info[infoHooks:], 1<<1)
		entry := func(target string, verdict int32) []byte {
			b := make([]byte, l.size+targetSize+8)
			binary.NativeEndian.PutUint16(b[l.offsets:], uint16(l.size))
			binary.NativeEndian.PutUint16(b[l.offsets+2:], uint16(len(b)))
			copy(b[l.size+2:], target)
			binary.NativeEndian.PutUint32(b[l.size+targetSize:], uint32(verdict))
			return b
		}
		jump := entry("", int32(2*(l.size+targetSize+8)))
		name := entry("ERROR", 0)
		copy(name[l.size+targetSize:], "evil\x1b")
		f.Add(info, append(append(jump, name...), entry("", -1)...))
		f.Add(info, append(entry("REJECT", 0), entry("", -1)...))
	}
	f.Fuzz(func(t *testing.T, info, entries []byte) {
		if len(info) < infoSize {
			return
		}
		budgettest.Within(t, len(info)+len(entries), budgettest.Usual, func() {
			for i := range legacyFamilies {
				var out observe.Firewall
				legacyFamilies[i].parse("filter", info, entries, &out)
				if len(out.Rules) > out.All || out.All > maxRules {
					t.Fatalf("%d of %d rules drop", len(out.Rules), out.All)
				}
				for i := range out.Rules {
					readable(t, out.Rules[i].Text+out.Rules[i].Chain+out.Rules[i].In+out.Rules[i].Out)
				}
			}
			for _, name := range []string{"tcp", "udp", "multiport", "statistic", "limit", "connlimit", "comment", "state", "conntrack", string(info)} {
				for rev := range 4 {
					readable(t, extension(&observe.FirewallRule{}, name, rev, entries))
				}
			}
		})
	})
}

// put is a netlink attribute.
func put(kind uint16, parts ...[]byte) []byte {
	var value []byte
	for _, p := range parts {
		value = append(value, p...)
	}
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// newRule is a message of a rule, as the kernel gives it.
func newRule(family byte, chain string, expressions ...expr.Any) []byte {
	var list []byte
	for _, e := range expressions {
		b, err := expr.Marshal(family, e) // the element's name and data
		if err != nil {
			panic(err)
		}
		list = append(list, put(unix.NLA_F_NESTED|1, b)...)
	}
	payload := append([]byte{family, 0, 0, 0}, put(unix.NFTA_RULE_TABLE, []byte("filter\x00"))...)
	payload = append(payload, put(unix.NFTA_RULE_CHAIN, []byte(chain+"\x00"))...)
	payload = append(payload, put(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, 7))...)
	payload = append(payload, put(unix.NLA_F_NESTED|unix.NFTA_RULE_EXPRESSIONS, list)...)
	return message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, payload)
}

func message(kind uint16, payload []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(payload)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(append(b, make([]byte, unix.NLMSG_HDRLEN-len(b))...), payload...)
}

// FuzzRules reads dumps of rules: of any bytes, and what is decoded of them has a text
// that can be printed.
func FuzzRules(f *testing.F) {
	drop := &expr.Verdict{Kind: expr.VerdictDrop}
	port := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{6}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0, 80}}}
	f.Add(newRule(1, "in", append(port, &expr.Counter{Packets: 7}, drop)...))
	f.Add(append(newRule(2, "evil\x1b", &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte("eth\x1b")}, &expr.Reject{}), message(unix.NLMSG_DONE, make([]byte, 4))...))
	f.Add(newRule(10, "in", &expr.Ct{Key: expr.CtKeySTATE, Register: 1}, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: []byte{1, 0, 0, 0}, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)}, &expr.Limit{Rate: 5, Unit: expr.LimitTimeSecond}, &expr.Verdict{Kind: expr.VerdictJump, Chain: "x"}))
	f.Add(message(unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, 1<<31)))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The library decodes into objects of its own.
		budgettest.Within(t, len(b), budgettest.Cost{PerByte: 512, Fixed: 1 << 20, CPU: time.Second}, func() {
			d := ruleDump{numbers: map[ruleID]int{}}
			_, _ = nl.Messages(b, func(_ uint32, m nl.Message) (bool, error) {
				d.take(m)
				return m.Kind != unix.NLMSG_DONE && m.Kind != unix.NLMSG_ERROR, m.Err()
			})
			if len(d.rules) > len(b)/unix.NLMSG_HDRLEN {
				t.Fatalf("%d rules in %d bytes", len(d.rules), len(b))
			}
			table := &nftTable{table: &nftables.Table{Name: "filter", Family: nftables.TableFamilyINet}, ruleSet: newRuleSet("nft", "inet", "filter"), elements: map[string][]nftables.SetElement{}}
			for i := range d.rules {
				r := &d.rules[i]
				if r.number < 1 || r.number > i+1 {
					t.Fatalf("rule %d has the number %d", i, r.number)
				}
				for _, set := range []string{r.verdicts, "__set0"} { // nobody is asked for them
					table.elements[set] = []nftables.SetElement{{Key: r.expressions, VerdictData: &expr.Verdict{Kind: expr.VerdictDrop, Chain: r.jump}}}
				}
				table.jump(r.chain, r.jump)
				decode(t, table, r)
			}
			var out observe.Firewall
			table.into(&out)
			for i := range out.Rules {
				readable(t, out.Rules[i].Text)
			}
		})
	})
}

// decode does what guarded allows: the library may panic on what it does not expect.
func decode(t *testing.T, table *nftTable, r *nftRule) {
	defer func() {
		if p := recover(); p != nil && !strings.Contains(fmt.Sprint(p), "runtime error") {
			t.Fatal(p)
		}
	}()
	names := map[string]bool{}
	for name := range expressions(r.expressions) {
		names[name] = true
	}
	if names["lookup"] {
		// A name of a set that is not in the table would be asked for.
		for _, e := range r.decode() {
			if l, ok := e.(*expr.Lookup); ok {
				table.elements[l.SetName] = nil
			}
		}
	}
	table.rule(r, 0)
}

// FuzzCounters reads counters of either form: what is counted is never more than what
// the text says, and names can be printed.
func FuzzCounters(f *testing.F) {
	f.Add("entries  allocs table_fulls\n0000000a 00000010 00000002\n0000000a 00000001 00000003\n")
	f.Add("XfrmInNoPols          \t4\nXfrmOutError 1\nbroken\n")
	f.Add("a\x1b 1")
	f.Fuzz(func(t *testing.T, text string) {
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			got := map[string]uint64{}
			parseCounters(text, "x.", got)
			for name := range got {
				readable(t, name)
			}
			if len(got) > len(strings.Fields(text)) {
				t.Errorf("%d counters", len(got))
			}
		})
	})
}

// Chains that jump to thousands of others, from thousands of hooks, take no time that
// anybody notices.
func TestManyChainsAreReachedInTime(t *testing.T) {
	set := newRuleSet("nft", "inet", "t")
	const chains, bases = maxRules, 500
	for i := range bases {
		set.hooks[fmt.Sprint("base", i)] = nftHooks[i%len(nftHooks)]
	}
	budgettest.Within(t, chains, budgettest.Cost{PerByte: 1 << 20, CPU: time.Second}, func() {
		for i := range chains {
			set.jump(fmt.Sprint("base", i%bases), "hub")
			set.jump("hub", fmt.Sprint("chain", i))
			set.jump("hub", fmt.Sprint("chain", i)) // once more
			set.add(observe.FirewallRule{Chain: fmt.Sprint("chain", i), Verdict: "drop"})
		}
		var out observe.Firewall
		set.into(&out)
		if len(out.Rules) != maxDropping || len(out.Rules[0].Hooks) != len(nftHooks) || len(set.jumps["hub"]) != chains {
			t.Errorf("%d rules, by %v", len(out.Rules), out.Rules[0].Hooks)
		}
	})
}
