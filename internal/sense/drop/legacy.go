package drop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// The older iptables keeps each table as one block of memory, which
// getsockopt() hands out (include/uapi/linux/netfilter_ipv4/ip_tables.h,
// netfilter_ipv6/ip6_tables.h). To ask for a table that is not there would
// make it: only those that the kernel lists are asked for.

// legacyFamily is how the tables of one family are read.
type legacyFamily struct {
	name           string
	domain, level  int
	names          string // file that lists the tables
	addr           int    // bytes of an address
	protocol       int    // where the protocol lies in an entry
	inverted       int    // … the flags that invert
	offsets        int    // … the offsets of target and next entry
	counters, size int    // … the counters; bytes of an entry without matches
}

var legacyFamilies = []legacyFamily{
	{name: "ip", domain: unix.AF_INET, level: unix.IPPROTO_IP, names: "ip_tables_names", addr: 4, protocol: 80, inverted: 83, offsets: 88, counters: 96, size: 112},
	{name: "ip6", domain: unix.AF_INET6, level: unix.IPPROTO_IPV6, names: "ip6_tables_names", addr: 16, protocol: 128, inverted: 132, offsets: 140, counters: 152, size: 168},
}

const (
	getInfo     = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	getEntries  = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES
	infoSize    = 84
	infoHooks   = 32 // valid_hooks, hook_entry[5], underflow[5], num_entries, size
	tableHeader = 40 // name, size, and padding before the entries
	targetSize  = 32 // struct xt_entry_target
	maxTable    = 64 << 20
	maxEntries  = 500_000 // of all tables
)

var legacyHooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// readLegacy reads the tables of the thread's network namespace.
func readLegacy(f *observe.Firewall) error {
	var errs []error
	for i := range legacyFamilies {
		l := &legacyFamilies[i]
		names, err := os.ReadFile("/proc/thread-self/net/" + l.names)
		if err != nil {
			continue // the module is not loaded, so there is no table
		}
		for _, table := range strings.Fields(string(names)) {
			if f.All >= maxEntries {
				return errors.Join(errs...)
			}
			if err := l.read(table, f); err != nil {
				errs = append(errs, fmt.Errorf("iptables-legacy table %s (%s): %w", table, l.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (l *legacyFamily) read(table string, f *observe.Firewall) error {
	sock, err := unix.Socket(l.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	// The table may be replaced between the two questions.
	for range 3 {
		info := make([]byte, infoSize)
		copy(info[:31], table)
		if err := getsockopt(sock, l.level, getInfo, info); err != nil {
			return err
		}
		size := binary.NativeEndian.Uint32(info[infoSize-4:])
		if size > maxTable {
			return errors.New("too large")
		}
		entries := make([]byte, tableHeader+int(size))
		copy(entries[:31], table)
		binary.NativeEndian.PutUint32(entries[32:], size)
		err = getsockopt(sock, l.level, getEntries, entries)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return err
		}
		l.parse(table, info, entries[tableHeader:], f)
		return nil
	}
	return unix.EAGAIN
}

func getsockopt(sock, level, name int, value []byte) error {
	size := uint32(len(value))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(sock), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&size)), 0)
	if e != 0 {
		return e
	}
	return nil
}

// parse walks the entries of a table.
func (l *legacyFamily) parse(table string, info, entries []byte, f *observe.Firewall) {
	ne := binary.NativeEndian
	set := newRuleSet("iptables-legacy", l.name, table)
	starts, policies := map[int]string{}, map[int]string{}
	for i, hook := range legacyHooks {
		if ne.Uint32(info[infoHooks:])&(1<<i) == 0 {
			continue
		}
		chain := strings.ToUpper(hook)
		starts[int(ne.Uint32(info[infoHooks+4+4*i:]))] = chain
		policies[int(ne.Uint32(info[infoHooks+24+4*i:]))] = chain
		set.hooks[chain] = hook
	}
	// Chains first: jumps go to the offset of their first rule.
	l.walk(entries, func(at int, entry, target []byte) {
		if targetName(target) == "ERROR" {
			starts[at+len(entry)] = cstring(target[targetSize:])
		}
	})
	chain, number := "", 0
	ended := func() {
		if number >= longChain {
			f.Long = longest(append(f.Long, observe.FirewallChain{Backend: set.backend, Family: l.name, Table: table, Chain: printable.Name(chain, maxName), Rules: number}))
		}
	}
	defer ended()
	l.walk(entries, func(at int, entry, target []byte) {
		if name, ok := starts[at]; ok {
			ended()
			chain, number = name, 0
		}
		name := targetName(target)
		if name == "ERROR" {
			return
		}
		number++
		f.All++
		r := observe.FirewallRule{Chain: chain, Number: number, Counted: true, Packets: ne.Uint64(entry[l.counters:])}
		switch {
		case name == "REJECT":
			r.Verdict = "reject"
		case name == "" && len(target) >= targetSize+4:
			switch verdict := int32(ne.Uint32(target[targetSize:])); {
			case verdict >= 0:
				set.jump(chain, starts[int(verdict)])
			case verdict == -1: // -NF_DROP - 1
				r.Verdict = "drop"
			}
		}
		if r.Verdict == "" || len(set.dropping) >= maxRules {
			return
		}
		if policies[at] == chain {
			r.Verdict, r.Number, r.Text = "policy drop", 0, "-P "+chain+" DROP"
		} else {
			r.Text = l.text(&r, entry, target)
		}
		set.add(r)
	})
	set.into(f)
}

// walk visits the entries, each with its target.
func (l *legacyFamily) walk(entries []byte, visit func(at int, entry, target []byte)) {
	ne := binary.NativeEndian
	for at, n := 0, 0; at+l.size <= len(entries) && n < maxEntries; n++ {
		target, next := int(ne.Uint16(entries[at+l.offsets:])), int(ne.Uint16(entries[at+l.offsets+2:]))
		if target < l.size || next < target+targetSize || at+next > len(entries) {
			return
		}
		visit(at, entries[at:at+next], entries[at+target:at+next])
		at += next
	}
}

func targetName(target []byte) string { return cstring(target[2:31]) }

// text writes the rule as iptables-save does.
func (l *legacyFamily) text(r *observe.FirewallRule, entry, target []byte) string {
	words := []string{"-A", r.Chain}
	inverted := entry[l.inverted]
	option := func(bit byte, name, value string) {
		if value == "" {
			return
		}
		if inverted&bit != 0 {
			words = append(words, "!")
		}
		words = append(words, name, value)
	}
	a := l.addr
	option(0x08, "-s", prefixText(entry[:a], entry[2*a:3*a]))
	option(0x10, "-d", prefixText(entry[a:2*a], entry[3*a:4*a]))
	in, out := ifname(entry[4*a:], entry[4*a+32:]), ifname(entry[4*a+16:], entry[4*a+48:])
	option(0x01, "-i", in)
	option(0x02, "-o", out)
	if inverted&0x03 == 0 {
		r.In, r.Out = in, out
	}
	if p := int(binary.NativeEndian.Uint16(entry[l.protocol:])); p != 0 {
		option(0x40, "-p", protocolName(p))
		if inverted&0x40 == 0 {
			r.Protocol = protocolName(p)
		}
	}
	ne := binary.NativeEndian
	end := len(entry) - len(target)
	for at := l.size; at+targetSize <= end; {
		size := int(ne.Uint16(entry[at:]))
		if size < targetSize || at+size > end {
			break
		}
		m := entry[at : at+size]
		words = append(words, extension(r, cstring(m[2:31]), int(m[31]), m[targetSize:]))
		at += size
	}
	words = append(words, "-j", strings.ToUpper(r.Verdict))
	return strings.Join(words, " ")
}

// prefixText is empty for any address.
func prefixText(address, mask []byte) string {
	if bytes.Count(mask, []byte{0}) == len(mask) {
		return ""
	}
	addr, _ := netip.AddrFromSlice(address)
	ones := 0
	for _, b := range mask {
		for ; b != 0; b <<= 1 {
			ones++
		}
	}
	if ones == 8*len(mask) {
		return addr.String()
	}
	return fmt.Sprintf("%s/%d", addr, ones)
}

// ifname reads a device's name and its mask, which ends early for "eth+".
func ifname(name, mask []byte) string {
	text := cstring(name[:16])
	if text != "" && len(text) < 16 && mask[len(text)] == 0 {
		text += "+"
	}
	return text
}
