package drop

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// ruleWriter turns the expressions of a rule back into words, and notes what
// they say of the packets. An expression that it does not know is reported by its
// name in brackets.
type ruleWriter struct {
	table *nftTable
	rule  observe.FirewallRule
	words []string
	regs  map[uint32]value // what is in a register
}

// value is what a register holds.
type value struct {
	name string // "tcp dport"
	kind valueKind
	mask []byte
}

type valueKind int

const (
	number valueKind = iota // in network byte order
	native                  // in host byte order
	text
	address
	port
	protocol
	state
)

// reg makes one name of the two that a register may have: 16-byte registers
// 1 to 4 lie over 4-byte ones from 8 on (NFT_REG_1, NFT_REG32_00).
func reg(n uint32) uint32 {
	if n >= 1 && n <= 4 {
		return 8 + 4*(n-1)
	}
	return n
}

var metaNames = map[expr.MetaKey]value{
	expr.MetaKeyIIFNAME: {name: "iifname", kind: text}, expr.MetaKeyOIFNAME: {name: "oifname", kind: text},
	expr.MetaKeyIIF: {name: "iif", kind: native}, expr.MetaKeyOIF: {name: "oif", kind: native},
	expr.MetaKeyL4PROTO: {name: "meta l4proto", kind: protocol}, expr.MetaKeyNFPROTO: {name: "meta nfproto", kind: number},
	expr.MetaKeyMARK: {name: "meta mark", kind: native}, expr.MetaKeySKUID: {name: "meta skuid", kind: native},
	expr.MetaKeyLEN: {name: "meta length", kind: native}, expr.MetaKeyPROTOCOL: {name: "meta protocol", kind: number},
	expr.MetaKeyPKTTYPE: {name: "meta pkttype", kind: number}, expr.MetaKeyPRANDOM: {name: "meta random", kind: native},
}

// write reads all expressions.
func (w *ruleWriter) write(list []expr.Any) {
	for _, e := range list {
		w.one(e)
	}
	w.rule.Text = strings.Join(w.words, " ")
	if len(w.rule.Text) > 512 {
		w.rule.Text = strings.ToValidUTF8(w.rule.Text[:512], "") + "…"
	}
}

func (w *ruleWriter) say(format string, args ...any) {
	w.words = append(w.words, fmt.Sprintf(format, args...))
}

func (w *ruleWriter) one(e expr.Any) {
	switch e := e.(type) {
	case *expr.Meta:
		if v, ok := metaNames[e.Key]; ok {
			w.regs[reg(e.Register)] = v
			w.rule.Some = w.rule.Some || e.Key == expr.MetaKeyPRANDOM
		} else {
			w.regs[reg(e.Register)] = value{name: fmt.Sprintf("meta key %d", e.Key)}
		}
	case *expr.Payload:
		w.regs[reg(e.DestRegister)] = w.payload(e)
	case *expr.Ct:
		v := value{name: fmt.Sprintf("ct key %d", e.Key), kind: native}
		switch e.Key {
		case expr.CtKeySTATE:
			v = value{name: "ct state", kind: state}
			w.rule.Stateful = true
		case expr.CtKeyMARK:
			v.name = "ct mark"
		case expr.CtKeySTATUS:
			v.name = "ct status"
		}
		w.regs[reg(e.Register)] = v
	case *expr.Numgen:
		w.rule.Some = true
		how := map[bool]string{true: "random", false: "inc"}[e.Type == 1]
		w.regs[reg(e.Register)] = value{name: fmt.Sprintf("numgen %s mod %d", how, e.Modulus)}
	case *expr.Bitwise:
		v := w.regs[reg(e.SourceRegister)]
		v.mask = e.Mask
		w.regs[reg(e.DestRegister)] = v
	case *expr.Cmp:
		w.compare(e)
	case *expr.Range:
		v := w.regs[reg(e.Register)]
		if v.kind == port && e.Op == expr.CmpOpEq && len(e.FromData) >= 2 && len(e.ToData) >= 2 {
			w.ports(v, [2]int{int(binary.BigEndian.Uint16(e.FromData)), int(binary.BigEndian.Uint16(e.ToData))})
		}
		w.say("%s %s%s-%s", v.name, not(e.Op == expr.CmpOpNeq), w.data(v, e.FromData), w.data(v, e.ToData))
	case *expr.Lookup:
		w.lookup(e)
	case *expr.Limit:
		w.rule.Some = true
		over := map[bool]string{true: "over ", false: ""}[e.Over]
		unit := map[expr.LimitType]string{expr.LimitTypePktBytes: " bytes"}[e.Type]
		w.say("limit rate %s%d%s/%s", over, e.Rate, unit, map[expr.LimitTime]string{
			expr.LimitTimeSecond: "second", expr.LimitTimeMinute: "minute", expr.LimitTimeHour: "hour", expr.LimitTimeDay: "day", expr.LimitTimeWeek: "week"}[e.Unit])
	case *expr.Connlimit:
		w.rule.Some = true
		w.say("ct count %s%d", map[bool]string{true: "over ", false: ""}[e.Flags&1 != 0], e.Count)
	case *expr.Quota:
		w.rule.Some = true
		w.say("quota %s%d bytes", map[bool]string{true: "over ", false: ""}[e.Over], e.Bytes)
	case *expr.Dynset:
		w.rule.Some = true
		w.say("update @%s", printable.Name(e.SetName, maxName))
	case *expr.Counter:
		w.rule.Counted, w.rule.Packets = true, e.Packets
		w.say("counter")
	case *expr.Objref:
		w.say("counter name %q", printable.Name(e.Name, maxName))
	case *expr.Log:
		w.say("log")
	case *expr.Match:
		w.say("%s", extension(&w.rule, e.Name, int(e.Rev), raw(w.table.table.Family, e.Rev, e.Info)))
	case *expr.Target:
		w.say("-j %s", printable.Name(e.Name, maxName))
		switch e.Name {
		case "REJECT":
			w.rule.Verdict = "reject"
		case "DROP":
			w.rule.Verdict = "drop"
		}
	case *expr.Reject:
		w.rule.Verdict = "reject"
		w.say("reject")
	case *expr.Verdict:
		w.verdict(e)
	case *expr.Immediate:
		w.regs[reg(e.Register)] = value{name: fmt.Sprintf("0x%x", e.Data)}
	case *unknown:
		w.say("%s", e)
	}
}

// raw gives the bytes of a match of iptables back.
func raw(family nftables.TableFamily, rev uint32, info xt.InfoAny) []byte {
	data, err := xt.Marshal(xt.TableFamily(family), rev, info)
	if err != nil {
		return nil
	}
	return data
}

func (w *ruleWriter) verdict(e *expr.Verdict) {
	switch e.Kind {
	case expr.VerdictDrop:
		w.rule.Verdict = "drop"
		w.say("drop")
	case expr.VerdictJump:
		w.say("jump %s", printable.Name(e.Chain, maxName))
	case expr.VerdictGoto:
		w.say("goto %s", printable.Name(e.Chain, maxName))
	case expr.VerdictAccept:
		w.say("accept")
	case expr.VerdictReturn:
		w.say("return")
	}
}

// payload names a part of a header (RFC 791, 8200, 9293, 768).
func (w *ruleWriter) payload(e *expr.Payload) value {
	type field struct{ offset, size uint32 }
	at := field{e.Offset, e.Len}
	switch e.Base {
	case expr.PayloadBaseNetworkHeader:
		if v, ok := map[field]value{
			{12, 4}: {name: "ip saddr", kind: address}, {16, 4}: {name: "ip daddr", kind: address}, {9, 1}: {name: "ip protocol", kind: protocol},
			{8, 16}: {name: "ip6 saddr", kind: address}, {24, 16}: {name: "ip6 daddr", kind: address}, {6, 1}: {name: "ip6 nexthdr", kind: protocol},
			{2, 2}: {name: "ip length"}, {6, 2}: {name: "ip frag-off"}, {8, 1}: {name: "ip ttl"},
		}[at]; ok {
			return v
		}
		// A prefix of whole bytes is compared as its first bytes.
		if e.Len < 4 && (e.Offset == 12 || e.Offset == 16) {
			return value{name: map[uint32]string{12: "ip saddr", 16: "ip daddr"}[e.Offset], kind: address}
		}
	case expr.PayloadBaseTransportHeader:
		proto := w.rule.Protocol
		if proto == "" {
			proto = "th"
		}
		switch at {
		case field{0, 2}:
			return value{name: proto + " sport", kind: port}
		case field{2, 2}:
			return value{name: proto + " dport", kind: port}
		case field{13, 1}:
			return value{name: proto + " flags"}
		}
	}
	return value{name: fmt.Sprintf("@%s,%d,%d", map[expr.PayloadBase]string{0: "ll", 1: "nh", 2: "th"}[e.Base], 8*e.Offset, 8*e.Len)}
}

var operators = map[expr.CmpOp]string{expr.CmpOpNeq: "!= ", expr.CmpOpLt: "< ", expr.CmpOpLte: "<= ", expr.CmpOpGt: "> ", expr.CmpOpGte: ">= "}

func (w *ruleWriter) compare(e *expr.Cmp) {
	v := w.regs[reg(e.Register)]
	if e.Op == expr.CmpOpEq && len(e.Data) > 0 {
		switch {
		case v.kind == protocol:
			w.rule.Protocol = protocolName(int(e.Data[0]))
		case v.kind == port && len(e.Data) >= 2:
			n := int(binary.BigEndian.Uint16(e.Data))
			w.ports(v, [2]int{n, n})
		case v.name == "iifname":
			w.rule.In = w.data(v, e.Data)
		case v.name == "oifname":
			w.rule.Out = w.data(v, e.Data)
		}
	}
	if v.kind == state && v.mask != nil {
		// "ct state invalid": the bits are masked, and the rest is not zero.
		w.say("ct state %s%s", not(e.Op == expr.CmpOpEq), strings.ToLower(stateNames(&w.rule, v.mask)))
		return
	}
	masked := ""
	if v.mask != nil && v.kind != address {
		masked = fmt.Sprintf(" & 0x%x", v.mask)
	}
	op := operators[e.Op]
	if e.Op == expr.CmpOpEq && (v.name == "meta nfproto" || v.name == "meta l4proto") {
		return // the address or port that follows says it
	}
	suffix := ""
	if v.kind == address {
		if ones := maskBits(v.mask, len(e.Data)); ones >= 0 {
			suffix = fmt.Sprintf("/%d", ones)
		}
	}
	w.say("%s%s %s%s%s", v.name, masked, op, w.data(v, e.Data), suffix)
}

// stateNames names bits of NF_CT_STATE_BIT: of nftables they lie as in
// iptables.
func stateNames(r *observe.FirewallRule, mask []byte) string {
	if len(mask) < 4 {
		return "?"
	}
	return ctStates(r, binary.NativeEndian.Uint32(mask))
}

// maskBits is the length of a prefix, or -1 for a whole address.
func maskBits(mask []byte, data int) int {
	if mask == nil {
		if data < 4 {
			return 8 * data
		}
		return -1
	}
	ones := 0
	for _, b := range mask {
		for ; b != 0; b <<= 1 {
			ones++
		}
	}
	return ones
}

func (w *ruleWriter) ports(v value, r [2]int) {
	if strings.HasSuffix(v.name, "sport") {
		w.rule.SrcPorts = append(w.rule.SrcPorts, r)
	} else {
		w.rule.DstPorts = append(w.rule.DstPorts, r)
	}
}

func (w *ruleWriter) lookup(e *expr.Lookup) {
	v := w.regs[reg(e.SourceRegister)]
	set := "@" + printable.Name(e.SetName, maxName)
	elements := w.table.set(e.SetName)
	if len(elements) > 0 {
		var list []string
		begin := ""
		for _, el := range elements[:min(len(elements), 16)] {
			what := w.data(v, el.Key)
			if el.VerdictData != nil {
				what += " : " + map[bool]string{true: "drop", false: "…"}[el.VerdictData.Kind == expr.VerdictDrop]
			}
			if el.IntervalEnd {
				begin = what
				continue
			}
			list = append(list, what)
		}
		set = "{ " + strings.Join(list, ", ") + " }"
		if v.kind == port && !e.Invert && begin == "" && !e.IsDestRegSet {
			for _, el := range elements {
				if len(el.Key) >= 2 {
					n := int(binary.BigEndian.Uint16(el.Key))
					w.ports(v, [2]int{n, n})
				}
			}
		}
	}
	word := ""
	if e.IsDestRegSet {
		word = "vmap "
	}
	w.say("%s %s%s%s", v.name, not(e.Invert), word, set)
}

func not(yes bool) string {
	if yes {
		return "!= "
	}
	return ""
}

// data writes a constant.
func (w *ruleWriter) data(v value, b []byte) string {
	switch v.kind {
	case text:
		name := cstring(b)
		if !slices.Contains(b, 0) {
			name += "*"
		}
		return name
	case address:
		full := slices.Clone(b)
		for len(full) < 4 {
			full = append(full, 0)
		}
		if a, ok := netip.AddrFromSlice(full); ok {
			return a.String()
		}
	case port:
		if len(b) >= 2 {
			return fmt.Sprint(binary.BigEndian.Uint16(b))
		}
	case protocol:
		if len(b) > 0 {
			return protocolName(int(b[0]))
		}
	case state, native:
		if len(b) == 4 {
			return fmt.Sprint(binary.NativeEndian.Uint32(b))
		}
	}
	switch len(b) {
	case 1:
		return fmt.Sprint(b[0])
	case 2:
		return fmt.Sprint(binary.BigEndian.Uint16(b))
	case 4:
		return fmt.Sprint(binary.BigEndian.Uint32(b))
	}
	return fmt.Sprintf("0x%x", b)
}
