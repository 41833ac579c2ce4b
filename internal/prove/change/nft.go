package change

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/nl"
)

// nftRule is a rule of nftables as the kernel gives it, and takes it again.
type nftRule struct {
	Handle      uint64 `json:"handle"`
	Expressions []byte `json:"expressions"`
	UserData    []byte `json:"userdata,omitempty"` // the comment, for one
}

// nftChain is the rules of a chain, in their order.
type nftChain struct {
	family byte
	table  string
	name   string
}

var nftFamilies = map[string]byte{
	"": unix.NFPROTO_IPV4, "ip": unix.NFPROTO_IPV4, "ip6": unix.NFPROTO_IPV6, "inet": unix.NFPROTO_INET,
	"arp": unix.NFPROTO_ARP, "bridge": unix.NFPROTO_BRIDGE, "netdev": unix.NFPROTO_NETDEV,
}

func (c nftChain) header() []byte { return []byte{c.family, unix.NFNETLINK_V0, 0, 0} }

func nftMessage(kind, flags uint16, payload []byte) nl.Message {
	return nl.Message{Kind: kind, Flags: flags, Payload: payload}
}

func nftDump(sock *netlinkSocket, kind uint16, payload []byte) ([][]byte, error) {
	list, err := sock.dump(unix.NFNL_SUBSYS_NFTABLES<<8|kind, payload)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return list, err
}

// identity is the numbers of the table and of the chain, 0 when there is no
// such chain. A table that is made anew has another number, and so has a chain
// within its table.
func (c nftChain) identity(sock *netlinkSocket) ([2]uint64, error) {
	var out [2]uint64
	tables, err := nftDump(sock, unix.NFT_MSG_GETTABLE, c.header())
	if err != nil {
		return out, err
	}
	for _, b := range tables {
		if family, a := nfgen(b); family == c.family && nl.Text(find(a, unix.NFTA_TABLE_NAME)) == c.table {
			out[0] = fromBE64(find(a, nftaTableHandle))
		}
	}
	chains, err := nftDump(sock, unix.NFT_MSG_GETCHAIN, c.header())
	for _, b := range chains {
		if family, a := nfgen(b); family == c.family && nl.Text(find(a, unix.NFTA_CHAIN_TABLE)) == c.table && nl.Text(find(a, unix.NFTA_CHAIN_NAME)) == c.name {
			out[1] = fromBE64(find(a, unix.NFTA_CHAIN_HANDLE))
		}
	}
	return out, err
}

func (c nftChain) rules(sock *netlinkSocket) ([]nftRule, error) {
	payload := nl.Append(c.header(), unix.NFTA_RULE_TABLE, cstring(c.table))
	payload = nl.Append(payload, unix.NFTA_RULE_CHAIN, cstring(c.name))
	list, err := nftDump(sock, unix.NFT_MSG_GETRULE, payload)
	return c.parseRules(list), err
}

// parseRules reads the messages of a dump of rules.
func (c nftChain) parseRules(list [][]byte) []nftRule {
	var out []nftRule
	for _, b := range list {
		family, a := nfgen(b)
		// Kernels before 4.12 give those of all chains.
		if family != c.family || nl.Text(find(a, unix.NFTA_RULE_TABLE)) != c.table || nl.Text(find(a, unix.NFTA_RULE_CHAIN)) != c.name {
			continue
		}
		out = append(out, nftRule{fromBE64(find(a, unix.NFTA_RULE_HANDLE)), find(a, unix.NFTA_RULE_EXPRESSIONS), find(a, unix.NFTA_RULE_USERDATA)})
	}
	return out
}

// expression is one of a rule's: its name, and its attributes.
type expression struct {
	name string
	data []attr
	raw  []byte
}

func (r *nftRule) expressions() []expression {
	var out []expression
	for _, element := range attrs(r.Expressions) {
		a := attrs(element.value)
		data := find(a, unix.NFTA_EXPR_DATA)
		out = append(out, expression{nl.Text(find(a, unix.NFTA_EXPR_NAME)), attrs(data), data})
	}
	return out
}

// counting are expressions whose attributes are what they have counted.
var counting = map[string]bool{"counter": true, "last": true}

// print is the same for two rules that say the same. What they have counted is
// left out.
func (r *nftRule) print() string {
	h := sha256.New()
	for _, e := range r.expressions() {
		fmt.Fprintf(h, "%s\x00", e.name)
		if counting[e.name] {
			continue
		}
		for _, a := range e.data {
			if e.name == "quota" && a.kind&nl.KindMask == unix.NFTA_QUOTA_CONSUMED {
				continue
			}
			fmt.Fprintf(h, "%d %x\x00", a.kind&nl.KindMask, a.value)
		}
	}
	h.Write(r.UserData)
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// sets are the names of the sets that a rule looks things up in.
func (r *nftRule) sets() []string {
	var out []string
	for _, e := range r.expressions() {
		var name []byte
		switch e.name {
		case "lookup":
			name = find(e.data, unix.NFTA_LOOKUP_SET)
		case "dynset":
			name = find(e.data, unix.NFTA_DYNSET_SET_NAME)
		case "objref":
			name = find(e.data, unix.NFTA_OBJREF_SET_NAME)
		}
		if name != nil {
			out = append(out, nl.Text(name))
		}
	}
	return out
}

// bindsChain says whether a chain without a name goes with the rule.
func (r *nftRule) bindsChain() bool {
	for _, e := range r.expressions() {
		if e.name == "immediate" && bytes.Contains(e.raw, []byte("__chain")) {
			return true
		}
	}
	return false
}

// compat is the attribute that extensions of iptables need next to their
// expressions: the protocol that the rule is for. The kernel does not give it
// back, but what it was made of (nft_rule_expr_…, nft_parse_compat).
func (r *nftRule) compat(family byte) []byte {
	extension, loads := false, false
	var protocol []byte
	flags := uint32(0)
	for _, e := range r.expressions() {
		switch e.name {
		case "match", "target":
			extension = true
		case "meta":
			loads = fromBE32(find(e.data, unix.NFTA_META_KEY)) == unix.NFT_META_L4PROTO
		case "payload":
			at := uint32(9) // the protocol in a header of IPv4
			if family == unix.NFPROTO_IPV6 {
				at = 6
			}
			loads = fromBE32(find(e.data, unix.NFTA_PAYLOAD_BASE)) == unix.NFT_PAYLOAD_NETWORK_HEADER &&
				fromBE32(find(e.data, unix.NFTA_PAYLOAD_OFFSET)) == at && fromBE32(find(e.data, unix.NFTA_PAYLOAD_LEN)) == 1
		case "cmp":
			value := find(attrs(find(e.data, unix.NFTA_CMP_DATA)), unix.NFTA_DATA_VALUE)
			if loads && protocol == nil && len(value) >= 1 {
				protocol = value[:1]
				if fromBE32(find(e.data, unix.NFTA_CMP_OP)) == unix.NFT_CMP_NEQ {
					flags = unix.NFT_RULE_COMPAT_F_INV
				}
			}
			loads = false
		}
	}
	if !extension || protocol == nil {
		return nil
	}
	return nl.Append(nl.Append(nil, unix.NFTA_RULE_COMPAT_PROTO, be32(uint32(protocol[0]))), unix.NFTA_RULE_COMPAT_FLAGS, be32(flags))
}

// anonymous reads what makes the sets anew that live and die with the rule,
// such as { 80, 443 }: messages of NEWSET and NEWSETELEM.
func (c nftChain) anonymous(sock *netlinkSocket, r *nftRule) ([]setMessage, error) {
	names := r.sets()
	if len(names) == 0 {
		return nil, nil
	}
	list, err := nftDump(sock, unix.NFT_MSG_GETSET, nl.Append(c.header(), unix.NFTA_SET_TABLE, cstring(c.table)))
	if err != nil {
		return nil, err
	}
	var out []setMessage
	for _, b := range list {
		family, a := nfgen(b)
		name := nl.Text(find(a, unix.NFTA_SET_NAME))
		if family != c.family || nl.Text(find(a, unix.NFTA_SET_TABLE)) != c.table || !slices.Contains(names, name) ||
			fromBE32(find(a, unix.NFTA_SET_FLAGS))&unix.NFT_SET_ANONYMOUS == 0 {
			continue
		}
		id := uint32(len(out) + 1)
		out = append(out, setMessage{Payload: setPayload(c, a, id)})
		request := nl.Append(c.header(), unix.NFTA_SET_ELEM_LIST_TABLE, cstring(c.table))
		request = nl.Append(request, unix.NFTA_SET_ELEM_LIST_SET, cstring(name))
		elements, err := nftDump(sock, unix.NFT_MSG_GETSETELEM, request)
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			payload := append(request[:len(request):len(request)], nl.Append(nil, unix.NFTA_SET_ELEM_LIST_SET_ID, be32(id))...)
			_, list := nfgen(e)
			all := find(list, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			out = append(out, setMessage{Elements: true, Payload: nl.Append(payload, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, all)})
		}
	}
	return out, nil
}

// setMessage makes a set, or fills it.
type setMessage struct {
	Elements bool   `json:"elements,omitempty"`
	Payload  []byte `json:"payload"`
}

// setPayload keeps of a set what the kernel takes: some attributes it only
// gives (handle, type, count).
func setPayload(c nftChain, a []attr, id uint32) []byte {
	payload := nl.Append(c.header(), unix.NFTA_SET_ID, be32(id))
	for _, x := range a {
		switch kind := x.kind & nl.KindMask; {
		case kind <= unix.NFTA_SET_DESC, kind == unix.NFTA_SET_TIMEOUT, kind == unix.NFTA_SET_GC_INTERVAL,
			kind == unix.NFTA_SET_USERDATA, kind == unix.NFTA_SET_OBJ_TYPE, kind == 17, kind == 18: // EXPR, EXPRESSIONS
			payload = nl.Append(payload, x.kind, x.value)
		}
	}
	return payload
}

// remove is the message that takes a rule away.
func (c nftChain) remove(handle uint64) nl.Message {
	p := nl.Append(c.header(), unix.NFTA_RULE_TABLE, cstring(c.table))
	p = nl.Append(p, unix.NFTA_RULE_CHAIN, cstring(c.name))
	return nftMessage(unix.NFT_MSG_DELRULE, 0, nl.Append(p, unix.NFTA_RULE_HANDLE, be64(handle)))
}

// insert is the messages that put a rule into the chain: behind the one with
// the handle after, else before the one with the handle ahead, else first.
func (c nftChain) insert(r *nftRule, sets []setMessage, after, ahead uint64) []nl.Message {
	var out []nl.Message
	for _, s := range sets {
		kind := uint16(unix.NFT_MSG_NEWSET)
		if s.Elements {
			kind = unix.NFT_MSG_NEWSETELEM
		}
		out = append(out, nftMessage(kind, unix.NLM_F_CREATE, s.Payload))
	}
	p := nl.Append(c.header(), unix.NFTA_RULE_TABLE, cstring(c.table))
	p = nl.Append(p, unix.NFTA_RULE_CHAIN, cstring(c.name))
	p = nl.Append(p, unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, r.Expressions)
	if compat := r.compat(c.family); compat != nil {
		p = nl.Append(p, unix.NFTA_RULE_COMPAT|unix.NLA_F_NESTED, compat)
	}
	if len(r.UserData) > 0 {
		p = nl.Append(p, unix.NFTA_RULE_USERDATA, r.UserData)
	}
	flags := uint16(unix.NLM_F_CREATE)
	switch {
	case after != 0:
		flags |= unix.NLM_F_APPEND
		p = nl.Append(p, unix.NFTA_RULE_POSITION, be64(after))
	case ahead != 0:
		p = nl.Append(p, unix.NFTA_RULE_POSITION, be64(ahead))
	}
	return append(out, nftMessage(unix.NFT_MSG_NEWRULE, flags, p))
}

// chainText names a chain as nft(8) does.
func chainText(family, table, chain string) string {
	return strings.TrimSpace(cmpText(family, "ip") + " " + table + " " + chain)
}

// nftaTableHandle is NFTA_TABLE_HANDLE (linux/netfilter/nf_tables.h, Linux 4.16).
const nftaTableHandle = 4
