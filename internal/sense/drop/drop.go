package drop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/slowray/slowray/internal/bpf"
	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/symbol"
)

// maxFlows bounds the flows of one Drop.
const maxFlows = 32

// kinds are the names of enum kind of drop.bpf.c.
var kinds = [...]string{"other", observe.DropSYN, observe.DropSYNACK, observe.DropData, observe.DropACK,
	"tcp reset", "udp", "icmp", "arp", "fragment"}

// The records of drop.bpf.c.
type (
	dropKey struct {
		Location               uint64
		Reason, NetNS, IfIndex uint32
		Kind, In, Family, _    uint8
	}
	dropCount struct {
		Packets, Segments, Bytes uint64
		Longest, Shortest        uint32
	}
	flowKey struct {
		Drop         dropKey
		SPort, DPort uint16
		_            uint32
		SAddr, DAddr [16]byte
	}
)

const familyInet = 2

// Watcher counts drops from Start on.
type Watcher struct {
	objects bpf.DropObjects
	link    link.Link
	reasons map[uint32]string // nil where the kernel tells none
}

// Start loads and attaches the program. It needs root, or CAP_BPF and
// CAP_PERFMON, and BTF.
func Start() (*Watcher, error) {
	w := &Watcher{}
	var err error
	if w.reasons, err = kernelReasons(); err != nil {
		return nil, err
	}
	spec, err := bpf.LoadDrop()
	if err != nil {
		return nil, err
	}
	// Only one of the two programs fits the kernel's tracepoint.
	unfit := "dropped_unexplained"
	if w.reasons == nil {
		unfit = "dropped"
	}
	delete(spec.Programs, unfit)
	if err := spec.Variables["harmless"].Set(harmlessBits(w.reasons)); err != nil {
		return nil, fmt.Errorf("drops: %w", err)
	}
	c, err := bpf.LoadCollection(spec)
	if err != nil {
		return nil, err
	}
	w.objects.Drops, w.objects.DroppedFlows, w.objects.LostDrops = c.Maps["drops"], c.Maps["dropped_flows"], c.Variables["lost_drops"]
	w.objects.Dropped, w.objects.DroppedUnexplained = c.Programs["dropped"], c.Programs["dropped_unexplained"]
	program := cmp.Or(w.objects.Dropped, w.objects.DroppedUnexplained)
	w.link, err = link.AttachTracing(link.TracingOptions{Program: program})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach skb/kfree_skb: %w", err), w.Close())
	}
	return w, nil
}

// Close detaches and unloads.
func (w *Watcher) Close() error {
	var errs []error
	if w.link != nil {
		errs = append(errs, w.link.Close())
	}
	for _, p := range []interface{ Close() error }{w.objects.Dropped, w.objects.DroppedUnexplained, w.objects.Drops, w.objects.DroppedFlows} {
		errs = append(errs, p.Close()) // each is happy to be nil
	}
	return errors.Join(errs...)
}

// kernelReasons gives the names of enum skb_drop_reason as this kernel has
// them, or nil where skb:kfree_skb tells no reason (before Linux 5.17).
func kernelReasons() (map[uint32]string, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("kernel types: %w", err)
	}
	var hook *btf.Typedef
	if err := spec.TypeByName("btf_trace_kfree_skb", &hook); err != nil {
		return nil, fmt.Errorf("tracepoint skb:kfree_skb: %w", err)
	}
	p, _ := hook.Type.(*btf.Pointer)
	if p == nil {
		return nil, nil
	}
	// Its own context, the packet, the place, the reason.
	if f, _ := p.Target.(*btf.FuncProto); f == nil || len(f.Params) < 4 {
		return nil, nil
	}
	names := map[uint32]string{}
	var reasons *btf.Enum
	if err := spec.TypeByName("skb_drop_reason", &reasons); err != nil {
		return names, nil //nolint:nilerr // a reason without a name keeps its number
	}
	for _, v := range reasons.Values {
		names[uint32(v.Value)] = strings.TrimPrefix(v.Name, "SKB_DROP_REASON_")
	}
	return names, nil
}

// reason names a reason. Those of a subsystem (the upper 16 bits) have names
// of their own, which are not in that enum.
func (w *Watcher) reason(n uint32) string {
	switch name := w.reasons[n]; {
	case w.reasons == nil || name == "NOT_SPECIFIED":
		return ""
	case name != "":
		return name
	case n>>16 != 0:
		return fmt.Sprintf("subsystem %d, reason %d", n>>16, n&0xffff)
	}
	return fmt.Sprintf("reason %d", n)
}

// Read returns what was dropped since Start, most packets first, without the
// reasons that are harmless. device names a device of a
// namespace; serves says whether a port is one that somebody listens at or
// calls: other ports are clients' own, and left out.
func (w *Watcher) Read(space *symbol.Space, device func(netns uint64, index int) string, serves func(port uint16) bool) (observe.Drops, []observe.Loss, error) {
	out := observe.Drops{Reasons: w.reasons != nil}
	byKey := map[dropKey]*observe.Drop{}
	var (
		key    dropKey
		counts []dropCount
		iter   = w.objects.Drops.Iterate()
	)
	var places []uint64
	for iter.Next(&key, &counts) {
		d := &observe.Drop{Reason: w.reason(key.Reason), NetNS: uint64(key.NetNS), In: key.In != 0, Kind: kinds[min(int(key.Kind), len(kinds)-1)]}
		for _, c := range counts {
			d.Packets += c.Packets
			d.Segments += c.Segments
			d.Bytes += c.Bytes
			d.Longest = max(d.Longest, c.Longest)
			if c.Shortest > 0 && (d.Shortest == 0 || c.Shortest < d.Shortest) {
				d.Shortest = c.Shortest
			}
		}
		if d.Packets == 0 {
			continue
		}
		d.Interface = device(d.NetNS, int(key.IfIndex))
		byKey[key] = d
		if !slices.Contains(places, key.Location) {
			places = append(places, key.Location)
		}
	}
	if err := iter.Err(); err != nil {
		return out, nil, fmt.Errorf("drops: read: %w", err)
	}
	names := functions(space, places)
	if err := w.flows(byKey, serves); err != nil {
		return out, nil, err
	}
	for key, d := range byKey {
		d.Location = names[key.Location]
		out.List = append(out.List, *d)
	}
	out.List = merge(out.List)
	var losses []observe.Loss
	var lost uint64
	if err := w.objects.LostDrops.Get(&lost); err == nil && lost > 0 {
		losses = append(losses, observe.Loss{What: "dropped packets of more kinds and places than there is room for", Count: int64(lost)})
	}
	return out, losses, nil
}

// functions names the kernel functions that hold the addresses.
func functions(space *symbol.Space, places []uint64) map[uint64]string {
	out := make(map[uint64]string, len(places))
	if len(places) == 0 || space == nil {
		return out
	}
	locations := make([]symbol.Location, len(places))
	for i, p := range places {
		locations[i] = space.Kernel(p)
	}
	frames, _ := space.Frames(budget.New(context.Background(), symbol.Limits), locations) // without a name the reason has to do
	for i := range frames {
		if frames[i].Name != "[kernel]" {
			// What the compiler made of a function keeps its name: "f.isra.0".
			out[places[i]], _, _ = strings.Cut(frames[i].Name, ".")
		}
	}
	return out
}

// flows adds the addresses and ports.
func (w *Watcher) flows(drops map[dropKey]*observe.Drop, serves func(port uint16) bool) error {
	type ends struct {
		drop         *observe.Drop
		src, dst     netip.Addr
		sport, dport uint16
	}
	sums := map[ends]uint64{}
	var (
		key  flowKey
		n    uint64
		iter = w.objects.DroppedFlows.Iterate()
	)
	for iter.Next(&key, &n) {
		d := drops[key.Drop]
		if d == nil || key.Drop.Family == 0 {
			continue
		}
		e := ends{d, addr(key.Drop.Family, key.SAddr), addr(key.Drop.Family, key.DAddr), key.SPort, key.DPort}
		if !serves(e.sport) && (serves(e.dport) || e.dport <= e.sport) {
			e.sport = 0
		}
		if !serves(e.dport) && e.sport != 0 {
			e.dport = 0
		}
		sums[e] += n
	}
	// An interrupted walk of a map that changes shows most of it.
	if err := iter.Err(); err != nil && len(sums) == 0 {
		return fmt.Errorf("drops: read flows: %w", err)
	}
	for e, n := range sums {
		e.drop.Flows = append(e.drop.Flows, observe.DropFlow{Src: e.src.String(), Dst: e.dst.String(), SrcPort: int(e.sport), DstPort: int(e.dport), Segments: n})
	}
	for _, d := range drops {
		d.Flows = firstFlows(d.Flows)
	}
	return nil
}

func firstFlows(list []observe.DropFlow) []observe.DropFlow {
	slices.SortFunc(list, func(a, b observe.DropFlow) int {
		return cmp.Or(cmp.Compare(b.Segments, a.Segments), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst),
			cmp.Compare(a.SrcPort, b.SrcPort), cmp.Compare(a.DstPort, b.DstPort))
	})
	return list[:min(len(list), maxFlows)]
}

// merge joins what differs only in the address inside a function.
func merge(list []observe.Drop) []observe.Drop {
	type key struct {
		reason, location, device, kind string
		netns                          uint64
		in                             bool
	}
	at := map[key]int{}
	var out []observe.Drop
	for _, d := range list {
		k := key{d.Reason, d.Location, d.Interface, d.Kind, d.NetNS, d.In}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			out = append(out, d)
			continue
		}
		o := &out[i]
		o.Packets, o.Segments, o.Bytes = o.Packets+d.Packets, o.Segments+d.Segments, o.Bytes+d.Bytes
		o.Longest = max(o.Longest, d.Longest)
		o.Shortest = min(o.Shortest, d.Shortest)
		o.Flows = firstFlows(append(o.Flows, d.Flows...))
	}
	slices.SortFunc(out, func(a, b observe.Drop) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Location, b.Location),
			cmp.Compare(a.NetNS, b.NetNS), cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

func addr(family uint8, b [16]byte) netip.Addr {
	if family == familyInet {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b).Unmap()
}

// harmlessBits has a bit set for each harmless reason, by its number: the program passes
// them by. A busy server has one for each connection that it closes.
func harmlessBits(names map[uint32]string) (bits [4]uint64) {
	for n, name := range names {
		if harmless[name] && n < 256 {
			bits[n/64] |= 1 << (n % 64)
		}
	}
	return bits
}

// harmless are reasons for which no packet is missed: what TCP had already, or
// what nobody asked for any more, and sockets that are closed.
var harmless = map[string]bool{
	"TCP_OLD_DATA": true, "TCP_OLD_ACK": true, "TCP_OFOMERGE": true, "TCP_OLD_SEQUENCE": true, "TCP_RESET": true,
	"TCP_CLOSE": true, "SOCKET_CLOSE": true, "QUEUE_PURGE": true, "UNIX_DISCONNECT": true, "UNIX_SKIP_OOB": true,
	"OTHERHOST": true, "UNHANDLED_PROTO": true, "SKB_CONSUMED": true, "SKB_NOT_DROPPED_YET": true, "TCP_FASTOPEN": true,
	"TCP_TOO_OLD_ACK": true, "SOCKET_FILTER": true, "MAC_IEEE_MAC_CONTROL": true, "LOCAL_MAC": true,
}
