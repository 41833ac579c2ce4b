package drop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// extension reads a match of iptables into a rule: what it says of the
// packets, and its text. The layouts are those of
// include/uapi/linux/netfilter/xt_*.h. One that is not known has its name as
// its text.
func extension(r *observe.FirewallRule, name string, rev int, data []byte) string {
	ne := binary.NativeEndian
	text := ""
	switch {
	case (name == "tcp" || name == "udp") && len(data) >= 8:
		text = portsMatch(r, name, data)
	case name == "multiport" && len(data) >= 32:
		text = multiport(r, data)
	case name == "statistic" && len(data) >= 8:
		r.Some = true
		if ne.Uint16(data) == 0 {
			text = fmt.Sprintf("--mode random --probability %.4g", float64(ne.Uint32(data[4:]))/(math.MaxInt32+1))
		} else if len(data) >= 12 {
			text = fmt.Sprintf("--mode nth --every %d", ne.Uint32(data[4:])+1)
		}
	case name == "limit" && len(data) >= 8:
		r.Some = true
		if avg := ne.Uint32(data); avg > 0 {
			text = fmt.Sprintf("--limit %.4g/sec", 10_000/float64(avg))
		}
	case name == "hashlimit" || name == "recent" || name == "quota" || name == "rateest" || name == "bpf":
		r.Some = true
	case name == "connlimit" && len(data) >= 20:
		r.Some = true
		text = fmt.Sprintf("--connlimit-above %d", ne.Uint32(data[16:]))
	case name == "comment":
		text = fmt.Sprintf("--comment %q", cstring(data))
	case name == "state" && len(data) >= 4:
		text = "--state " + ctStates(r, ne.Uint32(data))
	case name == "conntrack" && rev >= 2 && len(data) >= 152:
		if flags := ne.Uint16(data[146:]); flags&1 != 0 { // XT_CONNTRACK_STATE
			not := ""
			if ne.Uint16(data[148:])&1 != 0 {
				not = "! "
			}
			text = not + "--ctstate " + ctStates(r, uint32(ne.Uint16(data[150:])))
		}
	}
	return strings.TrimSpace("-m " + printable.Name(name, maxName) + " " + text)
}

// ctStates names bits of XT_CONNTRACK_STATE_*.
func ctStates(r *observe.FirewallRule, mask uint32) string {
	var list []string
	for i, name := range []string{"INVALID", "ESTABLISHED", "RELATED", "NEW"} {
		if mask&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	if mask&(1<<6) != 0 {
		list = append(list, "UNTRACKED")
	}
	r.Invalid, r.Stateful = mask == 1, true
	return strings.Join(list, ",")
}

// portsMatch reads struct xt_tcp or xt_udp: two ranges of ports, and flags of
// which the first two say that a range is what must not match.
func portsMatch(r *observe.FirewallRule, name string, data []byte) string {
	ne := binary.NativeEndian
	r.Protocol = name
	var inverted byte
	switch {
	case name == "tcp" && len(data) >= 12:
		inverted = data[11]
	case name == "udp" && len(data) > 8:
		inverted = data[8]
	}
	var text []string
	for i, option := range []string{"--sport", "--dport"} {
		low, high := int(ne.Uint16(data[4*i:])), int(ne.Uint16(data[4*i+2:]))
		if low == 0 && high == math.MaxUint16 {
			continue
		}
		not := ""
		if inverted&(1<<i) != 0 {
			not = "! "
		} else if i == 0 {
			r.SrcPorts = append(r.SrcPorts, [2]int{low, high})
		} else {
			r.DstPorts = append(r.DstPorts, [2]int{low, high})
		}
		text = append(text, not+option+" "+strings.ReplaceAll(portText([][2]int{{low, high}}), "-", ":"))
	}
	if name == "tcp" && len(data) >= 12 && data[9] != 0 {
		text = append(text, "--tcp-flags "+tcpFlags(data[9])+" "+tcpFlags(data[10]))
	}
	return strings.Join(text, " ")
}

func tcpFlags(b byte) string {
	var list []string
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG"} {
		if b&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return "NONE"
	}
	return strings.Join(list, ",")
}

// multiport reads struct xt_multiport or xt_multiport_v1: 15 ports, of which
// one may begin a range.
func multiport(r *observe.FirewallRule, data []byte) string {
	ne := binary.NativeEndian
	n := min(int(data[1]), 15)
	var ranges [][2]int
	for i := 0; i < n; i++ {
		low := int(ne.Uint16(data[2+2*i:]))
		high := low
		if len(data) >= 48 && data[32+i] != 0 && i+1 < n {
			i++
			high = int(ne.Uint16(data[2+2*i:]))
		}
		ranges = append(ranges, [2]int{low, high})
	}
	not := ""
	if len(data) >= 48 && data[47] != 0 {
		not = "! "
	}
	option := "--ports"
	switch data[0] {
	case 0:
		option = "--sports"
		if not == "" {
			r.SrcPorts = append(r.SrcPorts, ranges...)
		}
	case 1:
		option = "--dports"
		if not == "" {
			r.DstPorts = append(r.DstPorts, ranges...)
		}
	}
	return not + option + " " + strings.ReplaceAll(portText(ranges), "-", ":")
}

func cstring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return printable.Name(string(b), maxName)
}
