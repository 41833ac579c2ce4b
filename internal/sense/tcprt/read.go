package tcprt

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/packets"
	"github.com/slowray/slowray/internal/sense/request"
)

// Options say what is wanted of a log.
type Options struct {
	Ports []int // only requests answered at these; none = all
}

// Summary is what a log came to.
type Summary struct {
	Start, End time.Time // of the first request and the last thing told
	Lines      int64     // that were read
	Closed     int64     // connections that ended
	Counters   []request.Counters
	Missing    []string // what the log cannot tell, one sentence each
	Losses     []observe.Loss
}

// maxLine bounds a line; those of TCPRT have under 250 bytes.
const maxLine = 4096

// Recognises says whether a file is such a log, also a compressed one: among its
// first lines is one, and none before it is anything but text.
func Recognises(path string) bool {
	f, err := packets.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	r, err := packets.Unpack(f)
	if err != nil {
		return false
	}
	const some = 20 // lines: a log may begin in the middle of one
	for range some {
		text, err := next(r)
		if _, wrong := parse(text); wrong == nil {
			return true
		}
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return false
		}
	}
	return false
}

// tooLong stands for a line that is.
var tooLong = []byte("…")

// next is the next line without its newline, or tooLong. The error is that of
// reading.
func next(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		text = tooLong
		_, err = r.ReadSlice('\n')
	}
	if len(text) > maxLine {
		text = tooLong
	}
	return bytes.TrimRight(text, "\r\n"), err
}

// scan calls do for each line of a log that is one. The error is for a file that
// cannot be read; one that ends early is read as far as it goes.
func scan(path string, do func(*line)) (lines, skipped int64, cut error, err error) {
	f, err := packets.Open(path)
	if err != nil {
		return 0, 0, nil, err
	}
	defer f.Close()
	r, err := packets.Unpack(f)
	if err != nil {
		return 0, 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	for {
		text, err := next(r)
		if len(bytes.TrimSpace(text)) > 0 {
			if l, wrong := parse(text); wrong != nil {
				skipped++
			} else {
				lines++
				do(&l)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return lines, skipped, nil, nil
		case err != nil:
			return lines, skipped, err, nil
		}
	}
}

// end is one end of an endpoint.
type end struct {
	side observe.Side
	at   netip.AddrPort
}

// maxEnds bounds what is summed up apart; those beyond are counted together.
const maxEnds = 4096

// reader sums a log up.
type reader struct {
	opt    Options
	first  int64 // µs since 1970
	last   int64
	ends   map[end]*request.Counters
	ports  map[end]bool // by port alone: those that have lines of requests
	tasks  int64
	closed int64
	stats  int64
}

func (l *line) end() end {
	if l.kind == kindCalled {
		return end{observe.Called, l.peer}
	}
	return end{observe.Served, l.local}
}

// port is the end without its address: statistics know no more.
func (e end) port() end { return end{e.side, netip.AddrPortFrom(netip.Addr{}, e.at.Port())} }

func (r *reader) wants(e end) bool {
	return len(r.opt.Ports) == 0 || slices.Contains(r.opt.Ports, int(e.at.Port()))
}

// look is the first reading: when the log begins and ends, and who is in it.
func (r *reader) look(l *line) {
	until := l.startUS
	switch l.kind {
	case kindStats:
		r.stats++
		r.last = max(r.last, until)
		return
	case kindClosed:
	default:
		if !r.wants(l.end()) {
			return
		}
		r.tasks++
		r.ports[l.end().port()] = true
		if r.first == 0 || l.startUS < r.first {
			r.first = l.startUS
		}
		until += int64(l.total)
		if e := l.end(); r.ends[e] == nil && len(r.ends) < maxEnds {
			r.ends[e] = &request.Counters{Side: e.side, Addr: e.at.Addr().Unmap(), Port: e.at.Port()}
		}
	}
	r.last = max(r.last, until)
}

// count adds a request to the sums of its end.
func (r *reader) count(l *line, q *observe.Request) {
	c := r.ends[l.end()]
	if c == nil {
		return
	}
	c.Requests++
	if q.Flags&observe.FlagUnanswered != 0 {
		c.Unanswered++
	}
	c.BytesIn += q.BytesIn
	c.BytesOut += q.BytesOut
	c.Retrans += uint64(q.Retrans)
	if mss := max(uint64(q.MSS), 1); q.BytesOut > 0 {
		c.Segments += (q.BytesOut + mss - 1) / mss
	}
	c.Segments += uint64(q.Retrans)
	for p, ns := range q.Ledger {
		c.PartNS[p] += ns
	}
}

// close counts a connection that ended: whether it was served or called here is
// told by the requests on it.
func (r *reader) close(l *line) {
	for _, e := range []end{{observe.Served, l.local}, {observe.Called, l.peer}} {
		if c := r.ends[e]; c != nil {
			r.closed++
			c.Connections++
			return
		}
	}
}

// interval adds averages of a port of which there are no lines of requests.
func (r *reader) interval(l *line) {
	x := &l.stats
	side := observe.Served
	if x.called {
		side = observe.Called
	}
	e := end{side, netip.AddrPortFrom(netip.IPv4Unspecified(), x.port)}
	if r.ports[e.port()] || !r.wants(e) {
		return
	}
	c := r.ends[e]
	if c == nil {
		if len(r.ends) >= maxEnds {
			return
		}
		c = &request.Counters{Side: side, Addr: e.at.Addr(), Port: x.port}
		r.ends[e] = c
	}
	q := observe.Request{}
	m := line{kind: kindServed, total: x.total, server: x.server, transfer: x.transfer, minRTT: x.minRTT, bytesSent: x.bytesSent, bytesReceived: x.bytesIn}
	if x.drop > 0 {
		m.retrans = 1 // an average has no whole number of them
	}
	if x.called {
		m.kind = kindCalled
	}
	m.request(&q)
	c.Requests += x.count
	c.BytesIn += x.count * x.bytesIn
	c.BytesOut += x.count * x.bytesSent
	for p, ns := range q.Ledger {
		c.PartNS[p] += int64(x.count) * ns
	}
	// Segments are not told: so many as there are requests, at least.
	c.Segments += x.count
	c.Retrans += x.count * x.drop / 1000
}

// Requests reads a log and calls each for every request in it, in the order of the
// lines. The request that each is given is valid until it returns. The error is
// for a file that is no such log.
func Requests(path string, opt Options, each func(*observe.Request)) (*Summary, error) {
	return read(path, opt, func(_, _ time.Time) {}, each)
}

// read calls begin with the times of the first and the last line before anything else.
func read(path string, opt Options, begin func(first, last time.Time), each func(*observe.Request)) (*Summary, error) {
	r := &reader{opt: opt, ends: map[end]*request.Counters{}, ports: map[end]bool{}}
	lines, skipped, cut, err := scan(path, r.look)
	switch {
	case err != nil:
		return nil, err
	case lines == 0:
		return nil, fmt.Errorf("%s: is no log of TCPRT, version 6", path)
	case r.tasks == 0 && r.stats == 0:
		return nil, fmt.Errorf("%s: holds no request that was asked for", path)
	}
	if r.first == 0 { // averages alone: those of the first interval are over the minute before
		r.first = r.last
		scan(path, func(l *line) { r.first = min(r.first, l.startUS-60e6) })
	}
	start := time.UnixMicro(r.first)
	begin(start, time.UnixMicro(max(r.last, r.first)))
	var q observe.Request
	if _, _, _, err := scan(path, func(l *line) {
		switch {
		case l.kind == kindClosed:
			r.close(l)
		case l.kind == kindStats:
			r.interval(l)
		case r.wants(l.end()) && l.request(&q):
			r.count(l, &q)
			each(&q)
		}
	}); err != nil {
		return nil, err
	}
	s := &Summary{Start: start, End: time.UnixMicro(max(r.last, r.first)), Lines: lines, Closed: r.closed, Missing: []string{
		"TCPRT counts waiting in the socket and for accept() as the server's time",
		"what passed after the first byte of an answer beyond its round trips is retransmission where segments were retransmitted, and unaccounted otherwise: a pause of the application, a slow receiver or a late acknowledgement",
	}}
	for _, c := range r.ends {
		if c.Requests > 0 {
			s.Counters = append(s.Counters, *c)
		}
	}
	slices.SortFunc(s.Counters, func(a, b request.Counters) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	if cut != nil {
		s.Missing = append(s.Missing, fmt.Sprintf("the file ends early or is damaged (%v): read up to there", cut))
	}
	lose := func(n int64, what string) {
		if n > 0 {
			s.Losses = append(s.Losses, observe.Loss{What: what, Count: n})
		}
	}
	lose(skipped, "lines that are no line of TCPRT's log, or cannot be right")
	if r.tasks > 0 && r.stats > 0 {
		lose(r.stats, "lines of averages, which hold no request: used only of ports that have no line of a request")
	}
	return s, nil
}

// untold is why everything but requests is a gap.
const untold = "a log of TCPRT does not tell"

// Observe reads a log as an Observation: its endpoints, and gaps for all else.
func Observe(path, version string, opt Options) (*observe.Observation, error) {
	var table *request.Table
	s, err := read(path, opt, func(first, last time.Time) { table = packets.NewTable(first, last) }, func(q *observe.Request) { table.Add(q) })
	if err != nil {
		return nil, err
	}
	o := observe.Imported(&observe.Capture{File: path, Lines: s.Lines, Connections: s.Closed}, observe.Window{Start: s.Start, Seconds: s.End.Sub(s.Start).Seconds()}, untold, s.Missing)
	o.Version, o.Losses, o.Endpoints = version, s.Losses, table.Endpoints(s.End, s.Counters)
	packets.TellOthers(o)
	if len(opt.Ports) == 1 {
		o.Filter.Port = opt.Ports[0]
	}
	return o, nil
}
