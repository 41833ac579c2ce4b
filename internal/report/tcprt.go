package report

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/slowray/slowray/internal/observe"
)

// AppendTCPRT appends r as one line of TCPRT's log, version 6, with its
// newline. Every line begins
//
//	V6 <flag> <start s> <start µs> <peer>:<port> <local>:<port>
//
// and goes on by flag, times in microseconds:
//
//	R (served)    bytes_sent total min_rtt retrans seq server_time upload_time bytes_received reorder mss
//	N (no answer) seq elapsed bytes_received reorder mss
//	W (cut off)   bytes_sent elapsed min_rtt retrans seq server_time upload_time unacked reorder mss
//	P (called)    bytes_sent total min_rtt retrans seq server_time receive_time bytes_received reorder mss
//
// The order of R, N and W is that of the source (net/ipv4/tcp_rt/output.c of
// alibaba/cloud-kernel) and of its documentation. For P the two differ; this is
// the documentation's, the newer: it has what the source's order lacks, and the
// fields that R has too stand in the same places.
//
// As in TCPRT a served request begins with its first segment (the wait for
// accept() is not part of it), server_time runs from the last segment of the
// request to the first of the answer, and the total ends with the last
// acknowledgement; unlike in TCPRT, what the client's late acknowledgement
// took is not in it. The total of a called request ends with the last segment
// of the answer, not with its reading. IPv6 is written [addr]:port.
//
// Nothing is appended for what TCPRT has no line for: a request in progress,
// and a called one without an answer (the statistics count it as failed).
func AppendTCPRT(dst []byte, r *observe.Request) []byte {
	flag, ok := tcprtFlag(r)
	if !ok {
		return dst
	}
	t := tcprtTimesOf(r)
	dst = appendTCPRTHeader(dst, flag, t.start, r.Peer, r.Local)
	if flag == 'N' {
		dst = appendTCPRTFields(dst, uint64(r.Seq), micros(t.total), r.BytesIn)
	} else {
		last := r.BytesIn
		if flag == 'W' {
			last = uint64(r.Unacked)
		}
		dst = appendTCPRTFields(dst, r.BytesOut, micros(t.total), micros(r.MinRTTNS), uint64(r.Retrans), uint64(r.Seq),
			micros(t.server), micros(t.transfer), last)
	}
	reorder := uint64(0)
	if r.Flags&observe.FlagReordered != 0 {
		reorder = 1
	}
	return append(appendTCPRTFields(dst, reorder, uint64(r.MSS)), '\n')
}

// AppendTCPRTClosed appends TCPRT's line of a closed connection, with its
// newline, after the same beginning as AppendTCPRT's:
//
//	E  seq bytes_sent unacked bytes_received retrans min_rtt
//
// As in TCPRT a connection that carried no request has no line. The time is
// that of the end.
func AppendTCPRTClosed(dst []byte, c *observe.Closed) []byte {
	if c.Seq == 0 {
		return dst
	}
	dst = appendTCPRTHeader(dst, 'E', c.TimeNS, c.Peer, c.Local)
	dst = appendTCPRTFields(dst, uint64(c.Seq), c.BytesOut+uint64(c.Unacked), uint64(c.Unacked), c.BytesIn, uint64(c.Retrans), micros(c.MinRTTNS))
	return append(dst, '\n')
}

// tcprtFlag is the kind of line that a request has; false for none.
func tcprtFlag(r *observe.Request) (byte, bool) {
	called := r.Side == observe.Called
	switch {
	case r.Flags&observe.FlagUnfinished != 0:
		return 0, false
	case r.Flags&observe.FlagUnanswered != 0:
		return 'N', !called
	case called:
		return 'P', true
	case r.Flags&observe.FlagTruncated != 0:
		return 'W', true
	}
	return 'R', true
}

// tcprtTimes is a request as TCPRT measures it, in nanoseconds.
type tcprtTimes struct {
	start    int64 // wall clock
	total    int64
	server   int64
	transfer int64 // served: upload of the request; called: receiving the answer
}

func tcprtTimesOf(r *observe.Request) tcprtTimes {
	l := &r.Ledger
	before := l[observe.AcceptWait] + l[observe.TLS]
	if r.Side != observe.Called {
		return tcprtTimes{
			start:    r.StartNS + before,
			total:    l.Total() - before,
			server:   l[observe.RecvWait] + l[observe.Server],
			transfer: l[observe.Upload],
		}
	}
	t := tcprtTimes{start: r.StartNS + before, total: l.Total() - before - l[observe.RecvWait]}
	t.server = l[observe.Upload] + l[observe.Server] + l[observe.Network]
	t.transfer = t.total - t.server
	return t
}

// micros is a time in whole microseconds, 0 when it is not known.
func micros(ns int64) uint64 { return uint64(max(ns, 0)) / 1000 }

func appendTCPRTHeader(dst []byte, flag byte, start int64, peer, local netip.AddrPort) []byte {
	dst = append(dst, 'V', '6', ' ', flag)
	us := micros(start)
	dst = appendTCPRTFields(dst, us/1e6, us%1e6)
	dst = appendAddr(append(dst, ' '), peer)
	return appendAddr(append(dst, ' '), local)
}

func appendTCPRTFields(dst []byte, fields ...uint64) []byte {
	for _, f := range fields {
		dst = strconv.AppendUint(append(dst, ' '), f, 10)
	}
	return dst
}

// TCPRTStats sums requests up for TCPRT's statistics, one line for each port
// at which requests were answered, and to which requests were sent. The zero
// value is ready. Requests that overlapped, and records that stand for others,
// count as many times as they stand for.
type TCPRTStats struct {
	ports map[tcprtPort]*tcprtSums
}

type tcprtPort struct {
	side observe.Side
	port uint16
}

type tcprtSums struct {
	count, failed             uint64
	segments, retrans         uint64 // by the records
	exactSegments, exactLost  uint64 // by the kernel's counters, where these were had
	bytesSent, bytesReceived  uint64
	totalUS, serverUS, recvUS uint64
	minRTTUS                  uint64
}

// Add counts a request. As in TCPRT a served one without an answer does not
// count, nor does one in progress. The amended record of a request that was
// counted already does not count again.
func (s *TCPRTStats) Add(r *observe.Request) {
	called := r.Side == observe.Called
	unanswered := r.Flags&observe.FlagUnanswered != 0
	if r.Flags&(observe.FlagUnfinished|observe.FlagAmended) != 0 || unanswered && !called {
		return
	}
	key := tcprtPort{observe.Served, r.Local.Port()}
	if called {
		key = tcprtPort{observe.Called, r.Peer.Port()}
	}
	p := s.ports[key]
	if p == nil {
		if s.ports == nil {
			s.ports = map[tcprtPort]*tcprtSums{}
		}
		p = &tcprtSums{}
		s.ports[key] = p
	}
	weight := uint64(max(r.Weight, 1))
	requests := weight * uint64(max(r.Requests, 1))
	if unanswered || r.Flags&observe.FlagTruncated != 0 {
		p.failed += requests
		return
	}
	p.count += requests
	p.retrans += weight * uint64(r.Retrans)
	p.segments += weight * (segmentsOf(r.BytesOut, r.MSS) + uint64(r.Retrans))
	p.bytesSent += weight * r.BytesOut
	p.bytesReceived += weight * r.BytesIn
	// Each of those that overlapped took up to the whole time.
	t := tcprtTimesOf(r)
	p.totalUS += requests * micros(t.total)
	p.serverUS += requests * micros(t.server)
	p.recvUS += requests * micros(t.transfer)
	p.minRTTUS += requests * micros(r.MinRTTNS)
}

// AddSegments adds what the kernel counted of a port: segments sent with data,
// retransmissions included, and how many of these were retransmissions. Where
// it is known the loss is computed from it rather than from the records, of which
// some may have been left out.
func (s *TCPRTStats) AddSegments(side observe.Side, port uint16, segments, retrans uint64) {
	if p := s.ports[tcprtPort{side, port}]; p != nil {
		p.exactSegments += segments
		p.exactLost += retrans
	}
}

// loss is the retransmitted segments in per mille of all.
func (p *tcprtSums) loss() uint64 {
	if p.exactSegments > 0 {
		return permille(p.exactLost, p.exactSegments)
	}
	return permille(p.retrans, p.segments)
}

// segmentsOf is how many segments so many bytes take.
func segmentsOf(bytes uint64, mss uint32) uint64 {
	if bytes == 0 {
		return 0
	}
	if mss == 0 {
		return 1
	}
	return (bytes-1)/uint64(mss) + 1
}

// Append appends a line for each port with traffic since the last call, and
// forgets it:
//
//	<s since 1970> all <port> avg_total avg_server_time drop avg_min_rtt fail avg_bytes_sent avg_recv_time avg_bytes_received count
//
// Called ports are written P<port>; times are microseconds. drop is the
// segments that were retransmitted, in per mille of all that were sent with
// data, those retransmitted included; fail is the requests whose answer was cut
// off (called: or did not come), in per mille of all. Both are rounded to the
// nearest, where TCPRT cuts them off. count is the requests that were answered,
// over which the averages are. Served ports come first.
func (s *TCPRTStats) Append(dst []byte, now time.Time) []byte {
	keys := make([]tcprtPort, 0, len(s.ports))
	for k := range s.ports {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b tcprtPort) int {
		return cmp.Or(cmp.Compare(a.side, b.side), cmp.Compare(a.port, b.port))
	})
	for _, k := range keys {
		p := s.ports[k]
		n := max(p.count, 1)
		dst = strconv.AppendInt(dst, now.Unix(), 10)
		dst = append(dst, " all "...)
		if k.side == observe.Called {
			dst = append(dst, 'P')
		}
		dst = strconv.AppendUint(dst, uint64(k.port), 10)
		dst = appendTCPRTFields(dst, p.totalUS/n, p.serverUS/n, p.loss(), p.minRTTUS/n,
			permille(p.failed, p.count+p.failed), p.bytesSent/n, p.recvUS/n, p.bytesReceived/n, p.count)
		dst = append(dst, '\n')
	}
	clear(s.ports)
	return dst
}

// permille is part of whole in thousandths, to the nearest.
func permille(part, whole uint64) uint64 {
	if whole == 0 {
		return 0
	}
	return (1000*part + whole/2) / whole
}
