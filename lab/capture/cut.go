package capture

import "net/netip"

// End is the end of a connection from which it is looked at. A packet has
// another time at each end; on lo both are seen.
type End uint8

// The ends.
const (
	Serving End = iota // whose port was connected to
	Calling
)

// Request is one turn of a connection: bytes from the client, then bytes from
// the server, until the client sends again having received all of them. Times
// are ns of CLOCK_REALTIME at the end looked from, and 0 when the thing was
// not seen; bytes that are retransmitted do not move them.
type Request struct {
	First, Last       int64 // first and last request byte
	FirstOut, LastOut int64 // first and last response byte
	// Acked is when the acknowledgement of the last response byte was seen;
	// AckedWithData, that the next request carried it.
	Acked         int64
	AckedWithData bool
	BytesIn       int64 // request
	BytesOut      int64 // response
	// Retrans counts segments with data that the end looked from retransmitted,
	// Resent are the times of the packets.
	Retrans int
	Resent  []int64
	// Overlapped: the client sent more without having received all of the
	// response so far (seen at the serving end only).
	Overlapped bool
	// Idle is the time between response bytes in which nothing was in flight:
	// the ones before acknowledged, the next ones not sent yet.
	Idle int64
	// ZeroWindow is the time in which the client's window was closed.
	ZeroWindow int64
}

// Connection is a TCP connection as an interface saw it.
type Connection struct {
	Server, Client netip.AddrPort
	// Opened is the time of the first SYN, Established that of the packet
	// which made it complete at the end looked from; 0 when the connection is
	// older than the capture.
	Opened, Established int64
	SynRetrans          int   // SYNs and SYN-ACKs that the end looked from retransmitted
	Greeting            int64 // bytes that the server sent before the first request
	Requests            []Request
	// ClientClosed and ServerClosed are the times of the first FINs, Reset
	// that of the first RST.
	ClientClosed, ServerClosed, Reset int64
	// MSS is the payload of a full segment, 0 when the SYN was not seen.
	MSS int
}

// Cut finds the connections and requests in packets, which must be in order of
// time. A connection whose SYN is not among them is recognised by the server's
// port; without one of those ports it is left out.
func Cut(packets []Packet, end End, ports ...uint16) []*Connection {
	type key struct{ server, client netip.AddrPort }
	var (
		states  = map[key]*state{}
		all     []*Connection
		serving = map[uint16]bool{}
	)
	for _, p := range ports {
		serving[p] = true
	}
	for i := range packets {
		p := &packets[i]
		k := key{p.Dst, p.Src}
		s, fromClient := states[k], true
		if s == nil {
			k = key{p.Src, p.Dst}
			s, fromClient = states[k], false
		}
		opening := p.Flags&(SYN|ACK) == SYN
		switch {
		case opening && (s == nil || !fromClient || s.another(p)):
			k, fromClient = key{p.Dst, p.Src}, true
			s = nil
		case s == nil && p.Flags&(SYN|ACK) == SYN|ACK, s == nil && serving[p.Src.Port()]:
			k, fromClient = key{p.Src, p.Dst}, false
		case s == nil && serving[p.Dst.Port()]:
			k, fromClient = key{p.Dst, p.Src}, true
		case s == nil:
			continue
		}
		// Of lo's two copies the end looked from sent or received one.
		if p.Outgoing != (fromClient == (end == Calling)) {
			continue
		}
		if s == nil {
			s = &state{Connection: &Connection{Server: k.server, Client: k.client}, end: end}
			states[k] = s
			all = append(all, s.Connection)
		}
		s.packet(p, fromClient)
	}
	return all
}
