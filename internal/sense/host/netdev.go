package host

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
)

// Interfaces reads the packet counters of the namespace's network interfaces,
// /proc/net/dev (net/core/net-procfs.c): totals since each was made.
func (n *NetNS) Interfaces() ([]observe.Interface, error) {
	var out []observe.Interface
	err := n.netFiles(func(dir string) error {
		return parseInto(filepath.Join(dir, "dev"), func(r io.Reader) (err error) { out, err = parseNetDev(r); return })
	})
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	return out, nil
}

// Columns of /proc/net/dev.
const (
	devRxBytes   = 0
	devRxPackets = 1
	devRxDropped = 3
	devTxBytes   = 8
	devTxPackets = 9
	devTxDropped = 11
	devColumns   = 12 // as many as are looked at
)

// parseNetDev reads /proc/net/dev: two lines of heading, then a name, a colon
// and sixteen numbers for each interface.
func parseNetDev(r io.Reader) ([]observe.Interface, error) {
	b, err := io.ReadAll(io.LimitReader(r, 16<<20))
	var out []observe.Interface
	for len(b) > 0 {
		var line []byte
		line, b = nextLine(b)
		colon := bytes.LastIndexByte(line, ':') // a name may hold one
		if colon < 0 {
			continue
		}
		name, _ := nextField(line[:colon])
		rest := line[colon+1:]
		var v [devColumns]uint64
		ok := len(name) > 0
		for i := range v {
			var f []byte
			f, rest = nextField(rest)
			var number bool
			v[i], number = ParseUint(f)
			ok = ok && number
		}
		if ok {
			out = append(out, observe.Interface{
				Name:    printable.Name(name, 16),
				RxBytes: v[devRxBytes], RxPackets: v[devRxPackets], RxDropped: v[devRxDropped],
				TxBytes: v[devTxBytes], TxPackets: v[devTxPackets], TxDropped: v[devTxDropped],
			})
		}
	}
	return out, err
}

// InterfacesBetween keeps the interfaces of both readings that moved packets,
// with what they did in between.
func InterfacesBetween(a, b []observe.Interface) []observe.Interface {
	was := make(map[string]observe.Interface, len(a))
	for _, i := range a {
		was[i.Name] = i
	}
	var out []observe.Interface
	for _, i := range b {
		o, ok := was[i.Name]
		if !ok {
			continue
		}
		d := observe.Interface{
			Name:    i.Name,
			RxBytes: grown(o.RxBytes, i.RxBytes), RxPackets: grown(o.RxPackets, i.RxPackets), RxDropped: grown(o.RxDropped, i.RxDropped),
			TxBytes: grown(o.TxBytes, i.TxBytes), TxPackets: grown(o.TxPackets, i.TxPackets), TxDropped: grown(o.TxDropped, i.TxDropped),
		}
		if d.RxPackets+d.TxPackets+d.RxDropped+d.TxDropped > 0 {
			out = append(out, d)
		}
	}
	return out
}
