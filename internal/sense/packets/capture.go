package packets

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/slowray/slowray/internal/budget"
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

// Bounds of what is kept at once. What has a place keeps it, and is reported exactly;
// of what has none it is said how much was left out.
const (
	maxConnections = 1 << 17 // less than 1 KB each
	maxHoles       = 1 << 20 // between the bytes of all of them, 16 bytes each
	// Servers with sums of their own: so many that nobody asked anything, as those
	// that a scan for open ports finds, and as many others.
	maxServers = 4096
	// A connection without a place takes that of one that was silent for so long, ns,
	// with and without a request in progress: no server makes a client wait for longer
	// than ten minutes, and who says nothing after SYN and SYN-ACK was refused or scans.
	silentAsked = 600e9
	silentIdle  = 60e9
	silentNew   = 10e9
)

// reader cuts the connections of one capture.
type reader struct {
	opt         Options
	each        func(*observe.Request)
	sides       *sides
	connections map[pair]*connection
	holes       int // capacity for those of all connections
	counters    map[netip.AddrPort]*request.Counters
	rest        request.Counters // of servers without a place
	opened      int64
	full        bool  // a connection was left out, or forgotten while it may go on
	noSweep     int   // packets of connections without a place until the next sweep
	leftOut     int64 // packets of them
	filled      int64
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
	return read(path, opt, func(_, _ time.Time) {}, each)
}

// read calls begin with the times of the first and the last packet before anything else.
func read(path string, opt Options, begin func(first, last time.Time), each func(*observe.Request)) (*Summary, error) {
	r := &reader{
		opt: opt, each: each, sides: newSides(),
		connections: map[pair]*connection{}, counters: map[netip.AddrPort]*request.Counters{},
		rest: request.Counters{Side: observe.Served},
	}
	t, err := segments(path, r.sides.note)
	if err != nil {
		return nil, err
	}
	begin(time.Unix(0, t.first), time.Unix(0, t.last))
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
		Missing: []string{"when the application read or accepted cannot be distinguished from packets: that time is part of server"},
	}
	for _, c := range r.counters {
		s.Counters = append(s.Counters, *c)
	}
	slices.SortFunc(s.Counters, func(a, b request.Counters) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	if r.rest.Requests+r.rest.Connections > 0 {
		s.Counters = append(s.Counters, r.rest)
	}
	if r.sides.full {
		s.Missing = append(s.Missing, fmt.Sprintf("there are more than %d ends: which of those beyond serve is known by their ports alone", maxEnds))
	}
	switch {
	case budget.IsExceeded(t.truncated):
		s.Missing = append(s.Missing, fmt.Sprintf("what the file unpacks to is more than captures do (%v): read up to there", t.truncated))
	case t.truncated != nil:
		s.Missing = append(s.Missing, fmt.Sprintf("the file ends in the middle of a packet or is damaged (%v): read up to there", t.truncated))
	}
	lose := func(n int64, what string) {
		if n > 0 {
			s.Losses = append(s.Losses, observe.Loss{What: what, Count: n})
		}
	}
	lose(r.twice, "packets that were captured at a second place too, and left out")
	lose(r.unknownRTT, "requests on connections whose round trip could not be identified: their network time and late acknowledgements are not told from each other")
	lose(r.leftOut, fmt.Sprintf("packets of connections that were left out: %d are followed at a time", maxConnections))
	lose(r.filled, fmt.Sprintf("times that the holes of a connection were forgotten: there were more than %d of them at a time", maxHoles))
	for _, link := range slices.Sorted(maps.Keys(t.links)) {
		lose(t.links[link], fmt.Sprintf("packets of a link of a type that is not known (%v)", link))
	}
	return s, nil
}

func linkNames(links map[layers.LinkType]int64) string {
	s := ""
	for _, l := range slices.Sorted(maps.Keys(links)) {
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
			r.forget(k, c)
		}
		k, fromClient, c = pair{s.dst, s.src}, true, nil
	}
	if c == nil {
		if s.flags&(flagRST|flagFIN) != 0 && s.length == 0 {
			return // the end of one that was not seen
		}
		if r.full && !opening {
			r.leftOut++ // it may be one that has no place, of which the beginning is unknown
			return
		}
		if !opening && (s.flags&flagSYN != 0 || r.sides.serves(s.src, s.dst)) {
			k, fromClient = pair{s.src, s.dst}, false
		}
		if len(r.opt.Ports) > 0 && !slices.Contains(r.opt.Ports, int(k.server.Port())) {
			return
		}
		if c = r.open(k, s.timeNS); c == nil {
			r.leftOut++
			return
		}
	}
	if c.twice(s, fromClient) {
		r.twice++
		return
	}
	if c.over {
		return // what comes after the end
	}
	before := c.holes()
	c.take(s, fromClient)
	if r.holes += c.holes() - before; r.holes > maxHoles {
		r.holes -= c.holes()
		c.up.fill()
		c.down.fill()
		r.filled++
	}
	if fromClient && s.flags&flagSYN != 0 {
		n := r.of(c, false)
		n.Connections++
		c.elsewhere = n == &r.rest
	}
}

// open remembers a connection. It is nil where there is no place for it.
func (r *reader) open(k pair, now int64) *connection {
	if !r.room() {
		if r.noSweep > 0 {
			r.noSweep--
		} else {
			r.sweep(now)
		}
		if !r.room() {
			r.full = true
			return nil
		}
	}
	c := &connection{server: k.server, client: k.client, finish: r.finish}
	r.connections[k] = c
	r.opened++
	return c
}

func (r *reader) room() bool { return len(r.connections) < maxConnections }

// sweep makes room: of what is over, and of what was silent for so long that it
// probably is.
func (r *reader) sweep(now int64) {
	var silent []*connection
	for k, c := range r.connections {
		limit := int64(silentIdle)
		switch t := c.turn; {
		case t != nil && (!t.answered() || t.acked == 0):
			limit = silentAsked
		case c.seq == 0:
			limit = silentNew
		}
		switch {
		case c.over:
			r.forget(k, c)
		case now-c.lastNS > limit:
			silent = append(silent, c)
		}
	}
	slices.SortFunc(silent, compareConnections)
	for _, c := range silent {
		r.full = true
		r.drop(c)
		r.forget(pair{c.server, c.client}, c)
	}
	if len(r.connections) > maxConnections*3/4 {
		// A look at all of them is worth it again once many have asked for a place.
		r.noSweep = maxConnections / 4
	}
}

func (r *reader) forget(k pair, c *connection) {
	r.holes -= c.holes()
	delete(r.connections, k)
}

// compareConnections puts those first that were silent for longest.
func compareConnections(a, b *connection) int {
	return cmp.Or(cmp.Compare(a.lastNS, b.lastNS), a.server.Compare(b.server), a.client.Compare(b.client))
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
	slices.SortFunc(open, compareConnections)
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

// of is the sums of the end that a connection was opened to, asked once it was asked
// something: those of all others where it has no place.
func (r *reader) of(c *connection, asked bool) *request.Counters {
	n := r.counters[c.server]
	if n == nil {
		if places := map[bool]int{false: maxServers, true: 2 * maxServers}[asked]; len(r.counters) >= places {
			return &r.rest
		}
		n = &request.Counters{Side: observe.Served, Addr: c.server.Addr(), Port: c.server.Port()}
		r.counters[c.server] = n
	}
	if asked && c.elsewhere {
		n.Connections++
		r.rest.Connections--
		c.elsewhere = false
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
	if n := r.of(c, true); t.flags&observe.FlagUnfinished == 0 {
		count(n, c, q, t)
	}
	r.each(q)
}

func count(n *request.Counters, c *connection, q *observe.Request, t *turn) {
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

// Bounds of a table: how many endpoints have a place of their own, and how much their
// arrivals take, 4 bytes for each tenth of a second, and as much again in the result.
const (
	maxEndpoints  = 1536
	arrivalsBytes = 64 << 20
	arrivalsSlot  = 100 * time.Millisecond
	maxWindow     = time.Hour // of which arrivals are kept
)

// NewTable is a table for the requests of a file, of which the first and the last are
// so far apart.
func NewTable(first, last time.Time) *request.Table {
	t := request.NewTable(first)
	each := 8 * int(min(last.Sub(first), maxWindow)/arrivalsSlot)
	t.Limit(min(maxEndpoints, arrivalsBytes/max(each, 1)))
	return t
}

// TellOthers says in an Observation of a file that some endpoints have no place.
func TellOthers(o *observe.Observation) {
	n := len(o.Endpoints)
	if slices.ContainsFunc(o.Endpoints, func(e observe.Endpoint) bool { return e.Addr == request.Other }) {
		o.Gaps = append(o.Gaps, observe.Gap{Kind: observe.KindRequests, Partial: true,
			Because: fmt.Sprintf("there are more than %d servers: those beyond are summed up together", n-1)})
	}
}

// untold is why everything but requests is a gap.
const untold = "a capture of packets does not tell"

// Observe reads a capture as an Observation: its endpoints, and gaps for all else.
func Observe(path, version string, opt Options) (*observe.Observation, error) {
	var table *request.Table
	s, err := read(path, opt, func(first, last time.Time) { table = NewTable(first, last) }, func(q *observe.Request) { table.Add(q) })
	if err != nil {
		return nil, err
	}
	o := observe.Imported(&observe.Capture{File: path, Packets: s.Packets, Connections: s.Connections}, observe.Window{Start: s.Start, Seconds: s.End.Sub(s.Start).Seconds()}, untold, s.Missing)
	o.Version, o.Losses, o.Endpoints = version, s.Losses, table.Endpoints(s.End, s.Counters)
	TellOthers(o)
	if len(opt.Ports) == 1 {
		o.Filter.Port = opt.Ports[0]
	}
	return o, nil
}
