package packets

import (
	"net/netip"

	"github.com/slowray/slowray/internal/observe"
)

// Times by which things are distinguished, ns. They are those of the kernel side
// (internal/bpf/headers/boundary.h).
const (
	delayedACK = 35e6 // a receiver that delays its acknowledgement waits at least so long
	atOnce     = 5e6  // who closes so soon after its last byte waits for no answer
	reorderNS  = 3e6  // bytes that come so soon after later ones were overtaken, not lost
	twiceNS    = 1e6  // the same packet again within this time was captured at two places
)

// connection is a TCP connection while its packets are read.
type connection struct {
	server, client netip.AddrPort
	up, down       flow  // bytes of the client, and of the server
	near, far      int64 // the smallest round trips from here to the server and to the client, ns; 0 = not known
	syn, synAck    int64
	isn            uint32
	mss            int
	scale          [2]uint8 // of the windows of client and server
	synAgain       uint32   // SYNs and SYN-ACKs retransmitted
	whole          bool     // its SYN was captured
	elsewhere      bool     // it is counted with those of servers that have no place

	seq       uint32
	turn      *turn // going on, or complete and waiting for the next one
	zeroSince int64 // since when the client's window is closed; 0 = it is open
	closing   [2]bool
	over      bool
	lastNS    int64

	recent [8]passed // to recognise what was captured twice
	at     int
	finish func(*connection, *turn, int64)
}

// passed is a packet, as far as it tells it from others.
type passed struct {
	timeNS   int64
	seq, ack uint32
	window   uint32
	length   int
	id       uint16
	flags    uint8
	client   bool
}

// twice says whether a packet passed at another place a moment ago.
func (c *connection) twice(s *segment, fromClient bool) bool {
	p := passed{s.timeNS, s.seq, s.ack, s.window, s.length, s.id, s.flags, fromClient}
	for i := range c.recent {
		r := c.recent[i]
		age := p.timeNS - r.timeNS
		r.timeNS = p.timeNS
		// Without the number that IPv4 gives each packet, one that was really sent
		// again at once would look the same.
		if r == p && age >= 0 && (age <= twiceNS && p.id != 0 || age <= twiceNS/5) {
			return true
		}
	}
	c.recent[c.at%len(c.recent)] = p
	c.at++
	return false
}

// holes is how many holes it has memory for.
func (c *connection) holes() int { return cap(c.up.above) + cap(c.down.above) }

// take takes in a packet.
func (c *connection) take(s *segment, fromClient bool) {
	c.lastNS = max(c.lastNS, s.timeNS)
	if s.flags&flagSYN != 0 {
		c.handshake(s, fromClient)
		return
	}
	from, to := &c.down, &c.up
	if fromClient {
		from, to = to, from
	}
	if s.flags&flagRST != 0 {
		c.end(s.timeNS, observe.FlagReset)
		return
	}
	from.start(s.seq)
	if s.flags&flagACK != 0 {
		to.start(s.ack)
		c.acknowledge(s, fromClient)
	}
	if s.length > 0 {
		begin := from.at(s.seq)
		end := begin + int64(s.length)
		// A probe of a closed window, or of a connection that still lives: a byte that is there already.
		if !(s.length == 1 && end <= from.acked) {
			if fromClient {
				c.asked(s, begin, end)
			} else {
				c.answer(s, begin, end)
			}
		}
	}
	if s.flags&flagFIN != 0 {
		c.closed(s, fromClient)
	}
	// What comes between the second FIN and the acknowledgement of the answer still
	// belongs to its request.
	if c.closing[0] && c.closing[1] && (c.turn == nil || c.turn.acked != 0) {
		c.end(s.timeNS, 0)
	}
}

// handshake takes in a SYN or the answer to one.
func (c *connection) handshake(s *segment, fromClient bool) {
	if s.mss > 0 && (c.mss == 0 || s.mss < c.mss) {
		c.mss = s.mss
	}
	if fromClient {
		if c.whole && c.synAck == 0 {
			c.synAgain++
		}
		c.whole, c.isn, c.scale[0] = true, s.seq, s.scale
		c.up.start(s.seq + 1)
		c.syn = s.timeNS // of the last one: those before it had no answer
		return
	}
	if c.synAck != 0 {
		c.synAgain++
	} else if c.syn != 0 {
		c.near = max(1, s.timeNS-c.syn)
	}
	c.synAck, c.scale[1] = s.timeNS, s.scale
	c.down.start(s.seq + 1)
	c.up.start(s.ack)
}

// nearer keeps the smallest of round trips.
func nearer(least *int64, rtt int64) {
	if rtt > 0 && (*least == 0 || rtt < *least) {
		*least = rtt
	}
}

// acknowledge takes in the acknowledgement and the window of a packet.
func (c *connection) acknowledge(s *segment, fromClient bool) {
	t := c.turn
	if !fromClient {
		news := c.up.acknowledge(c.up.at(s.ack), s.timeNS)
		// With data it is the answer, which took the server's time too.
		if news && s.length == 0 && t != nil && !t.answered() && t.resentIn == 0 && c.up.acked >= c.up.top {
			nearer(&c.near, s.timeNS-t.last)
		}
		return
	}
	if c.synAck != 0 && c.far == 0 && c.synAgain == 0 && c.seq == 0 {
		c.far = max(1, s.timeNS-c.synAck)
	}
	news := c.down.acknowledge(c.down.at(s.ack), s.timeNS)
	c.window(s)
	if !news || t == nil || !t.answered() || t.acked != 0 {
		return
	}
	if t.due != 0 && c.down.acked >= t.recover {
		t.retransNS += max(0, s.timeNS-t.due)
		t.due = 0
	}
	if c.down.acked >= c.down.top {
		if s.length == 0 && t.retrans == 0 {
			nearer(&c.far, s.timeNS-t.lastOut)
		}
		c.complete(s)
		return
	}
	t.progress = s.timeNS
}

// complete notes that the client has all of the answer so far.
func (c *connection) complete(s *segment) {
	t := c.turn
	t.acked = s.timeNS
	waited := s.timeNS - max(t.lastOut, t.progress)
	if t.retransNS > 0 || c.far == 0 || waited <= c.far {
		return
	}
	if s.length > 0 || waited > c.far+delayedACK {
		t.ackDelay = waited - c.far
	}
}

// window notes since when the client lets nothing come.
func (c *connection) window(s *segment) {
	switch {
	case s.window == 0 && c.zeroSince == 0:
		c.zeroSince = s.timeNS
		if c.turn != nil && c.turn.answered() {
			c.turn.flags |= observe.FlagZeroWindow
		}
	case s.window != 0 && c.zeroSince != 0:
		if t := c.turn; t != nil && t.answered() {
			t.shut += s.timeNS - c.zeroSince
			t.flags |= observe.FlagZeroWindow
		}
		c.zeroSince = 0
	}
}

// asked takes in bytes of the client.
func (c *connection) asked(s *segment, begin, end int64) {
	a := c.up.take(begin, end, s.timeNS)
	t := c.turn
	if a.again {
		// Not acknowledged yet, and retransmitted: it was lost behind this place.
		if t != nil && !t.answered() && c.up.acked < end {
			t.resentIn = s.timeNS
			t.retrans += c.segmentsOf(s.length)
		}
		return
	}
	switch {
	case t == nil:
	case !t.answered():
		if a.filled > reorderNS {
			t.lostIn += a.filled
		} else if a.filled > 0 {
			t.flags |= observe.FlagReordered
		}
		t.last = s.timeNS
		t.bytesIn += uint64(a.fresh)
		return
	case t.http/100 == 1 && t.http != 101: // "continue": the same request goes on
		t.http, t.firstOut, t.lastOut, t.acked = 0, 0, 0, 0
		t.last = s.timeNS
		t.bytesIn += uint64(a.fresh)
		return
	case t.acked == 0: // the answer is still on its way
		t.flags |= observe.FlagOverlapped
		t.overlaps++
		t.bytesIn += uint64(a.fresh)
		return
	default:
		c.done(s.timeNS)
	}
	c.seq++
	c.turn = &turn{first: s.timeNS, last: s.timeNS, bytesIn: uint64(a.fresh), label: askedFor(s.payload)}
	if !c.whole && c.seq == 1 {
		c.turn.flags |= observe.FlagPreexisting
	}
}

// answer takes in bytes of the server.
func (c *connection) answer(s *segment, begin, end int64) {
	idle := c.down.acked >= c.down.top
	inFlight := c.down.top - c.down.acked
	a := c.down.take(begin, end, s.timeNS)
	t := c.turn
	if t == nil {
		return // a greeting: nobody asked for it
	}
	t.segments += c.segmentsOf(s.length)
	if a.again {
		c.resent(t, s, end)
		return
	}
	switch {
	case !t.answered():
		t.firstOut, t.progress = s.timeNS, s.timeNS
		t.http = httpStatus(s.payload)
	case a.filled > reorderNS: // lost before this place, and retransmitted
		t.retrans += c.segmentsOf(s.length)
		t.retransNS += a.filled
	case a.filled > 0:
		t.flags |= observe.FlagReordered
	case idle: // all that came before is acknowledged
		t.stall += max(0, s.timeNS-max(c.down.ackedNS, t.lastOut)-c.near+t.ackDelay-t.shut)
		t.ackDelay = 0
		t.progress = s.timeNS
	case t.due == 0 && c.zeroSince == 0 && c.far > 0 && inFlight < int64(2*c.segmentSize()) && s.timeNS-t.lastOut > c.near+c.far+1e6:
		// Little is in flight and the window is open: without the client's delayed
		// acknowledgement it had been idle.
		t.stall += s.timeNS - t.lastOut - c.near - c.far
		t.progress = s.timeNS
	}
	// A window that was closed kept something from being sent, as it seems now.
	t.sendWait, t.shut = t.sendWait+t.shut, 0
	t.lastOut, t.acked = s.timeNS, 0
	t.bytesOut += uint64(a.fresh)
}

// resent notes that bytes of the answer which passed here were retransmitted.
func (c *connection) resent(t *turn, s *segment, end int64) {
	t.retrans += c.segmentsOf(s.length)
	if !t.answered() || c.down.acked >= end {
		return
	}
	if t.due == 0 {
		// Without loss the acknowledgement had come a round trip after sending, or
		// right after the one before.
		t.due = min(s.timeNS, max(t.progress, t.lastOut+c.far))
	}
	t.recover = max(t.recover, end)
}

func (c *connection) segmentSize() int {
	if c.mss > 0 {
		return c.mss
	}
	return 1448
}

func (c *connection) segmentsOf(length int) uint32 {
	mss := c.segmentSize()
	return uint32((length + mss - 1) / mss)
}

// closed takes in a FIN.
func (c *connection) closed(s *segment, fromClient bool) {
	side := 0
	if !fromClient {
		side = 1
	}
	c.closing[side] = true
	t := c.turn
	switch {
	case t == nil:
	case fromClient && !t.answered():
		t.flags |= observe.FlagHalfClosed
		// Its last words, as those of TLS, MySQL and PostgreSQL: nobody waits.
		if t.label == "" && s.timeNS-t.last <= atOnce+2*(c.near+c.far) {
			c.turn = nil
		}
	case !fromClient && t.answered():
		if t.acked == 0 {
			t.flags |= observe.FlagClosed
		}
	case !fromClient:
		c.end(s.timeNS, 0)
	}
}

// end is the end of the connection while a request may be going on.
func (c *connection) end(now int64, flag observe.RequestFlags) {
	if t := c.turn; t != nil {
		switch {
		case !t.answered():
			t.flags |= flag | observe.FlagUnanswered
		case t.acked == 0:
			t.flags |= flag | observe.FlagTruncated
		}
		c.done(now)
	}
	c.over = true
}

// done hands a request over.
func (c *connection) done(now int64) {
	if c.turn != nil {
		c.finish(c, c.turn, now)
		c.turn = nil
	}
}
