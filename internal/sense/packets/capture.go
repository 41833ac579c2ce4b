package packets

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/request"
)

// Options say what is wanted of a capture.
type Options struct {
	Ports  []int // only requests answered at these; none = all
	Labels bool  // keep method and path of HTTP/1
}

// Summary is what a capture came to.
type Summary struct {
	Start, End  time.Time // of the first and the last packet
	Packets     int64
	Connections int64
	Counters    []request.Counters // by endpoint
	Missing     []string           // what the capture could not show, one sentence each
	Losses      []observe.Loss
}

// maxConnections bounds what is remembered at once; those that were silent for
// longest are told of and forgotten first.
const maxConnections = 200_000

// reader cuts the connections of one capture.
type reader struct {
	opt         Options
	each        func(*observe.Request)
	sides       *sides
	connections map[pair]*connection
	counters    map[netip.AddrPort]*request.Counters
	opened      int64
	unknownRTT  int64
	twice       int64
	record      observe.Request
}

// pair is the two ends of a connection, the one that serves first.
type pair struct{ server, client netip.AddrPort }

// Requests reads a capture and calls each for every request in it, in the order
// in which they end. The request that each is given is valid until it returns.
// The error is for a file that is no capture, or shows no TCP.
func Requests(path string, opt Options, each func(*observe.Request)) (*Summary, error) {
	return read(path, opt, func(time.Time) {}, each)
}

// read calls begin with the time of the first packet before anything else.
func read(path string, opt Options, begin func(time.Time), each func(*observe.Request)) (*Summary, error) {
	r := &reader{
		opt: opt, each: each, sides: newSides(),
		connections: map[pair]*connection{}, counters: map[netip.AddrPort]*request.Counters{},
	}
	t, err := segments(path, r.sides.note)
	if err != nil {
		return nil, err
	}
	begin(time.Unix(0, t.first))
	t, err = segments(path, r.take)
	switch {
	case err != nil:
		return nil, err
	case t.packets == 0:
		return nil, fmt.Errorf("%s: holds no packet", path)
	case t.packets == t.other && len(t.links) > 0:
		return nil, fmt.Errorf("%s: was captured on a link of a type that is not known (%s)", path, linkNames(t.links))
	case t.packets == t.other:
		return nil, fmt.Errorf("%s: holds no TCP packet", path)
	}
	r.endAll(t.last)
	s := &Summary{
		Start: time.Unix(0, t.first), End: time.Unix(0, t.last), Packets: t.packets, Connections: r.opened,
		Missing: []string{"when the application read or accepted cannot be told from packets: that time is part of server"},
	}
	for _, c := range r.counters {
		s.Counters = append(s.Counters, *c)
	}
	slices.SortFunc(s.Counters, func(a, b request.Counters) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	if t.truncated != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the file ends in the middle of a packet or is damaged (%v): read up to there", t.truncated))
	}
	lose := func(n int64, what string) {
		if n > 0 {
			s.Losses = append(s.Losses, observe.Loss{What: what, Count: n})
		}
	}
	lose(r.twice, "packets that were captured at a second place too, and left out")
	lose(r.unknownRTT, "requests on connections whose round trip could not be told: their network time and late acknowledgements are not told from each other")
	for link, n := range t.links {
		lose(n, fmt.Sprintf("packets of a link of a type that is not known (%v)", link))
	}
	return s, nil
}

func linkNames(links map[layers.LinkType]int64) string {
	s := ""
	for l := range links {
		if s != "" {
			s += ", "
		}
		s += l.String()
	}
	return s
}

// take takes in a packet of the second reading.
func (r *reader) take(s *segment) {
	k, fromClient := pair{s.dst, s.src}, true
	c := r.connections[k]
	if c == nil {
		if other := r.connections[pair{s.src, s.dst}]; other != nil {
			k, fromClient, c = pair{s.src, s.dst}, false, other
		}
	}
	opening := s.flags&(flagSYN|flagACK) == flagSYN
	if opening && (c == nil || !fromClient || c.isn != s.seq && (c.over || c.whole || c.seq > 0)) {
		if c != nil {
			r.drop(c)
		}
		k, fromClient, c = pair{s.dst, s.src}, true, nil
	}
	if c == nil {
		if s.flags&(flagRST|flagFIN) != 0 && s.length == 0 {
			return // the end of one that was not seen
		}
		if !opening && (s.flags&flagSYN != 0 || r.sides.serves(s.src, s.dst)) {
			k, fromClient = pair{s.src, s.dst}, false
		}
		if len(r.opt.Ports) > 0 && !slices.Contains(r.opt.Ports, int(k.server.Port())) {
			return
		}
		c = r.open(k)
	}
	if c.twice(s, fromClient) {
		r.twice++
		return
	}
	if c.over {
		return // what comes after the end
	}
	c.take(s, fromClient)
	if fromClient && s.flags&flagSYN != 0 {
		r.of(c).Connections++
	}
}

// open remembers a connection.
func (r *reader) open(k pair) *connection {
	if len(r.connections) >= maxConnections {
		r.forget()
	}
	c := &connection{server: k.server, client: k.client, finish: r.finish}
	r.connections[k] = c
	r.opened++
	return c
}

// forget makes room: first of what is over, then of what was silent for longest.
func (r *reader) forget() {
	var all []*connection
	for k, c := range r.connections {
		if c.over {
			delete(r.connections, k)
		} else {
			all = append(all, c)
		}
	}
	if len(r.connections) < maxConnections*3/4 {
		return
	}
	slices.SortFunc(all, func(a, b *connection) int { return cmp.Compare(a.lastNS, b.lastNS) })
	for _, c := range all[:len(all)/4] {
		r.drop(c)
		delete(r.connections, pair{c.server, c.client})
	}
}

// drop ends a connection that is not followed any further.
func (r *reader) drop(c *connection) {
	if t := c.turn; t != nil && !t.answered() {
		t.flags |= observe.FlagUnfinished
	}
	c.done(c.lastNS)
	c.over = true
}

// endAll hands over what is still open when the capture ends.
func (r *reader) endAll(now int64) {
	open := make([]*connection, 0, len(r.connections))
	for _, c := range r.connections {
		if !c.over {
			open = append(open, c)
		}
	}
	slices.SortFunc(open, func(a, b *connection) int {
		return cmp.Or(cmp.Compare(a.lastNS, b.lastNS), a.server.Compare(b.server), a.client.Compare(b.client))
	})
	for _, c := range open {
		if c.closing[0] && c.closing[1] {
			c.end(c.lastNS, 0) // the last acknowledgement was not captured
		}
		t := c.turn
		if t != nil && (!t.answered() || t.acked == 0) {
			t.flags |= observe.FlagUnfinished
			c.done(now)
		}
		c.done(c.lastNS)
	}
}

// of is the sums of the end that a connection was opened to.
func (r *reader) of(c *connection) *request.Counters {
	n := r.counters[c.server]
	if n == nil {
		n = &request.Counters{Side: observe.Served, Addr: c.server.Addr(), Port: c.server.Port()}
		r.counters[c.server] = n
	}
	return n
}

// finish hands over a request.
func (r *reader) finish(c *connection, t *turn, now int64) {
	if c.near == 0 && c.far == 0 {
		r.unknownRTT++
	}
	q := &r.record
	*q = observe.Request{
		Side: observe.Served, StartNS: t.first, Local: c.server, Peer: c.client, Seq: c.seq, Requests: 1 + t.overlaps, Weight: 1,
		Ledger: t.ledger(c.near, now), BytesIn: t.bytesIn, BytesOut: t.bytesOut, Retrans: t.retrans,
		MinRTTNS: c.near + c.far, MSS: uint32(c.segmentSize()), Status: t.status(), HTTP: t.http, Flags: t.flags,
	}
	q.RTTNS = q.MinRTTNS
	if t.acked != 0 && t.retrans == 0 && t.stall == 0 && t.bytesOut <= 10*uint64(c.segmentSize()) {
		q.RTTNS = q.Ledger[observe.Network]
	}
	if r.opt.Labels {
		q.Label = t.label
	}
	if t.answered() && t.flags&observe.FlagOverlapped == 0 {
		q.FirstByte = max(0, t.firstOut-t.first)
	}
	if t.flags&observe.FlagTruncated != 0 {
		q.Unacked = uint32(max(0, c.down.top-c.down.acked))
	}
	if t.flags&observe.FlagUnfinished == 0 {
		r.count(c, q, t)
	}
	r.each(q)
}

func (r *reader) count(c *connection, q *observe.Request, t *turn) {
	n := r.of(c)
	n.Requests += uint64(q.Requests)
	switch q.Status {
	case observe.StatusOK:
		n.OK++
	case observe.StatusError:
		n.Errors++
	}
	if q.Flags&observe.FlagUnanswered != 0 {
		n.Unanswered++
	}
	if q.Flags&observe.FlagOverlapped != 0 {
		n.Overlapped += uint64(q.Requests)
	}
	n.BytesIn += q.BytesIn
	n.BytesOut += q.BytesOut
	n.Segments += uint64(t.segments)
	n.Retrans += uint64(q.Retrans)
	for p, ns := range q.Ledger {
		n.PartNS[p] += ns
	}
	n.SynRetrans += uint64(c.synAgain)
	c.synAgain = 0
}

// untold is why everything but requests is a gap.
const untold = "a capture of packets does not tell"

// Observe reads a capture as an Observation: its endpoints, and gaps for all else.
func Observe(path, version string, opt Options) (*observe.Observation, error) {
	var table *request.Table
	s, err := read(path, opt, func(start time.Time) { table = request.NewTable(start) }, func(q *observe.Request) { table.Add(q) })
	if err != nil {
		return nil, err
	}
	o := observe.Imported(&observe.Capture{File: path, Packets: s.Packets, Connections: s.Connections}, observe.Window{Start: s.Start, Seconds: s.End.Sub(s.Start).Seconds()}, untold, s.Missing)
	o.Version, o.Losses, o.Endpoints = version, s.Losses, table.Endpoints(s.End, s.Counters)
	if len(opt.Ports) == 1 {
		o.Filter.Port = opt.Ports[0]
	}
	return o, nil
}
