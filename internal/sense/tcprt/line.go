package tcprt

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
)

// The kinds of lines.
const (
	kindServed = 'R' // a request that was answered
	kindCalled = 'P' // one that was sent to another service
	kindClosed = 'E' // the end of a connection
	kindNone   = 'N' // closed while the request was received
	kindCut    = 'W' // closed while the answer was sent
	kindStats  = 'S' // averages of a port
)

// line is a line of the log. Times are microseconds.
type line struct {
	kind    byte
	startUS int64 // since 1970; of stats the end of the interval
	peer    netip.AddrPort
	local   netip.AddrPort

	bytesSent, bytesReceived, unacked uint64
	total, minRTT, server, transfer   uint64 // transfer: upload, of a called one receiving the answer
	retrans, seq, mss                 uint64
	reorder                           bool
	totalOnly                         bool // of a called one: its parts are not told

	stats stats
}

// stats is averages of one port over an interval.
type stats struct {
	called                            bool
	port                              uint16
	total, server, drop, minRTT, fail uint64
	bytesSent, transfer, bytesIn      uint64
	count                             uint64
}

var (
	errForm  = errors.New("is no line of TCPRT's log, version 6")
	errValue = errors.New("has a value that cannot be right")
)

// Bounds of what can be right.
const (
	earliest   = 1_000_000_000   // s since 1970: 2001
	latest     = 4_102_444_800   // 2100
	longest    = 86_400_000_000  // µs: a day
	mostBytes  = 1 << 48         // of one request
	mostCount  = 100_000_000_000 // requests of an interval
	mostFields = 24
)

// parse reads a line without its newline.
func parse(text []byte) (line, error) {
	var fields [mostFields][]byte
	n := 0
	for f := range bytes.FieldsSeq(text) {
		if n == mostFields {
			return line{}, errForm
		}
		fields[n] = f
		n++
	}
	f := fields[:n]
	switch {
	case n >= 7 && string(f[0]) == "V6" && len(f[1]) == 1:
		return parseTask(f)
	case n >= 12 && string(f[1]) == "all":
		return parseStats(f)
	}
	return line{}, errForm
}

// want is where a field goes; nil leaves it.
type want []*uint64

func (w want) read(fields [][]byte) bool {
	if len(fields) < len(w) {
		return false
	}
	for i, into := range w {
		n, err := strconv.ParseUint(string(fields[i]), 10, 64)
		if err != nil {
			return false
		}
		if into != nil {
			*into = n
		}
	}
	return true
}

func parseTask(f [][]byte) (line, error) {
	l := line{kind: f[1][0]}
	var s, us, reorder uint64
	if !(want{&s, &us}).read(f[2:4]) {
		return l, errForm
	}
	var err [2]error
	l.peer, err[0] = netip.ParseAddrPort(string(f[4]))
	l.local, err[1] = netip.ParseAddrPort(string(f[5]))
	if err[0] != nil || err[1] != nil {
		return l, errForm
	}
	rest := f[6:]
	var w want
	switch l.kind {
	case kindServed:
		w = want{&l.bytesSent, &l.total, &l.minRTT, &l.retrans, &l.seq, &l.server, &l.transfer, &l.bytesReceived, &reorder, &l.mss}
	case kindCalled:
		// The documentation's order, or the source's, which has less.
		if w = (want{&l.bytesSent, &l.total, &l.minRTT, &l.retrans, &l.seq, &l.server, &l.transfer, &l.bytesReceived, &reorder, &l.mss}); len(rest) < len(w) {
			w, l.totalOnly = want{&l.bytesSent, &l.total, &l.retrans, &l.seq, &l.minRTT, &reorder, &l.mss}, true
		}
	case kindNone:
		w = want{&l.seq, &l.total, &l.bytesReceived, &reorder, &l.mss}
	case kindCut:
		w = want{&l.bytesSent, &l.total, &l.minRTT, &l.retrans, &l.seq, &l.server, &l.transfer, &l.unacked, &reorder, &l.mss}
	case kindClosed:
		w = want{&l.seq, &l.bytesSent, &l.unacked, &l.bytesReceived, &l.retrans, &l.minRTT}
	default:
		return l, errForm
	}
	if !w.read(rest) {
		return l, errForm
	}
	l.startUS, l.reorder = int64(s)*1e6+int64(us), reorder == 1
	if s < earliest || s > latest || us >= 1e6 || reorder > 1 || l.seq == 0 || l.seq > 1<<32-1 || l.mss > 1<<16 || l.retrans > 1<<32-1 ||
		max(l.total, l.minRTT, l.server, l.transfer) > longest || max(l.bytesSent, l.bytesReceived, l.unacked) > mostBytes {
		return l, errValue
	}
	return l, nil
}

func parseStats(f [][]byte) (line, error) {
	l := line{kind: kindStats}
	x := &l.stats
	var s uint64
	port, called := bytes.CutPrefix(f[2], []byte("P"))
	n, err := strconv.ParseUint(string(port), 10, 16)
	if err != nil || !(want{&s}).read(f[:1]) ||
		!(want{&x.total, &x.server, &x.drop, &x.minRTT, &x.fail, &x.bytesSent, &x.transfer, &x.bytesIn, &x.count}).read(f[3:]) {
		return l, errForm
	}
	x.port, x.called, l.startUS = uint16(n), called, int64(s)*1e6
	if s < earliest || s > latest || max(x.total, x.server, x.minRTT, x.transfer) > longest || x.drop > 1000 || x.fail > 1000 ||
		x.count > mostCount || max(x.bytesSent, x.bytesIn) > mostBytes {
		return l, errValue
	}
	return l, nil
}
