package request

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// Other is the address of what had no place in the table. Its port is 0.
const Other = "other"

// Endpoints is what was counted from the table's start to end. Sums come from
// counters (of the same window, see Since) where an address has them, else from
// the records, where segments are then an estimate from the bytes, and what was
// sent and retransmitted without a request is missing. Several programs at one
// address share its counters in proportion to their records.
//
// Requests in progress are counted as Unfinished only; they may be among the
// Slowest, with what they have spent so far.
func (t *Table) Endpoints(end time.Time, counters []Counters) []observe.Endpoint {
	sums := t.withOpen()
	slots := int(min(max((end.UnixNano()-t.start+arrivalSlotNS-1)/arrivalSlotNS, 0), maxArrivals))
	byAddr := map[counterKey][]int{}
	endpoints := make([]observe.Endpoint, 0, len(sums))
	for _, e := range sums {
		at := counterKey{e.key.addr, e.key.netns, e.key.port, observe.Side(e.key.side)}
		byAddr[at] = append(byAddr[at], len(endpoints))
		endpoints = append(endpoints, e.export(slots))
	}
	var rest [2]Counters // of addresses that have no place of their own
	for i := range counters {
		c := &counters[i]
		group := byAddr[c.key()]
		switch {
		case group != nil:
			share(endpoints, group, c)
		case len(t.sums) < t.limit:
			endpoints = append(endpoints, bare(c))
			share(endpoints, []int{len(endpoints) - 1}, c)
		default:
			side := 0
			if c.Side == observe.Called {
				side = 1
			}
			rest[side].add(c, 1)
			rest[side].Side = c.Side
		}
	}
	for i := range rest {
		if c := &rest[i]; c.Side != 0 {
			group := byAddr[c.key()]
			if group == nil {
				endpoints = append(endpoints, bare(c))
				group = []int{len(endpoints) - 1}
			}
			share(endpoints, group, c)
		}
	}
	for i := range endpoints {
		// The counters are read first: the last records may be of requests that only the
		// next window's counters have, where they are counted.
		endpoints[i].Recorded = min(endpoints[i].Recorded, endpoints[i].Requests)
	}
	slices.SortFunc(endpoints, func(a, b observe.Endpoint) int {
		return cmp.Or(
			-cmp.Compare(a.Side, b.Side), // served before called
			cmp.Compare(a.NetNS, b.NetNS), compareAddr(a.Addr, b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.PID, b.PID))
	})
	return endpoints
}

// compareAddr orders addresses as numbers, "other" last.
func compareAddr(a, b string) int {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX != nil || errY != nil {
		return cmp.Compare(a, b)
	}
	return x.Compare(y)
}

// withOpen is the table's sums, requests in progress and those of processes not
// known added, without changing the table.
func (t *Table) withOpen() []*endpointSum {
	sums := make(map[key]*endpointSum, len(t.sums)+2)
	for k, e := range t.sums {
		sums[k] = e
	}
	for _, e := range t.others {
		if e != nil {
			sums[e.key] = e
		}
	}
	own := map[key]bool{} // sums that are ours to change
	change := func(k key) *endpointSum {
		if !own[k] {
			e := &endpointSum{key: k}
			if old := sums[k]; old != nil {
				e.merge(old, 0)
			}
			sums[k], own[k] = e, true
		}
		return sums[k]
	}
	unfinished := bits.TrailingZeros32(uint32(observe.FlagUnfinished))
	for _, r := range t.open.byConn {
		k := r.endpoint
		if sums[k] == nil && len(t.sums) >= t.limit {
			k = key{side: k.side}
		}
		e := change(k)
		e.flags[unfinished] += uint64(max(r.req.Requests, 1)) << min(r.req.Share, 31)
		e.slowest.add(r.req.TotalNS(), &r.req, t.Destination)
		e.addPID(int32(r.req.PID))
	}
	// What nobody had read yet belongs to the only program that reads there.
	reader := map[counterKey]key{}
	several := map[counterKey]bool{}
	for k := range sums {
		at := counterKey{k.addr, k.netns, k.port, observe.Served}
		if k.pid == 0 || k.side != uint16(observe.Served) {
			continue
		}
		_, more := reader[at]
		several[at] = more
		reader[at] = k
	}
	for at, k := range reader {
		unknown := k
		unknown.pid = 0
		if e := sums[unknown]; e != nil && !several[at] {
			change(k).merge(e, 0)
			delete(sums, unknown)
		}
	}
	list := make([]*endpointSum, 0, len(sums))
	for _, e := range sums {
		list = append(list, e)
	}
	// Always in the same order: the programs at one address share its counters
	// to the last one.
	slices.SortFunc(list, func(a, b *endpointSum) int { return cmp.Compare(a.key.pid, b.key.pid) })
	return list
}

// export is the sum as an Endpoint of its own memory.
func (e *endpointSum) export(slots int) observe.Endpoint {
	x := observe.Endpoint{
		Side: observe.Side(e.key.side).String(), NetNS: e.key.netns, Addr: Other, Port: int(e.key.port), PID: int(e.key.pid), Comm: e.comm,
		Requests: e.requests, OK: e.ok, Errors: e.errors, Unanswered: e.unanswered, Overlapped: e.overlapped, Recorded: e.recorded,
		Unfinished: e.flags[bits.TrailingZeros32(uint32(observe.FlagUnfinished))],
		BytesIn:    e.bytesIn, BytesOut: e.bytesOut, Segments: e.segments, Retrans: e.retrans, Connections: e.connections,
		MinRTT: e.minRTT, Slowest: e.slowest.sorted(), Failed: e.failed.sorted(), SampleError: e.sampled.error(),
	}
	if e.key.addr.IsValid() {
		x.Addr = e.key.addr.String()
	}
	for _, pid := range e.pids {
		x.PIDs = append(x.PIDs, int(pid))
	}
	x.Total.Merge(&e.total)
	x.RTT.Merge(&e.rtt)
	x.Parts = map[string]observe.PartStats{}
	_, sum, split := e.ledgers.sum()
	count, slow, slowSplit := e.ledgers.slowest()
	x.Split = e.exportSplit(&split, &slowSplit)
	for p := range observe.NumParts {
		if e.parts[p].Max() == 0 && sum[p] == 0 {
			continue
		}
		s := observe.PartStats{SumNS: sum[p], Dominant: e.dominant[p]}
		s.Hist.Merge(&e.parts[p])
		x.Parts[p.String()] = s
	}
	for f, n := range e.flags {
		if names := observe.RequestFlags(1 << f).Names(); n > 0 && len(names) > 0 {
			x.Flags = put(x.Flags, names[0], n)
		}
	}
	for c, n := range e.statuses {
		if n > 0 {
			x.Statuses = put(x.Statuses, strconv.Itoa(c)+"xx", n)
		}
	}
	if e.recorded > 0 {
		x.Arrivals = make([]uint32, slots)
		copy(x.Arrivals, e.arrivals)
		if e.total.Max() >= arrivalSlotNS/2 {
			x.LongestUS = make([]uint32, slots)
			copy(x.LongestUS, e.longest)
		}
		x.Peers = e.peers.top()
		x.SlowCount, x.SlowParts = count, map[string]int64{}
		for p, ns := range slow {
			if ns != 0 {
				x.SlowParts[observe.Part(p).String()] = ns
			}
		}
	}
	return x
}

// exportSplit is how the Server time is split; nil when no request was followed,
// or when many were distinguished on connections of HTTP/2, which nobody follows:
// what is known of others, as of those before that began, does not stand for
// them.
func (e *endpointSum) exportSplit(all, slow *splitSum) *observe.SplitStats {
	if all.n == 0 || e.split == nil || 10*e.streams > e.recorded {
		return nil
	}
	s := &observe.SplitStats{
		Requests: all.n, ServerNS: all.server, Parts: map[string]observe.PartStats{},
		SlowServerNS: slow.server, SlowParts: map[string]int64{},
	}
	for p := range observe.NumServerParts {
		if all.parts[p] == 0 {
			continue
		}
		part := observe.PartStats{SumNS: all.parts[p]}
		part.Hist.Merge(&e.split[p])
		s.Parts[p.String()] = part
		if slow.parts[p] != 0 {
			s.SlowParts[p.String()] = slow.parts[p]
		}
	}
	return s
}

func put[V any](m map[string]V, k string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[k] = v
	return m
}

// bare is the endpoint of an address that has counters and no record.
func bare(c *Counters) observe.Endpoint {
	x := observe.Endpoint{Side: c.Side.String(), NetNS: c.NetNS, Addr: Other, Port: int(c.Port)}
	if c.Addr.IsValid() {
		x.Addr = c.Addr.Unmap().String()
	}
	return x
}
