package request_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/lab/capture"
)

// match is a request as the recorder and as the packets tell it.
type match struct {
	*observe.Request
	wire  *capture.Request
	conn  *capture.Connection
	index int // on the connection, from 0
}

// String is both on two lines, in µs from the start of the request's packets.
func (m match) String() string {
	record := "none"
	if m.Request != nil {
		record = describe(m.Request, m.wire.First)
	}
	us := func(t int64) string {
		if t == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", float64(t-m.wire.First)/1e3)
	}
	w := m.wire
	return fmt.Sprintf("  record %s\n  packets request %d of %s → %s: last in %s, first out %s, last out %s, acked %s (with data: %v) µs; %d/%d bytes, %d retransmitted, idle %.1f µs, overlapped %v; closed by client %s, server %s, reset %s",
		record, m.index+1, m.conn.Client, m.conn.Server, us(w.Last), us(w.FirstOut), us(w.LastOut), us(w.Acked), w.AckedWithData, w.BytesIn, w.BytesOut, w.Retrans, float64(w.Idle)/1e3, w.Overlapped,
		us(m.conn.ClientClosed), us(m.conn.ServerClosed), us(m.conn.Reset))
}

// describe is a record on one line.
func describe(r *observe.Request, from int64) string {
	var parts []string
	for p := range observe.NumParts {
		if r.Ledger[p] != 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f", p, float64(r.Ledger[p])/1e3))
		}
	}
	return fmt.Sprintf("%s %s ← %s seq %d start %+.1f total %.1f first byte %.1f µs [%s] bytes %d/%d retrans %d rtt %.1f/%.1f flags %v",
		r.Side, r.Local, r.Peer, r.Seq, float64(r.StartNS-from)/1e3, float64(r.TotalNS())/1e3, float64(r.FirstByte)/1e3,
		strings.Join(parts, ", "), r.BytesIn, r.BytesOut, r.Retrans, float64(r.RTTNS)/1e3, float64(r.MinRTTNS)/1e3, r.Flags.Names())
}

// ends are a record's server and client. An IPv4 address is the same however
// the socket writes it.
func ends(r *observe.Request) (server, client netip.AddrPort) {
	plain := func(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
	if r.Side == observe.Called {
		return plain(r.Peer), plain(r.Local)
	}
	return plain(r.Local), plain(r.Peer)
}

// match pairs the records of a side with the requests that the packets show.
// Each must have exactly one of the other, of as many bytes: what was reported for a
// request while it lasted does not count, and an amended record takes the place
// of the one before. Records of the servers named last are left aside.
func (tr *trial) match(side observe.Side, conns []*capture.Connection, aside ...netip.AddrPort) []match {
	type key struct{ server, client netip.AddrPort }
	records := map[key][]*observe.Request{}
	for _, r := range tr.of(side) {
		server, client := ends(r)
		if slices.Contains(aside, server) {
			continue
		}
		if r.Flags&observe.FlagUnfinished != 0 {
			tr.interim = append(tr.interim, r)
			continue
		}
		k := key{server, client}
		if last := len(records[k]) - 1; r.Flags&observe.FlagAmended != 0 && last >= 0 && records[k][last].Seq == r.Seq {
			records[k] = records[k][:last]
		}
		records[k] = append(records[k], r)
	}
	var list []match
	for _, c := range conns {
		k := key{c.Server, c.Client}
		for i := range c.Requests {
			w := &c.Requests[i]
			if len(records[k]) == 0 {
				tr.errorf("%s: a request without a record:\n%s", side, match{nil, w, c, i})
				continue
			}
			r := records[k][0]
			records[k] = records[k][1:]
			m := match{r, w, c, i}
			in, out := r.BytesIn, r.BytesOut
			if side == observe.Called {
				in, out = out, in
			}
			// Of a response that was cut short part never left the sender's
			// socket, or came too late for the receiver's.
			cut := side == observe.Served && r.Flags&observe.FlagTruncated != 0 && out > uint64(w.BytesOut) && out-uint64(r.Unacked) <= uint64(w.BytesOut) ||
				side == observe.Called && c.Reset != 0 && out > 0 && out < uint64(w.BytesOut)
			if in != uint64(w.BytesIn) || out != uint64(w.BytesOut) && !cut {
				tr.errorf("%s: bytes differ:\n%s", side, m)
			}
			list = append(list, m)
		}
	}
	for _, rest := range records {
		for _, r := range rest {
			tr.errorf("%s: a record without a request: %s", side, describe(r, r.StartNS))
		}
	}
	return list
}

// count checks how many requests a script made; the packets are checked too.
func (tr *trial) count(list []match, want int) {
	if len(list) != want {
		tr.errorf("%d requests in packets and records, the script made %d", len(list), want)
	}
}

// ledgers checks what is true of every record.
func (tr *trial) ledgers(list []match) {
	for _, m := range list {
		var wrong []string
		note := func(bad bool, format string, args ...any) {
			if bad {
				wrong = append(wrong, fmt.Sprintf(format, args...))
			}
		}
		for p, ns := range m.Ledger {
			note(ns < 0, "%s is negative", observe.Part(p))
		}
		note(m.Followed && m.Flags&observe.FlagOverlapped == 0 && m.Split.Sum() != m.Ledger[observe.Server], "parts of server: %v", m.Split)
		note(m.Weight != 1 || m.Requests < 1, "weight %d, requests %d", m.Weight, m.Requests)
		if m.Flags&(observe.FlagOverlapped|observe.FlagPreexisting) == 0 && m.conn.Opened != 0 && !m.overlappedBefore() {
			note(int(m.Seq) != m.index+1, "seq %d, want %d", m.Seq, m.index+1)
		}
		note(m.wire.FirstOut != 0 && m.wire.FirstOut != m.wire.First && m.FirstByte <= 0, "no first byte")
		if m.Side == observe.Served && m.wire.FirstOut != 0 && m.Flags&observe.FlagOverlapped == 0 {
			before := m.Ledger[observe.AcceptWait] + m.Ledger[observe.Upload] + m.Ledger[observe.RecvWait] + m.Ledger[observe.Server]
			note(abs(before-m.FirstByte) > m.Ledger[observe.Unaccounted], "parts before the first byte: %d ns, first byte %d ns", before, m.FirstByte)
		}
		if wrong != nil {
			tr.errorf("ledger: %s:\n%s", strings.Join(wrong, "; "), m)
			return // one is enough to read
		}
	}
}

// overlappedBefore says that the connection's numbers are no longer known.
func (m match) overlappedBefore() bool {
	return slices.ContainsFunc(m.conn.Requests[:m.index], func(r capture.Request) bool { return r.Overlapped })
}

// boundary is a moment of requests, told by the recorder and by a packet.
type boundary struct {
	name string
	of   func(m match) (record, packet int64, ok bool)
}

// boundaries are those of the served side. The first request of a connection
// begins with its accept wait: TestAcceptWait.
var boundaries = []boundary{
	{"start", func(m match) (int64, int64, bool) {
		return m.StartNS, m.wire.First, m.Ledger[observe.AcceptWait] == 0
	}},
	{"last request byte", func(m match) (int64, int64, bool) {
		return m.StartNS + m.Ledger[observe.Upload], m.wire.Last, m.Ledger[observe.AcceptWait] == 0
	}},
	{"first response byte", func(m match) (int64, int64, bool) {
		return m.StartNS + m.FirstByte, m.wire.FirstOut, m.wire.FirstOut != 0
	}},
	{"server's end", func(m match) (int64, int64, bool) {
		l := &m.Ledger
		return m.StartNS + l[observe.AcceptWait] + l[observe.Upload] + l[observe.RecvWait] + l[observe.Server], m.wire.FirstOut, m.wire.FirstOut != 0
	}},
	{"end", func(m match) (int64, int64, bool) {
		return m.StartNS + m.TotalNS(), m.wire.Acked, m.wire.Acked != 0 && !m.wire.AckedWithData && m.Ledger[observe.AckDelay] == 0
	}},
}

// calledBoundaries are those of the called side.
var calledBoundaries = []boundary{
	{"start", func(m match) (int64, int64, bool) { return m.StartNS, m.wire.First, true }},
	{"last request byte", func(m match) (int64, int64, bool) {
		return m.StartNS + m.Ledger[observe.Upload], m.wire.Last, true
	}},
	{"first response byte", func(m match) (int64, int64, bool) {
		return m.StartNS + m.FirstByte, m.wire.FirstOut, m.wire.FirstOut != 0
	}},
	{"last response byte", func(m match) (int64, int64, bool) {
		return m.StartNS + m.TotalNS() - m.Ledger[observe.RecvWait], m.wire.LastOut, m.wire.FirstOut != 0
	}},
}

// compare checks that the moments of requests differ from those of the packets
// by no more than the limits. At least the given number must be comparable.
func (tr *trial) compare(list []match, least int, moments []boundary) {
	tr.t.Helper()
	for _, b := range moments {
		type diff struct {
			ns int64
			m  match
		}
		var diffs []diff
		for _, m := range list {
			if record, packet, ok := b.of(m); ok && m.Flags&observe.FlagOverlapped == 0 {
				diffs = append(diffs, diff{record - packet, m})
			}
		}
		if len(diffs) < least {
			tr.errorf("%s: only %d of %d requests can be compared", b.name, len(diffs), len(list))
			continue
		}
		slices.SortFunc(diffs, func(x, y diff) int { return int(abs(x.ns) - abs(y.ns)) })
		median, p99 := diffs[len(diffs)/2], diffs[(len(diffs)*99)/100]
		tr.t.Logf("%-22s %5d requests: off by %5.1f µs at the median, %6.1f µs at p99, %6.1f µs at most",
			b.name, len(diffs), float64(median.ns)/1e3, float64(p99.ns)/1e3, float64(diffs[len(diffs)-1].ns)/1e3)
		if abs(median.ns) > int64(medianLimit) {
			tr.errorf("%s: off by %s at the median of %d (limit %s):\n%s", b.name, time.Duration(median.ns), len(diffs), medianLimit, median.m)
		}
		if abs(p99.ns) > int64(p99Limit) {
			tr.errorf("%s: off by %s at p99 of %d (limit %s):\n%s", b.name, time.Duration(p99.ns), len(diffs), p99Limit, p99.m)
		}
	}
}

// accounted checks that the time not accounted for is under 1 % at p99.
func (tr *trial) accounted(list []match) {
	shares := make([]float64, 0, len(list))
	for _, m := range list {
		if total := m.TotalNS(); total > 0 && m.Flags&observe.FlagOverlapped == 0 {
			shares = append(shares, float64(m.Ledger[observe.Unaccounted])/float64(total))
		}
	}
	if p99 := quantile(shares, 0.99); p99 >= 0.01 {
		tr.errorf("unaccounted: %.2f %% of the time at p99 of %d requests, limit 1 %%", 100*p99, len(shares))
	}
}

// quantile is the value below which a share of the values lies; 0 of none.
func quantile[T int64 | float64](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// median of what is taken from each request.
func median(list []match, of func(match) int64) time.Duration {
	values := make([]int64, 0, len(list))
	for _, m := range list {
		values = append(values, of(m))
	}
	return time.Duration(quantile(values, 0.5))
}

// part takes a part of the ledger.
func part(p observe.Part) func(match) int64 { return func(m match) int64 { return m.Ledger[p] } }

// within checks a duration against a known one.
func (tr *trial) within(what string, got, want, tolerance time.Duration) {
	tr.t.Helper()
	tr.t.Logf("%-40s %12s, known %12s ± %s", what, got, want, tolerance)
	if got < want-tolerance || got > want+tolerance {
		tr.errorf("%s: %s, known %s ± %s", what, got, want, tolerance)
	}
}

// below checks that a duration is small.
func (tr *trial) below(what string, got, limit time.Duration) {
	tr.t.Helper()
	tr.t.Logf("%-40s %12s, limit %12s", what, got, limit)
	if got < 0 || got > limit {
		tr.errorf("%s: %s, limit %s", what, got, limit)
	}
}

func abs(n int64) int64 { return max(n, -n) }
