package drop

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
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
func dumpRules() ([]nftRule, error) {
	sock, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, nil // a kernel without nftables
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(sock)
	tv := unix.Timeval{Sec: 5} // a kernel that does not answer must not hang us
	if err := unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return nil, err
	}
	ne := binary.NativeEndian
	// struct nlmsghdr, and struct nfgenmsg of any family.
	msg := make([]byte, unix.NLMSG_HDRLEN+4)
	ne.PutUint32(msg, uint32(len(msg)))
	ne.PutUint16(msg[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE)
	ne.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	if err := unix.Sendto(sock, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	dump := ruleDump{numbers: map[ruleID]int{}}
	buf := make([]byte, 128<<10)
	for {
		n, err := unix.Read(sock, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return dump.rules, err
		}
		if done, err := dump.take(buf[:n]); done || err != nil {
			return dump.rules, err
		}
	}
}

// ruleDump is a dump of rules while it comes.
type ruleDump struct {
	rules   []nftRule
	numbers map[ruleID]int // rules so far, by chain
}

// take reads the messages of one datagram. It is done with the last one of the dump.
func (d *ruleDump) take(b []byte) (done bool, err error) {
	ne := binary.NativeEndian
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(ne.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errors.New("malformed netlink message")
		}
		switch kind := ne.Uint16(b[4:]); {
		case kind == unix.NLMSG_DONE, kind == unix.NLMSG_ERROR:
			if size >= unix.NLMSG_HDRLEN+4 {
				if code := int32(ne.Uint32(b[unix.NLMSG_HDRLEN:])); code < 0 {
					return true, unix.Errno(-code)
				}
			}
			return true, nil
		case size >= unix.NLMSG_HDRLEN+4 && kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE && len(d.rules) < maxRules:
			r := parseRule(b[unix.NLMSG_HDRLEN:size])
			chain := r.id()
			chain.handle = 0
			d.numbers[chain]++
			r.number = d.numbers[chain]
			d.rules = append(d.rules, r)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// attributes calls visit with each netlink attribute of b.
func attributes(b []byte, visit func(kind uint16, value []byte)) {
	ne := binary.NativeEndian
	for len(b) >= 4 {
		size := int(ne.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		visit(ne.Uint16(b[2:])&^(3<<14), b[4:size]) // two bits are flags
		b = b[min((size+3)&^3, len(b)):]
	}
}

func parseRule(b []byte) nftRule {
	r := nftRule{family: b[0]}
	attributes(b[4:], func(kind uint16, value []byte) {
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
			r.expressions = append([]byte(nil), value...)
		}
	})
	expressions(r.expressions, func(name string, data []byte) {
		switch name {
		case "counter":
			attributes(data, func(kind uint16, value []byte) {
				if kind == unix.NFTA_COUNTER_PACKETS && len(value) >= 8 {
					r.counted, r.packets = true, binary.BigEndian.Uint64(value)
				}
			})
		case "immediate":
			r.verdict(data)
		case "lookup":
			r.lookup(data)
		case "reject", "target":
			r.drops = true
		}
	})
	return r
}

// expressions calls visit with each expression of a rule.
func expressions(b []byte, visit func(name string, data []byte)) {
	attributes(b, func(_ uint16, element []byte) {
		name := ""
		var data []byte
		attributes(element, func(kind uint16, value []byte) {
			switch kind {
			case unix.NFTA_EXPR_NAME:
				name = cstring(value)
			case unix.NFTA_EXPR_DATA:
				data = value
			}
		})
		visit(name, data)
	})
}

// verdict reads an immediate value into the register of verdicts.
func (r *nftRule) verdict(data []byte) {
	attributes(data, func(kind uint16, value []byte) {
		if kind != unix.NFTA_IMMEDIATE_DATA {
			return
		}
		attributes(value, func(kind uint16, value []byte) {
			if kind != unix.NFTA_DATA_VERDICT {
				return
			}
			attributes(value, func(kind uint16, value []byte) {
				switch {
				case kind == unix.NFTA_VERDICT_CHAIN:
					r.jump = cstring(value)
				case kind == unix.NFTA_VERDICT_CODE && len(value) >= 4 && binary.BigEndian.Uint32(value) == 0: // NF_DROP
					r.drops = true
				}
			})
		})
	})
}

// lookup notes a map of verdicts: it may drop, and jump.
func (r *nftRule) lookup(data []byte) {
	set, verdicts := "", false
	attributes(data, func(kind uint16, value []byte) {
		switch {
		case kind == unix.NFTA_LOOKUP_SET:
			set = cstring(value)
		case kind == unix.NFTA_LOOKUP_DREG && len(value) >= 4:
			verdicts = binary.BigEndian.Uint32(value) == unix.NFT_REG_VERDICT
		}
	})
	if verdicts {
		r.verdicts, r.drops = set, true
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
	expressions(r.expressions, func(name string, data []byte) {
		if name == "byteorder" { // the library only writes it; the register holds the same
			return
		}
		e := newExpression(name)
		if e == nil || expr.Unmarshal(r.family, data, e) != nil {
			list = append(list, &unknown{name: name})
			return
		}
		// A verdict is an immediate value for the register of verdicts.
		if i, ok := e.(*expr.Immediate); ok && i.Register == unix.NFT_REG_VERDICT && len(i.Data) == 0 {
			v := &expr.Verdict{}
			if expr.Unmarshal(r.family, data, v) == nil {
				e = v
			}
		}
		list = append(list, e)
	})
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
func (u *unknown) String() string { return fmt.Sprintf("[%s]", printable(u.name)) }
