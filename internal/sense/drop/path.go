package drop

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/printable"
	"github.com/slowray/slowray/internal/sense/host"
)

// Path is one reading of what packets pass in a network namespace: totals
// since each thing was made.
type Path struct {
	Links   []observe.Link
	Qdiscs  []observe.Qdisc
	Filters []observe.TrafficFilter
	peers   map[int]Peer // by index of a veth
}

// Bounds of what is read of one namespace.
const (
	maxLinks      = 4096
	maxQdiscs     = 4096
	maxNeighbours = 64
	maxRoutes     = 64
	maxName       = 128 // bytes
)

// inside runs fn with a netlink handle of the namespace. The library may panic
// on attributes that it does not expect: that is an error like another.
func inside(ns *host.NetNS, fn func(*netlink.Handle) error) error {
	return ns.Do(func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("netlink: answer not understood: %v", p)
			}
		}()
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		defer h.Close()
		return fn(h)
	})
}

// ReadPath reads devices, queueing disciplines and filters of a namespace.
func ReadPath(ns *host.NetNS) (Path, error) {
	p := Path{peers: map[int]Peer{}}
	err := inside(ns, func(h *netlink.Handle) error {
		links, err := h.LinkList()
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("devices: %w", err)
		}
		byIndex := map[int]netlink.Link{}
		for _, l := range links[:min(len(links), maxLinks)] {
			byIndex[l.Attrs().Index] = l
			p.Links = append(p.Links, linkOf(l))
			if l.Type() == "veth" {
				p.peers[l.Attrs().Index] = Peer{l.Attrs().ParentIndex, l.Attrs().NetNsID}
			}
		}
		qdiscs, err := h.QdiscList(nil)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("queueing disciplines: %w", err)
		}
		for _, q := range qdiscs[:min(len(qdiscs), maxQdiscs)] {
			l := byIndex[q.Attrs().LinkIndex]
			if l == nil {
				continue
			}
			p.Qdiscs = append(p.Qdiscs, qdiscOf(l, q))
			switch q.Type() {
			case "htb", "hfsc":
				p.Qdiscs = append(p.Qdiscs, classesOf(h, l, q.Type())...)
			case "ingress", "clsact":
				p.Filters = append(p.Filters, filtersOf(h, l)...)
			}
		}
		for _, l := range byIndex {
			p.Filters = append(p.Filters, programsOf(l)...)
		}
		return nil
	})
	if err != nil {
		return p, fmt.Errorf("packet path: %w", err)
	}
	return p, nil
}

// Names of IFLA_XDP_ATTACHED's values (include/uapi/linux/if_link.h).
var xdpModes = map[uint32]string{1: "driver", 2: "generic", 3: "offload", 4: "several"}

func linkOf(l netlink.Link) observe.Link {
	a := l.Attrs()
	out := observe.Link{Name: printable.Name(a.Name, maxName), Index: a.Index, Kind: l.Type(), MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0}
	if out.Kind == "device" {
		out.Kind = ""
	}
	if a.Xdp != nil && a.Xdp.Attached {
		out.XDP, out.XDPProgram = xdpModes[a.Xdp.AttachMode], a.Xdp.ProgId
	}
	s := a.Statistics
	if s == nil {
		return out
	}
	out.RxPackets, out.TxPackets = s.RxPackets, s.TxPackets
	out.Errors = map[string]uint64{
		"rx_errors": s.RxErrors, "tx_errors": s.TxErrors, "rx_dropped": s.RxDropped, "tx_dropped": s.TxDropped,
		"rx_length": s.RxLengthErrors, "rx_over": s.RxOverErrors, "rx_crc": s.RxCrcErrors, "rx_frame": s.RxFrameErrors,
		"rx_fifo": s.RxFifoErrors, "rx_missed": s.RxMissedErrors, "tx_aborted": s.TxAbortedErrors,
		"tx_carrier": s.TxCarrierErrors, "tx_fifo": s.TxFifoErrors, "collisions": s.Collisions,
	}
	return out
}

func qdiscOf(l netlink.Link, q netlink.Qdisc) observe.Qdisc {
	a := q.Attrs()
	out := observe.Qdisc{Interface: printable.Name(l.Attrs().Name, maxName), Kind: q.Type(), Handle: handle(a.Handle), Parent: parent(a.Parent)}
	if a.Statistics != nil {
		countQueue(&out, (*netlink.ClassStatistics)(a.Statistics))
	}
	switch q := q.(type) {
	case *netlink.Tbf:
		out.RateBits = q.Rate * 8
	case *netlink.Netem:
		out.Loss = float64(q.Loss) / math.MaxUint32
	}
	return out
}

func countQueue(q *observe.Qdisc, s *netlink.ClassStatistics) {
	if s.Basic != nil {
		q.Packets = uint64(s.Basic.Packets)
	}
	if s.Queue != nil {
		q.Drops, q.Overlimits, q.Backlog = uint64(s.Queue.Drops), uint64(s.Queue.Overlimits), s.Queue.Backlog
	}
}

// classesOf lists the classes of a shaper, which have rates of their own.
func classesOf(h *netlink.Handle, l netlink.Link, kind string) []observe.Qdisc {
	classes, err := h.ClassList(l, netlink.HANDLE_NONE)
	if err != nil {
		return nil // the discipline itself counts what its classes drop
	}
	var out []observe.Qdisc
	for _, c := range classes[:min(len(classes), maxQdiscs)] {
		a := c.Attrs()
		q := observe.Qdisc{Interface: printable.Name(l.Attrs().Name, maxName), Kind: kind + " class", Handle: handle(a.Handle), Parent: parent(a.Parent)}
		if a.Statistics != nil {
			countQueue(&q, a.Statistics)
		}
		if htb, ok := c.(*netlink.HtbClass); ok {
			q.RateBits = htb.Ceil * 8
		}
		out = append(out, q)
	}
	return out
}

// handle writes a handle as tc does: "8001:", "1:10".
func handle(h uint32) string {
	major, minor := h>>16, h&0xffff
	if minor == 0 {
		return fmt.Sprintf("%x:", major)
	}
	return fmt.Sprintf("%x:%x", major, minor)
}

func parent(h uint32) string {
	switch h {
	case netlink.HANDLE_ROOT:
		return "root"
	case netlink.HANDLE_INGRESS: // clsact has the same
		return "ingress"
	}
	return handle(h)
}

// filtersOf lists the filters of a device's clsact or ingress discipline that
// can drop.
func filtersOf(h *netlink.Handle, l netlink.Link) []observe.TrafficFilter {
	var out []observe.TrafficFilter
	for way, at := range map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS} {
		filters, err := h.FilterList(l, at)
		if err != nil {
			continue // the ingress discipline has no egress
		}
		for _, f := range filters {
			a := f.Attrs()
			o := observe.TrafficFilter{Interface: printable.Name(l.Attrs().Name, maxName), Way: way, Kind: f.Type(), Preference: int(a.Priority)}
			if a.Handle != 0 {
				o.Handle = fmt.Sprintf("0x%x", a.Handle)
			}
			switch f := f.(type) {
			case *netlink.BpfFilter:
				o.Name, o.Program = printable.Name(f.Name, maxName), uint32(f.Id)
			case *netlink.MatchAll:
				o.Action = dropping(f.Actions)
			case *netlink.U32:
				o.Action = dropping(f.Actions)
			case *netlink.Flower:
				o.Action = dropping(f.Actions)
			}
			if o.Kind == "bpf" && o.Program == 0 || o.Kind != "bpf" && o.Action == "" {
				continue // a header of the filters behind it, or one that drops nothing
			}
			out = append(out, o)
		}
	}
	return out
}

// dropping names an action that can drop.
func dropping(actions []netlink.Action) string {
	for _, a := range actions {
		switch a := a.(type) {
		case *netlink.PoliceAction:
			return fmt.Sprintf("police to %d bit/s", uint64(a.Rate)*8)
		case *netlink.GenericAction:
			if a.Action == netlink.TC_ACT_SHOT {
				return "drop"
			}
		}
	}
	return ""
}

// programsOf lists the BPF programs attached to a device by links (tcx,
// Linux 6.6), which no filter shows.
func programsOf(l netlink.Link) []observe.TrafficFilter {
	var out []observe.TrafficFilter
	for way, at := range map[string]ebpf.AttachType{"ingress": ebpf.AttachTCXIngress, "egress": ebpf.AttachTCXEgress} {
		r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
		if err != nil {
			return out
		}
		for _, p := range r.Programs {
			out = append(out, observe.TrafficFilter{Interface: printable.Name(l.Attrs().Name, maxName), Way: way, Kind: "bpf", Name: "tcx", Program: uint32(p.ID)})
		}
	}
	return out
}

// PathBetween is what each thing counted between two readings.
func PathBetween(a, b Path) Path {
	links, qdiscs := map[string]observe.Link{}, map[string]observe.Qdisc{}
	for _, l := range a.Links {
		links[fmt.Sprint(l.Index, " ", l.Name)] = l
	}
	for _, q := range a.Qdiscs {
		qdiscs[q.Interface+" "+q.Kind+" "+q.Handle+" "+q.Parent] = q
	}
	out := Path{Filters: b.Filters, peers: b.peers}
	for _, l := range b.Links {
		// One that is new has counted from 0 on.
		old := links[fmt.Sprint(l.Index, " ", l.Name)]
		l.RxPackets, l.TxPackets = grown(old.RxPackets, l.RxPackets), grown(old.TxPackets, l.TxPackets)
		errs := map[string]uint64{}
		for name, n := range l.Errors {
			if d := grown(old.Errors[name], n); d > 0 {
				errs[name] = d
			}
		}
		l.Errors = nil
		if len(errs) > 0 {
			l.Errors = errs
		}
		out.Links = append(out.Links, l)
	}
	for _, q := range b.Qdiscs {
		old := qdiscs[q.Interface+" "+q.Kind+" "+q.Handle+" "+q.Parent]
		// Counters of 32 bits: the difference survives their wrap.
		q.Packets = uint64(uint32(q.Packets) - uint32(old.Packets))
		q.Drops = uint64(uint32(q.Drops) - uint32(old.Drops))
		q.Overlimits = uint64(uint32(q.Overlimits) - uint32(old.Overlimits))
		out.Qdiscs = append(out.Qdiscs, q)
	}
	return out
}

func grown(a, b uint64) uint64 {
	if b < a {
		return 0
	}
	return b - a
}

// Peer is the other end of a veth: its index, and its namespace by the number
// that it has in this one, -1 when it is the same.
type Peer struct{ Index, NSID int }

// PeerOf says which device is the other end of a veth.
func (p *Path) PeerOf(index int) (Peer, bool) {
	peer, ok := p.peers[index]
	return peer, ok
}

// NSID is the number by which ns knows another namespace, -1 when it has none
// for it.
func NSID(ns, other *host.NetNS) int {
	id := -1
	err := inside(ns, func(h *netlink.Handle) (err error) {
		id, err = h.GetNetNsIdByFd(other.FD())
		return err
	})
	if err != nil {
		return -1
	}
	return id
}

// Unanswered lists neighbours that do not answer, as they are now.
func Unanswered(ns *host.NetNS) ([]observe.Neighbour, error) {
	var out []observe.Neighbour
	err := inside(ns, func(h *netlink.Handle) error {
		links, err := h.LinkList()
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		names := map[int]string{}
		for _, l := range links {
			names[l.Attrs().Index] = printable.Name(l.Attrs().Name, maxName)
		}
		list, err := h.NeighList(0, unix.AF_UNSPEC)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		for _, n := range list {
			state := map[bool]string{true: "failed", false: "incomplete"}[n.State&netlink.NUD_FAILED != 0]
			if n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 || n.IP == nil || len(out) == maxNeighbours {
				continue
			}
			out = append(out, observe.Neighbour{Addr: n.IP.String(), Interface: names[n.LinkIndex], State: state})
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("neighbours: %w", err)
	}
	return out, nil
}

// Names of the types of routes that lead nowhere.
var deadEnds = map[int]string{unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit"}

// DeadEnds lists routes that lead nowhere, as they are now. A router's table
// may be long: it is not for every window.
func DeadEnds(ns *host.NetNS) ([]observe.Route, error) {
	var out []observe.Route
	err := inside(ns, func(h *netlink.Handle) error {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			err := h.RouteListFilteredIter(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE, func(r netlink.Route) bool {
				kind := deadEnds[r.Type]
				// The kernel's own: what IPv6 has for addresses without a route.
				if kind == "" || r.Dst == nil || r.Priority == math.MaxInt32 || r.Priority == math.MaxUint32 {
					return true
				}
				out = append(out, observe.Route{Dst: r.Dst.String(), Kind: kind, Table: r.Table})
				return len(out) < maxRoutes
			})
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && family == unix.AF_INET {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("routes: %w", err)
	}
	return out, nil
}

// counterFiles are further counters of a namespace, by the prefix of their
// names. Those of neighbours are of the whole host.
var counterFiles = map[string]string{"xfrm_stat": "Xfrm.", "snmp6": "Ip6.", "stat/arp_cache": "Arp.", "stat/ndisc_cache": "Ndisc."}

// Counters reads what /proc/net/snmp and netstat do not have: "Xfrm.InNoPols",
// "Ip6.Ip6ReasmFails", "Arp.table_fulls", "Ndisc.unresolved_discards"… A file
// that the kernel does not have leaves its counters out.
func Counters(ns *host.NetNS) map[string]uint64 {
	out := map[string]uint64{}
	_ = ns.Do(func() error {
		for name, prefix := range counterFiles {
			data, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				continue
			}
			parseCounters(string(data), prefix, out)
		}
		return nil
	})
	return out
}

// parseCounters reads lines of a name and a number, or a line of names with
// lines of hexadecimal numbers below it, one for each CPU, which are added up.
func parseCounters(text, prefix string, into map[string]uint64) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	columns := strings.Fields(lines[0])
	if len(columns) != 2 {
		for _, line := range lines[1:] {
			for i, f := range strings.Fields(line) {
				n, ok := host.ParseHex([]byte(f))
				// The first is how many entries there are, on every line.
				if ok && i > 0 && i < len(columns) {
					into[prefix+printable.Name(columns[i], maxName)] += n
				}
			}
		}
		return
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		if n, ok := host.ParseUint([]byte(f[1])); ok {
			into[prefix+printable.Name(strings.TrimPrefix(f[0], "Xfrm"), maxName)] = n
		}
	}
}
