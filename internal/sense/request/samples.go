package request

import (
	"cmp"
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

const (
	maxSamples = 20  // requests kept as examples of one kind
	maxLabel   = 256 // bytes of a label that are kept
)

// sample is a copy of a request that outlives its record.
type sample struct {
	rank  int64 // what the kind of samples is about: the higher, the rather kept
	req   observe.Request
	label []byte // the slot's own memory: the record's label is gone after Add
	to    netip.AddrPort
}

// destination is Table.Destination.
type destination func(*observe.Request) netip.AddrPort

// samples keeps the requests of the highest rank: a heap with the lowest on
// top. Ties are broken by when and where, so the order of adding is no matter.
type samples struct {
	slots []sample
	heap  []uint8 // indexes of slots
}

// add keeps r if it is among the highest.
func (s *samples) add(rank int64, r *observe.Request, to destination) {
	if len(s.heap) < maxSamples {
		if s.slots == nil {
			s.slots, s.heap = make([]sample, maxSamples), make([]uint8, 0, maxSamples)
		}
		i := len(s.heap)
		s.heap = append(s.heap, uint8(i))
		s.slots[i].keep(rank, r, to)
		for i > 0 && s.less(i, (i-1)/2) {
			s.heap[i], s.heap[(i-1)/2] = s.heap[(i-1)/2], s.heap[i]
			i = (i - 1) / 2
		}
		return
	}
	top := &s.slots[s.heap[0]]
	if rank < top.rank || compareSamples(rank, r, top.rank, &top.req) <= 0 {
		return
	}
	top.keep(rank, r, to)
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(s.heap) {
			return
		}
		if child+1 < len(s.heap) && s.less(child+1, child) {
			child++
		}
		if !s.less(child, i) {
			return
		}
		s.heap[i], s.heap[child] = s.heap[child], s.heap[i]
		i = child
	}
}

func (s *sample) keep(rank int64, r *observe.Request, to destination) {
	s.rank, s.req, s.to = rank, *r, netip.AddrPort{}
	if to != nil {
		s.to = to(r)
	}
	s.label = append(s.label[:0], r.Label[:min(len(r.Label), maxLabel)]...)
	s.req.Label = ""
}

func (s *samples) less(i, j int) bool {
	a, b := &s.slots[s.heap[i]], &s.slots[s.heap[j]]
	return compareSamples(a.rank, &a.req, b.rank, &b.req) < 0
}

func compareSamples(rank int64, a *observe.Request, rank2 int64, b *observe.Request) int {
	return cmp.Or(
		cmp.Compare(rank, rank2),
		cmp.Compare(a.StartNS, b.StartNS),
		a.Peer.Compare(b.Peer),
		a.Local.Compare(b.Local),
		cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.PID, b.PID),
	)
}

func (s *samples) merge(other *samples) {
	for _, i := range other.heap {
		o := &other.slots[i]
		r := o.req
		r.Label = string(o.label)
		s.add(o.rank, &r, func(*observe.Request) netip.AddrPort { return o.to })
	}
}

// reset forgets the samples and keeps the memory.
func (s *samples) reset() { s.heap = s.heap[:0] }

// sorted are the samples, highest rank first.
func (s *samples) sorted() []observe.RequestSample {
	if len(s.heap) == 0 {
		return nil
	}
	rest := samples{slots: s.slots, heap: append([]uint8(nil), s.heap...)}
	sorted := make([]observe.RequestSample, len(s.heap))
	for n := len(rest.heap) - 1; n >= 0; n-- {
		low := 0
		for i := range rest.heap {
			if rest.less(i, low) {
				low = i
			}
		}
		sorted[n] = rest.slots[rest.heap[low]].export()
		rest.heap[low] = rest.heap[n]
		rest.heap = rest.heap[:n]
	}
	return sorted
}

func (s *sample) export() observe.RequestSample {
	r := &s.req
	x := observe.RequestSample{
		StartNS: r.StartNS, Local: r.Local.String(), Peer: r.Peer.String(), PID: r.PID, Seq: r.Seq,
		TotalNS: r.TotalNS(), Parts: map[string]int64{},
		BytesIn: r.BytesIn, BytesOut: r.BytesOut, Retrans: r.Retrans, RTTNS: r.RTTNS, MinRTTNS: r.MinRTTNS,
		Status: r.Status.String(), HTTP: r.HTTP, Flags: r.Flags.Names(), Label: string(s.label),
	}
	if s.to.IsValid() {
		x.Destination = s.to.String()
	}
	if r.Unacked > 0 {
		x.Unacked, x.MSS = r.Unacked, r.MSS
	}
	for p, ns := range r.Ledger {
		if ns != 0 {
			x.Parts[observe.Part(p).String()] = ns
		}
	}
	if r.Followed {
		for p, ns := range r.Split {
			if ns != 0 {
				x.Parts[observe.ServerPart(p).String()] = ns
			}
		}
	}
	return x
}
