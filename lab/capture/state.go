package capture

// timestampOption is what the TCP time stamp option takes of every segment.
const timestampOption = 12

// state is a connection while its packets are read.
type state struct {
	*Connection
	end            End
	client, server direction // bytes sent by each
	isn            uint32    // of the client's SYN
	zeroSince      int64     // the client's window has been closed since; 0 = open
}

// another says whether a SYN opens another connection between the same ports.
func (s *state) another(p *Packet) bool { return s.Opened == 0 || p.Seq != s.isn }

// packet takes one packet in.
func (s *state) packet(p *Packet, fromClient bool) {
	from, to := &s.server, &s.client
	if fromClient {
		from, to = to, from
	}
	if p.Flags&SYN != 0 {
		s.handshake(p, fromClient)
		return
	}
	if p.Flags&RST != 0 {
		if s.Reset == 0 {
			s.Reset = p.TimeNS
		}
		return
	}
	from.start(p.Seq)
	if p.Flags&ACK != 0 {
		to.start(p.Ack)
		if s.Established == 0 && s.Opened != 0 && fromClient == (s.end == Serving) {
			s.Established = p.TimeNS
		}
		s.acknowledge(p, to, fromClient)
	}
	if p.Len > 0 {
		s.data(p, from, fromClient)
	}
	if p.Flags&FIN != 0 && from.closed == 0 {
		from.closed = p.TimeNS
		s.ClientClosed, s.ServerClosed = s.client.closed, s.server.closed
	}
}

// handshake takes a SYN or a SYN-ACK in.
func (s *state) handshake(p *Packet, fromClient bool) {
	mss := p.MSS
	if p.TSVal != 0 {
		mss -= timestampOption
	}
	if s.MSS == 0 || mss < s.MSS {
		s.MSS = mss
	}
	again := s.client.known
	if fromClient {
		s.client.start(p.Seq + 1)
		s.isn = p.Seq
		if s.Opened == 0 {
			s.Opened = p.TimeNS
		}
	} else {
		again = s.server.known
		s.server.start(p.Seq + 1)
		s.client.start(p.Ack)
		if s.end == Calling && s.Established == 0 {
			s.Established = p.TimeNS
		}
	}
	if again && p.Outgoing {
		s.SynRetrans++
	}
}

// current is the request that is going on or was the last.
func (s *state) current() *Request {
	if len(s.Requests) == 0 {
		return nil
	}
	return &s.Requests[len(s.Requests)-1]
}

// acknowledge takes the acknowledgement and the window of a packet in.
func (s *state) acknowledge(p *Packet, of *direction, fromClient bool) {
	of.acknowledge(of.offset(p.Ack), p.TimeNS)
	if !fromClient {
		return
	}
	r := s.current()
	if r != nil && r.BytesOut > 0 && r.Acked == 0 && of.acked >= of.top {
		r.Acked, r.AckedWithData = p.TimeNS, p.Len > 0
	}
	switch {
	case p.Window == 0 && s.zeroSince == 0:
		s.zeroSince = p.TimeNS
	case p.Window != 0 && s.zeroSince != 0:
		if r != nil {
			r.ZeroWindow += p.TimeNS - s.zeroSince
		}
		s.zeroSince = 0
	}
}

// data takes the payload of a packet in.
func (s *state) data(p *Packet, from *direction, fromClient bool) {
	begin := from.offset(p.Seq)
	idle := from.acked >= from.top
	fresh := from.see(begin, begin+int64(p.Len))
	if fresh == 0 {
		s.resent(p)
		return
	}
	if fromClient {
		s.request(p, fresh)
	} else {
		s.response(p, fresh, idle)
	}
}

// resent counts a packet that holds nothing new, when it is the looking end
// that sent it.
func (s *state) resent(p *Packet) {
	r := s.current()
	if r == nil || !p.Outgoing {
		return
	}
	segments := 1
	if s.MSS > 0 {
		segments = (p.Len + s.MSS - 1) / s.MSS
	}
	r.Retrans += segments
	r.Resent = append(r.Resent, p.TimeNS)
}

// request takes new bytes of the client in. It begins a request when a
// response was being sent and this packet acknowledges all of it.
func (s *state) request(p *Packet, fresh int64) {
	r := s.current()
	if r == nil || r.FirstOut != 0 && s.server.offset(p.Ack) >= s.server.top {
		s.Requests = append(s.Requests, Request{First: p.TimeNS})
		r = s.current()
	} else if r.FirstOut != 0 {
		r.Overlapped = true
	}
	r.Last = p.TimeNS
	r.BytesIn += fresh
}

// response takes new bytes of the server in.
func (s *state) response(p *Packet, fresh int64, idle bool) {
	r := s.current()
	if r == nil {
		s.Greeting += fresh
		return
	}
	if r.FirstOut == 0 {
		r.FirstOut = p.TimeNS
	} else if idle {
		r.Idle += p.TimeNS - s.server.ackedAt
	}
	r.LastOut, r.Acked, r.AckedWithData = p.TimeNS, 0, false
	r.BytesOut += fresh
}
