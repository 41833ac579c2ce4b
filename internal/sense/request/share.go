package request

import (
	"math/bits"

	"github.com/slowray/slowray/internal/observe"
)

// share gives the endpoints of one address the sums of its counters: each in
// proportion to its own records of the same figure, and where none was recorded
// in proportion to its requests. The shares add up to the counters.
func share(all []observe.Endpoint, group []int, c *Counters) {
	byRequests := make([]uint64, len(group))
	for i, at := range group {
		byRequests[i] = all[at].Requests
	}
	count := func(total uint64, field func(*observe.Endpoint) *uint64) {
		own := make([]uint64, len(group))
		for i, at := range group {
			own[i] = *field(&all[at])
		}
		for i, part := range apportion(total, own, byRequests) {
			*field(&all[group[i]]) = part
		}
	}
	// Connections first: the handshakes are shared like them.
	count(c.Connections, func(e *observe.Endpoint) *uint64 { return &e.Connections })
	byConnections := make([]uint64, len(group))
	for i, at := range group {
		byConnections[i] = all[at].Connections
	}
	handshakes := apportion(uint64(max(c.Handshake, 0)), byConnections, byRequests)
	syns := apportion(c.SynRetrans, byConnections, byRequests)
	for i, at := range group {
		all[at].Handshake, all[at].HandshakeMax, all[at].SynRetrans = int64(handshakes[i]), c.HandshakeMax, syns[i]
	}
	if c.TLS+c.TLSFailed > 0 {
		done, failed := apportion(c.TLS, byConnections, byRequests), apportion(c.TLSFailed, byConnections, byRequests)
		times := apportion(uint64(max(c.TLSNS, 0)), byConnections, byRequests)
		for i, at := range group {
			all[at].TLS, all[at].TLSFailed, all[at].TLSHandshake = done[i], failed[i], int64(times[i])
			all[at].TLSStats = c.TLSStats.Scale(done[i], c.TLS)
		}
	}

	count(c.OK, func(e *observe.Endpoint) *uint64 { return &e.OK })
	count(c.Errors, func(e *observe.Endpoint) *uint64 { return &e.Errors })
	count(c.Unanswered, func(e *observe.Endpoint) *uint64 { return &e.Unanswered })
	count(c.Overlapped, func(e *observe.Endpoint) *uint64 { return &e.Overlapped })
	count(c.BytesIn, func(e *observe.Endpoint) *uint64 { return &e.BytesIn })
	count(c.BytesOut, func(e *observe.Endpoint) *uint64 { return &e.BytesOut })
	count(c.Segments, func(e *observe.Endpoint) *uint64 { return &e.Segments })
	count(c.Retrans, func(e *observe.Endpoint) *uint64 { return &e.Retrans })
	count(c.Requests, func(e *observe.Endpoint) *uint64 { return &e.Requests })

	for p := range observe.NumParts {
		own := make([]uint64, len(group))
		for i, at := range group {
			own[i] = uint64(max(all[at].Parts[p.String()].SumNS, 0))
		}
		for i, ns := range apportion(uint64(max(c.PartNS[p], 0)), own, byRequests) {
			e := &all[group[i]]
			s, known := e.Parts[p.String()]
			if ns == 0 && !known {
				continue
			}
			s.SumNS = int64(ns)
			e.Parts = put(e.Parts, p.String(), s)
		}
	}
}

// apportion divides total by weights, or by others when those are all zero, or
// gives it all to the first. The parts add up to total.
func apportion(total uint64, weights, others []uint64) []uint64 {
	parts := make([]uint64, len(weights))
	var sum uint64
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		weights = others
		for _, w := range weights {
			sum += w
		}
	}
	if sum == 0 {
		parts[0] = total
		return parts
	}
	var so, given uint64 // weights and total up to here: rounding errors cannot pile up
	for i, w := range weights {
		so += w
		hi, lo := bits.Mul64(total, so)
		upTo, _ := bits.Div64(hi, lo, sum)
		parts[i] = upTo - given
		given = upTo
	}
	return parts
}
