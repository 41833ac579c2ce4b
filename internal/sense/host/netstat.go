package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/slowray/slowray/internal/printable"
)

// Counters reads the namespace's SNMP counters, /proc/net/netstat and
// /proc/net/snmp (net/ipv4/proc.c): "TcpExt.ListenOverflows", "Tcp.RetransSegs",
// "Ip.OutNoRoutes", "Udp.RcvbufErrors"… Values the kernel prints as negative
// ("Tcp.MaxConn") are left out.
func (n *NetNS) Counters() (map[string]uint64, error) {
	m := make(map[string]uint64, 320)
	err := n.netFiles(func(dir string) error {
		return errors.Join(
			parseInto(filepath.Join(dir, "netstat"), func(r io.Reader) error { return parseNetstat(r, m) }),
			parseInto(filepath.Join(dir, "snmp"), func(r io.Reader) error { return parseNetstat(r, m) }),
		)
	})
	if err != nil {
		return m, fmt.Errorf("counters: %w", err)
	}
	return m, nil
}

func parseInto(path string, parse func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return parse(f)
}

// parseNetstat reads pairs of lines, names above values, both with the same
// word before a colon. Columns without a partner are skipped.
func parseNetstat(r io.Reader, m map[string]uint64) error {
	b, err := io.ReadAll(io.LimitReader(r, 4<<20))
	for len(b) > 0 {
		var names, values []byte
		names, b = nextLine(b)
		group, names := nextField(names)
		values, rest := nextLine(b)
		again, values := nextField(values)
		if len(group) < 2 || group[len(group)-1] != ':' || !bytes.Equal(group, again) {
			continue
		}
		b = rest
		prefix := printable.Name(group[:len(group)-1], 64) + "."
		for {
			var name, value []byte
			name, names = nextField(names)
			value, values = nextField(values)
			if len(name) == 0 || len(value) == 0 {
				break
			}
			if v, ok := ParseUint(value); ok {
				m[prefix+printable.Name(name, 64)] = v
			}
		}
	}
	return err
}

// gauges is what the files of Counters hold that is not a counter.
var gauges = map[string]bool{
	"Ip.Forwarding": true, "Ip.DefaultTTL": true, "Tcp.RtoAlgorithm": true, "Tcp.RtoMin": true,
	"Tcp.RtoMax": true, "Tcp.MaxConn": true, "Tcp.CurrEstab": true,
}

// CountersBetween is how much each counter of both samples rose, zeros
// included, so that a missing key means a counter this kernel does not have.
// Gauges are left out; a counter that went backwards counts as not moved.
func CountersBetween(a, b map[string]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(b))
	for k, v := range b {
		if old, ok := a[k]; ok && !gauges[k] {
			out[k] = grown(old, v)
		}
	}
	return out
}

// SockStat reads /proc/net/sockstat and sockstat6 (sockets in use, net/ipv4/proc.c):
// "sockets.used", "TCP.inuse", "TCP.orphan", "TCP.tw", "TCP.alloc", "TCP.mem"
// (pages), "TCP6.inuse"…
func (n *NetNS) SockStat() (map[string]int64, error) {
	m := make(map[string]int64, 24)
	err := n.netFiles(func(dir string) error {
		err := parseInto(filepath.Join(dir, "sockstat"), func(r io.Reader) error { return parseSockstat(r, m) })
		six := parseInto(filepath.Join(dir, "sockstat6"), func(r io.Reader) error { return parseSockstat(r, m) })
		if errors.Is(six, os.ErrNotExist) { // no IPv6
			six = nil
		}
		return errors.Join(err, six)
	})
	if err != nil {
		return m, fmt.Errorf("sockstat: %w", err)
	}
	return m, nil
}

// parseSockstat reads lines of a group, a colon, and pairs of name and number.
func parseSockstat(r io.Reader, m map[string]int64) error {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		group, line := nextField(line)
		if len(group) < 2 || group[len(group)-1] != ':' {
			continue
		}
		prefix := printable.Name(group[:len(group)-1], 64) + "."
		for {
			var name, value []byte
			name, line = nextField(line)
			value, line = nextField(line)
			if len(value) == 0 {
				break
			}
			if v, ok := parseInt(value); ok {
				m[prefix+printable.Name(name, 64)] = v
			}
		}
	}
	return err
}

// Sysctls reads kernel settings as they are inside the namespace:
// "net.core.somaxconn" → the value, trimmed, with tabs and runs of blanks as
// one space. A name that does not exist or cannot be read has no key. Dots only
// separate: interface names with dots cannot be asked for. Empty when the
// namespace may not be entered.
func (n *NetNS) Sysctls(names []string) map[string]string {
	out := make(map[string]string, len(names))
	_ = n.Do(func() error {
		for _, name := range names {
			if v, ok := n.fs.sysctl(name); ok {
				out[name] = v
			}
		}
		return nil
	})
	return out
}

func (fs FS) sysctl(name string) (string, bool) {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return "", false
	}
	b, err := os.ReadFile(filepath.Join(fs.Proc, "sys", strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return "", false
	}
	return printable.Name(bytes.Join(bytes.Fields(b), []byte(" ")), 4096), true
}
