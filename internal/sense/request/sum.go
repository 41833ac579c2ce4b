package request

import (
	"math"
	"math/bits"
	"slices"

	"github.com/slowray/slowray/internal/observe"
)

const (
	arrivalSlotNS = 100e6
	maxArrivals   = 36000 // an hour
	firstArrivals = 128   // slots that are made room for at first
	usualMSS      = 1448  // Ethernet with timestamps, where the connection's is not known
)

// endpointSum is what a table knows of one endpoint.
type endpointSum struct {
	key  key
	comm string
	pids []int32 // sorted, at most maxPIDs

	recorded   uint64
	streams    uint64 // of those, requests of HTTP/2 that were distinguished
	requests   uint64
	ok         uint64
	errors     uint64
	unanswered uint64
	overlapped uint64

	bytesIn, bytesOut uint64
	segments, retrans uint64 // estimated from the bytes: the counters know better
	connections       uint64

	total    observe.Histogram
	rtt      observe.Histogram
	minRTT   int64
	parts    [observe.NumParts]observe.Histogram
	split    *[observe.NumServerParts]observe.Histogram // nil until a request was followed
	dominant [observe.NumParts]uint64
	ledgers  ledgerRows
	flags    [32]uint64
	statuses [6]uint64 // by hundreds
	arrivals []uint32
	longest  []uint32 // of each slot, µs
	slowest  samples
	failed   samples
	peers    peers
	sampled  *sampled // nil while every connection is followed
}

func (e *endpointSum) add(r *observe.Request, start int64, to destination) {
	if r.Flags&observe.FlagAmended != 0 {
		// It is counted already, as it looked before its answer went on.
		e.flags[bits.TrailingZeros32(uint32(observe.FlagAmended))]++
		e.slowest.add(r.Ledger.Total(), r, to)
		return
	}
	weight := uint64(max(r.Weight, 1))
	n := weight * uint64(max(r.Requests, 1))
	e.recorded++
	if r.Flags&observe.FlagMultiplexed != 0 {
		e.streams++
	}
	e.requests += n
	switch {
	case r.Flags&observe.FlagUnanswered != 0:
		e.unanswered += n
	case r.Status == observe.StatusOK:
		e.ok += n
	case r.Status == observe.StatusError:
		e.errors += n
	}
	e.bytesIn += r.BytesIn * weight
	e.bytesOut += r.BytesOut * weight
	e.retrans += uint64(r.Retrans) * weight
	e.segments += weight * segmentsOf(r)

	if r.Share > 0 {
		if e.sampled == nil {
			e.sampled = new(sampled)
		}
		e.sampled.add(r, n)
	}
	total := r.Ledger.Total()
	e.total.AddN(total, weight)
	e.ledgers.add(total, r, weight)
	if r.Followed {
		if e.split == nil {
			e.split = new([observe.NumServerParts]observe.Histogram)
		}
		for p, ns := range r.Split {
			e.split[p].AddN(ns, weight)
		}
	}
	greatest := observe.AcceptWait
	for p := range observe.NumParts {
		e.parts[p].AddN(r.Ledger[p], weight)
		if p < observe.AckDelay && r.Ledger[p] > r.Ledger[greatest] {
			greatest = p
		}
	}
	if total > 0 {
		e.dominant[greatest]++
	}
	if r.RTTNS > 0 {
		e.rtt.AddN(r.RTTNS, weight)
	}
	e.minRTT = smallest(e.minRTT, r.MinRTTNS)

	for f := uint32(r.Flags); f != 0; f &= f - 1 {
		e.flags[bits.TrailingZeros32(f)] += n
	}
	if r.Flags&observe.FlagOverlapped != 0 {
		e.overlapped += n
	}
	if r.Seq == 1 && r.Flags&(observe.FlagPreexisting|observe.FlagMultiplexed) == 0 {
		e.connections += weight
	}
	if c := r.HTTP / 100; c > 0 && c < len(e.statuses) {
		e.statuses[c] += n
	}
	if r.StartNS >= start {
		e.arrive(int((r.StartNS-start)/arrivalSlotNS), n, total)
	}
	e.slowest.add(total, r, to)
	if Failed(r) {
		e.failed.add(r.StartNS+total, r, to)
	}
	e.peers.of(r.Peer.Addr().Unmap()).add(n, total*int64(weight), uint64(r.Retrans)*weight, r.MinRTTNS)
}

// Failed says whether a request did not get the answer it asked for, or not
// all of it.
func Failed(r *observe.Request) bool {
	return r.Status == observe.StatusError ||
		r.Flags&(observe.FlagUnanswered|observe.FlagReset) != 0 ||
		(r.Flags&observe.FlagTruncated != 0 && r.Unacked > 0)
}

// segmentsOf estimates how many segments a request took to send.
func segmentsOf(r *observe.Request) uint64 {
	mss := uint64(r.MSS)
	if mss == 0 {
		mss = usualMSS
	}
	return (r.BytesOut+mss-1)/mss + uint64(r.Retrans)
}

// arrive counts n requests that began in a slot, the longest of which took so many ns.
func (e *endpointSum) arrive(slot int, n uint64, total int64) {
	if slot >= len(e.arrivals) {
		if slot >= maxArrivals {
			return
		}
		size := max(len(e.arrivals), firstArrivals)
		for size <= slot {
			size *= 2
		}
		e.arrivals = append(make([]uint32, 0, size), e.arrivals...)[:size]
		e.longest = append(make([]uint32, 0, size), e.longest...)[:size]
	}
	e.arrivals[slot] += uint32(n)
	e.longest[slot] = max(e.longest[slot], uint32(min(total/1000, math.MaxUint32)))
}

// addPID lists a process; of too many those of lowest number.
func (e *endpointSum) addPID(pid int32) {
	i, found := slices.BinarySearch(e.pids, pid)
	if pid == 0 || found || i >= maxPIDs {
		return
	}
	e.pids = slices.Insert(e.pids, i, pid)
	e.pids = e.pids[:min(len(e.pids), maxPIDs)]
}

// merge adds what other counted in a window that began later by so many ns.
func (e *endpointSum) merge(o *endpointSum, later int64) {
	if e.comm == "" {
		e.comm = o.comm
	}
	for _, pid := range o.pids {
		e.addPID(pid)
	}
	e.recorded += o.recorded
	e.streams += o.streams
	e.requests += o.requests
	e.ok += o.ok
	e.errors += o.errors
	e.unanswered += o.unanswered
	e.overlapped += o.overlapped
	e.bytesIn += o.bytesIn
	e.bytesOut += o.bytesOut
	e.segments += o.segments
	e.retrans += o.retrans
	e.connections += o.connections
	e.total.Merge(&o.total)
	e.rtt.Merge(&o.rtt)
	e.minRTT = smallest(e.minRTT, o.minRTT)
	for p := range e.parts {
		e.parts[p].Merge(&o.parts[p])
		e.dominant[p] += o.dominant[p]
	}
	if o.split != nil {
		if e.split == nil {
			e.split = new([observe.NumServerParts]observe.Histogram)
		}
		for p := range e.split {
			e.split[p].Merge(&o.split[p])
		}
	}
	e.ledgers.merge(&o.ledgers)
	for f := range e.flags {
		e.flags[f] += o.flags[f]
	}
	for c := range e.statuses {
		e.statuses[c] += o.statuses[c]
	}
	for slot, n := range o.arrivals {
		if at := int64(slot)*arrivalSlotNS + arrivalSlotNS/2 + later; n > 0 && at >= 0 {
			e.arrive(int(at/arrivalSlotNS), uint64(n), int64(o.longest[slot])*1000)
		}
	}
	e.slowest.merge(&o.slowest)
	e.failed.merge(&o.failed)
	e.peers.merge(&o.peers)
	if o.sampled != nil {
		if e.sampled == nil {
			e.sampled = new(sampled)
		}
		e.sampled.merge(o.sampled)
	}
}

// reset empties the sum and keeps its memory, its name and its processes.
func (e *endpointSum) reset() {
	kept := *e
	*e = endpointSum{
		key: kept.key, comm: kept.comm, pids: kept.pids, total: kept.total, rtt: kept.rtt, parts: kept.parts, split: kept.split,
		ledgers: kept.ledgers, arrivals: kept.arrivals, longest: kept.longest, slowest: kept.slowest, failed: kept.failed, peers: kept.peers,
	}
	e.total.Reset()
	e.rtt.Reset()
	for p := range e.parts {
		e.parts[p].Reset()
	}
	if e.split != nil {
		for p := range e.split {
			e.split[p].Reset()
		}
	}
	e.ledgers.reset()
	clear(e.arrivals)
	clear(e.longest)
	e.slowest.reset()
	e.failed.reset()
	e.peers.reset()
}
